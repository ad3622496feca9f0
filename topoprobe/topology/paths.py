"""Paths between GPUs, NICs and NUMA nodes, and their classes by our own rule.

A direct NVLink or NVSwitch way is NV#, a direct C2C way is C2C, else the PCI tree decides as
nvidia-smi defines it. Where the tree does not hold both ends, NVML's common ancestor does.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from topoprobe.model.gpu import NvmlPair
from topoprobe.model.topology import Device, Link, Path, PathLabels
from topoprobe.topology.links import link_by_slot
from topoprobe.topology.nccl import NcclNames
from topoprobe.topology.nvlinks import joined

_SYSFS, _NVML = "sysfs", "nvml"


class Ground(Struct, frozen=True):
    """What paths are found on: the devices and links, and what the driver says of pairs.

    `active` is GPU → its NVLinks that are up, `switches` the keys of NVSwitches; `pairs` holds
    NVML's answers by the keys of an ordered pair of GPUs. `silent` are GPUs whose NVLinks are not
    known, because NVML stopped answering before it told.
    """

    devices: Mapping[str, Device]
    links: Mapping[str, Link]
    active: Mapping[str, list[Link]] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    pairs: Mapping[tuple[str, str], NvmlPair] = field(default_factory=dict)
    chips: Mapping[str, str] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def chain(self, key: str) -> list[str]:
        """Return the keys from a device up to its host bridge, itself first."""
        chain = [key]
        while (parent := self.devices[chain[-1]].parent) in self.devices and parent is not None:
            if self.devices[parent].kind == "numa-node":
                break
            chain.append(parent)
        return chain


def find_paths(ground: Ground, ends: Sequence[Device]) -> Iterator[Path]:
    """Yield a path for each pair of `ends`; a second one where the directions differ."""
    finder = _Finder(ground, ends)
    for number, a in enumerate(ends):
        for b in ends[number + 1 :]:
            yield from finder.between(a, b)


class _Finder:
    def __init__(self, ground: Ground, ends: Sequence[Device]) -> None:
        self.ground = ground
        self.chains = {device.key: ground.chain(device.key) for device in ends}
        nodes = [d for d in ground.devices.values() if d.kind == "numa-node" and d.cpus]
        self.one_node = len(nodes) <= 1
        self.slots = link_by_slot(ground.links)
        self.nccl = NcclNames(ground, self.chains, ends)
        self.c2c: dict[str, list[str]] = {}
        for link in ground.links.values():
            if link.kind == "c2c" and link.a and link.state != "down":
                self.c2c.setdefault(link.a, []).append(link.key)

    def between(self, a: Device, b: Device) -> Iterator[Path]:
        if b.kind == "numa-node":
            if a.kind == "gpu":
                yield self._to_node(a, b)
            return
        there, back = self._nvlinks(a, b), self._nvlinks(b, a)
        forth = self._path(a, b, there, back)
        yield forth
        if a.kind == "gpu" and b.kind == "gpu":
            opposite = self._path(b, a, back, there)
            other_rights = bool(opposite.p2p) and opposite.p2p != forth.p2p
            if other_rights or opposite.labels != forth.labels:
                yield opposite

    def _nvlinks(self, a: Device, b: Device) -> list[Link]:
        if a.kind != "gpu" or b.kind != "gpu":
            return []
        return joined(a.key, b.key, self.ground.active, set(self.ground.switches))

    def _path(self, a: Device, b: Device, there: list[Link], back: list[Link]) -> Path:
        tree, hops, source = self._tree_class(a, b)
        unknown: dict[str, str] = {}
        class_ = tree
        sources = {"*": _SYSFS, "class": source, "pcie_class": source}
        if there and back:
            class_ = f"NV{min(len(there), len(back))}"
            # Of a direct bond both ends are the same wires; through a switch there are two bonds.
            ways = [*there, *back] if there[0].b in self.ground.switches else there
            hops = tuple(link.key for link in ways)
            sources = {"*": _NVML, "pcie_class": source}
        elif class_ is None:
            unknown["class"] = self._why_no_class(a, b)
        label = f"NV{len(there)}" if there and back else tree
        if a.kind == b.kind == "gpu" and self.ground.silent & {a.key, b.key}:
            class_, label = None, None
            unknown["class"] = "NVML did not tell the NVLinks of one of the two"
            unknown["labels.nvidia_smi"] = unknown["labels.nccl"] = unknown["class"]
        pair = self.ground.pairs.get((a.key, b.key))
        return Path(
            a=a.key, b=b.key, class_=class_, pcie_class=tree,
            labels=PathLabels(
                label, None if "class" in unknown else
                self.nccl.name(a, b, tree, bool(there and back)),
            ),
            links=hops, p2p=dict(pair.p2p) if pair else {},
            unknown={**unknown, **_p2p_gaps(pair)},
            sources={**sources, "labels": "computed", **({"p2p": _NVML} if pair else {})},
        )  # fmt: skip

    def _why_no_class(self, a: Device, b: Device) -> str:
        tops = [self.chains[device.key][-1] for device in (a, b)]
        if any(not top.startswith("host-bridge:") for top in tops):
            return "/sys does not show both devices, and NVML tells no common ancestor"
        return "different host bridges, and the NUMA node of one end is unknown"

    def _tree_class(self, a: Device, b: Device) -> tuple[str | None, tuple[str, ...], str]:
        """Return the class by the PCI tree, the links on the way, and the source of the class."""
        chain_a, chain_b = self.chains[a.key], self.chains[b.key]
        shared = next((key for key in chain_a if key in chain_b), None)
        up = chain_a[: chain_a.index(shared)] if shared else chain_a
        down = chain_b[: chain_b.index(shared)] if shared else chain_b
        class_ = self._class(shared, up, down, a, b)
        source = _SYSFS
        if class_ is None:
            class_, source = self._ancestor(a, b)
        beyond = class_ in ("PHB", "NODE", "SYS", None)
        hops = [*self._way(a, up, beyond), *self._way(b, down, beyond)[::-1]]
        return class_, tuple(dict.fromkeys(hops)), source

    def _way(self, device: Device, keys: Sequence[str], to_cpu: bool) -> list[str]:
        """Return the links from a device upwards; a GPU with C2C reaches its CPU over that."""
        if to_cpu and device.key in self.c2c:
            return self.c2c[device.key]
        found = [self.slots.get(key.rpartition(".")[0]) for key in keys]
        return [key for key in found if key]

    def _class(
        self, shared: str | None, up: list[str], down: list[str], a: Device, b: Device
    ) -> str | None:
        devices = self.ground.devices
        if shared is not None and devices[shared].kind not in ("host-bridge", "gpu", "nic"):
            between = {*up, *down, shared}
            switches = sum(devices[key].kind == "pcie-switch" for key in between)
            return "PIX" if switches <= 1 else "PXB"
        if shared is not None:
            return "PHB"
        if not all(chain[-1].startswith("host-bridge:") for chain in (up, down)):
            return None
        if a.numa is not None and b.numa is not None:
            return "NODE" if a.numa == b.numa else "SYS"
        # On a machine with one NUMA node, sysfs says -1 for every device.
        return "NODE" if self.one_node else None

    def _ancestor(self, a: Device, b: Device) -> tuple[str | None, str]:
        for pair in ((a.key, b.key), (b.key, a.key)):
            found = self.ground.pairs.get(pair)
            if found and found.ancestor:
                return found.ancestor, "nvml (common ancestor)"
        return None, _SYSFS

    def _to_node(self, device: Device, node: Device) -> Path:
        """Return the path from a GPU to the memory of a NUMA node."""
        hops = self._way(device, self.chains[device.key], True)
        unknown: dict[str, str] = {}
        class_: str | None = "SYS"
        if device.numa is None and not self.one_node:
            class_, unknown["class"] = None, "the NUMA node of the GPU is unknown"
        elif device.numa in (node.numa, None):
            class_ = "C2C" if device.key in self.c2c else "PHB"
        return Path(
            a=device.key, b=node.key, class_=class_, links=tuple(hops), unknown=unknown,
            sources={"*": _SYSFS},
        )  # fmt: skip


def _p2p_gaps(pair: NvmlPair | None) -> dict[str, str]:
    if pair is None:
        return {}
    return {"p2p" if name == "*" else name: why for name, why in pair.unknown.items()}
