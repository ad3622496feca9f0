"""The ceilings of the collectives on one node's GPUs, and over several nodes like it.

`collective_limit` tells one of them with its reason, `collective_limits` those that a report
shows. They bound the bus bandwidth as nccl-tests defines it, at sizes where latency is nothing.
"""

from collections.abc import Callable, Iterator, Sequence

from topoprobe.limits.busbw import OPS, busbw_factor
from topoprobe.limits.collectives_ground import Ground, ground_of
from topoprobe.limits.collectives_nccl import planning
from topoprobe.limits.collectives_net import net_bound
from topoprobe.limits.collectives_node import node_bound
from topoprobe.model.report import CollectiveLimit, CollectivePlacement
from topoprobe.model.terms import Term
from topoprobe.model.topology import Topology

# (SKU, operation, bytes, number of ranks, NVLS or not) → GB/s of bus bandwidth and its source.
Expected = Callable[[str | None, str, int, int, bool | None], "tuple[float, str] | None"]
# At this size published figures of healthy machines have reached their plateau.
EXPECTED_BYTES = 8 << 30
# What a report shows over several nodes; collective_limit takes any number.
NODE_COUNTS = (2, 4, 8)
_SUBSETS = (2, 4, 8, 16)


def no_figure(
    sku: str | None, op: str, size: int, ranks: int, nvls: bool | None
) -> tuple[float, str] | None:
    """Return no expected figure: what is used where no catalogue is given."""
    return None


def collective_limit(
    op: str, ranks: Sequence[str], ground: Ground, *,
    nodes: int = 1, placement: CollectivePlacement = "node",
    sku: str | None = None, expected: Expected = no_figure,
) -> CollectiveLimit:  # fmt: skip
    """Return the ceiling of `op` among the GPUs `ranks`, or over `nodes` nodes with all GPUs.

    ValueError for an operation that nccl-tests has not, and for fewer than two ranks.
    """
    world = len(ranks) * nodes
    factor = busbw_factor(op, world)
    several = nodes > 1
    bound = net_bound(op, nodes, placement, ground) if several else node_bound(op, ranks, ground)
    unknown: dict[str, str] = {}
    if bound.busbw is None:
        why = bound.unknown or "a rate is not known"
        unknown["busbw_GBps"] = unknown["algbw_GBps"] = unknown["bottleneck"] = why
    nvls = bound.nvls if op == "all_reduce" else False
    if nvls is None:
        unknown["nvls"] = ground.nvls.why
    plan, why_no_plan = planning(op, ranks, ground, nodes, placement, nvls=nvls)
    if plan is None:
        unknown["nccl_planning_GBps"] = why_no_plan
    figure = expected(sku, op, EXPECTED_BYTES, world, nvls)
    if figure is None:
        unknown["expected_GBps"] = "no figure of healthy machines of this kind is known"
    return CollectiveLimit(
        op=op, ranks=tuple(ranks), world_size=world, nodes=nodes, placement=placement,
        busbw_GBps=bound.busbw,
        algbw_GBps=None if bound.busbw is None else bound.busbw / factor,
        bottleneck=bound.bottleneck, reason=bound.reason, nvls=nvls,
        nccl_planning_GBps=plan,
        expected_GBps=figure[0] if figure else None,
        expected_source=figure[1] if figure else None,
        unknown=unknown,
    )  # fmt: skip


def collective_limits(
    topology: Topology, cuda: str | None = None, *,
    sku: str | None = None, expected: Expected = no_figure,
    node_counts: Sequence[int] = NODE_COUNTS,
) -> tuple[CollectiveLimit, ...]:  # fmt: skip
    """Return the ceilings for the sets of GPUs that matter; () where no link's rate is known.

    `cuda` is the newest CUDA version that the driver takes (NVLS depends on it).
    """
    ground = ground_of(topology, cuda)
    found = [
        collective_limit(
            op, ranks, ground, placement=placement, sku=sku, expected=expected
        )
        for placement, ranks in rank_sets(topology, ground)
        for op in OPS
    ]  # fmt: skip
    if ground.gpus and ground.nics:
        placements: list[CollectivePlacement] = ["flat"]
        if ground.rails and len(ground.gpus) > 1:
            placements.append("rail")
        found += [
            collective_limit(op, ground.gpus, ground, nodes=nodes, placement=placement,
                             sku=sku, expected=expected)
            for placement in placements for nodes in node_counts for op in OPS
        ]  # fmt: skip
    return tuple(found) if any(limit.busbw_GBps is not None for limit in found) else ()


def rank_sets(
    topology: Topology, ground: Ground
) -> Iterator[tuple[CollectivePlacement, tuple[str, ...]]]:
    """Yield sets of GPUs to tell limits for: all, islands, the first 2 to 16, a pair per class."""
    seen: set[tuple[str, ...]] = set()
    everyone = ground.gpus
    wanted: list[tuple[CollectivePlacement, tuple[str, ...]]] = [("node", everyone)]
    wanted += [
        ("island", tuple(gpu for gpu in everyone if gpu in island)) for island in topology.islands
    ]
    classes: set[str] = set()
    for path in topology.paths:
        pair = tuple(gpu for gpu in everyone if gpu in (path.a, path.b))
        if len(pair) == 2 and path.class_ and path.class_ not in classes:
            classes.add(path.class_)
            wanted.append(("pair", pair))
    wanted += [("subset", everyone[:count]) for count in _SUBSETS if count < len(everyone)]
    for placement, ranks in wanted:
        if len(ranks) > 1 and ranks not in seen:
            seen.add(ranks)
            yield placement, ranks


TERMS = (
    Term(
        "ring",
        "how NCCL moves a collective round the GPUs",
        "Each GPU sends to the next and receives from the one before, several rings at once over "
        "different links. Every GPU then sends and receives at the bus bandwidth, so a ring goes "
        "as fast as its slowest hop.",
        ("busbw bound", "NVLS"),
    ),
    Term(
        "NVLS",
        "the NVSwitches add and copy (NVLink SHARP)",
        "From Hopper on an NVSwitch can add what several GPUs send and copy a result to all of "
        "them. For an all_reduce of S bytes each of n GPUs then moves S(1+1/n) each way and not "
        "2S(n−1)/n: with B per GPU the busbw may reach 2B(n−1)/(n+1), 700 on eight H100 of 450. "
        "Needs a driver with CUDA 12.1, a fabric that is up and 5 GPUs. Only all_reduce gains.",
        ("ring", "busbw"),
    ),
    Term(
        "busbw bound",
        "the most that the links allow an operation",
        "A ceiling of the bus bandwidth from payload rates and wiring, nothing measured. Rings "
        "are bound by the NVLinks of one GPU, on PCIe by the narrowest link that a ring has to "
        "cross, all_to_all also by what passes between two halves of the GPUs. Healthy "
        "machines reach 75 to 85 % of it; the reason beside each figure names the narrowest part.",
        ("busbw", "payload", "expected", "ring"),
    ),
    Term(
        "rail-optimised",
        "each GPU has its own NIC, and equal NICs meet at one switch",
        "GPU i of every node reaches GPU i of the others over rail i alone. Data is first shared "
        "out over NVLink, so each NIC carries only its GPU's part: over k nodes with n GPUs an "
        "all_reduce may reach NIC × (n−1)/(k−1), more than all NICs of a node together. A flat "
        "ring gets no more than the sum of a node's NICs.",
        ("busbw bound", "ring"),
    ),
)  # fmt: skip
