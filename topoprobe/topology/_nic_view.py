"""The NICs of a node as the rules on their roles need them: records joined, nothing concluded."""

from collections.abc import Iterable

from msgspec import Struct

from topoprobe.model.snapshot import NetRecord, PciRecord, RdmaRecord, SysfsRecord
from topoprobe.topology.kinds import kind_of, parents_of

Model = tuple[int | None, int | None, int | None, int | None, str | None]


class Nic(Struct, frozen=True):
    """One PCI function that is a NIC, with its interfaces and RDMA devices.

    `rdma` of the second port of a bonded card is the device of the bond, which sits on the first.
    `near` are the GPUs below a PCI bridge that is above this NIC too.
    """

    pci: PciRecord
    nets: tuple[NetRecord, ...]
    rdma: tuple[RdmaRecord, ...]
    near: tuple[str, ...]

    @property
    def key(self) -> str:
        """The PCI address."""
        return self.pci.address

    @property
    def card(self) -> str:
        """The address without its function: ports of one card share it."""
        return self.pci.address.rpartition(".")[0]

    @property
    def layer(self) -> str | None:
        """``InfiniBand``, ``Ethernet`` or the kernel's other words; None where nothing says it."""
        for device in self.rdma:
            for port in device.ports:
                if port.link_layer:
                    return port.link_layer
        hardware = {net.hardware for net in self.nets}
        return "InfiniBand" if 32 in hardware else "Ethernet" if 1 in hardware else None

    @property
    def model(self) -> Model:
        """What cards of one kind have in common."""
        pci = self.pci
        return (pci.vendor, pci.device, pci.subsystem_vendor, pci.subsystem_device, self.layer)

    @property
    def rate(self) -> float | None:
        """Gbit/s of the fastest port that is up; a port that is down tells any number."""
        ports = [port for device in self.rdma for port in device.ports]
        rates = [p.rate_gbps for p in ports if p.rate_gbps and p.state == "ACTIVE"]
        rates += [n.speed_mbps / 1000 for n in self.nets if n.speed_mbps and not self.rdma]
        return max(rates, default=None)


class Node(Struct, frozen=True):
    """All NICs of a node, what they are measured against, and what names lead out of it.

    `routes` holds interface → the interface with the default route that stands on it (or itself).
    `bonds` holds interface → the bond that it is a member of.
    """

    nics: tuple[Nic, ...]
    gpus: tuple[str, ...]
    switches_seen: bool
    routes: dict[str, str]
    bonds: dict[str, str]
    rates: dict[Model, float]

    @property
    def physical(self) -> list[Nic]:
        """The NICs without the virtual functions of others that stand beside them."""
        return [nic for nic in self.nics if nic.pci.physfn is None]

    def rate(self, nic: Nic) -> float | None:
        """Return the rate of the fastest NIC of the same model: one port may be at fault."""
        return self.rates.get(nic.model)


def view(record: SysfsRecord) -> Node:
    """Return the NICs in `record` with what stands around them."""
    parents = parents_of(record.pci)
    by_address = {function.address: function for function in record.pci}
    kinds = {f.address: kind_of(f, parents, by_address) for f in record.pci}
    gpus = [address for address, kind in kinds.items() if kind == "gpu"]
    bridges = {a: _bridges(a, parents, by_address) for a, kind in kinds.items()
               if kind in ("gpu", "nic")}  # fmt: skip
    bonds = {member: net.name for net in record.net for member in net.bond_members}
    nics = tuple(
        Nic(
            pci=by_address[address],
            nets=(nets := tuple(n for n in record.net if n.pci == address)),
            rdma=_rdma_of(address, nets, record.rdma, bonds),
            near=tuple(gpu for gpu in gpus if bridges[gpu] & bridges[address]),
        )
        for address, kind in kinds.items()
        if kind == "nic"
    )
    rates: dict[Model, float] = {}
    for nic in nics:
        if nic.rate:
            rates[nic.model] = max(nic.rate, rates.get(nic.model, 0.0))
    switches = "nvswitch" in kinds.values()
    return Node(nics, tuple(gpus), switches, _routes(record.net), bonds, rates)


def _bridges(
    address: str, parents: dict[str, str | None], by_address: dict[str, PciRecord]
) -> frozenset[str]:
    """Return the PCI bridges above a function, without the host bridge."""
    found: set[str] = set()
    above = parents.get(address)
    while above is not None and above in by_address and above not in found:
        found.add(above)
        above = parents.get(above)
    return frozenset(found)


def _rdma_of(
    address: str,
    nets: Iterable[NetRecord],
    devices: tuple[RdmaRecord, ...],
    bonds: dict[str, str],
) -> tuple[RdmaRecord, ...]:
    own = tuple(device for device in devices if device.pci == address)
    serves = {bonds[net.name] for net in nets if net.name in bonds}
    return own or tuple(device for device in devices if serves & set(device.netdevs))


def _routes(nets: tuple[NetRecord, ...]) -> dict[str, str]:
    """Return interface → the one with the default route that it carries, through any layers."""
    below = {net.name: (*net.lower, *net.bond_members) for net in nets}
    found: dict[str, str] = {}
    for top in (net.name for net in nets if net.default_route):
        todo = [top]
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = top
                todo.extend(below.get(name, ()))
    return found
