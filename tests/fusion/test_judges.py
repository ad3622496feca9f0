"""Every machine against all programs that judge it; what differs is explained, or a fault.

`scripts/full judges` holds every fault on two machines against them too, and writes
docs/oracles.md; `scripts/full faults` every fault on every machine. Here is a sample of those.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from testbed.describe import machine_names
from testbed.judges import Cell, Seen, see
from testbed.judges_description import judge as description
from testbed.judges_explained import EXPLAINED, explain
from testbed.judges_page import page
from testbed.judges_pci import lspci
from testbed.judges_run import Verdict, faults_in, faulty_machine, missing, whole_machine
from testbed.judges_smi import judge as nvidia_smi
from testbed.made import make
from topoprobe.model.report import Report
from topoprobe.model.topology import Device, Link, Topology
from topoprobe.model.topology import Path as Way

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.usefixtures("nvml"),
    # One worker judges all machines once; several would each judge all of them.
    pytest.mark.xdist_group("judges"),
]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "oracles.md"
Machines = Mapping[str, "Future[list[Verdict]]"]


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """Judge all machines, two at a time, while the tests wait for each in turn."""
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(whole_machine, name) for name in machine_names()}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", machine_names())
def test_every_difference_is_explained(name: str, machines: Machines) -> None:
    verdicts = machines[name].result()
    assert faults_in(verdicts) == []
    assert any(v.cell.judge == "description" for v in verdicts)


def test_the_page_is_in_step(machines: Machines) -> None:
    if lacking := missing():
        pytest.skip(f"not here: {', '.join(lacking)}; scripts/oracles fetches them")
    text = page({name: found.result() for name, found in machines.items()})
    written = PAGE.read_text().partition("\n\n## Every fault")[0]
    assert written == text, "docs/oracles.md is out of step; scripts/full judges writes it"


FAULTS = [
    ("nvlink-down", "dgx-1v"),
    ("nvlink-fewer", "hgx-a100-4"),
    ("p2p-broken", "rtx3090-pair"),
    ("pcie-width", "pex-multilevel"),
    ("idle-downtrained", "a100-pcie-4"),
    ("nic-far", "hgx-h100-4"),
    ("numa-unknown", "hgx-a100-4"),
    ("gpu-missing", "dgx-1v"),
    ("gpu-lost-handle", "gb200-tray"),
    # The number of links was read, the links were not: no class, instead of the PCI tree's.
    ("nvml-call:nvmlDeviceGetNvLinkState:15:gpu1", "hgx-a100-4"),
    ("driver-mismatch", "gh200"),
    ("sysfs-hang", "hgx-a100-4"),
]


@pytest.mark.parametrize(("fault", "name"), FAULTS)
def test_with_a_fault_too(fault: str, name: str) -> None:
    assert faults_in(faulty_machine(name, fault)) == []


# A map that is wrong must not pass; each lie is one value.
Lie = Callable[[Topology], Topology]


def way(**values: object) -> Lie:
    def lie(topology: Topology) -> Topology:
        first = next(p for p in topology.paths if p.class_ == "NV2")
        changed: Way = msgspec.structs.replace(first, **values)
        return msgspec.structs.replace(
            topology, paths=tuple(changed if p is first else p for p in topology.paths)
        )

    return lie


def device(kind: str, **values: object) -> Lie:
    def lie(topology: Topology) -> Topology:
        first = next(d for d in topology.devices if d.kind == kind)
        changed: Device = msgspec.structs.replace(first, **values)
        return msgspec.structs.replace(
            topology, devices=tuple(changed if d is first else d for d in topology.devices)
        )

    return lie


def link(kind: str, **values: object) -> Lie:
    def lie(topology: Topology) -> Topology:
        first = next(k for k in topology.links if k.kind == kind)
        changed: Link = msgspec.structs.replace(first, **values)
        return msgspec.structs.replace(
            topology, links=tuple(changed if k is first else k for k in topology.links)
        )

    return lie


LIES: dict[str, tuple[Lie, str]] = {
    "one link too few": (way(class_="NV1"), "class"),
    "no class": (way(class_=None), "class"),
    "peer access denied": (way(p2p={"read": "NS"}), "p2p read"),
    "another node": (device("gpu", numa=1), "numa"),
    "no node": (device("gpu", numa=None), "numa"),
    "another bridge": (device("nic", parent="0000:80:02.0"), "parent"),
    "other CPUs": (device("gpu", cpus="0-7"), "cpus"),
    "a link down": (link("nvlink", state="down"), "nvlink"),
    "a link to nowhere": (link("nvlink", b=None), "nvlink"),
    "half the rate": (link("nvlink", signal_GBps=12.5), "nvlink"),
    "a link that is missing": (link("nvlink", index=99), "nvlink"),
}


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    made = make("dgx-1v")
    yield see(made)
    shutil.rmtree(made.root)


def differences(seen: Seen) -> list[Cell]:
    judges = (description, nvidia_smi, lspci)
    return [cell for judge in judges for cell in judge(seen) if not cell.agrees]


@pytest.mark.parametrize("name", LIES)
def test_a_wrong_map_is_a_fault(name: str, seen: Seen) -> None:
    lie, what = LIES[name]
    report: Report = msgspec.structs.replace(seen.report, topology=lie(seen.report.topology))
    wrong = Seen(seen.made, report)
    found = [cell for cell in differences(wrong) if explain(cell, wrong) is None]
    assert what in {cell.what for cell in found}


def test_explanations_have_names_of_their_own() -> None:
    names = [kind.name for kind in EXPLAINED]
    assert len(set(names)) == len(names)
