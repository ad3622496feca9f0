"""The readers of /sys: values that lie, trees that are hostile, reads that never return."""

import faulthandler
import os
import time
from pathlib import Path

import pytest

from topoprobe.model.errors import SourceError
from topoprobe.model.snapshot import PciRecord
from topoprobe.sources.deadline import read_each
from topoprobe.sources.pci import parse_generation, parse_width, path_above, read_pci
from topoprobe.sources.rootfs import Root
from topoprobe.sources.sysfs import read_node

FUNCTION = "0000:41:00.0"


def add_function(root: Path, address: str = FUNCTION, **files: str) -> Path:
    """Write one PCI function below root port 0000:40:01.0, as the kernel lays it out."""
    device = root / "sys/devices/pci0000:40/0000:40:01.0" / address
    device.mkdir(parents=True, exist_ok=True)
    values = {
        "class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "1",
        "current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "8", "max_link_width": "16", **files,
    }  # fmt: skip
    for name, value in values.items():
        (device / name).write_text(value + "\n")
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    link = devices / address
    link.symlink_to(os.path.relpath(device, devices))
    return device


@pytest.mark.parametrize(
    ("text", "generation"),
    [("2.5 GT/s PCIe", 1), ("5 GT/s", 2), ("8.0 GT/s PCIe", 3), ("16.0 GT/s PCIe", 4),
     ("32.0 GT/s PCIe", 5), ("64.0 GT/s PCIe", 6), ("Unknown", None), ("Unknown speed", None),
     ("", None), ("nan GT/s", None), ("7 GT/s", None)],
)  # fmt: skip
def test_link_speed_text(text: str, generation: int | None) -> None:
    assert parse_generation(text) == generation


@pytest.mark.parametrize(
    ("text", "width"),
    [("16", 16), ("x8", 8), ("1", 1), ("0", None), ("63", None), ("255", None), ("", None),
     ("-1", None), ("²", None)],
)  # fmt: skip
def test_link_width_text(text: str, width: int | None) -> None:
    assert parse_width(text) == width


def test_path_above_names_bridges_top_first() -> None:
    assert path_above("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0") == (
        "pci0000:00",
        "0000:00:01.0",
    )
    # A VMD controller makes a domain of more than 16 bits below one of its own functions.
    assert path_above("../../devices/pci0000:64/0000:64:00.5/pci10000:e0/10000:e0:02.0") == (
        "pci0000:64",
        "0000:64:00.5",
        "pci10000:e0",
    )


def test_one_function(tmp_path: Path) -> None:
    add_function(tmp_path)

    record = read_pci(Root(str(tmp_path)), FUNCTION)

    assert record.above == ("pci0000:40", "0000:40:01.0")
    assert (record.vendor, record.device, record.class_code) == (0x10DE, 0x2330, 0x030200)
    assert (record.current.generation, record.current.width) == (1, 8)
    assert (record.maximum.generation, record.maximum.width) == (5, 16)
    assert record.numa_node == 1


def test_lying_values_are_unknown_with_their_text(tmp_path: Path) -> None:
    add_function(
        tmp_path, current_link_speed="Unknown", current_link_width="63", numa_node="-1",
        vendor="banana",
    )  # fmt: skip

    record = read_pci(Root(str(tmp_path)), FUNCTION)

    assert record.current.generation is None
    assert record.current.width is None
    assert record.numa_node is None
    assert record.vendor is None
    assert {"current.generation", "current.width", "numa_node", "vendor"} <= set(record.unknown)
    assert "63" in record.unknown["current.width"]


def test_links_stay_inside_the_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "vendor").write_text("0x1234\n")
    root = tmp_path / "root"
    add_function(root)
    devices = root / "sys/bus/pci/devices"
    (devices / "0000:66:00.0").symlink_to("../../../../../outside")
    (devices / "0000:67:00.0").symlink_to(outside)
    secret = root / "sys/devices/pci0000:40/0000:40:01.0" / FUNCTION / "revision"
    secret.symlink_to(outside / "vendor")

    facts = read_node(Root(str(root)), 5.0)

    assert facts.sysfs is not None
    assert [function.address for function in facts.sysfs.pci] == [FUNCTION]
    assert facts.sysfs.pci[0].revision is None
    assert "link" in facts.sysfs.pci[0].unknown["revision"]
    sysfs = next(result for result in facts.results if result.name == "sysfs")
    assert sysfs.status == "partial"
    assert "outside the root" in str(sysfs.detail)


def test_a_fifo_in_the_tree_is_not_opened(tmp_path: Path) -> None:
    device = add_function(tmp_path)
    (device / "numa_node").unlink()
    os.mkfifo(device / "numa_node")

    record = read_pci(Root(str(tmp_path)), FUNCTION)

    assert "not a regular file" in record.unknown["numa_node"]


def test_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(SourceError):
        Root(str(tmp_path)).open("/a")


def test_reader_that_hangs_or_dies_is_named_and_the_rest_is_read() -> None:
    def read(item: str) -> PciRecord:
        if item == "pci/2":
            time.sleep(600)
        if item == "pci/4":
            faulthandler.disable()
            os.abort()
        if item == "pci/5":
            raise SourceError("pci/5: no permission")
        return PciRecord(address=item)

    items = [f"pci/{number}" for number in range(7)]
    until = time.monotonic() + 30

    answers = read_each(items, read, {"pci": PciRecord}, until=until, stall_s=0.3)

    assert sorted(answers.records) == ["pci/0", "pci/1", "pci/3", "pci/6"]
    assert answers.hung == ["pci/2"]
    assert "no answer" in answers.failed["pci/2"]
    assert "SIGABRT" in answers.failed["pci/4"]
    assert answers.failed["pci/5"] == "pci/5: no permission"
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_deadline_ends_the_reading() -> None:
    answers = read_each(
        ["pci/0", "pci/1"], lambda _: time.sleep(600), {"pci": PciRecord},
        until=time.monotonic() + 0.2, stall_s=60,
    )  # fmt: skip

    assert answers.records == {}
    assert sorted(answers.failed) == ["pci/0", "pci/1"]


def test_no_permission_is_said(tmp_path: Path) -> None:
    add_function(tmp_path)
    devices = tmp_path / "sys/bus/pci/devices"
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        # Root reads everything; an ordinary user is one setuid away.
        try:
            root = Root(str(tmp_path))
            devices.chmod(0)
            if os.getuid() == 0:
                os.setuid(65534)
            facts = read_node(root, 5.0)
            said = " ".join(f"{r.name} {r.status} {r.detail}" for r in facts.results)
            os.write(write_end, said.encode())
        finally:
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        said = pipe.read()
    devices.chmod(0o755)

    assert "sysfs denied" in said
    assert "/sys/bus/pci/devices: no permission" in said


def test_names_and_slots_come_from_the_tree(tmp_path: Path) -> None:
    add_function(tmp_path)
    add_function(tmp_path, "0000:42:00.0", vendor="0x15b3", device="0x2330")
    ids = tmp_path / "usr/share/misc/pci.ids"
    ids.parent.mkdir(parents=True)
    ids.write_text(
        "# comment\n10de  NVIDIA Corporation\n\t2330  GH100 [H100 SXM5 80GB]\n"
        "\t\t10de 16c1  a board\n15b3  Mellanox Technologies\n\t1021  MT2910\n"
    )
    slot = tmp_path / "sys/bus/pci/slots/5"
    slot.mkdir(parents=True)
    (slot / "address").write_text("0000:41:00\n")

    facts = read_node(Root(str(tmp_path)), 5.0)

    assert facts.sysfs is not None
    assert facts.sysfs.slots == {"0000:41:00": "5"}
    # Device 2330 of another vendor has no name: that of NVIDIA's is not its own.
    assert [record.ids_name for record in facts.sysfs.pci] == ["GH100 [H100 SXM5 80GB]", None]
