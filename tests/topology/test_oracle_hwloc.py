"""hwloc and topoprobe on this very machine: the same PCI devices below the same bridges.

Made machines are in tests/fusion/test_judges.py.
"""

import os
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from topoprobe import pipeline

LSTOPO = shutil.which("lstopo-no-graphics")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(LSTOPO is None, reason="lstopo (hwloc) is not installed"),
]


def hwloc_parents() -> dict[str, str]:
    """Return PCI address → address of the PCI bridge above it, "" below a host bridge."""
    env = {**os.environ, "HWLOC_COMPONENTS": "linux,stop"}
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


def our_parents() -> dict[str, str]:
    topology = pipeline.make_report(pipeline.inspect_node()).topology
    return {
        device.key: "" if (device.parent or "").startswith("host-bridge") else device.parent or ""
        for device in topology.devices
        if device.pci is not None
    }


def test_this_machine() -> None:
    assert hwloc_parents() == our_parents()
