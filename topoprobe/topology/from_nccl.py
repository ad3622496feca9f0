"""The map that an NCCL topology file alone gives.

The file has NUMA nodes, switches (by their upper ports), GPUs and NICs, and for each of them the
speed of the link above it. It has no host bridges, root ports or ports of switches.
"""

from collections.abc import Iterable, Iterator

import msgspec

from topoprobe.model.nccl import NcclCpu, NcclPci, NcclSystem
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.topology import Device, Link, Topology
from topoprobe.topology._nccl_devices import SOURCE, numa_device, pci_device
from topoprobe.topology._nccl_links import gpu_links, switch_of, xgmi_pairs
from topoprobe.topology._nccl_paths import Places, nccl_paths
from topoprobe.topology.from_sysfs import tree_order
from topoprobe.topology.nvlinks import HIDDEN_SWITCH, active_links, islands, planes
from topoprobe.topology.paths import Ground
from topoprobe.topology.switches import chips_of

_NO_PORTS = "an NCCL topology file holds no ports"
# Every two ends have a path: their number counts squared.
_MAX_ENDS = 1024
_LESS = (
    "an NCCL topology file: no host bridges and ports, so PHB and NODE cannot be told apart, and "
    "only what has a GPU or NIC below it"
)
_NOW = "link speeds of GPUs in files that NCCL 2.30.7 or later wrote are of that moment"
_NO_NVLINKS = "GPUs without a <gpu> in the file: their NVLinks are not on this map"
_XGMI = "xGMI links are in the file and not on this map, which has no kind for them"
_CROWD = f"more than {_MAX_ENDS} GPUs and NICs: paths are not told"


def topology_of_nccl(system: NcclSystem) -> Topology:
    """Return the map of one file; of several hosts in it, the map of the first."""
    hosts = list(dict.fromkeys(cpu.host_hash for cpu in system.cpus if cpu.host_hash))
    cpus = [cpu for cpu in system.cpus if not cpu.host_hash or cpu.host_hash == hosts[0]]
    devices, links = _parts(cpus)
    chips = chips_of(devices)
    for lower, upper in chips.items():
        devices[lower] = msgspec.structs.replace(devices[lower], chip=upper)
    ordered = tree_order(list(devices.values()))
    ground = Ground(
        devices=devices,
        links=links,
        active=active_links(links.values()),
        switches=frozenset(d.key for d in ordered if d.kind == "nvswitch"),
        chips=chips,
    )
    ends = _ends(ordered)
    crowd = len(ends) > _MAX_ENDS
    xgmi = xgmi_pairs(pci for cpu in cpus for pci in walk(cpu.pci))
    places = Places({top: number for number, cpu in enumerate(cpus) for top in _tops(cpu)})
    gpus = [device.key for device in ordered if device.kind == "gpu"]
    doubts = [_LESS]
    with_gpu = {pci.address for cpu in cpus for pci in walk(cpu.pci) if pci.gpus}
    if with_gpu:
        doubts.append(_NOW)
    if not with_gpu.issuperset(gpus):
        doubts.append(_NO_NVLINKS)
    if len(hosts) > 1:
        doubts.append(f"the file holds {len(hosts)} hosts: this is the map of the first")
    return Topology(
        devices=tuple(ordered),
        links=tuple(links.values()),
        paths=tuple(nccl_paths(ground, [] if crowd else ends, places, xgmi)),
        islands=tuple(islands(gpus, ground.active, set(ground.switches))),
        planes=tuple(planes(ground.active, sorted(ground.switches))),
        doubts=(*doubts, *([_XGMI] if xgmi else []), *([_CROWD] if crowd else [])),
    )


def walk(pci: Iterable[NcclPci]) -> Iterator[NcclPci]:
    """Yield all pci elements, each before those below it."""
    for element in pci:
        yield element
        yield from walk(element.children)


def _tops(cpu: NcclCpu) -> list[str]:
    return [pci.address for pci in cpu.pci if pci.address]


def _parts(cpus: Iterable[NcclCpu]) -> tuple[dict[str, Device], dict[str, Link]]:
    devices: dict[str, Device] = {}
    links: dict[str, Link] = {}
    found: list[NcclPci] = []
    for cpu in cpus:
        node = numa_device(cpu)
        if node is not None:
            devices.setdefault(node.key, node)
        found += _add(cpu.pci, None, cpu, devices)
    slots: set[str] = set()
    for pci in found:
        # Functions of one device share its link.
        slot = (pci.address or "").rpartition(".")[0]
        if slot not in slots and (pci.link.generation or pci.link.width):
            slots.add(slot)
            link = _pcie_link(pci)
            links[link.key] = link
    gpus = {pci.address: pci for pci in found if devices[pci.address or ""].kind == "gpu"}
    for pci in gpus.values():
        for gpu in pci.gpus[:1]:
            for said in gpu.links:
                far = switch_of(said, devices)
                if far:
                    devices.setdefault(far, _switch(far))
            device = devices[pci.address or ""]
            links.update((link.key, link) for link in gpu_links(device, gpu, devices))
    return devices, links


def _add(
    elements: Iterable[NcclPci], above: str | None, cpu: NcclCpu, devices: dict[str, Device]
) -> list[NcclPci]:
    """Put the devices of pci elements into `devices`; return the elements that became one."""
    found: list[NcclPci] = []
    for pci in elements:
        key = pci.address
        if key is not None and key not in devices:
            devices[key] = pci_device(key, pci, above, cpu)
            found.append(pci)
        found += _add(pci.children, key or above, cpu, devices)
    return found


def _switch(key: str) -> Device:
    unknown = dict.fromkeys(("parent", "numa", "name"), "the file names it as a target only")
    if key == HIDDEN_SWITCH:
        unknown = {"parent": "the driver hides it"}
    return Device(key=key, kind="nvswitch", unknown=unknown, sources={"*": SOURCE})


def _pcie_link(pci: NcclPci) -> Link:
    """Return the link above a device: what NCCL writes is the least of its two ends."""
    unknown = dict.fromkeys(
        ("a", "state", "current.generation", "current.width", "maximum_a.generation",
         "maximum_a.width", "maximum_b.generation", "maximum_b.width", "limited_by", "mps_bytes"),
        _NO_PORTS,
    )  # fmt: skip
    for part in ("generation", "width"):
        if getattr(pci.link, part) is None:
            unknown[f"maximum.{part}"] = pci.unknown[f"link.{part}"]
    return Link(
        key=f"pcie:{pci.address}", kind="pcie", a=None, b=pci.address,
        maximum=LinkSpeed(pci.link.generation, pci.link.width),
        unknown=unknown, sources={"*": SOURCE},
    )  # fmt: skip


def _ends(ordered: Iterable[Device]) -> list[Device]:
    """Return what paths run between: GPUs in the order of their numbers, NICs, NUMA nodes."""
    ordered = list(ordered)
    gpus = [device for device in ordered if device.kind == "gpu"]
    gpus.sort(key=lambda gpu: (int((gpu.alias or "GPU999999")[3:]), gpu.key))
    nics = sorted((d for d in ordered if d.kind == "nic"), key=lambda nic: nic.key)
    nodes = [d for d in ordered if d.kind == "numa-node" and d.cpus]
    return [*gpus, *nics, *(nodes if gpus else ())]
