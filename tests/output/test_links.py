"""Tables of links: what is said of them, by whom they are limited, what deviates."""

from typing import Any

from topoprobe.model.gpu import GpuFacts
from topoprobe.model.report import Finding, Report, Tool
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.topology import Device, DeviceKind, LimitGBps, Link, Topology
from topoprobe.output.head import nvlink_summary
from topoprobe.output.links import c2c_rows, nvlink_rows, pcie_rows

GEN5, GEN1 = LinkSpeed(5, 16), LinkSpeed(1, 16)


def device(key: str, kind: DeviceKind = "gpu", alias: str | None = None, **more: Any) -> Device:
    return Device(key=key, kind=kind, alias=alias, **more)


def gpu(index: int, state: int = 0) -> Device:
    return device(
        f"0000:0{index}:00.0", alias=f"GPU{index}", gpu=GpuFacts(performance_state=state)
    )


def pcie(index: int, current: LinkSpeed = GEN5, **more: Any) -> Link:
    key = f"0000:0{index}:00.0"
    return Link(
        key=f"pcie:{key}", kind="pcie", a="port", b=key, state="up", current=current,
        maximum=GEN5, maximum_a=GEN5, maximum_b=GEN5,
        limit_GBps=LimitGBps(63.0, 57.614), **more,
    )  # fmt: skip


def nvlink(index: int, number: int, to: str | None, **more: Any) -> Link:
    given: dict[str, Any] = {"state": "up", "version": "4.0", "signal_GBps": 26.562, **more}
    return Link(
        key=f"nvlink:{index}:{number}", kind="nvlink", a=f"0000:0{index}:00.0", b=to,
        index=number, **given,
    )  # fmt: skip


def report(devices: list[Device], links: list[Link], *findings: Finding) -> Report:
    return Report(
        tool=Tool("topoprobe", "0"), created="2030-01-01T00:00:00Z", findings=findings,
        topology=Topology(
            devices=tuple(devices), links=tuple(links),
            islands=(tuple(d.key for d in devices if d.kind == "gpu"),),
        ),
    )  # fmt: skip


def cells(rows: list[tuple[tuple[str, ...], str]]) -> list[tuple[str, ...]]:
    return [row for row, _ in rows]


def test_alike_links_are_one_row_and_an_idle_one_is_no_fault() -> None:
    devices = [gpu(0), gpu(1), gpu(2, state=8), gpu(3)]
    links = [pcie(0), pcie(1), pcie(2, GEN1), pcie(3)]

    rows = pcie_rows(report(devices, links))

    assert cells(rows) == [
        ("GPU0-1, GPU3", "Gen5 x16", "Gen5 x16", "57.6", "–", ""),
        ("GPU2", "Gen1 x16", "Gen5 x16", "57.6", "–", "idle (P8)"),
    ]
    assert {style for _, style in rows} == {""}


def test_a_narrow_link_stands_alone_with_its_finding() -> None:
    narrow = pcie(1, LinkSpeed(5, 8), limited_by="training")
    finding = Finding(
        id="pcie-width", status="fail", severity="error", message="",
        subject=("0000:01:00.0", narrow.key),
    )  # fmt: skip

    rows = pcie_rows(report([gpu(0), gpu(1)], [pcie(0), narrow], finding))

    assert rows[1] == (
        ("GPU1", "Gen5 x8", "Gen5 x16", "57.6", "training", "✗ pcie-width"), "bold red",
    )  # fmt: skip


def test_who_limits_is_named_with_what_the_other_end_could() -> None:
    weak = pcie(0, limited_by="0000:00:00.0")
    lost = Link(
        key="pcie:0000:01:00.0", kind="pcie", a=None, b="0000:01:00.0",
        unknown={"limited_by": "not visible"},
    )  # fmt: skip
    port = pcie(2, limited_by="port")

    rows = pcie_rows(report([gpu(0), gpu(1), gpu(2)], [weak, lost, port]))

    assert [row[4] for row in cells(rows)] == [
        "device (port Gen5 x16)", "port not visible", "port (device Gen5 x16)",
    ]  # fmt: skip
    assert cells(rows)[1][1:4] == ("Gen? x?", "Gen? x?", "–")


def test_nvlinks_through_switches_fold_unless_one_is_down() -> None:
    switches = [device(f"0000:a{i}:00.0", "nvswitch") for i in range(2)]
    spread = [0, 0, 1]
    links = [
        nvlink(g, n, switches[spread[n]].key, **({"state": "down"} if (g, n) == (1, 2) else {}))
        for g in range(4)
        for n in range(3)
    ]
    whole = report([*(gpu(i) for i in range(4)), *switches], links)

    assert cells(nvlink_rows(whole)) == [
        ("GPU0, GPU2-3", "3/3", "4.0", "26.6", "nvswitch ×2: 2+1", ""),
        ("GPU1", "2/3", "4.0", "26.6", "nvswitch ×1: 2", "link 2 down"),
    ]
    assert nvlink_summary(whole.topology) == [
        "all 4 GPUs joined by NVSwitch, 3 × NVLink 4.0 each, but GPU1 2 × NVLink 4.0"
    ]


def test_direct_nvlinks_name_their_gpus_and_what_deviates() -> None:
    links = [
        nvlink(0, 0, "0000:01:00.0"),
        nvlink(0, 1, "0000:01:00.0", signal_GBps=13.281),
        nvlink(0, 2, "0000:02:00.0", errors={"crc_flit": 12, "replay": 0}),
        nvlink(0, 3, None, version="3.0"),
    ]

    rows = cells(nvlink_rows(report([gpu(0), gpu(1), gpu(2)], links)))

    assert rows == [
        (
            "GPU0", "4/4", "4.0", "26.6", "GPU1 ×2, GPU2 ×1, not known ×1",
            "link 1 13.3 GB/s; link 2 crc_flit 12; link 3 version 3.0",
        )
    ]  # fmt: skip


def test_a_pair_finding_marks_no_single_gpu() -> None:
    links = [nvlink(0, 0, "0000:01:00.0"), nvlink(1, 0, "0000:00:00.0")]
    pair = Finding(
        id="nvlink-symmetry", status="warn", severity="warning", message="",
        subject=("0000:00:00.0", "0000:01:00.0"),
    )  # fmt: skip

    assert [row[-1] for row in cells(nvlink_rows(report([gpu(0), gpu(1)], links, pair)))] == [
        "",
        "",
    ]


def test_chip_to_chip() -> None:
    links = [
        Link(key=f"c2c:{n}", kind="c2c", a="0000:00:00.0", b="numa:0", state="up",
             signal_GBps=44.712)
        for n in range(10)
    ]  # fmt: skip
    whole = report([gpu(0), device("numa:0", "numa-node")], links)

    assert cells(c2c_rows(whole.topology)) == [("GPU0", "10/10", "44.7", "numa:0")]
