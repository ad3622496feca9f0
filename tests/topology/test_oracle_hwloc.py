"""hwloc and topoprobe: the same PCI devices below the same bridges, here and on made machines."""

import os
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from testbed.build import machine_with, write_machine
from topoprobe import pipeline

LSTOPO = shutil.which("lstopo-no-graphics")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(LSTOPO is None, reason="lstopo (hwloc) is not installed"),
]


def hwloc_parents(root: Path | None) -> dict[str, str]:
    """Return PCI address → address of the PCI bridge above it, "" below a host bridge."""
    env = {**os.environ, "HWLOC_COMPONENTS": "linux,stop"}
    if root is not None:
        env |= {"HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "0"}
    out = subprocess.run(
        [str(LSTOPO), "--of", "xml", "--whole-io", "--no-collapse"],
        capture_output=True, text=True, timeout=60, check=True, env=env,
    ).stdout  # fmt: skip
    found: dict[str, str] = {}
    todo = [(element, "") for element in ElementTree.fromstring(out)]
    while todo:
        element, above = todo.pop()
        address = element.get("pci_busid")
        if address:
            found[address] = above
        bridge = address if element.get("type") == "Bridge" and address else above
        todo += [(child, bridge) for child in element]
    return found


def our_parents(root: str) -> dict[str, str]:
    topology = pipeline.make_report(pipeline.inspect_node(root)).topology
    return {
        device.key: "" if (device.parent or "").startswith("host-bridge") else device.parent or ""
        for device in topology.devices
        if device.pci is not None
    }


def test_this_machine() -> None:
    assert hwloc_parents(None) == our_parents("/")


@pytest.mark.parametrize("name", ["hgx-h100-8", "dgx-1v", "pex-multilevel", "h200-vm", "amd-nps4"])
def test_made_machines(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    write_machine(machine_with(name), root)

    assert hwloc_parents(root) == our_parents(str(root))
