"""lspci, hwloc and Slurm read our machines as their descriptions say."""

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from testbed.describe import expected_matrix
from testbed.made import Made, Maker
from testbed.model import BRIDGES
from testbed.runner import run

pytestmark = pytest.mark.oracle
Find = Callable[[str], str]
SPEEDS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}


def test_lspci_reads_ids_buses_and_links(made: Made, oracle: Find) -> None:
    lspci = oracle("lspci")
    root = made.root / "sys/bus/pci"
    result = run([lspci, "-O", f"sysfs.path={root}", "-D", "-n", "-vv"], {"PATH": "/usr/bin:/bin"})
    assert result.code == 0, result.errors
    found = {text[: text.index(" ")]: text for text in result.output.strip().split("\n\n")}
    assert sorted(found) == sorted(device.address for device in made.machine.devices)
    for device in made.machine.devices:
        text = found[device.address]
        assert f"{device.part.vendor:04x}:{device.part.device:04x}" in text
        if device.node >= 0:
            assert f"NUMA node: {device.node}" in text
        if device.kind in BRIDGES and device.buses:
            assert f"secondary={device.buses[0]:02x}, subordinate={device.buses[1]:02x}" in text
        if device.pcie and device.pcie.gen <= 6:
            status = re.search(r"LnkSta:\s+Speed ([\d.]+)GT/s.*?, Width x(\d+)", text)
            assert status
            trained = SPEEDS[status[1]], int(status[2])
            assert trained == (device.pcie.gen, device.pcie.width), device.address


def hwloc(made: Made, oracle: Find) -> ElementTree.Element:
    """Return lstopo's XML of a machine; a file, since its warnings go where its output does."""
    program = oracle("lstopo")
    target = made.root / "lstopo.xml"
    env = {
        "PATH": "/usr/bin:/bin",
        "LD_LIBRARY_PATH": "",
        "HWLOC_FSROOT": str(made.root),
        "HWLOC_THISSYSTEM": "0",
        "HWLOC_COMPONENTS": "linux,stop",
    }
    result = run([program, "--whole-io", "--of", "xml", "--force", str(target)], env)
    assert result.code == 0, result.errors
    return ElementTree.parse(target).getroot()


def test_hwloc_sees_the_tree_the_nodes_and_the_links(made: Made, oracle: Find) -> None:
    top = hwloc(made, oracle)
    above = {child: parent for parent in top.iter() for child in parent}
    with_cpus = {node.number for node in made.machine.nodes if node.cpus}
    objects = {o.get("pci_busid"): o for o in top.iter("object") if o.get("pci_busid")}
    assert sorted(filter(None, objects)) == sorted(d.address for d in made.machine.devices)
    for device in made.machine.devices:
        item = objects[device.address]
        parent = above[item]
        if device.parent.startswith("pci"):
            assert parent.get("type") == "Bridge"
            assert parent.get("pci_busid") is None
        else:
            assert parent.get("pci_busid") == device.parent
        if device.node >= 0:
            assert nodes_near(item, above) & with_cpus == {device.node}, device.address


def nodes_near(
    item: ElementTree.Element, above: dict[ElementTree.Element, ElementTree.Element]
) -> set[int]:
    """Return the NUMA nodes of the first object above `item` that has any."""
    while not (found := [o for o in item.iter() if o.get("type") == "NUMANode"]):
        item = above[item]
    return {int(node.get("os_index", "-1")) for node in found}


def test_hwloc_knows_the_bandwidth_of_a_narrow_link(maker: Maker, oracle: Find) -> None:
    # Gen5 x16: 32 GT/s x 128/130 x 16 / 8 = 63.015 GB/s; half of it at x8.
    for faults, speed in (((), 63.015), (("pcie-width:gpu0:8",), 31.508)):
        top = hwloc(maker("hgx-h100-8", *faults), oracle)
        gpu = next(o for o in top.iter("object") if o.get("pci_busid") == "0000:1b:00.0")
        assert float(gpu.get("pci_link_speed", 0)) == pytest.approx(speed, abs=0.01)


@pytest.mark.usefixtures("nvml")
def test_hwloc_weighs_the_nvlinks_of_a_cube_mesh(maker: Maker, oracle: Find) -> None:
    text = maker("dgx-1v").run(oracle("lstopo"), "--distances").output
    table = [row.split()[1:] for row in text.splitlines() if re.match(r"\s+nvml\d+ +\d", row)]
    if not table:
        pytest.skip("this hwloc has no NVML plugin")
    # hwloc 2.9 knows NVLink 2.0 as 25 GB/s a link; it gives up on versions after 4.
    links = [
        [f"NV{int(cell) // 25000}" if cell != "0" else "SYS" for cell in row] for row in table
    ]
    wanted = [row[1:9] for row in expected_matrix("dgx-1v")[1:9]]
    for i, row in enumerate(wanted):
        row[i] = links[i][i]
    assert links == wanted


@pytest.mark.usefixtures("namespaces")
def test_ibstat_reads_the_ports(maker: Maker, oracle: Find) -> None:
    oracle("ibstat")
    made = maker("hgx-h100-8", "nic-down:nic1")
    result = made.run("ibstat", "mlx5_0")
    assert re.search(r"State: Active\s+Physical state: LinkUp\s+Rate: 400", result.output)
    assert "State: Down" in made.run("ibstat", "mlx5_1").output


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("program", [("nvitop", "-1"), ("gpustat", "--no-header")])
def test_monitors_show_every_gpu(program: tuple[str, ...], maker: Maker, oracle: Find) -> None:
    oracle(program[0])
    made = maker("dgx-a100")
    result = made.run(*program)
    assert result.code == 0, result.errors
    assert result.output.count("A100") == 8


def test_lspci_shows_the_tree_of_a_deep_machine(maker: Maker, oracle: Find) -> None:
    lspci = oracle("lspci")
    root: Path = maker("pex-multilevel").root / "sys/bus/pci"
    result = run([lspci, "-O", f"sysfs.path={root}", "-tn"], {"PATH": "/usr/bin:/bin"})
    assert "[0000:3a]---00.0-[3b-4a]----00.0-[3c-4a]--+-00.0-[3d-42]----00.0" in result.output
