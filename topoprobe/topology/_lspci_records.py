"""lspci texts as the records that /sys would give, so that the same code makes the map of both.

What a text lacks stays None in the record, with the reason in `unknown`.
"""

import re

from topoprobe.model.snapshot import PciRecord
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.texts import LspciDevice, LspciLink, LspciTreeNode
from topoprobe.topology._lspci_tree import PCI_BRIDGE, Parents

_NVIDIA = 0x10DE
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
# pci.ids gives each number one name, so a name tells the number. Only those that decide a kind.
_CLASSES = {
    "Non-Volatile memory controller": 0x0108, "Ethernet controller": 0x0200,
    "Network controller": 0x0280, "Infiniband controller": 0x0207, "Fabric controller": 0x0208,
    "VGA compatible controller": 0x0300, "XGA compatible controller": 0x0301,
    "3D controller": 0x0302, "Display controller": 0x0380, "Host bridge": 0x0600,
    "PCI bridge": PCI_BRIDGE, "Bridge": 0x0680, "Processing accelerators": 0x1200,
}  # fmt: skip
_VENDORS = {
    "NVIDIA Corporation": _NVIDIA, "Intel Corporation": 0x8086, "Mellanox Technologies": 0x15B3,
    "Advanced Micro Devices, Inc. [AMD/ATI]": 0x1002,
    "Advanced Micro Devices, Inc. [AMD]": 0x1022,
}  # fmt: skip
_PORTS = {
    "Endpoint": 0, "Legacy Endpoint": 1, "Root Port": 4, "Upstream Port": 5,
    "Downstream Port": 6, "PCI-Express to PCI/PCI-X Bridge": 7,
    "PCI/PCI-X to PCI-Express Bridge": 8, "Root Complex Integrated Endpoint": 9,
    "Root Complex Event Collector": 10,
}  # fmt: skip
# `lspci -t` prints no classes. These names are of one kind of function only: NVIDIA's boards
# stand in brackets behind the chip, its audio and USB functions have none.
_SWITCH_NAME = re.compile(r"NVIDIA Corporation .*\[.*NVSwitch\]")
_GPU_NAME = re.compile(r"NVIDIA Corporation (?!.*(?:NVSwitch|Audio|USB|UCSI|Ethernet)).*\[.+\]")
_NIC_NAME = re.compile(
    r".*(?:\[ConnectX-|Ethernet (?:Controller|Connection|Adapter)|Elastic (?:Network|Fabric) "
    r"Adapter)"
)
_NOT_DRAWN = (
    "pci.device", "numa_node", "port_type", "mps_bytes", "driver", "current.generation",
    "current.width", "maximum.generation", "maximum.width",
)  # fmt: skip
# As `above`: a place that no record has, so that nothing is concluded from bus numbers.
_NOWHERE = ("?",)


def record_of_device(device: LspciDevice, parents: Parents) -> PciRecord:
    """Return the record of one function of a list."""
    unknown: dict[str, str] = {}
    code = device.class_code
    if code is None:
        code = _CLASSES.get(device.class_name or "")
    vendor = device.vendor if device.vendor is not None else vendor_in(device.name)
    port = _PORTS.get(device.port_type or "")
    if port is None:
        unknown["port_type"] = device.unknown.get("port_type") or "not in the text"
    if device.mps_bytes is None:
        unknown["mps_bytes"] = device.unknown.get("mps_bytes") or "not in the text"
    if device.numa_node is None:
        unknown["numa_node"] = "the text has no NUMA node of it"
    for name, value in (("vendor", vendor), ("device", device.device)):
        if value is None:
            unknown[f"pci.{name}"] = device.unknown.get(name) or "not in the text"
    current, maximum = _speeds(device, unknown)
    return PciRecord(
        address=device.address,
        above=_above(device.address, parents),
        class_code=code << 8 if code is not None else None,
        vendor=vendor,
        device=device.device,
        revision=device.revision,
        port_type=port,
        secondary_bus=device.secondary_bus,
        subordinate_bus=device.subordinate_bus,
        mps_bytes=device.mps_bytes,
        numa_node=device.numa_node,
        current=current,
        maximum=maximum,
        driver=device.driver,
        ids_name=device.name,
        unknown=unknown,
    )


def record_of_node(node: LspciTreeNode, parents: Parents) -> PciRecord:
    """Return the record of one function that only the drawing shows."""
    why = "a drawing of lspci -t does not tell it"
    unknown = dict.fromkeys(_NOT_DRAWN, why)
    vendor = vendor_in(node.name)
    if vendor is None:
        unknown["pci.vendor"] = why
    return PciRecord(
        address=node.address,
        above=_above(node.address, parents),
        class_code=_class_in_drawing(node),
        vendor=vendor,
        secondary_bus=node.secondary_bus,
        subordinate_bus=node.subordinate_bus,
        ids_name=node.name,
        unknown=unknown,
    )


def vendor_in(name: str | None) -> int | None:
    """Return the number of the vendor that a printed name begins with."""
    known = (number for vendor, number in _VENDORS.items() if (name or "").startswith(vendor))
    return next(known, None)


def speeds_of(link: LspciLink, unknown: dict[str, str]) -> tuple[LinkSpeed, LinkSpeed]:
    """Return LnkSta and LnkCap as current and maximum speed; say in `unknown` what is missing."""
    numbers = {
        "current.generation": (link.speed_GTps, "speed_GTps"),
        "current.width": (link.width, "width"),
        "maximum.generation": (link.cap_speed_GTps, "cap_speed_GTps"),
        "maximum.width": (link.cap_width, "cap_width"),
    }
    found: dict[str, int | None] = {}
    for name, (value, key) in numbers.items():
        found[name] = _known(name, value)
        if found[name] is None:
            unknown[name] = link.unknown.get(key) or _why_not(name, value)
    return (
        LinkSpeed(found["current.generation"], found["current.width"]),
        LinkSpeed(found["maximum.generation"], found["maximum.width"]),
    )


def _speeds(device: LspciDevice, unknown: dict[str, str]) -> tuple[LinkSpeed, LinkSpeed]:
    if device.link is not None:
        return speeds_of(device.link, unknown)
    why = device.unknown.get("link") or "lspci prints no link of it"
    for name in ("current.generation", "current.width", "maximum.generation", "maximum.width"):
        unknown[name] = why
    return LinkSpeed(), LinkSpeed()


def _known(name: str, value: float | None) -> int | None:
    if value is None:
        return None
    if name.endswith("generation"):
        return _GENERATIONS.get(float(value))
    return int(value) if value in _WIDTHS else None


def _why_not(name: str, value: float | None) -> str:
    if value is None:
        return "not in the text"
    if name.endswith("generation"):
        return f"lspci says {value:g}GT/s, which we do not know"
    return f"lspci says x{value:g}" + (": no link is up" if value == 0 else "")


def _above(address: str, parents: Parents) -> tuple[str, ...]:
    above = parents.above.get(address)
    return (above,) if above else _NOWHERE


def _class_in_drawing(node: LspciTreeNode) -> int | None:
    if node.secondary_bus is not None:
        return PCI_BRIDGE << 8
    name = node.name or ""
    if _SWITCH_NAME.match(name):
        return 0x068000
    if _GPU_NAME.match(name) and node.address.endswith(".0"):
        return 0x030200
    return 0x020000 if _NIC_NAME.match(name) else None
