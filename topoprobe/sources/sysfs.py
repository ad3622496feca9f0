"""/sys through one root: PCI functions, NUMA nodes, network, RDMA and NVMe devices.

Every device is one item for the deadline runner; the parent only lists directories.
"""

import re
import time
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from topoprobe.model.errors import SourceError
from topoprobe.model.snapshot import (
    BlockRecord,
    HostRecord,
    NetRecord,
    NumaRecord,
    PciRecord,
    RdmaPort,
    RdmaRecord,
    SourceResult,
    SourceStatus,
    SysfsRecord,
)
from topoprobe.sources.deadline import read_each
from topoprobe.sources.host import read_host
from topoprobe.sources.pci import PCI_DEVICES, is_address, last_address, read_pci
from topoprobe.sources.pci_names import PciNames
from topoprobe.sources.rootfs import Directory, Root

_NODES = "/sys/devices/system/node"
_NET = "/sys/class/net"
_RDMA = "/sys/class/infiniband"
_NVME = "/sys/class/nvme"
_SLOTS = "/sys/bus/pci/slots"

_TYPES: dict[str, Any] = {
    "host": HostRecord,
    "numa": NumaRecord,
    "pci": PciRecord,
    "net": NetRecord,
    "rdma": RdmaRecord,
    "nvme": BlockRecord,
    "slots": dict[str, str],
}
# "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
_RATE = re.compile(r"([0-9.]+) Gb/sec(?: \((.+)\))?")


class NodeFacts(Struct):
    """What one pass over /sys and /proc gave: the records and how reading them went."""

    host: HostRecord
    sysfs: SysfsRecord | None
    results: tuple[SourceResult, ...]


def read_node(root: Root, deadline_s: float) -> NodeFacts:
    """Read /sys and /proc under `root` within `deadline_s` seconds; never raises for a device."""
    start = time.monotonic()
    items, gaps = _list_items(root)
    names = PciNames(root)
    # One device may hold up the rest for a quarter of the time, so that three sick ones
    # still leave the healthy ones time to answer.
    stall_s = min(2.5, max(0.25, deadline_s / 4))
    answers = read_each(
        items,
        lambda item: _read(root, names, item),
        _TYPES,
        until=start + deadline_s,
        stall_s=stall_s,
    )
    host = answers.records.pop("host/", None) or HostRecord(
        unknown={"*": answers.failed.get("host/", "not read")}
    )
    slots = answers.records.pop("slots/", {})
    seconds = time.monotonic() - start
    host_why = [f"host: {answers.failed.pop('host/')}"] if "host/" in answers.failed else []
    host_result = SourceResult(
        "host", _status(host_why, answers.hung, bool(not host_why)), _first(host_why), seconds
    )
    failed = gaps + [f"{_plain(item)}: {why}" for item, why in answers.failed.items()]
    found = [item for item in items if item in answers.records]
    pci = tuple(answers.records[i] for i in found if i.startswith("pci/"))
    if not found:
        why = _first(failed) or f"{root.path.rstrip('/')}/sys holds no devices"
        status: SourceStatus = "timeout" if answers.hung else _absence(failed)
        return NodeFacts(host, None, (host_result, SourceResult("sysfs", status, why, seconds)))
    record = SysfsRecord(
        pci=pci,
        numa=tuple(answers.records[i] for i in found if i.startswith("numa/")),
        net=tuple(answers.records[i] for i in found if i.startswith("net/")),
        rdma=tuple(answers.records[i] for i in found if i.startswith("rdma/")),
        nvme=tuple(answers.records[i] for i in found if i.startswith("nvme/")),
        slots=slots,
    )
    detail = _first(failed)
    if len(failed) > 1:
        detail = f"{detail} (and {len(failed) - 1} more)"
    result = SourceResult("sysfs", _status(failed, answers.hung, True), detail, seconds)
    return NodeFacts(host, record, (host_result, result))


def _absence(failed: list[str]) -> SourceStatus:
    return "denied" if any("no permission" in why for why in failed) else "absent"


def _status(failed: list[str], hung: list[str], some: bool) -> SourceStatus:
    if not failed:
        return "ok"
    return "partial" if some else "timeout" if hung else "error"


def _first(failed: list[str]) -> str | None:
    return failed[0] if failed else None


def _plain(item: str) -> str:
    kind, _, name = item.partition("/")
    return {"pci": name, "numa": f"NUMA node {name}"}.get(kind, f"{kind} {name}")


def _list_items(root: Root) -> tuple[list[str], list[str]]:
    """Return the items to read, and what could not even be listed."""
    items, gaps = ["host/"], []
    for kind, path, wanted in (
        ("numa", _NODES, lambda name: name[:4] == "node" and name[4:].isdigit()),
        ("pci", PCI_DEVICES, is_address),
        ("net", _NET, lambda name: name not in ("lo", "bonding_masters")),
        ("rdma", _RDMA, lambda name: True),
        ("nvme", _NVME, lambda name: True),
    ):
        try:
            names: Iterable[str] = [name for name in root.names(path) if wanted(name)]
        except SourceError as error:
            # A machine without RDMA has no such class; one without PCI devices is odd.
            if kind == "pci":
                gaps.append(str(error))
            continue
        if kind == "numa":
            names = sorted((name[4:] for name in names), key=int)
        items += [f"{kind}/{name}" for name in names]
    return [*items, "slots/"], gaps


def _read(root: Root, names: PciNames, item: str) -> Struct | dict[str, str]:
    kind, _, name = item.partition("/")
    if kind == "host":
        return read_host(root)
    if kind == "pci":
        return read_pci(root, name, names)
    if kind == "slots":
        return _slots(root)
    if kind == "numa":
        return _read_numa(root, int(name))
    return {"net": _read_net, "rdma": _read_rdma, "nvme": _read_nvme}[kind](root, name)


def _value(directory: Directory, name: str, unknown: dict[str, str], field: str) -> str | None:
    try:
        return directory.read(name)
    except SourceError as error:
        unknown[field] = str(error)
        return None


def _read_numa(root: Root, node: int) -> NumaRecord:
    unknown: dict[str, str] = {}
    with root.open(f"{_NODES}/node{node}") as directory:
        cpus = _value(directory, "cpulist", unknown, "cpus")
        distance = _value(directory, "distance", unknown, "distances") or ""
        meminfo = _value(directory, "meminfo", unknown, "memory_bytes") or ""
    words = distance.split()
    if not all(word.isdigit() for word in words):
        unknown["distances"], words = f"sysfs says {distance[:40]!r}", []
    # "Node 0 MemTotal:       24615756 kB"
    found = re.search(r"MemTotal:\s+(\d{1,15}) kB", meminfo)
    if found is None:
        unknown.setdefault("memory_bytes", "no MemTotal in meminfo")
    return NumaRecord(
        node=node,
        cpus=cpus,
        distances=tuple(int(word) for word in words),
        memory_bytes=int(found[1]) * 1024 if found else None,
        unknown=unknown,
    )


def _class_device_pci(root: Root, folder: str, name: str) -> str | None:
    """Return the PCI function that a class device sits on: the last address on its path."""
    with root.open(folder) as directory:
        target = directory.link(name) or ""
    address = last_address(target)
    if address is None:
        # Older trees and copies hold real directories here, with a link to the device inside.
        with root.open(f"{folder}/{name}") as device:
            address = last_address(device.link("device") or "")
    return address


def _read_net(root: Root, name: str) -> NetRecord:
    unknown: dict[str, str] = {}
    with root.open(f"{_NET}/{name}") as directory:
        # speed is -1 on virtio, and EINVAL while the link is down.
        speed = _value(directory, "speed", unknown, "speed_mbps")
        state = _value(directory, "operstate", unknown, "state")
        mtu = _value(directory, "mtu", unknown, "mtu")
    if speed is not None and not (speed.isdigit() and 0 < int(speed) < 10**8):
        unknown["speed_mbps"], speed = f"the driver says {speed[:40]!r}", None
    try:
        members = tuple(root.read(f"{_NET}/{name}/bonding/slaves").split())
    except SourceError:
        members = ()
    return NetRecord(
        name=name,
        pci=_class_device_pci(root, _NET, name),
        speed_mbps=int(speed) if speed else None,
        state=state,
        mtu=int(mtu) if mtu and mtu.isdigit() else None,
        bond_members=members,
        unknown=unknown,
    )


def _read_rdma(root: Root, name: str) -> RdmaRecord:
    unknown: dict[str, str] = {}
    path = f"{_RDMA}/{name}"
    with root.open(path) as directory:
        firmware = _value(directory, "fw_ver", unknown, "firmware")
    try:
        numbers = sorted(int(port) for port in root.names(f"{path}/ports") if port.isdigit())
    except SourceError as error:
        unknown["ports"], numbers = str(error), []
    return RdmaRecord(
        name=name,
        pci=_class_device_pci(root, _RDMA, name),
        ports=tuple(_read_port(root, f"{path}/ports/{port}", port) for port in numbers),
        firmware=firmware,
        unknown=unknown,
    )


def _read_port(root: Root, path: str, port: int) -> RdmaPort:
    unknown: dict[str, str] = {}
    with root.open(path) as directory:
        state = _value(directory, "state", unknown, "state")
        physical = _value(directory, "phys_state", unknown, "physical_state")
        rate = _value(directory, "rate", unknown, "rate_gbps")
        layer = _value(directory, "link_layer", unknown, "link_layer")
    found = _RATE.fullmatch(rate) if rate else None
    if rate is not None and found is None:
        unknown["rate_gbps"] = f"sysfs says {rate[:40]!r}"
    return RdmaPort(
        port=port,
        state=state.partition(": ")[2] or state if state else None,
        physical_state=physical.partition(": ")[2] or physical if physical else None,
        rate_gbps=float(found[1]) if found else None,
        rate_label=found[2] if found else None,
        link_layer=layer,
        unknown=unknown,
    )


def _read_nvme(root: Root, name: str) -> BlockRecord:
    unknown: dict[str, str] = {}
    with root.open(f"{_NVME}/{name}") as directory:
        model = _value(directory, "model", unknown, "model")
    return BlockRecord(
        name=name, pci=_class_device_pci(root, _NVME, name), model=model, unknown=unknown
    )


def _slots(root: Root) -> dict[str, str]:
    """Return PCI address without function → slot name, as the firmware numbers them."""
    slots = {}
    try:
        for slot in root.names(_SLOTS):
            slots[root.read(f"{_SLOTS}/{slot}/address")] = slot
    except SourceError:
        pass  # Most virtual machines have no slots.
    return slots
