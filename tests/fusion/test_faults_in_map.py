"""What a fault changes is in the map and among the findings, and nothing else is."""

import sys
from collections.abc import Callable

import pytest
from msgspec import json

from testbed.made import Maker
from testbed.runner import library_for, nvidia_smi
from topoprobe.model.report import Finding, Report
from topoprobe.model.topology import Device, Link, Path

Inspect = Callable[..., Report]


def gpu(report: Report, index: int) -> Device:
    return next(d for d in report.topology.devices if d.alias == f"GPU{index}")


def between(report: Report, a: int, b: int) -> Path:
    keys = (gpu(report, a).key, gpu(report, b).key)
    return next(p for p in report.topology.paths if (p.a, p.b) == keys)


def link(report: Report, key: str) -> Link:
    return next(k for k in report.topology.links if k.key == key)


def bad(report: Report) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(f.id, f.status, f.subject) for f in report.findings if f.status in ("fail", "warn")]


def finding(report: Report, name: str) -> Finding:
    return next(f for f in report.findings if f.id == name and f.status != "pass")


def test_a_link_down(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("hgx-h100-8", "nvlink-down:gpu3:5"))
    assert link(report, "nvlink:0000:61:00.0:5").state == "down"
    # Our class is the smaller number; nvidia-smi prints the one of the row.
    assert [between(report, 0, 3).class_, between(report, 3, 0).class_] == ["NV17", "NV17"]
    assert between(report, 0, 3).labels.nvidia_smi == "NV18"
    assert between(report, 3, 0).labels.nvidia_smi == "NV17"
    assert between(report, 0, 1).class_ == "NV18"
    assert [name for name, *_ in bad(report)] == ["nvlink-symmetry"]
    assert "NVLinks of GPU3 are down" in str(finding(report, "nvlink-symmetry").meaning)


def test_a_direct_link_down_is_down_at_both_ends(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("rtx3090-pair", "nvlink-down:gpu0:1"))
    assert between(report, 0, 1).class_ == "NV3"
    assert len(between(report, 0, 1).links) == 3
    assert report.topology.conflicts == ()


def test_a_slow_link_and_errors_are_at_their_link(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("dgx-a100", "nvlink-slow:gpu2:4", "nvlink-errors:gpu1:3"))
    two, one = gpu(report, 2).key, gpu(report, 1).key
    assert link(report, f"nvlink:{two}:4").signal_GBps == 12.5
    assert link(report, f"nvlink:{two}:3").signal_GBps == 25.0
    assert link(report, f"nvlink:{one}:3").errors["crc_flit"] == 8741
    assert link(report, f"nvlink:{one}:4").errors["crc_flit"] == 0


def test_a_gpu_that_the_driver_does_not_show(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("dgx-a100", "gpu-missing:gpu2"))
    lost = maker("dgx-a100").machine.gpus[2].address
    assert bad(report) == [("gpu-present", "fail", (lost,))]
    # The others keep their addresses, whatever their numbers are now.
    assert sum(d.alias is not None for d in report.topology.devices if d.kind == "gpu") == 7


def test_a_lost_gpu_is_found_by_elimination(maker: Maker, inspect: Inspect) -> None:
    made = maker("dgx-a100", "gpu-lost-handle:gpu5")
    report = inspect(made)
    assert gpu(report, 5).key == made.machine.gpus[5].address
    failed = [f for f in report.findings if f.status == "fail"]
    assert [(f.id, f.subject) for f in failed] == [("gpu-answers", (gpu(report, 5).key,))]
    assert "lost" in failed[0].message
    assert between(report, 0, 5).class_ is None
    assert between(report, 0, 1).class_ == "NV12"


def test_memory_and_fabric_facts_are_at_their_gpu(maker: Maker, inspect: Inspect) -> None:
    made = maker(
        "hgx-b200-8", "ecc:gpu1:4", "remap-pending:gpu2", "throttle:gpu3",
        "fabric-unhealthy:gpu4", "fabric-pending:gpu5",
    )  # fmt: skip
    report = inspect(made)
    facts = [gpu(report, index).gpu for index in range(8)]
    assert all(f and f.ecc and f.fabric for f in facts)
    assert [f.ecc.uncorrected_volatile for f in facts if f and f.ecc] == [0, 4] + [0] * 6
    assert [f.ecc.remap_pending for f in facts if f and f.ecc] == [False] * 2 + [True] + [
        False
    ] * 5
    assert facts[3] and facts[3].throttle_reasons == ("hw-slowdown", "hw-thermal-slowdown")
    assert facts[0] and facts[0].throttle_reasons == ("idle",)
    states = [f.fabric.state for f in facts if f and f.fabric]
    assert states == ["completed"] * 5 + ["in-progress"] + ["completed"] * 2
    health = [f.fabric.health["degraded_bandwidth"] for f in facts if f and f.fabric]
    assert health[4] == "true"
    # 2 in the mask means "false": 0xAA is a healthy fabric.
    assert health[:4] == ["false"] * 4


def test_peer_access_is_kept_by_pair_and_direction(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("dgx-a100", "p2p-broken:gpu1:gpu4"))
    assert between(report, 1, 4).p2p["read"] == "CNS"
    assert between(report, 1, 4).p2p["nvlink"] == "OK"
    assert between(report, 0, 4).p2p["read"] == "OK"
    assert report.topology.conflicts == ()


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("driver-mismatch", "error", "different versions"),
        ("driver-missing", "absent", "not loaded"),
        ("gpu-lost-init", "error", "lost"),
    ],
)
def test_without_nvml_the_bus_still_is_a_map(
    fault: str, status: str, words: str, maker: Maker, inspect: Inspect
) -> None:
    report = inspect(maker("dgx-a100", fault))
    nvml = next(source for source in report.sources if source.name == "nvml")
    assert (nvml.status, words in str(nvml.detail)) == (status, True)
    gpus = [d for d in report.topology.devices if d.kind == "gpu"]
    assert len(gpus) == 8
    assert all(words in d.unknown["gpu"] for d in gpus)
    assert any("NVML was not read" in doubt for doubt in report.topology.doubts)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("smi-flood", "cut at 1 MiB"),
        ("smi-rubbish", "nvidia-smi topo -m"),
        ("smi-hang", "no answer within"),
    ],
)
def test_a_sick_nvidia_smi_costs_the_cross_check_alone(
    fault: str, words: str, maker: Maker, inspect: Inspect
) -> None:
    report = inspect(maker("rtx3090-pair", fault), "--deadline", "2")
    smi = next(source for source in report.sources if source.name == "nvidia-smi")
    assert words in str(smi.detail)
    assert between(report, 0, 1).class_ == "NV4"
    assert bad(report) == [
        ("pcie-width", "warn", f.subject)
        for f in report.findings
        if f.id == "pcie-width" and f.status == "warn"
    ]


def test_sources_that_disagree_are_named_with_what_was_used(
    maker: Maker, inspect: Inspect
) -> None:
    # nvidia-smi 550 has no word for 24 links and prints the PCIe class.
    report = inspect(maker("future-4"))
    found = finding(report, "source-agreement")
    assert found.status == "warn"
    assert {(e.source, e.value) for e in found.evidence} <= {
        ("nvidia-smi", "NODE"), ("nvidia-smi", "SYS"), ("nvml", "NV24"),
    }  # fmt: skip
    assert "used nvml" in found.message


def test_a_cold_driver_is_told_from_one_that_hangs(maker: Maker, inspect: Inspect) -> None:
    cold = inspect(maker("rtx3090-pair", "driver-cold:30"), "--deadline", "2")
    detail = next(source.detail for source in cold.sources if source.name == "nvml")
    assert "the driver is cold" in str(detail)
    assert "--deadline 90" in str(detail)
    hung = inspect(maker("rtx3090-pair", "nvml-call:nvmlInit*:hang"), "--deadline", "2")
    detail = next(source.detail for source in hung.sources if source.name == "nvml")
    assert "NVML did not answer (nvmlInit)" in str(detail)
    assert "cold" not in str(detail)


def test_a_cold_driver_is_waited_for_within_the_deadline(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("rtx3090-pair", "driver-cold:1"), "--deadline", "9")
    assert between(report, 0, 1).class_ == "NV4"


def test_who_computes_on_a_gpu_is_named(maker: Maker, inspect: Inspect) -> None:
    report = inspect(maker("rtx3090-pair", "gpu-busy:gpu1"))
    busy, idle = gpu(report, 1).gpu, gpu(report, 0).gpu
    assert idle and idle.processes == ()
    assert busy and busy.processes
    process = busy.processes[0]
    assert (process.pid, process.kind, process.memory_bytes) == (4242, "compute", 20 << 30)


def test_nvidia_smi_stands_in_where_the_library_cannot_be_used(
    maker: Maker, inspect: Inspect
) -> None:
    made = maker("rtx3090-pair")
    binary = nvidia_smi(made.machine)
    if not binary:
        pytest.skip("nvidia-smi is not here; scripts/oracles fetches it")
    # A wrapper that finds the library where nobody else does, as in some containers.
    folder = made.root / "usr/bin"
    folder.mkdir(parents=True, exist_ok=True)
    library = library_for(made.machine)
    script = folder / "nvidia-smi"
    script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={library} exec {binary} "$@"\n')
    script.chmod(0o755)
    command = (sys.executable, "-m", "topoprobe", "report", "--json", "--no-cross-check")
    result = made.run("env", "-u", "LD_LIBRARY_PATH", *command)
    report = json.decode(result.output, type=Report)
    nvml = next(source for source in report.sources if source.name == "nvml")
    assert (nvml.status, "libnvidia-ml.so.1 was not found" in str(nvml.detail)) == ("absent", True)
    path = next(p for p in report.topology.paths if p.labels.nvidia_smi == "NV4")
    assert (path.class_, path.sources["class"]) == ("NV4", "nvidia-smi")
    numbered = {device.key for device in report.topology.devices if device.alias}
    assert numbered == {gpu.address for gpu in made.machine.gpus}
