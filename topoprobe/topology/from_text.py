"""The map that a ``nvidia-smi topo -m`` text alone gives: labels, classes, affinities."""

from collections.abc import Iterator

from topoprobe.model.snapshot import TopoMatrix
from topoprobe.model.topology import Device, Path, PathLabels, Topology
from topoprobe.topology.classes import class_of_label

_SOURCE = "nvidia-smi"
_NO_CELL = "the text has no readable cell for this pair"


def topology_from_text(matrix: TopoMatrix) -> Topology:
    """Return devices keyed by their printed labels, and a path for every pair of them."""
    devices = tuple(
        _device(matrix, key, printed)
        for key, printed in zip(matrix.columns, matrix.printed, strict=True)
    )
    return Topology(devices=devices, paths=tuple(_paths(matrix)))


def _device(matrix: TopoMatrix, key: str, printed: str) -> Device:
    gpu = printed.startswith("GPU") and printed[3:].isdigit()
    numbered = gpu or (printed.startswith("NIC") and printed[3:].isdigit())
    rdma = matrix.nic_legend.get(key)
    unknown: dict[str, str] = {}
    if gpu:
        unknown["name"] = "topo -m does not print GPU names"
    elif numbered and rdma is None:
        unknown["name"] = "the text has no NIC legend for it"
    elif printed == "":
        unknown["name"] = "the text prints no label for this column"
    elif printed != key:
        unknown["name"] = f"several columns are labelled {printed}"
    numa = _numa(matrix.numa_affinity.get(key), unknown) if gpu else None
    name = None if "name" in unknown or gpu else rdma or printed
    return Device(
        key=key,
        kind="gpu" if gpu else "other" if printed.startswith("DD") else "nic",
        alias=printed if numbered else None,
        name=name,
        numa=numa,
        rdma=(name,) if name and not printed.startswith("DD") else (),
        cpus=_cpus(matrix.cpu_affinity.get(key), unknown) if gpu else None,
        unknown=unknown,
        sources={"*": _SOURCE},
    )


def _numa(cell: str | None, unknown: dict[str, str]) -> int | None:
    if cell is not None and cell.isascii() and cell.isdigit():
        return int(cell)
    # "0-1": memory of several nodes is near (a cpuset, or sub-NUMA clustering).
    unknown["numa"] = (
        "the text has no NUMA affinity for it" if cell is None else f"nvidia-smi says {cell!r}"
    )
    return None


def _cpus(cell: str | None, unknown: dict[str, str]) -> str | None:
    if cell and cell != "N/A":
        return cell
    unknown["cpus"] = (
        "the text has no CPU affinity for it" if cell is None else f"nvidia-smi says {cell!r}"
    )
    return None


def _paths(matrix: TopoMatrix) -> Iterator[Path]:
    for number, a in enumerate(matrix.columns):
        for b in matrix.columns[number + 1 :]:
            forth = matrix.cells.get(a, {}).get(b)
            back = matrix.cells.get(b, {}).get(a)
            if forth is None and back is None:
                why = (
                    matrix.unreadable.get(f"{a}/{b}")
                    or matrix.unreadable.get(f"{b}/{a}")
                    or matrix.unreadable.get(a)
                    or matrix.unreadable.get(b)
                    or _NO_CELL
                )
                yield _path(a, b, None, why)
            elif forth == back or back is None or forth is None:
                yield _path(a, b, forth or back, None)
            else:
                # With one NVLink down, nvidia-smi counts the links of the row's GPU: the
                # row of that GPU says NV17, the rows of the others still say NV18.
                yield _path(a, b, forth, None)
                yield _path(b, a, back, None)


def _path(a: str, b: str, label: str | None, why: str | None) -> Path:
    unknown: dict[str, str] = {}
    class_ = class_of_label(label) if label else None
    if label is None:
        unknown["class"] = unknown["labels.nvidia_smi"] = why or _NO_CELL
    elif class_ is None:
        unknown["class"] = f"nvidia-smi says {label!r}, which we do not know"
    unknown["links"] = "a topo -m text does not tell the links on the way"
    return Path(
        a=a,
        b=b,
        class_=class_,
        labels=PathLabels(nvidia_smi=label),
        unknown=unknown,
        sources={"*": _SOURCE},
    )
