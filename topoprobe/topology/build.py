"""Build the Topology of a Snapshot, from whichever sources it holds."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from topoprobe.model.gpu import NvmlPair, NvmlRecord
from topoprobe.model.snapshot import Snapshot, SysfsRecord
from topoprobe.model.topology import Conflict, Device, Link, Topology
from topoprobe.topology.beyond import add_gpu_memory, add_networks
from topoprobe.topology.compare import compare_labels, compare_p2p, compare_tree
from topoprobe.topology.doubts import doubts_of
from topoprobe.topology.from_sysfs import tree_order, tree_parts
from topoprobe.topology.gpus import (
    add_links,
    compare_links,
    fuse_gpus,
    fuse_listed,
    key_of_gpus,
    number_nics,
    without_nvml,
)
from topoprobe.topology.nic_roles import nic_facts
from topoprobe.topology.nvlinks import (
    active_links,
    end_conflicts,
    islands,
    nvlink_links,
    planes,
    with_node_of_memory,
)
from topoprobe.topology.paths import Ground, find_paths
from topoprobe.topology.switches import chips_of


def build(snapshot: Snapshot) -> Topology:
    """Return the map of `snapshot`; an empty one where no source could be read."""
    if snapshot.sysfs is None and snapshot.nvml is None:
        return _of_texts(snapshot)
    devices, links = tree_parts(snapshot.sysfs) if snapshot.sysfs else ({}, {})
    keys: dict[int, str] = {}
    conflicts: list[Conflict] = []
    if snapshot.nvml is not None:
        keys = key_of_gpus(devices, snapshot.nvml)
        conflicts += fuse_gpus(devices, snapshot.nvml, keys)
        conflicts += compare_links(links, snapshot.nvml, keys)
        add_links(links, snapshot.nvml, keys)
        with_node_of_memory(devices, snapshot.nvml, keys)
        links.update((link.key, link) for link in nvlink_links(snapshot.nvml, keys, devices))
    else:
        fuse_listed(devices, snapshot.smi_gpus)
    without_nvml(devices, _why_no_nvml(snapshot))
    _number_nics(devices, snapshot)
    if snapshot.sysfs is not None:
        for key, facts in nic_facts(snapshot.sysfs).items():
            if key in devices:
                devices[key] = msgspec.structs.replace(devices[key], nic=facts)
    add_gpu_memory(devices, links)
    add_networks(devices, links)
    chips = chips_of(devices)
    for lower, upper in chips.items():
        devices[lower] = msgspec.structs.replace(devices[lower], chip=upper)
    ordered = tree_order(list(devices.values()))
    ground = _ground(devices, links, chips, keys, snapshot.nvml)
    gpus = [device.key for device in ordered if device.kind == "gpu"]
    paths = list(find_paths(ground, _ends(ordered, keys, snapshot.sysfs)))
    paths, cell_conflicts = compare_labels(
        paths, devices, snapshot.topo_matrix, nvml=snapshot.nvml is not None
    )
    return Topology(
        devices=tuple(ordered),
        links=tuple(links.values()),
        paths=tuple(paths),
        islands=tuple(islands(gpus, ground.active, set(ground.switches))),
        planes=tuple(planes(ground.active, sorted(ground.switches))),
        conflicts=(
            *conflicts,
            *end_conflicts(ground.active, gpus),
            *compare_tree(ground, paths),
            *cell_conflicts,
            *compare_p2p(paths, devices, snapshot.p2p),
        ),
        doubts=doubts_of(snapshot, ordered),
    )


def _of_texts(snapshot: Snapshot) -> Topology:
    # The report of a node never needs them: their import would cost start-up time.
    if snapshot.nccl is not None:
        from topoprobe.topology.from_nccl import topology_of_nccl  # noqa: PLC0415

        return topology_of_nccl(snapshot.nccl)
    from topoprobe.topology.from_texts import topology_of_texts  # noqa: PLC0415

    return topology_of_texts(snapshot)


def _ground(
    devices: Mapping[str, Device],
    links: Mapping[str, Link],
    chips: Mapping[str, str],
    keys: Mapping[int, str],
    nvml: NvmlRecord | None,
) -> Ground:
    pairs: dict[tuple[str, str], NvmlPair] = {}
    for pair in nvml.pairs if nvml else ():
        if pair.a in keys and pair.b in keys:
            pairs[keys[pair.a], keys[pair.b]] = pair
    return Ground(
        devices=devices,
        links=links,
        active=active_links(links.values()),
        switches=frozenset(d.key for d in devices.values() if d.kind == "nvswitch"),
        pairs=pairs,
        chips=chips,
        silent=frozenset(
            keys[gpu.index]
            for gpu in (nvml.gpus if nvml else ())
            if gpu.unanswered
            and (gpu.facts.nvlink_count is None or len(gpu.links) < gpu.facts.nvlink_count)
        ),
    )


def _why_no_nvml(snapshot: Snapshot) -> str | None:
    """Return why a GPU of the bus has no facts of NVML."""
    if snapshot.nvml is not None:
        return "NVML does not show this GPU"
    return next((s.detail for s in snapshot.sources if s.name == "nvml" and s.detail), None)


def _ends(
    ordered: Iterable[Device], keys: Mapping[int, str], sysfs: SysfsRecord | None
) -> list[Device]:
    """Return what paths run between, as `topo -m` orders it: GPUs, NICs; then NUMA nodes.

    Virtual functions are left out where their physical function is here too.
    """
    functions = {function.address: function for function in sysfs.pci} if sysfs else {}
    by_index = {key: index for index, key in keys.items()}
    gpus = [device for device in ordered if device.kind == "gpu"]
    gpus.sort(key=lambda device: (by_index.get(device.key, len(by_index)), device.key))
    nics = [
        device
        for device in ordered
        if device.kind == "nic"
        and device.key in functions
        and functions[device.key].physfn not in functions
    ]
    nics.sort(key=lambda device: (_number(device.alias), device.key))
    nodes = [device for device in ordered if device.kind == "numa-node" and device.cpus]
    return [*gpus, *nics, *(nodes if gpus else ())]


def _number(alias: str | None) -> int:
    found = re.search(r"\d+$", alias or "")
    return int(found[0]) if found else 1 << 16


def _number_nics(devices: dict[str, Device], snapshot: Snapshot) -> None:
    names = [record.name for record in snapshot.sysfs.rdma] if snapshot.sysfs else []
    names.sort(key=lambda name: [int(n) if n.isdigit() else n for n in re.split(r"(\d+)", name)])
    matrix = snapshot.topo_matrix
    number_nics(devices, matrix.nic_legend if matrix else {}, names)
