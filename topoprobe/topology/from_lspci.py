"""The part of the map that lspci texts give: devices by address, their tree and PCIe links.

The records go through the code that makes the map of /sys; what it says of /sys is then put
into the words of the text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from topoprobe.model.snapshot import NumaRecord, PciRecord, SysfsRecord
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.texts import LspciDevice, LspciLink, LspciText, LspciTree
from topoprobe.model.topology import Conflict, Device, Link
from topoprobe.topology._lspci_records import record_of_device, record_of_node, speeds_of
from topoprobe.topology._lspci_tree import Parents, parents_in
from topoprobe.topology.from_sysfs import tree_order, tree_parts
from topoprobe.topology.gpus import without_nvml

LIST, DRAWING = "lspci", "lspci -t"
_NOT_TOLD = "lspci does not tell it"
_DENIED = "lspci was not run as root: links, payload sizes and port types are not in the text"
_ASSUMED = (
    "root buses are those that no bridge of the lspci list leads to; a list that was cut would "
    "show too many"
)


@dataclass(frozen=True)
class LspciParts:
    """What lspci texts show; `doubts` are sentences on why it may be wrong."""

    devices: dict[str, Device] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    doubts: tuple[str, ...] = ()


def lspci_parts(lspci: LspciText | None, tree: LspciTree | None) -> LspciParts:
    """Return devices and links of a list and a drawing of one node, either or both."""
    if lspci is None and tree is None:
        return LspciParts()
    parents = parents_in(lspci, tree)
    listed = {device.address: device for device in (lspci.devices if lspci else ())}
    records = [record_of_device(device, parents) for device in listed.values()]
    records += [
        record_of_node(node, parents)
        for node in (tree.nodes if tree else ())
        if node.address not in listed
    ]
    parts, links = tree_parts(_as_sysfs(records, listed))
    unclear = _unclear_bridges(records, parts)
    by_address = {record.address: record for record in records}
    devices = [
        _device(device, by_address.get(device.key), listed.get(device.key), parents, unclear)
        for device in parts.values()
    ]
    with_gaps = {device.key: device for device in tree_order(devices)}
    without_nvml(with_gaps, _NOT_TOLD)
    found = {
        link.key: _link(link)
        for link in links.values()
        # Only ports have links below; whether this bridge is one, the text does not show.
        if not (link.a in unclear and link.b in unclear)
    }
    for number, loose in enumerate(lspci.loose_links if lspci else (), 1):
        found[f"pcie:unnamed-{number}"] = _loose_link(number, loose)
    return LspciParts(with_gaps, found, tuple(parents.conflicts), _doubts(listed, parents))


def _as_sysfs(records: list[PciRecord], listed: Mapping[str, LspciDevice]) -> SysfsRecord:
    why = dict.fromkeys(("cpus", "distances", "memory_bytes"), _NOT_TOLD)
    nodes = sorted({record.numa_node for record in records if record.numa_node is not None})
    return SysfsRecord(
        pci=tuple(records),
        numa=tuple(NumaRecord(node=node, unknown=why) for node in nodes),
        slots={a.rpartition(".")[0]: d.slot for a, d in listed.items() if d.slot},
    )


def _unclear_bridges(records: list[PciRecord], devices: Mapping[str, Device]) -> set[str]:
    """Return bridges whose port type is not printed and cannot be told by what is above them."""
    unclear = set()
    for record in records:
        if record.class_code is None or record.class_code >> 8 != 0x0604:
            continue
        top = record.address
        while (parent := devices[top].parent) in devices and parent is not None:
            top = parent
            if devices[top].kind == "host-bridge":
                break
        if record.port_type is None and devices[top].kind != "host-bridge":
            unclear.add(record.address)
    return unclear


def _device(
    device: Device,
    record: PciRecord | None,
    listed: LspciDevice | None,
    parents: Parents,
    unclear: set[str],
) -> Device:
    """Return a device that says what the text told and what it did not."""
    source = LIST if listed or record is None else DRAWING
    sources = {"*": source}
    if record is None:
        return msgspec.structs.replace(device, sources=sources)
    unknown = dict(device.unknown)
    if device.name is None:
        unknown["name"] = "the text does not name it"
    if device.parent is None:
        unknown["parent"] = (
            parents.unknown.get(device.key) or "the bridge above is not in the text"
        )
    elif listed and device.key in parents.by_drawing:
        sources["parent"] = DRAWING
    told = listed.class_code if listed else None
    unknown["pci.class_code"] = (
        f"lspci prints 16 of its 24 bits: {told:04x}" if told is not None
        else "the text gives names, no numbers"
    )  # fmt: skip
    for name in ("pci.subsystem_vendor", "pci.subsystem_device", "cpus"):
        unknown[name] = _NOT_TOLD
    if device.driver is None:
        unknown["driver"] = "the text has no driver of it"
    kind = device.kind
    if device.key in unclear:
        kind, unknown["kind"] = "other", "a PCI bridge; which kind of port the text does not tell"
    elif record.class_code is None:
        unknown["kind"] = "the text does not tell its class"
    elif listed is None and kind in ("gpu", "nic", "nvswitch"):
        sources["kind"] = "computed: by its name in the drawing"
    if kind == "nic":
        unknown |= dict.fromkeys(("alias", "nic", "rdma", "netdevs"), _NOT_TOLD)
    elif kind == "nvme":
        unknown["blockdevs"] = _NOT_TOLD
    elif kind == "gpu":
        unknown |= dict.fromkeys(("uuid", "memory_bytes"), _NOT_TOLD)
    ids = msgspec.structs.replace(device.pci, class_code=None) if device.pci else None
    return msgspec.structs.replace(device, kind=kind, pci=ids, unknown=unknown, sources=sources)


def _link(link: Link) -> Link:
    unknown = dict(link.unknown)
    if link.a is None:
        why = "its upper end is not in the text"
        for name in ("a", "maximum_a.generation", "maximum_a.width", "limited_by"):
            unknown[name] = why
    elif link.limited_by is None:
        ends = {"upper": link.maximum_a, "lower": link.maximum_b}
        blank = [end for end, speed in ends.items() if None in (speed.generation, speed.width)]
        if blank:
            unknown["limited_by"] = f"what the {blank[0]} end can do is not in the text"
    return msgspec.structs.replace(link, unknown=unknown, sources={"*": LIST})


def _loose_link(number: int, loose: LspciLink) -> Link:
    """Return a link whose device line is not in the text: only its numbers are known."""
    unknown: dict[str, str] = {}
    current, maximum = speeds_of(loose, unknown)
    why = "the line of its device is not in the text"
    unknown |= dict.fromkeys(("a", "b", "limited_by", "mps_bytes"), why)
    unknown |= dict.fromkeys(("maximum_a.generation", "maximum_a.width"), why)
    if current.width is None:
        unknown["state"] = unknown["current.width"]
    return Link(
        key=f"pcie:unnamed-{number}", kind="pcie", a=None, b=None,
        state="up" if current.width else "unknown", current=current, maximum=maximum,
        maximum_a=LinkSpeed(), maximum_b=maximum, unknown=unknown, sources={"*": LIST},
    )  # fmt: skip


def _doubts(listed: Mapping[str, LspciDevice], parents: Parents) -> tuple[str, ...]:
    doubts = []
    denied = any("access denied" in why for d in listed.values() for why in d.unknown.values())
    if denied:
        doubts.append(_DENIED)
    if parents.assumed:
        doubts.append(_ASSUMED)
    return tuple(doubts)
