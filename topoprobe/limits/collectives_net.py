"""The bound of one collective over several nodes of one kind, each with all its GPUs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from topoprobe.limits.busbw import busbw_factor
from topoprobe.limits.collectives_ground import Ground, Nvls
from topoprobe.limits.collectives_node import RINGS, Bound, no_bound, node_bound

SHARDED = ("all_reduce", "all_gather", "reduce_scatter")


class _Net(NamedTuple):
    """What leaves a node: all NICs together, a GPU's own, the slowest link and how to say it."""

    total: float
    own: float
    link: str
    text: str


def net_bound(op: str, nodes: int, placement: str, ground: Ground) -> Bound:
    """Return the bound of `op` over all GPUs of `nodes` nodes like this one.

    placement
        ``flat``: one ring over all GPUs, which leaves each node through its NICs. ``one-nic``:
        the same through a single NIC. ``rail``: each GPU talks to its counterparts through its
        own NIC, and within the node over the node's own links.
    """
    net = _net(placement, ground)
    if isinstance(net, str):
        return no_bound(net)
    inner = ground
    if placement != "rail":
        inner = replace(ground, nvls=Nvls(False, "a ring runs through all nodes"))
    inside = None
    if len(ground.gpus) > 1:
        inside = node_bound(op, ground.gpus, inner, closed=False)
    bounds = list(_bounds(op, nodes, placement, ground, net, inside))
    bounds.sort(key=lambda bound: bound.busbw or 0.0)
    lowest = bounds[0]
    doubt = ""
    if inside is not None and inside.busbw is None:
        doubt = f"; what the node itself allows is not known: {inside.unknown}"
    nvls = inside.nvls if inside is not None else False
    return lowest._replace(reason=lowest.reason + doubt, nvls=nvls)


def _net(placement: str, ground: Ground) -> _Net | str:
    """Return what leaves a node, or why that cannot be told."""
    if not ground.nics:
        return "no NIC for collectives is known"
    rates = {nic.key: nic.rate for nic in ground.nics if nic.rate is not None}
    lacking = [nic.key for nic in ground.nics if nic.rate is None]
    if lacking:
        return f"the rate of the NIC {lacking[0]} is not known"
    best = max(rates, key=lambda key: rates[key])
    if placement == "one-nic":
        return _Net(rates[best], rates[best], best, f"one NIC of {rates[best]:.4g} GB/s")
    total, number = sum(rates.values()), len(rates)
    own = {gpu: sum(rates[nic] for nic in nics) for gpu, nics in ground.rails.items()}
    if placement == "flat":
        each = max(own.values()) if own else rates[best]
        nics = f"{number} NIC{'s' if number > 1 else ''}, {total:.4g} GB/s together"
        return _Net(total, each, best, nics)
    if not own:
        return ground.unknown.get("rails", "the GPUs have no NICs of their own")
    slow = min(own, key=lambda gpu: own[gpu])
    text = f"{ground.names.get(slow, slow)}'s own NIC, {own[slow]:.4g} GB/s"
    return _Net(total, own[slow], ground.rails[slow][0], text)


def _bounds(
    op: str, nodes: int, placement: str, ground: Ground, net: _Net, inside: Bound | None
) -> list[Bound]:
    """Return every bound that holds; the lowest one counts."""
    g = len(ground.gpus)
    n = g * nodes
    found = [_through_nics(op, nodes, placement, net, g)]
    if inside is not None and inside.busbw is not None:
        scale = _scale(op, placement, g, n)
        reason = f"the node itself is the narrowest part: {inside.reason}"
        found.append(Bound(inside.busbw * scale, inside.bottleneck, reason))
    # With NVLS the bus bandwidth is more than what the wires carry.
    added = op == "all_reduce" and inside is not None and inside.nvls is not False
    if op != "sendrecv" and (op not in RINGS or placement == "rail") and not added:
        found += _through_gpus(op, ground, net)
    return found


def _scale(op: str, placement: str, g: int, n: int) -> float:
    """Return how the bus bandwidth over all nodes goes with that inside one."""
    if op in SHARDED and placement == "rail":
        # The same bytes per second (algbw), told with the factor of more ranks.
        return busbw_factor(op, n) / busbw_factor(op, g)
    # Of the n-1 parts of each GPU only g-1 stay inside.
    return (n - 1) / (g - 1) if op in ("all_to_all", "gather", "scatter") else 1.0


def _through_nics(op: str, nodes: int, placement: str, net: _Net, g: int) -> Bound:
    n = g * nodes
    if op == "sendrecv":
        return Bound(net.own, net.link, "the last GPU of a node sends to the first of the next "
                                        f"through its NIC, {net.own:.4g} GB/s")  # fmt: skip
    if op in ("gather", "scatter"):
        return Bound(
            net.total * (n - 1) / (n - g), net.link,
            f"{n - g} of the {n - 1} parts pass the NICs of the root's node, "
            f"{net.total:.4g} GB/s together",
        )  # fmt: skip
    if op == "all_to_all":
        own = net.own if placement == "rail" else net.total / g
        shared = "" if placement == "rail" else f", shared by {g} GPUs"
        return Bound(own * (n - 1) / (n - g), net.link,
                     f"{n - g} of the {n - 1} parts of each GPU leave the node through "
                     f"{net.text}{shared}")  # fmt: skip
    if placement != "rail" or op not in SHARDED:
        return Bound(net.total, net.link, "a ring over all nodes leaves each of them through its "
                                          f"NICs: {net.total:.4g} GB/s")  # fmt: skip
    return Bound(
        net.own * (n - 1) / (nodes - 1), net.link,
        f"rails: a GPU exchanges only its 1/{g} of the data with the other nodes, through "
        f"{net.text}; the bus bandwidth is ({n}−1)/({nodes}−1) times that",
    )  # fmt: skip


def _through_gpus(op: str, ground: Ground, net: _Net) -> list[Bound]:
    """Return the bound of what gets in and out of one GPU at all: NVLink and its NIC."""
    gpus: Sequence[str] = ground.gpus[:1] if op in ("gather", "scatter") else ground.gpus
    rate: Callable[[str], float | None] = lambda gpu: injection(gpu, ground, net.own)  # noqa: E731
    known = {gpu: value for gpu in gpus if (value := rate(gpu)) is not None}
    if len(known) < len(gpus):
        return []
    slow = min(known, key=lambda gpu: known[gpu])
    nvlink = slow in ground.switched or any(slow in pair for pair in ground.pairs)
    ways = "NVLink and its NIC" if nvlink else "PCIe, to GPUs and NICs"
    why = (
        f"{known[slow]:.4g} GB/s is all that {ground.names.get(slow, slow)} exchanges with the "
        f"others over {ways} together"
    )
    return [Bound(known[slow], _first_link(slow, ground) or net.link, why)]


def injection(gpu: str, ground: Ground, nic: float | None = None) -> float | None:
    """Return what a GPU can send in all: NVLink, and PCIe up to what its NIC takes (all: None).

    None where a rate is not known.
    """
    bundles = [bundle for pair, bundle in ground.pairs.items() if gpu in pair]
    bundles += [ground.switched[gpu]] if gpu in ground.switched else []
    if any(bundle.rate is None for bundle in bundles):
        return None
    nvlink = sum(bundle.rate or 0.0 for bundle in bundles)
    wire = ground.wires.get(gpu)
    pcie = wire.rate if wire else None
    if nvlink and nic is not None:
        return nvlink + min(nic, pcie if pcie is not None else nic)
    return None if pcie is None else nvlink + pcie


def _first_link(gpu: str, ground: Ground) -> str | None:
    bundles = [bundle for pair, bundle in ground.pairs.items() if gpu in pair]
    bundles += [ground.switched[gpu]] if gpu in ground.switched else []
    if bundles:
        return bundles[0].links[0]
    wire = ground.wires.get(gpu)
    return wire.link if wire else None
