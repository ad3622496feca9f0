"""Ceilings of collectives on the machines of the testbed, each worked out by hand.

B is what the NVLinks of one GPU carry in one direction: links x nominal rate (NVLink 2, 3 and 4:
25 GB/s, NVLink 5: 50, GA102: 14.0625). P3, P4 are the payload rates of PCIe x16.
"""

from functools import cache

import msgspec
import pytest
from msgspec.structs import replace

from topoprobe.limits.apply import with_limits
from topoprobe.limits.busbw import OPS, busbw_factor
from topoprobe.limits.collectives import collective_limit, collective_limits
from topoprobe.limits.collectives_ground import Ground, Nvls, ground_of
from topoprobe.loading import read
from topoprobe.model.report import CollectiveLimit, CollectivePlacement, Report
from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import LimitGBps, Link, Topology
from topoprobe.pipeline import load
from topoprobe.sources.demos import demo_path
from topoprobe.topology.build import build

# Gen3 x16: 16 lanes x 8 GT/s x 128/130 / 8 bits x 256/(256+24) of a packet; Gen4 is twice that.
P3 = 16 * 8 * 128 / 130 / 8 * 256 / 280
P4 = 2 * P3
NOMINAL = {"2.0": 25.0, "3.0": 25.0, "3.1": 14.0625, "4.0": 25.0, "5.0": 50.0}


def nominal(link: Link) -> Link:
    """Return an NVLink with the nominal rate of its version for payload."""
    if link.kind != "nvlink" or link.state != "up":
        return link
    rate = NOMINAL[link.version or ""]
    return replace(link, limit_GBps=LimitGBps(link.limit_GBps.line, rate, None))


@cache
def machine(name: str) -> tuple[Topology, str | None]:
    snapshot = read(demo_path(name), "2026-01-01T00:00:00Z", synthetic=True)
    assert isinstance(snapshot, Snapshot)
    topology = with_limits(build(snapshot))
    topology = replace(topology, links=tuple(nominal(link) for link in topology.links))
    return topology, snapshot.nvml.cuda if snapshot.nvml else None


@cache
def ground(name: str) -> Ground:
    return ground_of(*machine(name))


def limit(
    name: str, op: str, ranks: int | tuple[int, ...] = 0, nodes: int = 1,
    placement: CollectivePlacement = "node",
) -> CollectiveLimit:  # fmt: skip
    here = ground(name)
    numbers = tuple(range(ranks or len(here.gpus))) if isinstance(ranks, int) else ranks
    gpus = tuple(here.gpus[number] for number in numbers)
    return collective_limit(op, gpus, here, nodes=nodes, placement=placement)


# machine, operation, GPUs (a number: the first ones), GB/s of bus bandwidth
ONE_NODE: list[tuple[str, str, int | tuple[int, ...], float]] = [
    # HGX H100: 18 links to NVSwitches, B = 18 x 25 = 450. NVLS from 5 GPUs on: 2B(n-1)/(n+1).
    ("hgx-h100-8", "all_reduce", 8, 2 * 450 * 7 / 9),  # 700
    ("hgx-h100-8", "all_reduce", 7, 2 * 450 * 6 / 8),  # 675
    ("hgx-h100-8", "all_reduce", 6, 2 * 450 * 5 / 7),  # 642.9
    ("hgx-h100-8", "all_reduce", 5, 2 * 450 * 4 / 6),  # 600
    ("hgx-h100-8", "all_reduce", 4, 450),  # a ring
    ("hgx-h100-8", "all_reduce", 2, 450),
    ("hgx-h100-8", "all_gather", 8, 450),  # the switches add, but every GPU receives all the same
    ("hgx-h100-8", "reduce_scatter", 8, 450),
    ("hgx-h100-8", "broadcast", 8, 450),
    ("hgx-h100-8", "reduce", 4, 450),
    ("hgx-h100-8", "all_to_all", 8, 450),  # each GPU lets out (n-1)/n of S: busbw = B
    ("hgx-h100-8", "sendrecv", 8, 450),
    ("hgx-h100-8", "gather", 8, 450),  # the root takes in (n-1)/n of S
    ("hgx-h100-8", "scatter", 8, 450),
    # HGX B200: 18 x 50 = 900.
    ("hgx-b200-8", "all_reduce", 8, 2 * 900 * 7 / 9),  # 1400
    ("hgx-b200-8", "all_reduce", 4, 900),
    ("hgx-b200-8", "all_gather", 8, 900),
    ("hgx-b200-8", "all_to_all", 2, 900),
    # DGX A100: 12 x 25 = 300; these switches do not add.
    ("dgx-a100", "all_reduce", 8, 300),
    ("dgx-a100", "reduce_scatter", 4, 300),
    ("dgx-a100", "all_to_all", 8, 300),
    ("azure-ndv4", "all_reduce", 8, 300),  # the same board, its switches hidden
    ("azure-ndv4", "sendrecv", 2, 300),
    # DGX-2: 6 x 25 = 150 for 16 GPUs.
    ("dgx-2", "all_reduce", 16, 150),
    ("dgx-2", "all_reduce", 8, 150),
    ("dgx-2", "all_to_all", 16, 150),
    ("dgx-2", "gather", 16, 150),
    # DGX-1V, NVLinks of GPU 0: 1 to GPU1, 1 to GPU2, 2 to GPU3, 2 to GPU4. All 6 of every GPU
    # go into 3 orders of the 8 GPUs, each run both ways: 6 x 25.
    ("dgx-1v", "all_reduce", 8, 150),
    ("dgx-1v", "broadcast", 8, 150),
    # Among GPUs 0-3: pairs 03 and 12 have 2 links, so has 23; 01, 02 and 13 have 1. GPU0 and
    # GPU1 have 4 each. Orders 0-1-2-3 (pairs 01 12 23 03) and 0-2-1-3 (02 12 13 03), each over
    # one link and both ways: 4 rings, which fill GPU0.
    ("dgx-1v", "all_reduce", 4, 4 * 25),
    ("dgx-1v", "all_gather", (0, 1), 25),
    ("dgx-1v", "all_gather", (0, 3), 50),
    ("dgx-1v", "all_gather", (0, 5), P3),  # no NVLink between them, no third GPU to go through
    # Between the two halves are 6 links (04: 2, 15: 2, 26 and 37: 1), 150 GB/s. Each of 4 GPUs
    # sends 4 of its 8 parts of S/8 across: 2 S = 150 t, algbw 75, busbw 75 x 7/8.
    ("dgx-1v", "all_to_all", 8, 75 * 7 / 8),
    # GPUs 1 and 2 against 0 and 3: 01, 02, 13, 23 are 5 links. 2 x 2 parts of S/4: S = 125 t.
    ("dgx-1v", "all_to_all", 4, 125 * 3 / 4),
    ("dgx-1v", "gather", 8, 150),  # 7/8 of S into GPU0
    ("dgx-1v", "sendrecv", 8, 25),  # GPU0 to GPU1 has one link
    # Four A100 with 4 links for each pair: 3 x 4 x 25.
    ("hgx-a100-4", "all_reduce", 4, 300),
    ("hgx-a100-4", "all_reduce", 3, 200),  # 2 x 4 x 25
    ("hgx-a100-4", "all_reduce", 2, 100),
    ("hgx-a100-4", "all_to_all", 4, 300),  # each pair carries S/4 at 100: algbw 400 x 3/4
    ("hgx-a100-4", "sendrecv", 4, 100),  # one pair's links only
    # Four H100 with 6 links for each pair.
    ("hgx-h100-4", "all_reduce", 4, 450),  # 3 x 6 x 25; no switch, so no NVLS
    ("hgx-h100-4", "sendrecv", 4, 150),
    ("hgx-h100-4", "reduce", 2, 150),
    # Two pairs of A100 with 12 links each; from pair to pair there is PCIe Gen4 alone.
    ("a100-pcie-4", "all_reduce", 2, 300),
    ("a100-pcie-4", "all_reduce", (0, 2), P4),
    # A ring 0-1-2-3 goes into each pair over one GPU's PCIe and out over the other's. A second
    # ring the other way round uses what the first left: 2 x P4.
    ("a100-pcie-4", "all_gather", 4, 2 * P4),
    ("a100-pcie-4", "reduce", 3, P4),  # GPU2 has its own PCIe link only
    # 2 x 2 parts of S/4 leave a pair over its two PCIe links: S = 2 P4 t, busbw 2 P4 x 3/4.
    ("a100-pcie-4", "all_to_all", 4, 1.5 * P4),
    ("a100-pcie-4", "sendrecv", 4, P4),  # 1 to 2 and 3 to 0
    # 3090 pair: 4 x 14.0625.
    ("rtx3090-pair", "all_reduce", 2, 56.25),
    ("rtx3090-pair", "all_to_all", 2, 56.25),
    # 8 L40S, four below each Gen4 switch. A ring passes each link once each way, uplinks too.
    ("l40s-8", "all_reduce", 8, P4),
    ("l40s-8", "all_reduce", 4, P4),
    ("l40s-8", "broadcast", (0, 4), P4),
    # 4 x 4 parts of S/8 go up each uplink: 2 S = P4 t, busbw P4/2 x 7/8.
    ("l40s-8", "all_to_all", 8, P4 / 2 * 7 / 8),
    ("l40s-8", "all_to_all", 4, P4),  # below one switch no uplink is in the way
    # GPUs 0, 1 below one switch and 4, 5 below the other: 2 x 2 parts of S/4 go up: S = P4 t.
    ("l40s-8", "all_to_all", (0, 1, 4, 5), P4 * 3 / 4),
    ("l40s-8", "gather", 8, P4),  # into the root
    ("l40s-8", "sendrecv", 8, P4),
    # In the order 0 4 1 5 two GPUs of each switch send across at the same time.
    ("l40s-8", "sendrecv", (0, 4, 1, 5), P4 / 2),
    # 4 RTX 4090, each on its own root port.
    ("rtx4090-4", "all_reduce", 4, P4),
    ("rtx4090-4", "all_to_all", 4, P4),
    # 4 A100 below one chip that shows as three switches: between its parts nothing is shared.
    ("pex-multilevel", "all_reduce", 4, P4),
    ("pex-multilevel", "all_to_all", 4, P4),
    ("pex-multilevel", "scatter", 2, P4),
]  # fmt: skip

# machine, operation, nodes, placement, GB/s of bus bandwidth. n GPUs in all, g a node, k nodes.
SEVERAL: list[tuple[str, str, int, CollectivePlacement, float]] = [
    # 8 NICs of 400 Gb/s = 50 GB/s. A ring leaves a node through all of them.
    ("hgx-h100-8", "all_reduce", 2, "flat", 400),
    ("hgx-h100-8", "all_gather", 4, "flat", 400),
    ("hgx-h100-8", "broadcast", 8, "flat", 400),
    ("hgx-h100-8", "all_reduce", 2, "one-nic", 50),
    # Rails: NIC x (n-1)/(k-1). k=2 is also what NVLS inside gives: algbw 450 x 8/9 = 400,
    # busbw 400 x 2 x 15/16 = 750.
    ("hgx-h100-8", "all_reduce", 2, "rail", 50 * 15),
    ("hgx-h100-8", "all_reduce", 4, "rail", 50 * 31 / 3),
    ("hgx-h100-8", "all_reduce", 8, "rail", 50 * 63 / 7),
    # 750 by NIC. Inside, 7/8 of S come in over 450: algbw 514.3, x 15/16.
    ("hgx-h100-8", "all_gather", 2, "rail", 450 * 8 / 7 * 15 / 16),
    ("hgx-h100-8", "reduce_scatter", 8, "rail", 450),  # 50 x 63/7; inside 450 x 8/7 x 63/64
    # 8 of the 16 parts of each GPU go through its NIC: S/2 = 50 t, busbw 100 x 15/16.
    ("hgx-h100-8", "all_to_all", 2, "rail", 100 * 15 / 16),
    ("hgx-h100-8", "all_to_all", 4, "rail", 50 * 32 / 24 * 31 / 32),
    ("hgx-h100-8", "all_to_all", 2, "one-nic", 100 / 8 * 15 / 16),  # eight GPUs share the NIC
    ("hgx-h100-8", "sendrecv", 2, "rail", 50),
    # To the root: 8/15 through 8 NICs (750), all of it through its NVLinks and NIC: 450 + 50.
    ("hgx-h100-8", "gather", 2, "rail", 500),
    ("hgx-b200-8", "all_reduce", 2, "rail", 750),
    ("hgx-b200-8", "all_gather", 2, "rail", 750),  # inside 900 x 8/7 x 15/16 = 964
    ("hgx-b200-8", "all_reduce", 8, "rail", 450),
    # DGX A100: 8 x 25. By NIC 375; inside a ring, algbw 300 x 8/14, x 2 x 15/16.
    ("dgx-a100", "all_reduce", 2, "flat", 200),
    ("dgx-a100", "all_reduce", 2, "rail", 300 * 8 / 14 * 30 / 16),  # 321.4
    ("dgx-a100", "all_reduce", 4, "rail", 25 * 31 / 3),
    ("azure-ndv4", "all_reduce", 8, "rail", 25 * 63 / 7),
    ("azure-ndv4", "reduce", 3, "flat", 200),
    # 4 NICs for 4 GPUs: 50 x (7)/(1); inside 450 x 4/3 x 7/8 = 525.
    ("hgx-h100-4", "all_reduce", 2, "rail", 350),
    ("hgx-h100-4", "all_reduce", 4, "rail", 50 * 15 / 3),
    ("hgx-h100-4", "reduce_scatter", 2, "flat", 200),
    ("hgx-a100-4", "all_reduce", 2, "flat", 50),  # 2 x 200 Gb/s
    ("dgx-2", "all_gather", 2, "flat", 100),  # 8 x 100 Gb/s
    ("dgx-1v", "all_reduce", 2, "flat", 50),  # 4 x 100 Gb/s
    # 8 of 16 parts of each of 8 GPUs through 50 together: 4 S = 50 t, x 15/16.
    ("dgx-1v", "all_to_all", 2, "flat", 12.5 * 15 / 16),
    ("dgx-1v", "sendrecv", 2, "flat", 12.5),
    ("a100-pcie-4", "all_reduce", 2, "flat", 25),  # one NIC
    ("a100-pcie-4", "gather", 2, "flat", 25 * 8 / 4 * 7 / 8),  # half of S through it
    ("l40s-8", "all_reduce", 2, "flat", P4),  # NICs 50, but the ring inside
    ("pex-multilevel", "all_gather", 4, "flat", P4),
    ("pex-multilevel", "all_to_all", 2, "flat", 50 / 4 * 8 / 4 * 7 / 8),
]  # fmt: skip


@pytest.mark.parametrize(("name", "op", "ranks", "busbw"), ONE_NODE)
def test_within_a_node(name: str, op: str, ranks: int | tuple[int, ...], busbw: float) -> None:
    found = limit(name, op, ranks)

    assert found.busbw_GBps == pytest.approx(busbw, rel=1e-9)
    assert found.algbw_GBps == pytest.approx(busbw / busbw_factor(op, found.world_size), rel=1e-9)
    assert found.bottleneck in {link.key for link in machine(name)[0].links}


@pytest.mark.parametrize(("name", "op", "nodes", "placement", "busbw"), SEVERAL)
def test_over_nodes(
    name: str, op: str, nodes: int, placement: CollectivePlacement, busbw: float
) -> None:
    found = limit(name, op, nodes=nodes, placement=placement)

    assert found.busbw_GBps == pytest.approx(busbw, rel=1e-9)
    assert found.world_size == nodes * len(found.ranks)


# What has been measured on healthy machines of these kinds, at large sizes, and published.
@pytest.mark.parametrize(
    ("name", "op", "ranks", "nodes", "placement", "measured"),
    [
        ("hgx-h100-8", "all_reduce", 8, 1, "node", 482.3),  # H200, the same NVLinks
        ("hgx-h100-8", "all_reduce", 5, 1, "node", 414.2),
        ("hgx-h100-8", "all_gather", 8, 1, "node", 361.4),
        ("hgx-b200-8", "all_reduce", 8, 1, "node", 845.7),
        ("dgx-a100", "all_reduce", 8, 1, "node", 235.7),
        ("a100-pcie-4", "all_reduce", 2, 1, "node", 208.0),
        ("a100-pcie-4", "all_reduce", 4, 1, "node", 25.0),
        ("dgx-a100", "all_reduce", 8, 2, "flat", 192.0),
        ("hgx-h100-8", "all_reduce", 8, 8, "flat", 386.0),
        ("hgx-h100-8", "all_reduce", 8, 2, "rail", 487.0),
        ("hgx-b200-8", "all_reduce", 8, 4, "rail", 381.8),
    ],
)
def test_no_published_figure_is_above_its_limit(
    name: str, op: str, ranks: int, nodes: int, placement: CollectivePlacement, measured: float
) -> None:
    bound = limit(name, op, ranks, nodes, placement).busbw_GBps

    assert bound is not None and measured < bound


@pytest.mark.parametrize(
    ("name", "op", "ranks", "nodes", "planned"),
    [
        ("hgx-h100-8", "all_gather", 8, 1, 18 * 20.6),
        ("hgx-b200-8", "broadcast", 8, 1, 18 * 40.1),
        ("dgx-a100", "all_reduce", 8, 1, 12 * 20),
        ("dgx-2", "all_reduce", 16, 1, 6 * 20),
        ("dgx-1v", "all_reduce", 8, 1, 6 * 20),
        ("hgx-a100-4", "reduce", 4, 1, 12 * 20),
        ("rtx3090-pair", "all_reduce", 2, 1, 4 * 12),
        ("pex-multilevel", "all_reduce", 4, 1, 24),  # PCI width 16 x 120 / 80
        ("l40s-8", "all_reduce", 4, 1, 24),
        ("dgx-a100", "all_reduce", 8, 2, 8 * 24),  # a NIC of 25 behind PCI of 24
        ("hgx-h100-8", "all_reduce", 8, 2, 18 * 20.6),  # NICs 8 x 48, the ring inside
    ],
)
def test_what_nccl_plans(name: str, op: str, ranks: int, nodes: int, planned: float) -> None:
    placement: CollectivePlacement = "flat" if nodes > 1 else "node"

    assert limit(name, op, ranks, nodes, placement).nccl_planning_GBps == pytest.approx(planned)


@pytest.mark.parametrize(
    ("name", "op", "ranks", "why"),
    [
        ("hgx-h100-8", "all_to_all", 8, "sends and receives"),
        ("hgx-h100-8", "all_reduce", 8, "NVLS"),
        ("a100-pcie-4", "all_reduce", 4, "search"),
        ("l40s-8", "all_reduce", 8, "CPU"),
    ],
)
def test_why_nccl_has_no_plan(name: str, op: str, ranks: int, why: str) -> None:
    found = limit(name, op, ranks)

    assert found.nccl_planning_GBps is None
    assert why in found.unknown["nccl_planning_GBps"]


@pytest.mark.parametrize(
    ("name", "op", "ranks", "words"),
    [
        ("hgx-h100-8", "all_reduce", 8, ("NVLS", "450 GB/s", "1/8")),
        ("hgx-h100-8", "all_reduce", 4, ("ring", "no NVLS", "5 GPUs")),
        ("dgx-a100", "all_reduce", 8, ("12 NVLinks of 25 GB/s", "Hopper")),
        ("dgx-1v", "all_reduce", 8, ("rings", "150 GB/s")),
        ("dgx-1v", "all_to_all", 8, ("GPU4, GPU5, GPU6, GPU7", "4 × 4 of the 56 parts")),
        ("a100-pcie-4", "all_reduce", 4, ("GPU2, GPU3", "NUMA nodes may allow less")),
        ("l40s-8", "all_to_all", 8, ("pcie:0000:16:00.0", "NUMA nodes may allow less")),
        ("rtx4090-4", "all_reduce", 4, ("host bridges may allow less",)),
        ("rtx3090-pair", "all_reduce", 2, ("4 NVLinks of 14.0625 GB/s",)),
    ],
)
def test_reasons(name: str, op: str, ranks: int, words: tuple[str, ...]) -> None:
    reason = limit(name, op, ranks).reason

    assert [word for word in words if word not in reason] == []


def test_below_one_switch_the_cpu_has_no_say() -> None:
    assert "may allow less" not in limit("pex-multilevel", "all_reduce").reason


@pytest.mark.parametrize(
    ("cuda", "usable", "busbw"), [("12.1", True, 700), ("12.0", False, 450), (None, None, 700)]
)
def test_nvls_needs_a_driver_that_knows_it(
    cuda: str | None, usable: bool | None, busbw: float
) -> None:
    here = ground_of(machine("hgx-h100-8")[0], cuda)

    found = collective_limit("all_reduce", here.gpus, here)

    assert found.nvls is usable
    assert found.busbw_GBps == pytest.approx(busbw)
    assert ("nvls" in found.unknown) == (usable is None)


def test_nvls_needs_the_fabric() -> None:
    topology = machine("hgx-h100-8")[0]
    first = next(device for device in topology.devices if device.alias == "GPU0")
    assert first.gpu is not None and first.gpu.fabric is not None
    facts = replace(first.gpu, fabric=replace(first.gpu.fabric, state="in progress"))
    devices = tuple(
        replace(device, gpu=facts) if device is first else device for device in topology.devices
    )

    here = ground_of(replace(topology, devices=devices), "12.4")

    assert here.nvls == Nvls(False, "GPU0 is not registered with the NVLink fabric")


def test_gpus_without_equal_nics_have_no_rails() -> None:
    found = limit("hgx-a100-4", "all_reduce", nodes=2, placement="rail")

    assert found.busbw_GBps is None
    assert "2 NICs cannot be shared out evenly among 4 GPUs" in found.reason
    assert {"busbw_GBps", "algbw_GBps", "bottleneck"} <= set(found.unknown)


def test_each_gpu_gets_the_nics_next_to_it() -> None:
    """On HGX H100 the compute NICs are PIX from their GPUs; on p5 each GPU has four."""
    topology, _ = machine("hgx-h100-8")
    near = {(path.a, path.b) for path in topology.paths if path.class_ == "PIX"}

    for gpu, nics in ground("hgx-h100-8").rails.items():
        assert [(gpu, nic) in near for nic in nics] == [True]
    assert {len(nics) for nics in ground("aws-p5").rails.values()} == {4}
    assert limit("aws-p5", "all_reduce", nodes=4, placement="rail").busbw_GBps == pytest.approx(
        4 * 12.5 * 31 / 3
    )


def test_a_link_that_is_down_lowers_the_whole_ring() -> None:
    """GPU3 with 17 links: 425 for a ring; NVLS 2 x 425 x 7/9."""
    topology, cuda = machine("hgx-h100-8")
    gpu = ground("hgx-h100-8").gpus[3]
    links = tuple(link for link in topology.links if link.key != f"nvlink:{gpu}:0")

    here = ground_of(replace(topology, links=links), cuda)

    ring = collective_limit("all_gather", here.gpus, here)
    assert (ring.busbw_GBps, ring.bottleneck) == (425, f"nvlink:{gpu}:1")
    assert "GPU3" in ring.reason
    added = collective_limit("all_reduce", here.gpus, here).busbw_GBps
    assert added == pytest.approx(2 * 425 * 7 / 9)
    # Only the root of a gather takes everything in; GPU3 sends 1/7 of that.
    assert collective_limit("gather", here.gpus, here).busbw_GBps == 450


def test_a_narrow_uplink_bounds_the_ring() -> None:
    """Where one switch's uplink is x8, a ring over both switches gets P4/2; below it, P4."""
    topology, _ = machine("l40s-8")
    links = tuple(
        replace(link, limit_GBps=LimitGBps(None, P4 / 2, None))
        if link.key == "pcie:0000:16:00.0"
        else link
        for link in topology.links
    )

    here = ground_of(replace(topology, links=links))

    found = collective_limit("all_reduce", here.gpus, here)
    assert found.busbw_GBps == pytest.approx(P4 / 2)
    assert found.bottleneck == "pcie:0000:16:00.0"
    assert collective_limit("all_reduce", here.gpus[:4], here).busbw_GBps == pytest.approx(P4)


def test_unknown_rates_give_no_bound_and_say_which() -> None:
    topology, cuda = machine("hgx-h100-8")
    links = tuple(
        replace(link, limit_GBps=LimitGBps()) if link.kind == "nvlink" else link
        for link in topology.links
    )

    here = ground_of(replace(topology, links=links), cuda)

    for op in OPS:
        found = collective_limit(op, here.gpus, here)
        assert found.busbw_GBps is None
        assert "nvlink:0000:1b:00.0:0" in found.unknown["busbw_GBps"]
        # The NICs bound several nodes all the same; what the node allows is said to be unknown.
        net = collective_limit(op, here.gpus, here, nodes=2, placement="flat")
        assert net.busbw_GBps is not None and "not known" in net.reason


def test_expected_figures_come_from_the_catalogue_with_their_source() -> None:
    asked = []

    def catalogue(
        sku: str | None, op: str, size: int, ranks: int, nvls: bool | None
    ) -> tuple[float, str] | None:
        asked.append((sku, op, size, ranks, nvls))
        return (476.0, "a table") if op == "all_reduce" else None

    here = ground("hgx-h100-8")
    found = collective_limit("all_reduce", here.gpus, here, sku="HGX H100", expected=catalogue)
    other = collective_limit("all_gather", here.gpus, here, sku="HGX H100", expected=catalogue)

    assert (found.expected_GBps, found.expected_source) == (476.0, "a table")
    assert (other.expected_GBps, other.expected_source) == (None, None)
    assert "expected_GBps" in other.unknown and "expected_GBps" not in found.unknown
    assert asked == [
        ("HGX H100", "all_reduce", 8 << 30, 8, True),
        ("HGX H100", "all_gather", 8 << 30, 8, False),
    ]


@pytest.mark.parametrize(("op", "ranks"), [("hypercube", 2), ("all_reduce", 1)])
def test_what_nccl_tests_does_not_define(op: str, ranks: int) -> None:
    with pytest.raises(ValueError, match="bandwidth"):
        limit("hgx-h100-8", op, ranks)


def sets_of(name: str) -> dict[tuple[str, int], set[tuple[int, ...]]]:
    """Return (placement, nodes) → the sets of GPUs that a report shows, by their numbers."""
    gpus = ground(name).gpus
    found: dict[tuple[str, int], set[tuple[int, ...]]] = {}
    for entry in collective_limits(*machine(name)):
        numbers = tuple(gpus.index(gpu) for gpu in entry.ranks)
        found.setdefault((entry.placement, entry.nodes), set()).add(numbers)
    return found


def test_a_report_shows_the_sets_of_gpus_that_matter() -> None:
    assert sets_of("dgx-2") == {
        ("node", 1): {tuple(range(16))},
        ("subset", 1): {tuple(range(4)), tuple(range(8))},
        ("pair", 1): {(0, 1)},
        ("flat", 2): {tuple(range(16))},
        ("flat", 4): {tuple(range(16))},
        ("flat", 8): {tuple(range(16))},
    }
    bridged = sets_of("a100-pcie-4")
    assert bridged["island", 1] == {(0, 1), (2, 3)}
    assert bridged["pair", 1] == {(0, 2)}  # SYS; NV12 is the first island
    assert ("rail", 2) in sets_of("hgx-h100-8")
    assert sets_of("gh200").keys() == {("flat", 2), ("flat", 4), ("flat", 8)}


@pytest.mark.parametrize(
    "name", ["hgx-h100-8", "dgx-1v", "a100-pcie-4", "hgx-h100-8-gpu-lost", "l40s-8", "gb200-tray"]
)
def test_every_entry_is_whole(name: str) -> None:
    """Each figure is there or has a reason; each reason is a sentence with its numbers."""
    entries = collective_limits(*machine(name))

    assert {entry.op for entry in entries} == set(OPS)
    for entry in entries:
        for field in ("busbw_GBps", "algbw_GBps", "bottleneck", "nccl_planning_GBps",
                      "expected_GBps", "nvls"):  # fmt: skip
            assert (getattr(entry, field) is None) == (field in entry.unknown), (entry, field)
        assert "None" not in entry.reason and "inf" not in entry.reason
        assert "GB/s" in entry.reason or entry.busbw_GBps is None


def test_a_lost_gpu_leaves_the_others_their_switch() -> None:
    entries = collective_limits(*machine("hgx-h100-8-gpu-lost"))

    island = next(e for e in entries if e.placement == "island" and e.op == "all_gather")
    assert (len(island.ranks), island.busbw_GBps) == (7, 450)


def test_gpus_in_mig_mode_take_no_part() -> None:
    """One of the two A100 is divided: the other one alone has nobody to talk to."""
    assert len(ground("a100-mig").gpus) == 1
    assert collective_limits(*machine("a100-mig")) == ()


def test_the_report_holds_them() -> None:
    report = load(demo_path("l40s-8"))

    assert report.collective_limits is not None
    first = report.collective_limits[0]
    assert (first.op, first.placement) == ("all_reduce", "node")
    assert first.busbw_GBps == pytest.approx(P4)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    alone = load(demo_path("t4-single"))
    assert alone.collective_limits is None
    assert "collective_limits" in alone.unknown
