"""What collectives run on: a small description of one node, derived from its map.

Rates are payload rates in GB/s, one direction. A rate that is not known is None, and
`Ground.unknown` says why.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from topoprobe.model.topology import Device, Link, Topology
from topoprobe.topology.gpus import is_nvidia
from topoprobe.topology.links import link_by_slot
from topoprobe.topology.nvlinks import active_links

HOST = "host"
# NCCL's lane rates in units of 100 Mb/s (ncclTopoPciLinkSpeed): GB/s are width x rate / 80.
_NCCL_LANE = {1: 15, 2: 30, 3: 60, 4: 120, 5: 240, 6: 480}
_NEAR = {"C2C": 0, "PIX": 0, "PXB": 1, "PHB": 2, "NODE": 3, "SYS": 4}


class Bundle(Struct, frozen=True):
    """NVLinks that run side by side: their keys and what they carry together."""

    links: tuple[str, ...]
    rate: float | None


class Wire(Struct, frozen=True):
    """One PCIe link: its key, its rate and the rate that NCCL plans with."""

    link: str
    rate: float | None
    nccl: float | None = None


class Nic(Struct, frozen=True):
    """A NIC for collectives: GB/s, and what NCCL plans with."""

    key: str
    rate: float | None
    nccl: float | None = None


class Nvls(Struct, frozen=True):
    """Whether the NVSwitches can add and copy for an all_reduce; None: not known. And why."""

    usable: bool | None
    why: str


class Ground(Struct, frozen=True, kw_only=True):
    """One node as collectives see it.

    gpus
        Keys in the order of the driver's numbers; `names` is how to call them.
    switched, pairs
        NVLinks of a GPU to NVSwitches, and between two GPUs directly.
    parents, wires
        The PCI tree above the GPUs up to HOST, and the link above a device where it has one.
    nics, rails
        NICs for collectives; GPU → the NICs that are its own, {} where GPUs have to share.
    """

    gpus: tuple[str, ...]
    names: dict[str, str] = field(default_factory=dict)
    switched: dict[str, Bundle] = field(default_factory=dict)
    pairs: dict[frozenset[str], Bundle] = field(default_factory=dict)
    parents: dict[str, str] = field(default_factory=dict)
    wires: dict[str, Wire] = field(default_factory=dict)
    numa: dict[str, int] = field(default_factory=dict)
    nics: tuple[Nic, ...] = ()
    rails: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nvls: Nvls = Nvls(None, "not asked")
    compute_capability: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


def ground_of(topology: Topology, cuda: str | None = None) -> Ground:
    """Return what collectives run on; `cuda` is the newest CUDA version that the driver takes."""
    devices = {device.key: device for device in topology.devices}
    gpus = sorted(filter(_takes_part, topology.devices), key=_number)
    links = {link.key: link for link in topology.links}
    switches = {d.key for d in topology.devices if d.kind == "nvswitch"}
    keys = [gpu.key for gpu in gpus]
    switched, pairs = _nvlinks(topology.links, keys, switches)
    parents, wires = _tree(keys, devices, links)
    nics = _nics(topology.devices, links)
    capability = min((c for gpu in gpus if (c := _capability(gpu)) is not None), default=None)
    unknown = {}
    lacking = [b for b in (*switched.values(), *pairs.values()) if b.rate is None]
    if lacking:
        unknown["nvlink"] = f"the data rate of {lacking[0].links[0]} is not known"
    rails, why = _rails(topology, keys, nics)
    if why:
        unknown["rails"] = why
    return Ground(
        gpus=tuple(keys),
        names={gpu.key: gpu.alias or gpu.key for gpu in gpus},
        switched=switched, pairs=pairs, parents=parents, wires=wires,
        numa={gpu.key: gpu.numa for gpu in gpus if gpu.numa is not None},
        nics=nics, rails=rails,
        nvls=_nvls(gpus, switched, capability, cuda),
        compute_capability=capability,
        unknown=unknown,
    )  # fmt: skip


def _takes_part(device: Device) -> bool:
    """Tell whether NCCL could run on a device; GPUs in MIG mode have no peers."""
    if device.kind != "gpu" or (device.pci is not None and not is_nvidia(device)):
        return False
    return not (device.gpu and device.gpu.mig_enabled)


def _number(gpu: Device) -> tuple[int, str]:
    alias = gpu.alias or ""
    return (int(alias[3:]) if alias[3:].isdigit() else 1 << 16, gpu.key)


def _capability(gpu: Device) -> int | None:
    told = gpu.gpu.compute_capability if gpu.gpu else None
    major, _, minor = (told or "").partition(".")
    return int(major) * 10 + int(minor) if major.isdigit() and minor.isdigit() else None


def _nvlinks(
    links: Iterable[Link], gpus: list[str], switches: set[str]
) -> tuple[dict[str, Bundle], dict[frozenset[str], Bundle]]:
    active = active_links(links)
    switched, pairs = {}, {}
    for number, gpu in enumerate(gpus):
        to_switch = [link for link in active.get(gpu, ()) if link.b in switches]
        if to_switch:
            switched[gpu] = _bundle(to_switch)
        for other in gpus[number + 1 :]:
            there = [link for link in active.get(gpu, ()) if link.b == other]
            back = [link for link in active.get(other, ()) if link.b == gpu]
            # A link needs both its ends: the driver that sees fewer is right.
            if there and back:
                pairs[frozenset((gpu, other))] = _bundle(min(there, back, key=len))
    return switched, pairs


def _bundle(links: list[Link]) -> Bundle:
    rates = [link.limit_GBps.payload for link in links]
    known = [rate for rate in rates if rate is not None]
    return Bundle(
        tuple(link.key for link in links), sum(known) if len(known) == len(rates) else None
    )


def _tree(
    gpus: Iterable[str], devices: Mapping[str, Device], links: Mapping[str, Link]
) -> tuple[dict[str, str], dict[str, Wire]]:
    """Return the PCI tree above the GPUs: child → parent, and device → the link above it."""
    slots = link_by_slot(links)
    parents: dict[str, str] = {}
    wires: dict[str, Wire] = {}
    for gpu in gpus:
        key = gpu
        while key != HOST and key not in parents:
            device = devices[key]
            above = devices.get(device.parent or "")
            parents[key] = HOST if above is None or above.kind == "numa-node" else above.key
            link = links.get(slots.get(key.rpartition(".")[0], ""))
            # The link between the two halves of one switch chip is no wire and no limit.
            if link is not None and device.chip is None:
                wires[key] = _wire(link)
            key = parents[key]
    return parents, wires


def _wire(link: Link) -> Wire:
    generation, width = link.maximum.generation, link.current.width
    lane = _NCCL_LANE.get(generation or 0)
    nccl = width * lane / 80 if lane and width else None
    return Wire(link.key, link.limit_GBps.payload, nccl)


def _nics(devices: Iterable[Device], links: Mapping[str, Link]) -> tuple[Nic, ...]:
    """Return the NICs for collectives; a function of another's card is left out beside it."""
    slots = link_by_slot(links)
    found = [d for d in devices if d.kind == "nic" and d.nic and d.nic.role == "compute"]
    keys = {device.key for device in found}
    nics = []
    for device in found:
        facts = device.nic
        if facts is None or facts.physical_function in keys:
            continue
        gigabits = sum(port.rate_gbps or 0 for port in facts.ports if port.state == "ACTIVE")
        port = gigabits or (facts.speed_mbps or 0) / 1000
        link = links.get(slots.get(device.key.rpartition(".")[0], ""))
        wire = _wire(link) if link else Wire("", None)
        nics.append(
            Nic(
                device.key,
                min(port / 8, wire.rate or port / 8) if port else None,
                min(port / 8, wire.nccl or port / 8) if port else None,
            )
        )
    return tuple(nics)


def _rails(
    topology: Topology, gpus: list[str], nics: tuple[Nic, ...]
) -> tuple[dict[str, tuple[str, ...]], str | None]:
    """Deal the NICs out to their nearest GPUs; the reason where the GPUs cannot have equal shares.

    A switch that holds two GPUs and two NICs gives one to each: ties go in order.
    """
    if not gpus or not nics:
        return {}, "no NIC for collectives is known"
    if len(nics) % len(gpus):
        return {}, f"{len(nics)} NICs cannot be shared out evenly among {len(gpus)} GPUs"
    share = len(nics) // len(gpus)
    distance = {
        end: _NEAR.get(path.class_ or "", 5)
        for path in topology.paths
        for end in ((path.a, path.b), (path.b, path.a))
    }
    order = sorted(
        (distance.get((gpu, nic.key), 5), number, index)
        for index, gpu in enumerate(gpus)
        for number, nic in enumerate(nics)
    )
    own: dict[str, list[str]] = {gpu: [] for gpu in gpus}
    taken: set[str] = set()
    for _, number, index in order:
        nic, gpu = nics[number].key, gpus[index]
        if nic not in taken and len(own[gpu]) < share:
            own[gpu].append(nic)
            taken.add(nic)
    return {gpu: tuple(mine) for gpu, mine in own.items()}, None


def _nvls(
    gpus: list[Device], switched: Mapping[str, Bundle], capability: int | None, cuda: str | None
) -> Nvls:
    """Tell whether NVLS can be used: switches that add, a driver that knows how, a fabric."""
    if len(switched) < 2:
        return Nvls(False, "the GPUs are not joined by NVSwitches")
    if capability is None:
        return Nvls(None, "the compute capability of the GPUs is not known")
    if capability < 90:
        return Nvls(False, "NVSwitches of this generation do not add: that came with Hopper")
    major, _, minor = (cuda or "").partition(".")
    if not (major.isdigit() and minor.isdigit()):
        return Nvls(None, "the driver's CUDA version is not known")
    if (int(major), int(minor)) < (12, 1):
        return Nvls(False, f"the driver takes CUDA up to {cuda}, and NVLS needs 12.1")
    for gpu in gpus:
        fabric = gpu.gpu.fabric if gpu.gpu else None
        name = gpu.alias or gpu.key
        if fabric is None or fabric.state is None:
            return Nvls(None, f"the driver does not tell the state of the NVLink fabric of {name}")
        if fabric.state != "completed" or fabric.status not in (0, None):
            return Nvls(False, f"{name} is not registered with the NVLink fabric")
    return Nvls(True, "the fabric is up and the switches add")
