"""Paths over the PCI tree and their classes, as nvidia-smi defines them."""

from collections.abc import Iterator, Mapping, Sequence

from topoprobe.model.snapshot import PciRecord
from topoprobe.model.topology import Device, Link, Path
from topoprobe.topology.links import link_key

_SOURCE = "sysfs"


def pcie_paths(
    devices: Sequence[Device],
    functions: Mapping[str, PciRecord],
    links: Sequence[Link],
    numa_nodes: int,
) -> Iterator[Path]:
    """Yield a path for each pair of GPUs and NICs; virtual functions are left out."""
    by_key = {device.key: device for device in devices}
    by_link = {link.key: link for link in links}
    ends = [
        device
        for device in devices
        if device.kind in ("gpu", "nic")
        and device.key in functions
        and functions[device.key].physfn is None
    ]
    chains = {device.key: _chain(device, by_key) for device in ends}
    for number, a in enumerate(ends):
        for b in ends[number + 1 :]:
            yield _path(a, b, chains[a.key], chains[b.key], by_key, by_link, numa_nodes)


def _chain(device: Device, by_key: Mapping[str, Device]) -> list[str]:
    """Return the keys from `device` up to its host bridge, itself first."""
    chain = [device.key]
    while (parent := by_key[chain[-1]].parent) in by_key and parent is not None:
        if by_key[parent].kind == "numa-node":
            break
        chain.append(parent)
    return chain


def _path(
    a: Device,
    b: Device,
    chain_a: list[str],
    chain_b: list[str],
    by_key: Mapping[str, Device],
    by_link: Mapping[str, Link],
    numa_nodes: int,
) -> Path:
    shared = next((key for key in chain_a if key in chain_b), None)
    up = chain_a[: chain_a.index(shared)] if shared else chain_a
    down = chain_b[: chain_b.index(shared)] if shared else chain_b
    keys = [link_key(key, by_link) for key in [*up, *down[::-1]]]
    hops = tuple(dict.fromkeys(key for key in keys if key))
    unknown: dict[str, str] = {}
    class_ = _class(shared, up, down, a, b, by_key, numa_nodes)
    if class_ is None:
        unknown["class"] = "different host bridges, and the NUMA node of one end is unknown"
    return Path(
        a=a.key, b=b.key, class_=class_, links=hops, unknown=unknown, sources={"*": _SOURCE}
    )


def _class(
    shared: str | None,
    up: list[str],
    down: list[str],
    a: Device,
    b: Device,
    by_key: Mapping[str, Device],
    numa_nodes: int,
) -> str | None:
    if shared is not None and by_key[shared].kind != "host-bridge":
        between = {*up, *down, shared}
        switches = sum(by_key[key].kind == "pcie-switch" for key in between)
        return "PIX" if switches <= 1 else "PXB"
    if shared is not None:
        return "PHB"
    if a.numa is not None and b.numa is not None:
        return "NODE" if a.numa == b.numa else "SYS"
    # On a machine with one NUMA node, sysfs says -1 for every device.
    return "NODE" if numa_nodes == 1 else None
