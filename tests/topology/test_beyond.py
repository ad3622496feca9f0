"""GPU memory and networks in the map, and the rates of what works side by side."""

from pathlib import Path

import pytest

from topoprobe.limits.apply import with_limits
from topoprobe.limits.levels import levels_of
from topoprobe.limits.nvlink import payload_rate
from topoprobe.model.nic import NicPort
from topoprobe.model.topology import Topology
from topoprobe.sources.archive import read_capture
from topoprobe.sources.demos import demo_path
from topoprobe.topology.beyond import data_rate
from topoprobe.topology.build import build


def map_of(name: str) -> Topology:
    path = demo_path(name)
    return with_limits(build(read_capture(Path(path).read_bytes(), path)))


# Published: 8b/10b below FDR, FDR 54.54 of 56, the data rate from EDR on; split ports print 2X.
@pytest.mark.parametrize(
    ("rate", "label", "expected"),
    [
        (400.0, "4X NDR", 50.0), (200.0, "2X NDR", 25.0), (100.0, "4X EDR", 12.5),
        (56.0, "4X FDR", 6.8175), (40.0, "4X QDR", 4.0), (10.0, "4X SDR", 1.0),
        (100.0, None, 12.5), (None, None, None),
    ],
)  # fmt: skip
def test_data_rate(rate: float | None, label: str | None, expected: float | None) -> None:
    port = NicPort(port=1, rate_gbps=rate, rate_label=label)
    assert data_rate(port) == (None if expected is None else pytest.approx(expected, rel=1e-4))


# Lines by hand: links × the signalling rate that the driver reports, the lesser end deciding.
LEVELS = [
    ("hgx-h100-8", "NVLink 4.0 ×18", "GPU→switch", 8, 18 * 26.562),
    ("hgx-b200-8", "NVLink 5.0 ×18", "GPU→switch", 8, 18 * 53.125),
    ("dgx-a100", "NVLink 3.0 ×12", "GPU→switch", 8, 12 * 25.0),
    ("dgx-1v", "NVLink 2.0 ×2", "GPU→GPU", 16, 2 * 25.781),
    ("rtx3090-pair", "NVLink 3.1 ×4", "GPU→GPU", 2, 4 * 14.062),
    ("gb200-tray", "C2C ×10", "GPU→CPU", 4, 10 * 44.712),
    ("dgx-1v", "network 4X EDR", "NIC↔fabric", 4, 12.5),
]


@pytest.mark.parametrize(("demo", "name", "each", "count", "line"), LEVELS)
def test_levels_of_what_works_side_by_side(
    demo: str, name: str, each: str, count: int, line: float
) -> None:
    level = next(x for x in levels_of(map_of(demo)) if (x.name, x.each) == (name, each))
    assert level.count == count
    assert level.limit_GBps.line == pytest.approx(line, rel=1e-6)


# Data sheets: HBM3 of H100 SXM 3.35 TB/s, RTX 3090 936, RTX 4090 1008, L40S 864 GB/s.
@pytest.mark.parametrize(
    ("demo", "GBps"),
    [("hgx-h100-8", 3350), ("rtx3090-pair", 936), ("rtx4090-4", 1008), ("l40s-8", 864)],
)  # fmt: skip
def test_memory_by_the_formula_is_that_of_the_data_sheet(demo: str, GBps: float) -> None:  # noqa: N803
    level = next(x for x in levels_of(map_of(demo)) if x.name == "GPU memory")
    assert level.limit_GBps.line == pytest.approx(GBps, rel=0.005)


def test_a_driver_that_tells_no_bus_width_leaves_the_rate_unknown() -> None:
    # nvmlDeviceGetMemoryBusWidth came with 495; this machine has 470.
    level = next(x for x in levels_of(map_of("dgx-1v")) if x.name == "GPU memory")
    assert level.limit_GBps.line is None
    assert "no bus width" in level.unknown["limit_GBps.line"]


# Nominal data rates: 18 × 25, 12 × 25, 18 × 50, 4 × 14.0625, 10 × 45; half a rate is half of it.
@pytest.mark.parametrize(
    ("version", "signal", "mode", "rate"),
    [
        ("4.0", 26.562, None, 25.0), ("3.0", 25.0, None, 25.0), ("5.0", 53.125, "full", 50.0),
        ("3.1", 14.062, None, 14.0625), ("4.0", 13.281, None, 12.5), ("5.0", 53.125, "half", 25.0),
        ("5.0", 53.125, "3/4", 37.5), ("5.0", 53.125, "min", None), (None, 400.0, None, None),
    ],
)  # fmt: skip
def test_data_rate_of_an_nvlink(
    version: str | None, signal: float, mode: str | None, rate: float | None
) -> None:
    found = payload_rate(version, signal, mode)
    assert found == (None if rate is None else pytest.approx(rate, rel=1e-3))


@pytest.mark.parametrize(
    ("demo", "class_", "line"),
    [
        ("hgx-h100-8", "NV18", 18 * 26.562),
        ("hgx-h100-8-sick", "NV17", 17 * 26.562),  # GPU5 has a link down: the lesser end
        ("rtx3090-pair", "NV4", 4 * 14.062),
        ("gh200", "C2C", 10 * 44.712),
    ],
)
def test_a_path_is_as_fast_as_its_slowest_bundle(demo: str, class_: str, line: float) -> None:
    path = next(p for p in map_of(demo).paths if p.class_ == class_)
    assert path.limit_GBps.line == pytest.approx(line, rel=1e-6)
    assert path.bottleneck in path.links


def test_a_gpu_with_c2c_has_no_pcie_level_and_its_memory_is_named_once() -> None:
    names = [(level.name, level.each) for level in levels_of(map_of("gb200-tray"))]
    assert ("GPU memory", "GPU") in names
    assert not [name for name in names if name[1] == "GPU↔host"]
    assert [each for name, each in names if name == "DRAM"] == ["numa:0", "numa:1"]


def test_every_gpu_has_its_memory_and_every_port_its_network() -> None:
    topology = map_of("hgx-h100-8")
    memory = [d for d in topology.devices if d.kind == "memory" and "numa" not in d.key]
    assert [d.memory_bytes for d in memory] == [81559 << 20] * 8
    networks = [d.name for d in topology.devices if d.kind == "network"]
    assert sorted(filter(None, networks)) == ["Ethernet", "InfiniBand"]
    assert sum(link.kind == "network" for link in topology.links) == 12
