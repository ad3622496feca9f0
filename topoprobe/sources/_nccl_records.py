"""The elements of an NCCL topology file as records."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from topoprobe.model.nccl import (
    HIDDEN_TARGET,
    NcclC2c,
    NcclCpu,
    NcclGpu,
    NcclLink,
    NcclNet,
    NcclPci,
    NcclQuirk,
    NcclSystem,
)
from topoprobe.model.speed import LinkSpeed

_GPU = ("gpu", "apu")
_LINKS = ("nvlink", "xgmi")
# What each element may hold; all else is passed over, as NCCL does.
_KNOWN = {
    "system": ("cpu",), "cpu": ("pci", "nic"), "pci": ("pci", *_GPU, "nic", "pcilink"),
    "gpu": (*_LINKS, "c2c"), "apu": (*_LINKS, "c2c"), "nic": ("net",),
}  # fmt: skip
_BUSID = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE | re.ASCII
)
_SPEED = re.compile(r"\s*(\d{1,3}(?:\.\d)?)\s*GT/s", re.ASCII)
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6, 128.0: 7}
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)
_MASK = re.compile(r"[0-9a-f]{1,8}(?:,[0-9a-f]{1,8}){0,255}", re.IGNORECASE | re.ASCII)
_ABSENT = "not in the file"


@dataclass
class Element:
    """One XML element while the tree is built."""

    name: str
    line: int
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)


def system_of(
    system: Element, quirks: tuple[NcclQuirk, ...], warnings: Iterable[str]
) -> NcclSystem:
    """Return the record of a ``system`` element; pci right below it gets a cpu of its own."""
    unread: dict[str, int] = {}
    _count_unread(system, unread)
    loose = [element for element in system.children if element.name == "pci"]
    cpus = [_cpu(element) for element in system.children if element.name == "cpu"]
    more = list(warnings)
    if loose:
        why = "its <cpu> is not in the file"
        cpus.append(
            NcclCpu(
                line=loose[0].line, pci=tuple(_pci(element) for element in loose),
                unknown=dict.fromkeys(("numa", "cpus", "arch", "vendor", "family", "model"), why),
            )
        )  # fmt: skip
        more.append(f"line {loose[0].line}: <pci> outside of any <cpu>: its NUMA node is unknown")
    return NcclSystem(
        line=system.line,
        version=system.attributes.get("version"),
        name=system.attributes.get("name"),
        cpus=tuple(cpus),
        quirks=quirks,
        unread=unread,
        warnings=tuple(more),
    )


def _count_unread(element: Element, unread: dict[str, int]) -> None:
    for child in element.children:
        known = child.name in _KNOWN.get(element.name, ())
        if known or (element.name == "system" and child.name == "pci"):
            _count_unread(child, unread)
        else:
            unread.setdefault(child.name[:40], child.line)


def address_of(busid: str) -> str | None:
    """Return a bus id as sysfs writes it (``0000:0f:00.0``); None where it is none."""
    found = _BUSID.fullmatch(busid.strip())
    if not found or busid.lower().startswith(HIDDEN_TARGET):
        return None
    domain, bus, device, function = (part or "0" for part in found.groups())
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def cpulist_of(mask: str) -> str | None:
    """Return the CPUs of a mask in hex groups as a list, ``0-23,48-71``; None where it is none."""
    if not _MASK.fullmatch(mask.strip()):
        return None
    groups = mask.strip().split(",")
    bits = int("".join([groups[0], *(group.zfill(8) for group in groups[1:])]), 16)
    ranges: list[str] = []
    at = 0
    while bits >> at:
        if not bits >> at & 1:
            at += 1
            continue
        start = at
        while bits >> at & 1:
            at += 1
        ranges.append(str(start) if at == start + 1 else f"{start}-{at - 1}")
    return ",".join(ranges)


class _Values:
    """The attributes of one element, with the reasons why some of them say nothing."""

    def __init__(self, element: Element) -> None:
        self.attributes = element.attributes
        self.unknown: dict[str, str] = {}

    def text(self, attribute: str, name: str) -> str | None:
        value = self.attributes.get(attribute)
        if value is None or not value.strip():
            self.unknown[name] = _ABSENT if value is None else f'the file says {attribute}=""'
            return None
        return value.strip()

    def number(self, attribute: str, name: str, base: int = 10, least: int = 0) -> int | None:
        value = self.text(attribute, name)
        if value is None:
            return None
        number = _integer(value, base)
        if number is None or number < least:
            self.unknown[name] = f'the file says {attribute}="{value[:40]}"'
            return None
        return number

    def parsed(
        self, attribute: str, name: str, parse: Callable[[str], str | int | None]
    ) -> str | int | None:
        value = self.text(attribute, name)
        found = None if value is None else parse(value)
        if value is not None and found is None:
            self.unknown[name] = f'the file says {attribute}="{value[:40]}"'
        return found


def _integer(text: str, base: int) -> int | None:
    if len(text) > 20 or not text.isascii() or "_" in text:
        return None
    try:
        return int(text, base)
    except ValueError:
        return None


def _class(text: str) -> int | None:
    """Return 24 bits of a PCI class; NCCL itself writes ``0x03`` where it cannot read /sys."""
    number = _integer(text, 16)
    if number is None or not 0 <= number <= 0xFFFFFF:
        return None
    digits = len(text.lower().removeprefix("0x"))
    return number << 16 if digits <= 2 else number << 8 if digits == 4 else number


def _cpu(element: Element) -> NcclCpu:
    values = _Values(element)
    mask = values.text("affinity", "cpus")
    cpus = cpulist_of(mask) if mask else None
    if not cpus and mask:
        values.unknown["cpus"] = f'the file says affinity="{mask[:80]}"'
    nets = [_net(net) for nic in element.children if nic.name == "nic" for net in _nets_of(nic)]
    return NcclCpu(
        line=element.line,
        numa=values.number("numaid", "numa"),
        cpus=cpus or None,
        arch=values.text("arch", "arch"),
        vendor=values.text("vendor", "vendor"),
        family=values.number("familyid", "family", 0),
        model=values.number("modelid", "model", 0),
        host_hash=element.attributes.get("host_hash"),
        pci=tuple(_pci(child) for child in element.children if child.name == "pci"),
        nets=tuple(nets),
        attributes=element.attributes,
        unknown=values.unknown,
    )


def _pci(element: Element) -> NcclPci:
    values = _Values(element)
    children = element.children
    busid = values.text("busid", "busid")
    address = address_of(busid) if busid else None
    if busid and address is None:
        values.unknown["address"] = f'"{busid[:40]}" is no bus id'
    nics = [child for child in children if child.name == "nic"]
    numbers = {
        name: values.number(name, name, 16)
        for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")
    }
    class_code = values.parsed("class", "class_code", _class)
    return NcclPci(
        line=element.line,
        busid=busid,
        address=address,
        class_code=class_code if isinstance(class_code, int) else None,
        link=_link_speed(values),
        gpus=tuple(_gpu(child) for child in children if child.name in _GPU),
        nets=tuple(_net(net) for nic in nics for net in _nets_of(nic)),
        has_nic=bool(nics),
        pcilinks=tuple(_link(child) for child in children if child.name == "pcilink"),
        children=tuple(_pci(child) for child in children if child.name == "pci"),
        attributes=element.attributes,
        unknown=values.unknown,
        **numbers,
    )


def _link_speed(values: _Values) -> LinkSpeed:
    generation = values.parsed("link_speed", "link.generation", generation_of)
    width = values.parsed("link_width", "link.width", _width)
    return LinkSpeed(
        generation if isinstance(generation, int) else None,
        width if isinstance(width, int) else None,
    )


def generation_of(text: str) -> int | None:
    """Return the PCIe generation of a link_speed such as ``32.0 GT/s PCIe``."""
    found = _SPEED.match(text)
    return _GENERATIONS.get(float(found[1])) if found else None


def _width(text: str) -> int | None:
    number = _integer(text, 10)
    return number if number in _WIDTHS else None


def _gpu(element: Element) -> NcclGpu:
    values = _Values(element)
    c2c = next((child for child in element.children if child.name == "c2c"), None)
    return NcclGpu(
        element=element.name,
        line=element.line,
        dev=values.number("dev", "dev"),
        sm=values.number("sm", "sm", least=1),
        rank=values.number("rank", "rank"),
        gcn=element.attributes.get("gcn"),
        links=tuple(_link(child) for child in element.children if child.name in _LINKS),
        c2c=_c2c(c2c) if c2c else None,
        attributes=element.attributes,
        unknown=values.unknown,
    )


def _link(element: Element) -> NcclLink:
    values = _Values(element)
    target = values.text("target", "target")
    address = address_of(target) if target else None
    if target and address is None:
        hidden = target.lower().startswith(HIDDEN_TARGET)
        values.unknown["address"] = (
            "the driver hides the far end" if hidden else f'"{target[:40]}" is no bus id'
        )
    class_ = values.parsed("tclass", "target_class", _class)
    count = None
    if element.name != "pcilink":
        count = values.number("count", "count", least=1)
    return NcclLink(
        element=element.name,
        line=element.line,
        target=target,
        address=address,
        count=count,
        target_class=class_ if isinstance(class_, int) else None,
        attributes=element.attributes,
        unknown=values.unknown,
    )


def _c2c(element: Element) -> NcclC2c:
    values = _Values(element)
    return NcclC2c(
        line=element.line,
        count=values.number("count", "count", least=1),
        speed_mbps=values.number("bw", "speed_mbps", least=1),
        attributes=element.attributes,
        unknown=values.unknown,
    )


def _nets_of(nic: Element) -> list[Element]:
    return [child for child in nic.children if child.name == "net"]


def _net(element: Element) -> NcclNet:
    values = _Values(element)
    return NcclNet(
        line=element.line,
        name=values.text("name", "name"),
        dev=values.number("dev", "dev"),
        speed_mbps=values.number("speed", "speed_mbps", least=1),
        port=values.number("port", "port"),
        guid=values.text("guid", "guid"),
        attributes=element.attributes,
        unknown=values.unknown,
    )
