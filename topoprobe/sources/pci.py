"""PCI functions out of sysfs: identity, place in the tree, link, NUMA node, driver.

Facts about the files: Documentation/ABI/testing/sysfs-bus-pci in the kernel tree.
"""

import re

from topoprobe.model.errors import SourceAbsent, SourceError
from topoprobe.model.snapshot import PciRecord
from topoprobe.model.speed import LinkSpeed
from topoprobe.sources.pci_names import PciNames
from topoprobe.sources.rootfs import Directory, Root

PCI_DEVICES = "/sys/bus/pci/devices"

# The domain has four digits or more: VMD counts from 10000, and 32-bit domains exist.
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BUS = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_GTS_TO_GENERATION = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
# Widths that exist. 0 means that no link is up, 63 and 255 that the registers read as ones.
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
_CAP_ID_PCIE = 0x10


def is_address(name: str) -> bool:
    """Tell whether `name` is a PCI address as sysfs writes it."""
    return _ADDRESS.fullmatch(name) is not None


def parse_generation(text: str) -> int | None:
    """Return the generation in ``16.0 GT/s PCIe`` or ``8 GT/s``; None for ``Unknown`` or odd."""
    try:
        return _GTS_TO_GENERATION.get(float(text.split(" ", 1)[0]))
    except ValueError:
        return None


def parse_width(text: str) -> int | None:
    """Return the lanes in ``16`` or ``x16``; None where the value cannot be a width."""
    digits = text.removeprefix("x")
    width = int(digits) if digits.isascii() and digits.isdigit() else 0
    return width if width in _WIDTHS else None


def path_above(target: str) -> tuple[str, ...]:
    """Return the host bridges and bridges on a sysfs path, top first, the device excluded.

    ``../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0`` gives
    ``("pci0000:00", "0000:00:01.0")``. Whatever is before (ACPI, platform) is left out.
    """
    parts = [p for p in target.split("/") if _BUS.fullmatch(p) or is_address(p)]
    return tuple(parts[:-1])


def last_address(target: str) -> str | None:
    """Return the last PCI address on a sysfs path: the function that a class device sits on."""
    found = [part for part in target.split("/") if is_address(part)]
    return found[-1] if found else None


def parse_config(data: bytes, record: dict[str, object], unknown: dict[str, str]) -> None:
    """Take header type, bus numbers, port type and maximum payload from config space.

    `data` is 64 bytes for an ordinary user, 256 or 4096 for root; offsets are those of the
    PCI Local Bus (header) and PCI Express (capability 0x10) specifications.
    """
    if len(data) < 64:
        unknown["config"] = f"config space is {len(data)} bytes long"
        return
    if data[:4] == b"\xff\xff\xff\xff":
        unknown["config"] = "config space reads all ones: the device does not answer"
        return
    record["header_type"] = data[0x0E] & 0x7F
    if record["header_type"] == 1:
        record["secondary_bus"], record["subordinate_bus"] = data[0x19], data[0x1A]
    if len(data) < 256:
        unknown["port_type"] = unknown["mps_bytes"] = "config space beyond 64 bytes needs root"
        return
    at = _find_capability(data, _CAP_ID_PCIE)
    if at is None:
        return
    flags = int.from_bytes(data[at + 2 : at + 4], "little")
    control = int.from_bytes(data[at + 8 : at + 10], "little")
    record["port_type"] = flags >> 4 & 0xF
    if control >> 5 & 7 <= 5:
        record["mps_bytes"] = 128 << (control >> 5 & 7)


def _find_capability(data: bytes, wanted: int) -> int | None:
    if not data[6] & 0x10:  # status register: there is a capability list
        return None
    at = data[0x34] & 0xFC
    for _ in range(48):  # 192 bytes hold at most 48 capabilities; a loop in the list ends here
        if at < 0x40 or at + 10 > 256:
            return None
        if data[at] == wanted:
            return at
        at = data[at + 1] & 0xFC
    return None


def read_pci(root: Root, address: str, names: PciNames | None = None) -> PciRecord:
    """Read one PCI function; what cannot be read is in `unknown`. Raises SourceError.

    `names` gives its name out of pci.ids.
    """
    with root.open(PCI_DEVICES) as devices:
        target = devices.link(address)
    unknown: dict[str, str] = {}
    record: dict[str, object] = {}
    with root.open(f"{PCI_DEVICES}/{address}") as device:
        for name in (
            "class",
            "vendor",
            "device",
            "subsystem_vendor",
            "subsystem_device",
            "revision",
        ):
            record["class_code" if name == "class" else name] = _hex(device, name, unknown)
        for name in ("current", "maximum"):
            record[name] = _link_speed(device, name, unknown)
        record["numa_node"] = _numa_node(device, unknown)
        record["cpus"] = _text(device, "local_cpulist", unknown)
        record["driver"] = (device.link("driver") or "").rpartition("/")[2] or None
        record["physfn"] = (device.link("physfn") or "").rpartition("/")[2] or None
        _read_config(device, record, unknown)
    if record["vendor"] == 0x10DE and (record["class_code"] or 0) >> 16 == 3:  # type: ignore[operator]
        _read_nvidia_proc(root, address, record)
    ids = (record["vendor"], record["device"])
    if names is not None and isinstance(ids[0], int) and isinstance(ids[1], int):
        record["ids_name"] = names.find(ids[0], ids[1])
    if target is not None:
        record["above"] = path_above(target)
    return PciRecord(address=address, unknown=unknown, **record)  # type: ignore[arg-type]


def _read_config(device: Directory, record: dict[str, object], unknown: dict[str, str]) -> None:
    # Reading config space wakes a device that sleeps in D3cold, which takes 100 ms and is
    # a change of the node; the attributes that the kernel keeps itself do not.
    if _text(device, "power_state", {}) == "D3cold":
        unknown["port_type"] = unknown["mps_bytes"] = "the device sleeps (D3cold); not woken"
        return
    try:
        parse_config(device.read_bytes("config", 256), record, unknown)
    except SourceAbsent:
        pass
    except SourceError as error:
        unknown["config"] = str(error)


def _read_nvidia_proc(root: Root, address: str, record: dict[str, object]) -> None:
    """Take model and UUID from the NVIDIA driver's own files, where it is loaded."""
    try:
        text = root.read(f"/proc/driver/nvidia/gpus/{address}/information")
    except SourceError:
        return
    for line in text.splitlines():
        label, _, value = line.partition(":")
        # The UUID stays "GPU-????????-…" until the first client has initialised the GPU.
        if label.strip() == "Model" and value.strip():
            record["model"] = value.strip()
        if label.strip() == "GPU UUID" and "?" not in value:
            record["uuid"] = value.strip()


def _text(device: Directory, name: str, unknown: dict[str, str]) -> str | None:
    try:
        return device.read(name)
    except SourceAbsent:
        return None
    except SourceError as error:
        unknown[name] = str(error)
        return None


def _hex(device: Directory, name: str, unknown: dict[str, str]) -> int | None:
    text = _text(device, name, unknown)
    if text is None:
        return None
    try:
        return int(text, 16)
    except ValueError:
        unknown["class_code" if name == "class" else name] = f"sysfs says {text[:40]!r}"
        return None


def _link_speed(device: Directory, name: str, unknown: dict[str, str]) -> LinkSpeed:
    short = "max" if name == "maximum" else name
    speed = _text(device, f"{short}_link_speed", unknown)
    width = _text(device, f"{short}_link_width", unknown)
    generation = parse_generation(speed) if speed is not None else None
    lanes = parse_width(width) if width is not None else None
    if speed is not None and generation is None:
        unknown[f"{name}.generation"] = f"sysfs says {speed[:40]!r}"
    if width is not None and lanes is None:
        unknown[f"{name}.width"] = f"sysfs says {width[:40]!r}"
    return LinkSpeed(generation, lanes)


def _numa_node(device: Directory, unknown: dict[str, str]) -> int | None:
    text = _text(device, "numa_node", unknown)
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    unknown["numa_node"] = (
        "sysfs says -1: firmware or hypervisor gives no NUMA node"
        if text == "-1"
        else f"sysfs says {text[:40]!r}"
    )
    return None
