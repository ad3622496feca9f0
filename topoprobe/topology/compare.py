"""Hold our paths against what nvidia-smi prints and what NVML's common ancestor says."""

from collections.abc import Mapping, Sequence

import msgspec

from topoprobe.model.snapshot import TopoMatrix
from topoprobe.model.texts import P2pMatrix
from topoprobe.model.topology import Conflict, Device, Path, PathLabels
from topoprobe.topology.classes import class_of_label
from topoprobe.topology.paths import Ground

_WHY_TREE = "the PCI tree shows every bridge on the way"


def compare_labels(
    paths: Sequence[Path],
    devices: Mapping[str, Device],
    matrix: TopoMatrix | None,
    *,
    nvml: bool,
) -> tuple[list[Path], list[Conflict]]:
    """Put the printed cells into `paths` as labels; return both, paths and where they differ.

    Without `nvml` nobody but nvidia-smi knows of NVLinks.
    """
    if matrix is None:
        return list(paths), []
    columns = columns_of(devices, matrix)
    labelled: list[Path] = []
    conflicts: list[Conflict] = []
    for path in paths:
        cell = matrix.cells.get(columns.get(path.a, ""), {}).get(columns.get(path.b, ""))
        if cell is None:
            labelled.append(path)
            continue
        ours, source = path.labels.nvidia_smi, path.sources.get("class", "nvml")
        only_here = path.class_ is None or (not nvml and cell.startswith("NV"))
        if only_here and class_of_label(cell):
            # We cannot tell: nvidia-smi is the only one that speaks of it.
            unknown = {name: why for name, why in path.unknown.items() if name != "class"}
            path = msgspec.structs.replace(
                path, class_=class_of_label(cell), unknown=unknown,
                sources={**path.sources, "class": "nvidia-smi"},
            )  # fmt: skip
        elif class_of_label(cell) != ours:
            conflicts.append(
                Conflict(
                    subject=f"{path.a}|{path.b}", field="class",
                    values={"nvidia-smi": cell, source: ours or "unknown"}, used=source,
                    why=_WHY_TREE if ours and not ours.startswith("NV") else
                    "links are counted one by one in NVML",
                )
            )  # fmt: skip
        labelled.append(
            msgspec.structs.replace(
                path,
                labels=PathLabels(cell, path.labels.nccl),
                sources={**path.sources, "labels.nvidia_smi": "nvidia-smi"},
            )
        )
    return labelled, conflicts


def columns_of(devices: Mapping[str, Device], matrix: TopoMatrix) -> dict[str, str]:
    """Return device key → column of the text: by alias, or by RDMA name as old drivers print."""
    columns = {}
    for device in devices.values():
        names = [device.alias, *device.rdma]
        found = next((name for name in names if name in matrix.columns), None)
        if found is not None:
            columns[device.key] = found
    return columns


def compare_p2p(
    paths: Sequence[Path], devices: Mapping[str, Device], tables: Mapping[str, P2pMatrix]
) -> list[Conflict]:
    """Return pairs of GPUs whose peer access nvidia-smi prints otherwise than NVML says."""
    alias = {device.key: device.alias or "" for device in devices.values()}
    return [
        Conflict(
            subject=f"{path.a}|{path.b}", field=f"p2p.{capability}",
            values={"nvml": path.p2p[capability], "nvidia-smi": cell}, used="nvml",
            why="nvidia-smi prints what it asks NVML",
        )
        for capability, table in tables.items()
        for path in paths
        if capability in path.p2p
        and (cell := table.cells.get(alias[path.a], {}).get(alias[path.b]))
        and cell != path.p2p[capability]
    ]  # fmt: skip


def compare_tree(ground: Ground, paths: Sequence[Path]) -> list[Conflict]:
    """Return pairs of GPUs for which NVML's common ancestor is not what the PCI tree says."""
    conflicts = []
    for path in paths:
        pair = ground.pairs.get((path.a, path.b))
        if pair is None or pair.ancestor in (None, "X") or path.pcie_class is None:
            continue
        if path.sources.get("pcie_class") != "sysfs" or pair.ancestor == path.pcie_class:
            continue
        conflicts.append(
            Conflict(
                subject=f"{path.a}|{path.b}", field="pcie_class",
                values={"sysfs": path.pcie_class, "nvml": str(pair.ancestor)}, used="sysfs",
                why=_WHY_TREE,
            )
        )  # fmt: skip
    return conflicts
