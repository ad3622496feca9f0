"""Paths of the map of an NCCL topology file: by our own rule, as far as the file carries it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from topoprobe.model.topology import Device, Path, PathLabels
from topoprobe.topology._nccl_devices import SOURCE
from topoprobe.topology.paths import Ground, find_paths

_NO_BRIDGES = "PHB or NODE: an NCCL topology file has no host bridges"
_NO_NODE = "the file does not tell the NUMA node of one end"
_XGMI = "xGMI joins the two; there is no class for it"


@dataclass(frozen=True)
class Places:
    """Address of a device right below a ``cpu`` element → number of that element."""

    cpu_of_top: Mapping[str, int]


def nccl_paths(
    ground: Ground,
    ends: Sequence[Device],
    places: Places,
    xgmi: frozenset[frozenset[str]],
) -> Iterator[Path]:
    """Yield a path for each pair, with no class where the file cannot tell it."""
    stood = _with_bridges(ground, places)
    tops = {device.key: _top(device, ground) for device in ends}
    for path in find_paths(stood, [stood.devices[device.key] for device in ends]):
        yield _told(path, ground, places, tops, xgmi)


def _with_bridges(ground: Ground, places: Places) -> Ground:
    """Return the ground with a host bridge above each top device, and a node for each cpu.

    Then the rules for /sys hold, and what rests on these inventions alone is taken back later.
    """
    devices = dict(ground.devices)
    for key, device in ground.devices.items():
        cpu = places.cpu_of_top.get(_top(device, ground))
        if cpu is None:
            continue
        changed = device
        if device.numa is None and device.kind != "nvswitch":
            changed = msgspec.structs.replace(changed, numa=-1 - cpu)
        if key in places.cpu_of_top:
            bridge = f"host-bridge:{key}"
            devices[bridge] = Device(key=bridge, kind="host-bridge", parent=None)
            changed = msgspec.structs.replace(changed, parent=bridge)
        devices[key] = changed
    return Ground(
        devices=devices,
        links=ground.links,
        active=ground.active,
        switches=ground.switches,
        chips=ground.chips,
    )


def _top(device: Device, ground: Ground) -> str:
    return ground.chain(device.key)[-1]


def _told(
    path: Path,
    ground: Ground,
    places: Places,
    tops: Mapping[str, str],
    xgmi: frozenset[frozenset[str]],
) -> Path:
    a, b = ground.devices[path.a], ground.devices[path.b]
    sources = dict.fromkeys(path.sources, SOURCE) | {"labels": "computed"}
    path = msgspec.structs.replace(path, sources=sources)
    if b.kind == "numa-node":
        if a.numa is not None:
            return path
        return msgspec.structs.replace(path, class_=None, unknown={"class": _NO_NODE})
    class_, why = path.pcie_class, None
    if class_ in ("NODE", "SYS", None):
        class_, why = _across(a, b, path, places, tops)
    return _replaced(path, class_, why, _XGMI if frozenset((a.key, b.key)) in xgmi else None)


def _across(
    a: Device, b: Device, path: Path, places: Places, tops: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Return the class of two that share no switch, or why the file does not tell it."""
    if a.key.rpartition(".")[0] == b.key.rpartition(".")[0]:
        return "PIX", None
    if a.numa is not None and b.numa is not None:
        if a.numa != b.numa:
            return "SYS", None
        # A PCI domain is a host bridge's own, so devices of two domains have two bridges.
        if a.key.partition(":")[0] != b.key.partition(":")[0]:
            return "NODE", None
        return None, _NO_BRIDGES
    one = places.cpu_of_top.get(tops[a.key]) == places.cpu_of_top.get(tops[b.key])
    return None, _NO_BRIDGES if one else _NO_NODE


def _replaced(path: Path, pcie_class: str | None, why: str | None, xgmi: str | None) -> Path:
    unknown = dict(path.unknown)
    if why:
        unknown["pcie_class"] = why
    if (path.class_ or "").startswith("NV"):
        return msgspec.structs.replace(path, pcie_class=pcie_class, unknown=unknown)
    no_class = xgmi or why
    if no_class:
        unknown["class"] = unknown["labels.nvidia_smi"] = no_class
    if xgmi:
        unknown["labels.nccl"] = xgmi
    class_ = None if no_class else pcie_class
    return msgspec.structs.replace(
        path,
        class_=class_,
        pcie_class=pcie_class,
        labels=PathLabels(class_, None if xgmi else path.labels.nccl),
        unknown=unknown,
    )
