"""lspci and topoprobe on this very machine: the same functions with the same ids."""

import shutil
import subprocess

import pytest

from topoprobe import pipeline

LSPCI = shutil.which("lspci")


@pytest.mark.oracle
@pytest.mark.skipif(LSPCI is None, reason="lspci is not installed")
def test_same_functions_as_lspci() -> None:
    out = subprocess.run(
        [str(LSPCI), "-Dn"], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    theirs = {}
    for line in out.splitlines():
        address, class_, ids = line.split()[:3]
        theirs[address] = (class_.rstrip(":"), ids)

    report = pipeline.make_report(pipeline.inspect_node())

    ours = {
        device.key: (
            f"{(device.pci.class_code or 0) >> 8:04x}",
            f"{device.pci.vendor:04x}:{device.pci.device:04x}",
        )
        for device in report.topology.devices
        if device.pci is not None
    }
    assert theirs == ours
