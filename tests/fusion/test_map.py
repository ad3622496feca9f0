"""The map of every machine, read by the whole program inside it, equals the description."""

from collections import Counter
from collections.abc import Callable

import pytest

from testbed.describe import expected_matrix
from testbed.made import Made, Maker
from testbed.model import HIDDEN_SWITCH, Gpu
from topoprobe.model.report import Report
from topoprobe.model.topology import Device, Path

Inspect = Callable[..., Report]
# Where we say something else than nvidia-smi, and why that is right.
EXPLAINED = {
    # nvidia-smi 550 prints NV# up to 18 links only, and falls back to the PCIe class above.
    "future-4": {("NODE", "NV24"), ("SYS", "NV24")},
}


def by_alias(report: Report) -> dict[str, Device]:
    """Return devices by the label that `topo -m` has for them; old drivers print RDMA names."""
    return {d.alias or next(iter(d.rdma), d.key): d for d in report.topology.devices}


def paths_of(report: Report) -> dict[tuple[str, str], Path]:
    labels = {device.key: label for label, device in by_alias(report).items()}
    return {(labels[p.a], labels[p.b]): p for p in report.topology.paths}


def test_classes_labels_and_affinities(made: Made, inspect: Inspect) -> None:
    report = inspect(made)
    paths, devices = paths_of(report), by_alias(report)
    header, *rows = expected_matrix(made.machine.name)
    labels = [row[0] for row in rows]
    different = set()
    for number, row in enumerate(rows):
        cells = dict(zip(header[1:], row[1:], strict=False))
        for other in labels[number + 1 :]:
            path = paths[row[0], other]
            assert path.labels.nvidia_smi == cells[other], (row[0], other)
            if path.class_ != cells[other]:
                different.add((cells[other], path.class_))
        if row[0].startswith("GPU"):
            device = devices[row[0]]
            if cells["numa"].isdigit():
                assert (device.cpus, device.numa) == (cells["cpus"], int(cells["numa"]))
    assert different == EXPLAINED.get(made.machine.name, set())


def test_gpus_and_their_links(made: Made, inspect: Inspect) -> None:
    report = inspect(made)
    devices = {device.key: device for device in report.topology.devices}
    links = [link for link in report.topology.links if link.kind == "nvlink"]
    for gpu in made.machine.nvml_gpus():
        device = devices[gpu.address]
        assert (device.kind, device.alias) == ("gpu", f"GPU{gpu.index}")
        assert (device.name, device.uuid) == (gpu.part.name, gpu.uuid)
        assert device.memory_bytes == gpu.part.memory_mib << 20
        mine = [link for link in links if link.a == gpu.address]
        assert [(link.index, link.state, link.b) for link in mine] == wires(gpu)
        assert {link.signal_GBps for link in mine if link.state == "up"} <= {
            gpu.part.nvlink.mbps / 1000 if gpu.part.nvlink else 0
        }
        c2c = [
            link for link in report.topology.links if link.kind == "c2c" and link.a == device.key
        ]
        assert len(c2c) == (gpu.part.c2c.links if gpu.part.c2c else 0)
        migs = [d for d in devices.values() if d.kind == "mig" and d.parent == device.key]
        assert len(migs) == len(gpu.mig)
    assert report.topology.conflicts == () or made.machine.name in EXPLAINED
    assert report.synthetic


def wires(gpu: Gpu) -> list[tuple[int, str, str | None]]:
    """Return index, state and far end of each link as the description has it."""
    return [
        (
            number,
            "up" if link.up else "down",
            None
            if not link.up
            else "nvswitch:hidden"
            if link.remote == HIDDEN_SWITCH
            else link.remote,
        )
        for number, link in enumerate(gpu.links)
    ]


# Islands by size, planes as links of each GPU; from what is published about these boards.
JOINED = {
    "dgx-1v": ([8], []),
    "dgx-2": ([16], [{1}] * 12),
    "dgx-a100": ([8], [{2}] * 6),
    "hgx-h100-8": ([8], [{4}, {4}, {5}, {5}]),
    "hgx-b200-8": ([8], [{18}]),
    "a100-pcie-4": ([2, 2], []),
    "rtx3090-pair": ([2], []),
    "rtx4090-4": ([], []),
    "a100-mig": ([], []),
    "gh200": ([], []),
}


@pytest.mark.parametrize("name", JOINED)
def test_islands_and_planes(name: str, maker: Maker, inspect: Inspect) -> None:
    topology = inspect(maker(name)).topology
    islands, planes = JOINED[name]
    assert [len(members) for members in topology.islands] == islands
    found = sorted((set(plane.gpus.values()) for plane in topology.planes), key=max)
    assert found == planes


# NCCL's name by alias pair; the rules are those of its paths.cc, applied by hand.
NCCL = [
    ("dgx-1v", "GPU0", "GPU1", "NVL"),
    ("dgx-1v", "GPU0", "GPU5", "NVB"),  # no link between them; GPU1 has one to both
    ("dgx-a100", "GPU0", "mlx5_0", "PIX"),  # PXB for nvidia-smi: two levels of one Broadcom chip
    ("hgx-h100-8", "GPU0", "NIC0", "PIX"),
    ("hgx-h100-8", "GPU1", "NIC0", "PXN"),  # GPU0 sits beside NIC0, NVSwitch leads there
    ("gb200-tray", "GPU0", "NIC0", "P2C"),  # over C2C to the CPU that the NIC hangs on
    ("rtx4090-4", "GPU0", "GPU1", "PHB"),  # NODE for nvidia-smi; NCCL has no such class
]


@pytest.mark.parametrize(("name", "a", "b", "label"), NCCL)
def test_names_of_nccl(
    name: str, a: str, b: str, label: str, maker: Maker, inspect: Inspect
) -> None:
    report = inspect(maker(name))
    names = by_alias(report)
    keys = [
        names[n].key if n in names else next(k.key for k in names.values() if n in k.rdma)
        for n in (a, b)
    ]
    path = next(p for p in report.topology.paths if {p.a, p.b} == set(keys))
    assert path.labels.nccl == label


def test_memory_of_a_gpu_is_a_node_without_cpus(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("gb200-tray"))
    own = {
        d.key: d.parent for d in report.topology.devices if d.kind == "numa-node" and not d.cpus
    }
    assert own == {
        "numa:2": "0008:01:00.0", "numa:10": "0009:01:00.0",
        "numa:18": "0018:01:00.0", "numa:26": "0019:01:00.0",
    }  # fmt: skip
    host = [p for p in report.topology.paths if p.class_ == "C2C"]
    assert Counter(p.b for p in host) == {"numa:0": 2, "numa:1": 2}
    # Ten C2C links lead to the CPU; the x1 PCIe link of the GPU is no way for data.
    assert {len(p.links) for p in host} == {10}
    near = next(p for p in report.topology.paths if p.labels.nccl == "P2C")
    assert [key.split(":")[0] for key in near.links].count("pcie") == 1


def test_a_container_knows_its_own_gpus_and_doubts_the_rest(
    maker: Maker, inspect: Inspect
) -> None:
    report = inspect(maker("container-2-of-8"))
    gpus = [d for d in report.topology.devices if d.kind == "gpu"]
    assert sorted(d.alias or "" for d in gpus) == ["", "", "", "", "", "", "GPU0", "GPU1"]
    assert all(d.unknown["gpu"] == "NVML does not show this GPU" for d in gpus if not d.alias)
    assert any(
        "6 NVIDIA GPUs that NVML does not show" in doubt for doubt in report.topology.doubts
    )


def test_a_gpu_that_the_bus_does_not_show_is_in_the_map(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("wsl"))
    gpu = next(d for d in report.topology.devices if d.kind == "gpu")
    assert (gpu.alias, gpu.parent) == ("GPU0", None)
    assert gpu.unknown["parent"] == "/sys does not show this GPU"
    assert not any(finding.status == "fail" for finding in report.findings)
