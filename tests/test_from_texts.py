"""Texts that real programs print on synthetic machines, given with --from: the map is theirs."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.describe import expected_matrix
from testbed.made import Made, Maker
from testbed.runner import nvidia_smi, run
from topoprobe import pipeline
from topoprobe.loading import snapshot_of_texts
from topoprobe.model.errors import ParseError
from topoprobe.model.report import Report
from topoprobe.model.topology import Device, Link
from topoprobe.model.topology import Path as Way
from topoprobe.output.json import to_json

REPO = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((REPO / "docs/schema/report-1.json").read_text())
CASES = REPO.parent / "shared" / "cases"
Find = Callable[[str], str]


def report_of(text: str) -> Report:
    report = pipeline.make_report(snapshot_of_texts(text, "t.txt", "2026-01-01T00:00:00Z"))
    jsonschema.validate(json.loads(to_json(report)), SCHEMA)
    return report


def lspci(made: Made, oracle: Find, *options: str) -> str:
    bus = made.root / "sys/bus/pci"
    result = run([oracle("lspci"), "-O", f"sysfs.path={bus}", *options], {"PATH": "/usr/bin:/bin"})
    assert result.code == 0, result.errors
    return result.output


def smi(made: Made, *arguments: str) -> str:
    binary = nvidia_smi(made.machine)
    if not binary:
        pytest.skip("this nvidia-smi is not here; scripts/oracles fetches it")
    result = made.run(str(binary), *arguments)
    assert result.code == 0, result.errors
    return result.output


def devices_of(report: Report) -> dict[str, Device]:
    return {device.key: device for device in report.topology.devices}


def links_of(report: Report, kind: str) -> dict[str, Link]:
    return {link.key: link for link in report.topology.links if link.kind == kind}


def ways_of(report: Report) -> dict[tuple[str, str], Way]:
    return {(path.a, path.b): path for path in report.topology.paths}


def judged(report: Report, status: str) -> list[tuple[str, str]]:
    return [(f.id, f.subject[0]) for f in report.findings if f.status == status and f.subject]


def parent_of(described: str) -> str:
    return f"host-bridge:{described[3:]}" if described.startswith("pci") else described


def check_ways(ours: Report, theirs: Report) -> None:
    """Each class that the text tells is that of /sys; the others lack what the text lacks."""
    told, devices = ways_of(ours), devices_of(ours)
    for (a, b), path in ways_of(theirs).items():
        if b.startswith("numa:"):
            continue
        way = told.get((a, b)) or told[b, a]
        if way.class_ is None:
            assert None in (devices[a].numa, devices[b].numa), (a, b)
            assert way.unknown["class"]
        else:
            assert way.class_ == path.class_, (a, b)


@pytest.mark.oracle
@pytest.mark.parametrize("options", [("-vv", "-D"), ("-vvnn", "-D")], ids=" ".join)
def test_lspci_list_is_the_machine(made: Made, oracle: Find, options: tuple[str, ...]) -> None:
    if not made.machine.devices:
        pytest.skip("no PCI device is in it")
    report = report_of(lspci(made, oracle, *options))
    theirs = pipeline.make_report(pipeline.inspect_node(str(made.root)))

    devices, sysfs = devices_of(report), devices_of(theirs)
    for described in made.machine.devices:
        device = devices[described.address]
        assert device.parent == parent_of(described.parent), described.address
        assert device.kind == sysfs[described.address].kind, described.address
        assert device.numa == (described.node if described.node >= 0 else None)
        assert device.driver == (described.part.driver or None)
    links, theirs_links = links_of(report, "pcie"), links_of(theirs, "pcie")
    described_by = {device.address: device for device in made.machine.devices}
    for key, link in theirs_links.items():
        ours = links[key]
        assert (ours.a, ours.b) == (link.a, link.b)
        if "limited_by" not in ours.unknown or link.a is None:
            assert (ours.maximum, ours.limited_by) == (link.maximum, link.limited_by)
        else:
            # An end without the capability, or an lspci that prints "unknown" of Gen7.
            ends = [described_by[end].pcie for end in (link.a, link.b) if end]
            assert any(end is None or end.max_gen > 6 for end in ends), key
        if (pcie := described_by[key.removeprefix("pcie:")].pcie) and pcie.gen <= 6:
            assert (ours.current.generation, ours.current.width) == (pcie.gen, pcie.width)
    assert links.keys() == theirs_links.keys()
    check_ways(report, theirs)


@pytest.mark.oracle
def test_lspci_drawing_has_the_tree(made: Made, oracle: Find) -> None:
    if not made.machine.devices:
        pytest.skip("no PCI device is in it")
    report = report_of(lspci(made, oracle, "-tv"))

    devices = devices_of(report)
    for described in made.machine.devices:
        assert devices[described.address].parent == parent_of(described.parent)
    both = report_of(lspci(made, oracle, "-tv") + "\n\n" + lspci(made, oracle, "-nn", "-D"))
    theirs = pipeline.make_report(pipeline.inspect_node(str(made.root)))
    assert {d.kind for d in both.topology.devices} <= {d.kind for d in theirs.topology.devices}
    assert both.topology.conflicts == ()
    check_ways(both, theirs)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        ("pcie-width:gpu3", [("pcie-width", "0000:61:00.0")]),
        ("idle-downtrained:gpu3", []),
    ],
)
def test_narrow_is_a_fault_and_idle_is_none(
    fault: str, failing: list[tuple[str, str]], maker: Maker, oracle: Find
) -> None:
    report = report_of(lspci(maker("hgx-h100-8", fault), oracle, "-vv"))

    assert judged(report, "fail") == failing
    link = links_of(report, "pcie")["pcie:0000:61:00.0"]
    assert (link.current.width, link.limited_by) == ((8, "training") if failing else (16, None))
    # Gen5 x8 and x16 after 128b/130b: 32 GT/s x 128/130 x lanes / 8.
    assert link.limit_GBps.line == pytest.approx(31.508 if failing else 63.015, abs=0.01)


@pytest.mark.oracle
@pytest.mark.usefixtures("nvml")
def test_nvlink_status_has_every_link_and_rate(made: Made) -> None:
    expect = made.machine.expect
    if not expect or not expect.nvlinks:
        pytest.skip("no NVLink is wired")
    report = report_of(smi(made, "nvlink", "-s"))

    gpus = made.machine.nvml_gpus()
    devices = devices_of(report)
    assert list(devices) == [f"GPU{number}" for number in range(expect.gpus)]
    for device, gpu in zip(devices.values(), gpus, strict=True):
        assert (device.name, device.uuid) == (gpu.part.name, gpu.uuid)
    links = links_of(report, "nvlink")
    rate = float(expect.nvlink.split()[0])
    up = [link for link in links.values() if link.state == "up"]
    assert len(up) == expect.gpus * expect.nvlinks
    assert {link.signal_GBps for link in up} == {rate}
    assert {link.key for link in links.values() if link.a == "GPU0" and link.state == "up"} == {
        f"nvlink:GPU0:{link.index}" for link in up if link.a == "GPU0"
    }
    # The list does not say who is at the far ends.
    assert {path.class_ for path in report.topology.paths} <= {None}
    assert all(path.unknown["class"] for path in report.topology.paths)
    assert report.topology.islands == ()


@pytest.mark.oracle
@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("name", ["dgx-1v", "hgx-h100-8", "pex-multilevel", "rtx3090-pair"])
def test_all_texts_together_are_the_matrix(name: str, maker: Maker, oracle: Find) -> None:
    made = maker(name)
    text = "\n".join(
        [
            "$ nvidia-smi topo -m", smi(made, "topo", "-m"),
            "$ nvidia-smi nvlink -s", smi(made, "nvlink", "-s"),
            "$ nvidia-smi topo -p2p r", smi(made, "topo", "-p2p", "r"),
            "$ lspci -vvnn -D", lspci(made, oracle, "-vvnn", "-D"),
        ]
    )  # fmt: skip
    report = report_of(text)

    assert [s.status for s in report.sources] == ["ok"] * len(report.sources)
    devices = devices_of(report)
    gpus = made.machine.nvml_gpus()
    for number, gpu in enumerate(gpus):
        device = devices[gpu.address]
        assert (device.alias, device.name, device.uuid) == (
            f"GPU{number}", gpu.part.name, gpu.uuid,
        )  # fmt: skip
    wanted = expected_matrix(name)
    ways = ways_of(report)
    for i, a in enumerate(gpus):
        for j in range(i + 1, len(gpus)):
            way = ways[a.address, gpus[j].address]
            assert way.class_ == way.labels.nvidia_smi == wanted[1 + i][1 + j]
            assert way.p2p.get("read")
    assert report.topology.conflicts == ()
    assert judged(report, "fail") == []


@pytest.mark.oracle
@pytest.mark.usefixtures("nvml")
def test_a_matrix_that_the_links_contradict_is_a_conflict(maker: Maker) -> None:
    whole, sick = maker("hgx-h100-8"), maker("hgx-h100-8", "nvlink-down:gpu3")
    text = smi(whole, "topo", "-m") + "\n" + smi(sick, "nvlink", "-s")
    report = report_of(text)

    (conflict,) = report.topology.conflicts
    assert (conflict.subject, conflict.field) == ("GPU3", "nvlinks")
    assert conflict.values == {"nvidia-smi": "NV18", "nvidia-smi nvlink": "17 active"}
    assert conflict.used == "nvidia-smi nvlink"
    ways = ways_of(report)
    assert (ways["GPU0", "GPU3"].class_, ways["GPU0", "GPU3"].labels.nvidia_smi) == (
        "NV17", "NV18",
    )  # fmt: skip
    assert ways["GPU0", "GPU1"].class_ == "NV18"
    found = [f for f in report.findings if f.id == "source-agreement"]
    assert [f.status for f in found] == ["warn"]
    healthy = report_of(smi(whole, "topo", "-m") + "\n" + smi(whole, "nvlink", "-s"))
    assert healthy.topology.conflicts == ()


MESH = """\
GPU 0: Tesla P100 (UUID: GPU-00000000-0000-0000-0000-000000000001)
\t Link 0: Remote Device 00000000:0A:00.0: Link 1
GPU 1: Tesla P100 (UUID: GPU-00000000-0000-0000-0000-000000000002)
\t Link 1: Remote Device 00000000:06:00.0: Link 0
"""


def test_far_ends_that_lead_back_join_two_gpus() -> None:
    report = report_of(MESH)
    links = links_of(report, "nvlink")
    assert {k: (v.a, v.b) for k, v in links.items()} == {
        "nvlink:GPU0:0": ("GPU0", "GPU1"), "nvlink:GPU1:1": ("GPU1", "GPU0"),
    }  # fmt: skip
    # No state is printed by -R: that a link is wired does not say that it is up.
    assert {link.state for link in links.values()} == {"unknown"}
    status = MESH + MESH.replace("Remote Device 00000000:0A:00.0: Link 1", "20 GB/s").replace(
        "Remote Device 00000000:06:00.0: Link 0", "20 GB/s"
    )
    way = ways_of(report_of(status))["GPU0", "GPU1"]
    assert (way.class_, way.links) == ("NV1", ("nvlink:GPU0:0",))
    astray = MESH.replace("06:00.0: Link 0", "06:00.0: Link 2")
    assert links_of(report_of(astray), "nvlink")["nvlink:GPU0:0"].b == "0000:0a:00.0"


P2P = """\
$ nvidia-smi topo -p2p r
 \tGPU0\tGPU1
 GPU0\tX\tOK
 GPU1\tCNS\tX
"""


def test_p2p_text_alone() -> None:
    report = report_of(P2P)
    ways = ways_of(report)
    assert ways["GPU0", "GPU1"].p2p == {"read": "OK"}
    assert ways["GPU1", "GPU0"].p2p == {"read": "CNS"}
    assert ways["GPU0", "GPU1"].class_ is None
    assert ways["GPU0", "GPU1"].unknown["class"]
    unnamed = ways_of(report_of(P2P.split("\n", 1)[1]))["GPU0", "GPU1"]
    assert unnamed.p2p == {"unnamed": "OK"}
    assert "command line" in unnamed.unknown["p2p.unnamed"]


TWO = """\
1b:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330] (rev a1)
\tControl: I/O- Mem+ BusMaster+
\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
\tKernel driver in use: nvidia
9d:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330] (rev a1)
\tControl: I/O- Mem+ BusMaster+
\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\tLnkSta:\tSpeed 32GT/s, Width x16
\tKernel driver in use: nvidia
"""


def test_an_excerpt_without_bridges_claims_no_tree() -> None:
    report = report_of(TWO)
    devices = devices_of(report)
    assert list(devices) == ["0000:1b:00.0", "0000:9d:00.0"]
    assert devices["0000:1b:00.0"].parent is None
    assert devices["0000:1b:00.0"].unknown["parent"]
    (way,) = report.topology.paths
    assert (way.class_, way.pcie_class, way.labels.nvidia_smi, way.labels.nccl) == (None,) * 4
    link = links_of(report, "pcie")["pcie:0000:1b:00.0"]
    assert (link.a, link.current.width, link.maximum_b.width) == (None, 8, 16)
    assert (link.current.generation, link.maximum.generation) == (1, 5)
    assert judged(report, "unknown") == [("pcie-width", "0000:1b:00.0")]
    assert judged(report, "fail") == judged(report, "warn") == []
    assert {link.sources["*"] for link in report.topology.links} == {"lspci"}


def test_unequal_numbers_of_gpus_are_not_laid_over_each_other() -> None:
    report = report_of(P2P + "\n" + TWO.split("9d:00.0")[0])
    assert list(devices_of(report)) == ["0000:1b:00.0", "GPU0", "GPU1"]
    assert any("side by side" in doubt for doubt in report.topology.doubts)
    both = report_of(P2P + "\n" + TWO)
    assert [d.alias for d in both.topology.devices] == ["GPU0", "GPU1"]
    assert ways_of(both)["0000:9d:00.0", "0000:1b:00.0"].p2p == {"read": "CNS"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("hello world\n", "lspci -vv"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver", "driver"),
        ("GPU 0: NVIDIA A100 (UUID: GPU-1)\n", "nvidia-smi -L"),
    ],
)
def test_rubbish_is_one_line(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "f.txt"
    file.write_text(text)
    with pytest.raises(ParseError) as error:
        pipeline.load(str(file))
    assert str(error.value).startswith(f"{file}: ")
    assert word in str(error.value)
    assert "\n" not in str(error.value)


PIECES = st.sampled_from(
    [*TWO.splitlines(True), *MESH.splitlines(True), *P2P.splitlines(True),
     "00:00.0 Host bridge [0600]: Intel [8086:0d00]\n",
     "00:01.0 PCI bridge [0604]: Intel [8086:0d01]\n",
     "\tBus: primary=00, secondary=1b, subordinate=9d, sec-latency=0\n",
     "\tBus: primary=1b, secondary=00, subordinate=00, sec-latency=0\n",
     "-[0000:00]-+-01.0-[1b]----00.0  NVIDIA Corporation GH100 [H100]\n",
     "0000:1b:00.0/9d:00.0 3D controller: NVIDIA Corporation GH100\n",
     "0000:9d:00.0/1b:00.0 PCI bridge: NVIDIA Corporation GH100\n"]
)  # fmt: skip


@settings(deadline=None, max_examples=40)  # the first example imports what makes a report
@given(st.lists(PIECES, max_size=25))
def test_any_mixture_is_a_valid_report_or_a_parse_error(pieces: list[str]) -> None:
    try:
        report_of("".join(pieces))
    except ParseError as error:
        assert str(error).startswith("t.txt: ")


def test_a_crowd_has_no_paths() -> None:
    lines = [
        f"{bus:04x}:{slot:02x}:00.0 3D controller [0302]: NVIDIA Corporation X [10de:2330]\n"
        for bus in range(8)
        for slot in range(200)
    ]
    report = report_of("".join(lines))
    assert len(report.topology.devices) >= 1600
    assert report.topology.paths == ()
    assert any("several nodes" in doubt for doubt in report.topology.doubts)


def test_a_live_report_does_not_import_the_parsers() -> None:
    code = (
        "import sys; from topoprobe.cli import main\n"
        "main(['report', '--json', '--no-cross-check'])\n"
        "late = ('loading', 'nvlink_text', 'from_texts', 'text_kind')\n"
        "print([m for m in sys.modules if 'lspci' in m or m.endswith(late)], file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stderr.splitlines()[-1] == "[]"


STATUS_CASES = sorted(path.stem for path in (CASES / "nvlink_status").glob("*.json"))


@pytest.mark.skipif(not STATUS_CASES, reason="the folder of real cases is not here")
@pytest.mark.parametrize("name", STATUS_CASES or ["none"])
def test_nvlink_case(name: str) -> None:
    text = (CASES / "nvlink_status" / f"{name}.txt").read_bytes().decode("utf-8", "replace")
    facts = json.loads((CASES / "nvlink_status" / f"{name}.json").read_text("utf-8"))
    if facts["expect"].startswith("error") or not (
        facts["gpus"] or facts.get("errors_without_gpu")
    ):
        with pytest.raises(ParseError):
            report_of(text)
        return
    report = report_of(text)
    devices, links = devices_of(report), links_of(report, "nvlink")
    for fact in facts["gpus"]:
        label = f"GPU{fact['index']}"
        assert (devices[label].name, devices[label].uuid) == (fact["name"], fact["uuid"])
        mine = {str(k.index): k for k in links.values() if k.a == label}
        printed = {index: rate for index, rate in fact.get("links", {}).items() if rate}
        assert {i: k.signal_GBps for i, k in mine.items() if k.signal_GBps} == printed
        states = [link.state for link in mine.values()]
        assert states.count("up") == fact.get("active", 0)
        assert states.count("down") == fact.get("inactive", 0)
        for index, counters in fact.get("errors", {}).items():
            assert mine[index].errors == {n.lower(): count for n, count in counters.items()}
    lost = {str(link.index): link.errors for link in links.values() if link.a is None}
    assert lost == {
        index: {name.lower(): count for name, count in counters.items()}
        for index, counters in facts.get("errors_without_gpu", {}).items()
    }


LSPCI_CASES = sorted(path.stem for path in (CASES / "lspci").glob("*.json"))
GENERATIONS = {"2.5GT/s": 1, "5GT/s": 2, "8GT/s": 3, "16GT/s": 4, "32GT/s": 5, "64GT/s": 6}


@pytest.mark.skipif(not LSPCI_CASES, reason="the folder of real cases is not here")
@pytest.mark.parametrize("name", LSPCI_CASES or ["none"])
def test_lspci_case(name: str) -> None:
    text = (CASES / "lspci" / f"{name}.txt").read_bytes().decode("utf-8", "replace")
    facts = json.loads((CASES / "lspci" / f"{name}.json").read_text("utf-8"))
    report = report_of(text)
    devices, links = devices_of(report), links_of(report, "pcie")
    for fact in facts["devices"]:
        address = fact["address"] if fact["address"].count(":") > 1 else f"0000:{fact['address']}"
        device = devices[address]
        assert device.driver == fact.get("driver")
        assert device.numa == (int(fact["numa_node"]) if "numa_node" in fact else None)
        link = links.get(f"pcie:{address}")
        if link is None or not fact.get("sta_width"):
            continue
        assert link.maximum_b.width == fact["cap_width"]
        assert link.maximum_b.generation == GENERATIONS.get(fact["cap_speed"])
        assert link.current.width == fact["sta_width"]
        assert link.current.generation == GENERATIONS.get(fact["sta_speed"])
    if "link_without_device" in facts:
        fact = facts["link_without_device"]
        (link,) = links.values()
        assert (link.current.width, link.maximum.width) == (fact["sta_width"], fact["cap_width"])
    if "tree" in facts:
        found = {key for key in devices if key.startswith("host-bridge:")}
        assert {f"host-bridge:{root}" for root in facts["tree"]["roots"]} <= found | {
            f"host-bridge:{root}" for root in facts["tree"]["roots"] if _is_empty(text, root)
        }


def _is_empty(text: str, root: str) -> bool:
    """Tell whether nothing is drawn on a root bus."""
    return re.search(rf"\[{root}\]-\s*$", text, re.M) is not None
