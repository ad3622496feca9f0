"""The hierarchy of a node, from memory outwards: each level with its ceiling and measurement."""

from collections.abc import Iterable, Sequence

from topoprobe.model.report import Level, Measurement
from topoprobe.model.topology import LimitGBps, Link, Topology

_NOT_MEASURED = "not measured"
_KINDS = {"gpu": "GPU", "nic": "NIC", "nvme": "NVMe", "nvswitch": "NVSwitch"}


def levels_of(topology: Topology, measurements: Sequence[Measurement] = ()) -> tuple[Level, ...]:
    """Return the levels that `topology` shows, small and fast first."""
    devices = {device.key: device for device in topology.devices}
    memory = [link for link in topology.links if link.kind == "memory"]
    levels = [_memory(link, measurements) for link in memory]
    groups: dict[tuple[str, str], list[Link]] = {}
    for link in topology.links:
        device = devices.get(link.b or "")
        if link.kind != "pcie" or device is None or device.kind not in _KINDS:
            continue
        speed = f"PCIe {_or(link.maximum.generation)}.0 x{_or(link.current.width)}"
        groups.setdefault((_KINDS[device.kind], speed), []).append(link)
    levels += [_pcie(kind, speed, links) for (kind, speed), links in groups.items()]
    return tuple(levels)


def _or(value: int | None) -> str:
    return "?" if value is None else str(value)


def _memory(link: Link, measurements: Iterable[Measurement]) -> Level:
    node = link.a or ""
    done = [m for m in measurements if m.kind == "memory" and node in m.devices and m.algbw_GBps]
    rates = [m.algbw_GBps for m in done if m.algbw_GBps is not None]
    return Level(
        name="DRAM",
        each=node,
        count=1,
        subject=(link.key,),
        limit_GBps=link.limit_GBps,
        measured_GBps=min(rates) if rates else None,
        measured_by=done[0].op if done else None,
        unknown={
            **{k: v for k, v in link.unknown.items() if k.startswith("limit_GBps")},
            **({} if rates else {"measured_GBps": _NOT_MEASURED}),
        },
    )


def _pcie(kind: str, speed: str, links: list[Link]) -> Level:
    slowest = min(links, key=lambda link: link.limit_GBps.payload or 0.0)
    unknown = {k: v for k, v in slowest.unknown.items() if k.startswith("limit_GBps")}
    return Level(
        name=speed,
        each=f"{kind}↔host",
        count=len(links),
        subject=tuple(link.key for link in links),
        limit_GBps=LimitGBps(
            slowest.limit_GBps.line, slowest.limit_GBps.payload, slowest.limit_GBps.expected
        ),
        unknown={**unknown, "measured_GBps": _NOT_MEASURED},
    )
