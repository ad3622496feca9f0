"""The map that pasted texts give together: topo -m, -p2p, nvlink and lspci of one node.

nvidia-smi's texts meet at the printed label (GPU0). lspci has addresses; the two are the same
GPUs where there are just as many of them, since nvidia-smi numbers GPUs by their addresses.
"""

from collections.abc import Iterable, Mapping

import msgspec

from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import Conflict, Device, Link, Topology
from topoprobe.topology._text_paths import Told, text_paths, with_p2p
from topoprobe.topology.from_lspci import LspciParts, lspci_parts
from topoprobe.topology.from_nvlink_text import active_counts, add_nvlinks, compare_counts
from topoprobe.topology.from_sysfs import tree_order
from topoprobe.topology.from_text import topology_from_text
from topoprobe.topology.gpus import is_nvidia
from topoprobe.topology.nvlinks import active_links, islands, planes
from topoprobe.topology.paths import Ground
from topoprobe.topology.switches import chips_of

_BY_ORDER = "computed: nvidia-smi numbers GPUs in the order of their addresses"
# Every two ends have a path: their number counts squared.
_MAX_ENDS = 1024
_CROWD = f"more than {_MAX_ENDS} GPUs and NICs: of several nodes? Paths are not told"
_TAKEN = (
    "GPU numbers of nvidia-smi are laid over the addresses of lspci in their order, which holds "
    "if both texts are of one node"
)


def topology_of_texts(snapshot: Snapshot) -> Topology:
    """Return the map of a snapshot that holds texts only."""
    matrix, nvlink = snapshot.topo_matrix, snapshot.nvlink_text
    plain = topology_from_text(matrix) if matrix is not None else Topology()
    if matrix and not (nvlink or snapshot.p2p or snapshot.lspci or snapshot.lspci_tree):
        return plain
    labelled = {device.key: device for device in plain.devices}
    nvlinks = add_nvlinks(nvlink, labelled) if nvlink else []
    _add_p2p_gpus(snapshot, labelled)
    parts = lspci_parts(snapshot.lspci, snapshot.lspci_tree)
    names = _addresses_of_labels(labelled, parts.devices)
    devices, conflicts = _fused(labelled, parts.devices, names)
    links = dict(parts.links)
    for link in nvlinks:
        renamed = _renamed_link(link, names)
        links[renamed.key] = renamed
    if matrix and nvlink:
        conflicts += compare_counts(nvlink, matrix)
    ground = Ground(
        devices=devices,
        links=links,
        active=active_links(links.values()),
        switches=frozenset(d.key for d in devices.values() if d.kind == "nvswitch"),
        chips=_laid_over(devices),
    )
    told = Told(
        cells=[msgspec.structs.replace(p, a=names.get(p.a, p.a), b=names.get(p.b, p.b))
               for p in plain.paths],
        active={names.get(k, k): n for k, n in (active_counts(nvlink) if nvlink else {}).items()},
        tree=bool(parts.devices),
    )  # fmt: skip
    ends = _ends(devices.values())
    crowd = len(ends) > _MAX_ENDS
    paths, more = text_paths(ground, [] if crowd else ends, told)
    ordered = tree_order(list(devices.values()))
    gpus = [device.key for device in ordered if device.kind == "gpu"]
    return Topology(
        devices=tuple(ordered),
        links=tuple(links.values()),
        paths=tuple(with_p2p(paths, devices, snapshot.p2p)),
        islands=tuple(islands(gpus, ground.active, set(ground.switches))),
        planes=tuple(planes(ground.active, sorted(ground.switches))),
        conflicts=(*parts.conflicts, *_renamed(conflicts, names), *more),
        doubts=(*([_CROWD] if crowd else []), *_doubts(snapshot, parts, names, devices)),
    )


def _add_p2p_gpus(snapshot: Snapshot, devices: dict[str, Device]) -> None:
    why = "nvidia-smi topo -p2p does not tell it"
    unknown = dict.fromkeys(("name", "uuid", "parent", "numa", "cpus", "memory_bytes", "gpu"), why)
    for table in snapshot.p2p.values():
        for label in table.columns:
            if label not in devices:
                devices[label] = Device(
                    key=label, kind="gpu", alias=label, unknown=dict(unknown),
                    sources={"*": "nvidia-smi topo -p2p"},
                )  # fmt: skip


def _addresses_of_labels(
    labelled: Mapping[str, Device], devices: Mapping[str, Device]
) -> dict[str, str]:
    """Return label → address; nothing where the numbers of GPUs differ or are not 0, 1, ...."""
    labels = [device.key for device in labelled.values() if device.kind == "gpu"]
    addresses = sorted(d.key for d in devices.values() if d.kind == "gpu" and is_nvidia(d))
    wanted = [f"GPU{number}" for number in range(len(addresses))]
    if sorted(labels) != sorted(wanted):
        return {}
    return dict(zip(wanted, addresses, strict=True))


def _fused(
    labelled: Mapping[str, Device], devices: Mapping[str, Device], names: Mapping[str, str]
) -> tuple[dict[str, Device], list[Conflict]]:
    """Return all devices, those of two texts once, and where the texts disagree about one."""
    fused = dict(devices)
    conflicts: list[Conflict] = []
    for label, said in labelled.items():
        key = names.get(label)
        if key is None:
            fused[label] = said
            continue
        found = devices[key]
        values: dict[str, object] = {"alias": said.alias}
        sources = {**found.sources, "alias": _BY_ORDER}
        for name in ("name", "uuid", "numa", "cpus"):
            told = getattr(said, name)
            # The list names the chip, nvidia-smi the product.
            if told is not None and (getattr(found, name) is None or name == "name"):
                values[name] = told
                sources[name] = said.sources.get(name, said.sources["*"])
        if None not in (found.numa, said.numa) and found.numa != said.numa:
            conflicts.append(
                Conflict(
                    subject=key, field="numa",
                    values={"lspci": str(found.numa), "nvidia-smi": str(said.numa)},
                    used="lspci", why="it prints the kernel's own number",
                )
            )  # fmt: skip
        unknown = {name: why for name, why in found.unknown.items() if name not in values}
        fused[key] = msgspec.structs.replace(found, unknown=unknown, sources=sources, **values)
    return fused, conflicts


def _renamed_link(link: Link, names: Mapping[str, str]) -> Link:
    a, b = (names.get(end or "", end) for end in (link.a, link.b))
    key = f"nvlink:{a}:{link.index}" if a is not None else link.key
    return msgspec.structs.replace(link, key=key, a=a, b=b)


def _renamed(conflicts: Iterable[Conflict], names: Mapping[str, str]) -> list[Conflict]:
    return [
        msgspec.structs.replace(conflict, subject=names.get(conflict.subject, conflict.subject))
        for conflict in conflicts
    ]


def _laid_over(devices: dict[str, Device]) -> dict[str, str]:
    """Mark the switches that are parts of one chip; return lower → upper."""
    chips = chips_of(devices)
    for lower, upper in chips.items():
        devices[lower] = msgspec.structs.replace(devices[lower], chip=upper)
    return chips


def _ends(devices: Iterable[Device]) -> list[Device]:
    """Return what paths run between: GPUs, then NICs, virtual functions beside their card out."""
    devices = list(devices)
    gpus = [device for device in devices if device.kind == "gpu"]
    nics = [device for device in devices if device.kind == "nic"]
    cards = {(nic.parent, nic.pci.vendor) for nic in nics if nic.pci and not _is_virtual(nic)}
    kept = [
        nic
        for nic in nics
        if not (_is_virtual(nic) and nic.pci and (nic.parent, nic.pci.vendor) in cards)
    ]
    return [*gpus, *kept]


def _is_virtual(nic: Device) -> bool:
    return "Virtual Function" in (nic.name or "")


def _doubts(
    snapshot: Snapshot,
    parts: LspciParts,
    names: Mapping[str, str],
    devices: Mapping[str, Device],
) -> tuple[str, ...]:
    doubts = list(parts.doubts)
    if names:
        doubts.append(_TAKEN)
    labels = [d for d in devices.values() if d.kind == "gpu" and d.pci is None]
    listed = [d for d in devices.values() if d.kind == "gpu" and is_nvidia(d)]
    if labels and listed:
        doubts.append(
            f"nvidia-smi's texts show {len(labels)} GPUs and lspci {len(listed)}: which is which "
            "cannot be told, so they stand side by side"
        )
    if listed and snapshot.nvlink_text is None and snapshot.topo_matrix is None:
        doubts.append("lspci does not show NVLinks: they are not in this map")
    for gpu in snapshot.nvlink_text.gpus if snapshot.nvlink_text else ():
        if gpu.all_inactive and not gpu.links:
            label = "a GPU" if gpu.index is None else f"GPU{gpu.index}"
            doubts.append(f"{label}: nvidia-smi says that all its NVLinks are inactive")
    return tuple(doubts)
