"""The written tree: laid out as a kernel does, on every machine, fast."""

import os
import struct
import time
from pathlib import Path

import pytest

from testbed.build import write_machine
from testbed.describe import load_machine
from testbed.made import Made, Maker


def links_below(root: Path) -> list[Path]:
    return [
        Path(folder, name)
        for folder, folders, files in os.walk(root)
        for name in folders + files
        if Path(folder, name).is_symlink()
    ]


def test_links_are_relative_and_lead_somewhere(made: Made) -> None:
    for link in links_below(made.root / "sys"):
        assert not str(link.readlink()).startswith("/")
        assert link.resolve().is_relative_to(made.root)
        assert link.exists(), link


def test_every_device_is_on_the_bus_below_its_parent(made: Made) -> None:
    bus = made.root / "sys/bus/pci/devices"
    assert sorted(os.listdir(bus)) == sorted(d.address for d in made.machine.devices)
    for device in made.machine.devices:
        assert (bus / device.address).resolve().parent.name == device.parent


def test_config_space_says_what_the_attributes_say(made: Made) -> None:
    for device in made.machine.devices:
        folder = made.root / "sys/bus/pci/devices" / device.address
        data = (folder / "config").read_bytes()
        vendor, model = struct.unpack_from("<HH", data)
        assert (folder / "vendor").read_text() == f"0x{vendor:04x}\n"
        assert (folder / "device").read_text() == f"0x{model:04x}\n"
        if device.pcie:
            status = struct.unpack_from("<H", data, 0x60 + 0x12)[0]
            assert status & 0xF == device.pcie.gen
            assert (folder / "current_link_width").read_text() == f"{status >> 4 & 0x3F}\n"


def test_both_ends_of_a_link_say_the_same(made: Made) -> None:
    devices = {device.address: device for device in made.machine.devices}
    for device in devices.values():
        above = devices.get(device.parent)
        if above and above.kind != "switch" and above.pcie and device.pcie:
            ends = (above.pcie.gen, above.pcie.width), (device.pcie.gen, device.pcie.width)
            assert ends[0] == ends[1], device.address


def test_acs_is_a_capability_of_ports(maker: Maker) -> None:
    for fault, control in (((), 0), (("acs-on",), 0x1D)):
        made = maker("hgx-h100-8", *fault)
        data = (made.root / "sys/bus/pci/devices/0000:17:01.0/config").read_bytes()
        assert struct.unpack_from("<I", data, 0x150)[0] & 0xFFFF == 0x000D
        assert struct.unpack_from("<H", data, 0x156)[0] == control


def test_a_machine_is_not_written_over_another(maker: Maker) -> None:
    made = maker("t4-single")
    with pytest.raises(FileExistsError):
        write_machine(load_machine("gh200"), made.root)


def test_a_container_sees_its_own_gpus_in_the_driver_and_all_on_the_bus(maker: Maker) -> None:
    made = maker("container-2-of-8")
    driver = made.root / "proc/driver/nvidia/gpus"
    assert sorted(os.listdir(driver)) == ["0000:48:00.0", "0000:4c:00.0"]
    assert (made.root / "sys/bus/pci/devices/0000:07:00.0").exists()


def test_the_largest_machine_is_made_fast(tmp_path: Path, maker: Maker) -> None:
    start = time.monotonic()
    maker("hgx-h100-8")
    assert time.monotonic() - start < 10
