"""The hierarchy of a node, from memory outwards: each level with its ceiling and measurement."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from topoprobe.model.report import Level, Measurement
from topoprobe.model.topology import Device, LimitGBps, Link, Topology

# What a link is called and what one of them joins; None: not shown.
Namer = Callable[[Link], "tuple[str, str] | None"]
_NOT_MEASURED = "not measured"
_KINDS = {"gpu": "GPU", "nic": "NIC", "nvme": "NVMe", "nvswitch": "NVSwitch"}


def levels_of(topology: Topology, measurements: Sequence[Measurement] = ()) -> tuple[Level, ...]:
    """Return the levels that `topology` shows, small and fast first."""
    devices = {device.key: device for device in topology.devices}
    memory = [link for link in topology.links if link.kind == "memory"]
    of_gpus = [link for link in memory if _kind(link.a, devices) == "gpu"]
    # On GH200 and GB200 some NUMA nodes are the memory of a GPU, which is listed as that.
    nodes = [link for link in memory if _kind(link.a, devices) == "numa-node"]
    of_host = [k for k in nodes if _kind(devices[k.a or ""].parent, devices) != "gpu"]
    return (
        *_grouped(of_gpus, lambda link: ("GPU memory", "GPU")),
        *_bundles(topology.links, devices, "nvlink"),
        *_bundles(topology.links, devices, "c2c"),
        *[_dram(link, measurements) for link in of_host],
        *_grouped(
            [link for link in topology.links if link.kind == "pcie"],
            lambda link: _pcie(link, devices),
        ),
        *_grouped(
            [k for k in topology.links if k.kind == "network" and k.state == "up"], _network
        ),
    )


def _kind(key: str | None, devices: Mapping[str, Device]) -> str:
    device = devices.get(key or "")
    return device.kind if device else ""


def _or(value: int | None) -> str:
    return "?" if value is None else str(value)


def _pcie(link: Link, devices: Mapping[str, Device]) -> tuple[str, str] | None:
    gpu = devices.get(link.b or "")
    if gpu is not None and gpu.gpu is not None and gpu.gpu.c2c is not None:
        return None  # its way to the host is C2C; this link carries configuration only
    kind = _KINDS.get(_kind(link.b, devices))
    speed = f"PCIe {_or(link.maximum.generation)}.0 x{_or(link.current.width)}"
    return (speed, f"{kind}↔host") if kind else None


def _network(link: Link) -> tuple[str, str] | None:
    return (f"network {link.version or ''}".strip(), "NIC↔fabric")


def _grouped(links: Iterable[Link], name: Namer) -> list[Level]:
    """Return one level for all links of a name, with the lowest of their limits."""
    groups: dict[tuple[str, str], list[Link]] = {}
    for link in links:
        found = name(link)
        if found is not None:
            groups.setdefault(found, []).append(link)
    return [_level(name, each, some) for (name, each), some in groups.items()]


def _level(name: str, each: str, links: list[Link]) -> Level:
    slowest = min(links, key=lambda link: link.limit_GBps.payload or link.limit_GBps.line or 0.0)
    unknown = {k: v for k, v in slowest.unknown.items() if k.startswith("limit_GBps")}
    return Level(
        name=name,
        each=each,
        count=len(links),
        subject=tuple(link.key for link in links),
        limit_GBps=slowest.limit_GBps,
        unknown={**unknown, "measured_GBps": _NOT_MEASURED},
    )


def _bundles(links: Iterable[Link], devices: Mapping[str, Device], kind: str) -> list[Level]:
    """Return a level per kind of bundle: the links from one GPU to the same place, added up."""
    bundles: dict[tuple[str, str], list[Link]] = {}
    for link in links:
        if link.kind == kind and link.state == "up" and link.a:
            # All switches of a node are one network; other far ends are each their own.
            far = "switch" if _kind(link.b, devices) == "nvswitch" else link.b or "?"
            bundles.setdefault((link.a, far), []).append(link)
    groups: dict[tuple[str, str], list[list[Link]]] = {}
    for (_, far), some in bundles.items():
        where = "GPU→CPU" if kind == "c2c" else "GPU→switch" if far == "switch" else "GPU→GPU"
        version = f"NVLink {some[0].version or '?'}" if kind == "nvlink" else "C2C"
        groups.setdefault((f"{version} ×{len(some)}", where), []).append(some)
    return [_bundle(name, each, bundles) for (name, each), bundles in groups.items()]


def _bundle(name: str, each: str, bundles: list[list[Link]]) -> Level:
    slowest = min(bundles, key=lambda links: _sum(links).line or 0.0)
    unknown = {k: v for k, v in slowest[0].unknown.items() if k.startswith("limit_GBps")}
    return Level(
        name=name,
        each=each,
        count=len(bundles),
        subject=tuple(link.key for links in bundles for link in links),
        limit_GBps=_sum(slowest),
        unknown={**unknown, "measured_GBps": _NOT_MEASURED},
    )


def _sum(links: Sequence[Link]) -> LimitGBps:
    """Return the ceilings of links that work side by side; None where one is not known."""

    def total(values: list[float | None]) -> float | None:
        return None if None in values else sum(value for value in values if value is not None)

    return LimitGBps(
        total([link.limit_GBps.line for link in links]),
        total([link.limit_GBps.payload for link in links]),
        None,
    )


def _dram(link: Link, measurements: Iterable[Measurement]) -> Level:
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
