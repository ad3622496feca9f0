"""Paths of a map made from texts: by our own rule where the texts suffice, else as printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from topoprobe.model.texts import P2pMatrix
from topoprobe.model.topology import Conflict, Device, Path, PathLabels
from topoprobe.topology.classes import class_of_label
from topoprobe.topology.from_nvlink_text import SOURCE as NVLINK
from topoprobe.topology.paths import Ground, find_paths

_SOURCES = {"sysfs": "lspci", "nvml": NVLINK}
_NO_TREE = "the texts do not tell what joins the two"
_NO_PLACE = "the lspci text does not show the tree between the two, or not their NUMA nodes"
_P2P = "nvidia-smi topo -p2p"
# Where the text has no command line, the matrix does not say what it is about.
UNNAMED = "unnamed"


@dataclass(frozen=True)
class Told:
    """What the texts say of pairs: cells of topo -m as paths, active NVLinks by GPU, if a tree."""

    cells: Sequence[Path]
    active: Mapping[str, int]
    tree: bool


def text_paths(
    ground: Ground, ends: Sequence[Device], told: Told
) -> tuple[list[Path], list[Conflict]]:
    """Return a path for each pair, with what the texts print of it, and where they differ."""
    found = {(path.a, path.b): _in_our_words(path, ground, told) for path in
             find_paths(ground, ends)}  # fmt: skip
    paths: list[Path] = []
    conflicts: list[Conflict] = []
    used: set[tuple[str, str]] = set()
    for cell in told.cells:
        mine = found.get((cell.a, cell.b)) or _turned(found.get((cell.b, cell.a)))
        if mine is None:
            paths.append(cell)
            continue
        used |= {(cell.a, cell.b), (cell.b, cell.a)}
        path, conflict = _with_cell(mine, cell, told)
        paths.append(path)
        conflicts += [conflict] if conflict else []
    return [*(path for pair, path in found.items() if pair not in used), *paths], conflicts


def _in_our_words(path: Path, ground: Ground, told: Told) -> Path:
    """Return a path that was found as for /sys in the words of texts, nothing taken on trust."""
    sources = {name: _SOURCES.get(source, source) for name, source in path.sources.items()}
    unknown = dict(path.unknown)
    if "class" in unknown:
        unknown["class"] = _NO_PLACE if told.tree else _NO_TREE
    nowhere = any(ground.devices[key].numa is None for key in (path.a, path.b))
    if path.pcie_class == "NODE" and nowhere:
        # /sys has no node on machines with one; a text without one may be of any machine.
        joined = (path.class_ or "").startswith("NV")
        gaps = ("pcie_class",) if joined else ("pcie_class", "class", "labels.nvidia_smi")
        unknown |= dict.fromkeys(gaps, _NO_PLACE)
        return msgspec.structs.replace(
            path, class_=path.class_ if joined else None, pcie_class=None,
            labels=path.labels if joined else PathLabels(), unknown=unknown, sources=sources,
        )  # fmt: skip
    if path.pcie_class is None:
        unknown["pcie_class"] = _NO_PLACE if told.tree else _NO_TREE
    if path.class_ is None:
        unknown["labels.nvidia_smi"] = unknown["labels.nccl"] = unknown["class"]
    return msgspec.structs.replace(path, unknown=unknown, sources=sources)


def _turned(path: Path | None) -> Path | None:
    if path is None:
        return None
    return msgspec.structs.replace(path, a=path.b, b=path.a, links=path.links[::-1])


def _with_cell(mine: Path, cell: Path, told: Told) -> tuple[Path, Conflict | None]:
    """Lay a printed cell over a path; what the tree shows is kept, what it cannot is taken."""
    printed = cell.labels.nvidia_smi
    if printed is None:
        return mine, None
    class_ = class_of_label(printed)
    sources = {**mine.sources, "labels.nvidia_smi": "nvidia-smi"}
    labels = PathLabels(printed, mine.labels.nccl)
    unknown = {k: why for k, why in mine.unknown.items() if k != "labels.nvidia_smi"}
    ours = mine.labels.nvidia_smi
    if (mine.class_ or "").startswith("NV") and ours:
        conflict = None if class_ == ours else _conflict(mine, printed, ours, NVLINK)
        return _replaced(mine, mine.class_, labels, unknown, sources), conflict
    if class_ is not None and class_.startswith("NV"):
        unknown.pop("class", None)
        unknown["links"] = "the texts do not tell which NVLinks join the two"
        counts = [told.active[key] for key in (mine.a, mine.b) if key in told.active]
        sources["class"] = "nvidia-smi"
        if counts and min(counts) < int(class_[2:]):
            class_ = f"NV{min(counts)}" if min(counts) else None
            sources["class"] = NVLINK
        if class_ is None:
            unknown["class"] = "one of the two has no active NVLink"
        labels = PathLabels(printed, "NVL" if class_ else None)
        path = _replaced(mine, class_, labels, unknown, sources)
        return msgspec.structs.replace(path, links=()), None
    if mine.class_ is None:
        if class_ is not None:
            unknown.pop("class", None)
            sources["class"] = "nvidia-smi"
        return _replaced(mine, class_, labels, unknown, sources), None
    conflict = None if class_ == mine.class_ else _conflict(mine, printed, mine.class_, "lspci")
    return _replaced(mine, mine.class_, labels, unknown, sources), conflict


def _replaced(
    path: Path,
    class_: str | None,
    labels: PathLabels,
    unknown: dict[str, str],
    sources: dict[str, str],
) -> Path:
    return msgspec.structs.replace(
        path, class_=class_, labels=labels, unknown=unknown, sources=sources
    )


def _conflict(path: Path, printed: str, ours: str, source: str) -> Conflict:
    return Conflict(
        subject=f"{path.a}|{path.b}", field="class",
        values={"nvidia-smi": printed, source: ours}, used=source,
        why="links are listed one by one" if source == NVLINK else
        "the PCI tree shows every bridge on the way",
    )  # fmt: skip


def with_p2p(
    paths: Sequence[Path], devices: Mapping[str, Device], tables: Mapping[str, P2pMatrix]
) -> list[Path]:
    """Return the paths with what ``topo -p2p`` prints; a second one where directions differ."""
    if not tables:
        return list(paths)
    labels = {d.key: d.alias or "" for d in devices.values() if d.kind == "gpu"}
    pairs = {(path.a, path.b) for path in paths}
    result: list[Path] = []
    for path in paths:
        if path.a not in labels or path.b not in labels:
            result.append(path)
            continue
        a, b = labels[path.a], labels[path.b]
        forth, back = _cells(a, b, tables), _cells(b, a, tables)
        result.append(_allowed(path, forth, _gaps(a, b, tables)))
        turned = _turned(path)
        if forth != back and turned and (path.b, path.a) not in pairs:
            result.append(_allowed(turned, back, _gaps(b, a, tables)))
    return result


def _allowed(path: Path, cells: dict[str, str], gaps: dict[str, str]) -> Path:
    sources = {**path.sources, "p2p": _P2P} if cells else path.sources
    unknown = {**path.unknown, **gaps}
    return msgspec.structs.replace(path, p2p=cells, unknown=unknown, sources=sources)


def _cells(a: str, b: str, tables: Mapping[str, P2pMatrix]) -> dict[str, str]:
    return {
        capability: cell
        for capability, table in tables.items()
        if (cell := table.cells.get(a, {}).get(b))
    }


def _gaps(a: str, b: str, tables: Mapping[str, P2pMatrix]) -> dict[str, str]:
    gaps = {}
    for capability, table in tables.items():
        if b not in table.cells.get(a, {}):
            why = table.unreadable.get(f"{a}/{b}") or table.unreadable.get(a)
            gaps[f"p2p.{capability}"] = why or "the text has no readable cell for this pair"
        elif capability == UNNAMED:
            gaps[f"p2p.{UNNAMED}"] = table.unknown.get("capability", "not told")
    return gaps
