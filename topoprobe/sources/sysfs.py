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
    RdmaRecord,
    SourceResult,
    SourceStatus,
    SysfsRecord,
)
from topoprobe.sources.attributes import class_device_pci, value
from topoprobe.sources.deadline import Reading, run_readings
from topoprobe.sources.host import read_host
from topoprobe.sources.pci import PCI_DEVICES, is_address, read_pci
from topoprobe.sources.pci_names import PciNames
from topoprobe.sources.rdma import NET, RDMA, read_net, read_rdma
from topoprobe.sources.rootfs import Root

_NODES = "/sys/devices/system/node"
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


class NodeFacts(Struct):
    """What one pass over /sys and /proc gave: the records and how reading them went."""

    host: HostRecord
    sysfs: SysfsRecord | None
    results: tuple[SourceResult, ...]


class SysfsReading:
    """The reading of /sys and /proc: give `reading` to `run_readings`, then take `result`."""

    def __init__(self, root: Root, until: float, deadline_s: float) -> None:
        self._root = root
        self._items, self._gaps = _list_items(root)
        names = PciNames(root)
        self.reading = Reading(
            self._items,
            lambda item: _read(root, names, item),
            _TYPES,
            until=until,
            # One device may hold up the rest for a quarter of the time, so that three sick
            # ones still leave the healthy ones time to answer.
            stall_s=min(2.5, max(0.25, deadline_s / 4)),
        )

    def result(self) -> NodeFacts:
        """Return what was read, and how it went."""
        answers, seconds = self.reading.answers, self.reading.seconds
        records = answers.records
        host = records.get("host/") or HostRecord(
            unknown={"*": answers.failed.get("host/", "not read")}
        )
        host_why = [f"host: {answers.failed['host/']}"] if "host/" in answers.failed else []
        host_result = SourceResult(
            "host", _status(host_why, answers.hung, bool(not host_why)), _first(host_why), seconds
        )
        failed = self._gaps + [
            f"{_plain(item)}: {why}" for item, why in answers.failed.items() if item != "host/"
        ]
        found = [i for i in self._items if i in records and i not in ("host/", "slots/")]
        if not found:
            why = _first(failed) or f"{self._root.path.rstrip('/')}/sys holds no devices"
            status: SourceStatus = "timeout" if answers.hung else _absence(failed)
            result = SourceResult("sysfs", status, why, seconds)
            return NodeFacts(host, None, (host_result, result))

        def of(kind: str) -> tuple[Any, ...]:
            return tuple(records[item] for item in found if item.startswith(f"{kind}/"))

        record = SysfsRecord(
            pci=of("pci"), numa=of("numa"), net=of("net"), rdma=of("rdma"), nvme=of("nvme"),
            slots=records.get("slots/", {}),
        )  # fmt: skip
        detail = _first(failed)
        if len(failed) > 1:
            detail = f"{detail} (and {len(failed) - 1} more)"
        result = SourceResult("sysfs", _status(failed, answers.hung, True), detail, seconds)
        return NodeFacts(host, record, (host_result, result))


def read_node(root: Root, deadline_s: float) -> NodeFacts:
    """Read /sys and /proc under `root` within `deadline_s` seconds; never raises for a device."""
    sysfs = SysfsReading(root, time.monotonic() + deadline_s, deadline_s)
    run_readings([sysfs.reading])
    return sysfs.result()


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
        ("net", NET, lambda name: name not in ("lo", "bonding_masters")),
        ("rdma", RDMA, lambda name: True),
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
    return {"net": read_net, "rdma": read_rdma, "nvme": _read_nvme}[kind](root, name)


def _read_numa(root: Root, node: int) -> NumaRecord:
    unknown: dict[str, str] = {}
    with root.open(f"{_NODES}/node{node}") as directory:
        cpus = value(directory, "cpulist", unknown, "cpus")
        distance = value(directory, "distance", unknown, "distances") or ""
        meminfo = value(directory, "meminfo", unknown, "memory_bytes") or ""
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


def _read_nvme(root: Root, name: str) -> BlockRecord:
    unknown: dict[str, str] = {}
    with root.open(f"{_NVME}/{name}") as directory:
        model = value(directory, "model", unknown, "model")
    return BlockRecord(
        name=name, pci=class_device_pci(root, _NVME, name), model=model, unknown=unknown
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
