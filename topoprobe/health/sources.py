"""Checks on the sources themselves: read or not, whole or damaged, in agreement or not."""

from collections.abc import Iterator

from topoprobe.health.gpus import nvidia_gpus
from topoprobe.model.report import Evidence, Finding
from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import Conflict, Topology


def check_sources(snapshot: Snapshot, topology: Topology) -> Iterator[Finding]:
    """Give one finding per source of the snapshot."""
    gpus = nvidia_gpus(topology)
    for source in snapshot.sources:
        good = source.status == "ok"
        if source.status == "absent" and not gpus and source.name in ("nvml", "nvidia-smi"):
            yield Finding(
                id="source-read", status="skip", severity="info",
                message=f"{source.name}: no NVIDIA GPU and no driver here",
            )  # fmt: skip
            continue
        message = f"{source.name}: {'read' if good else source.status}"
        if source.detail:
            message += f" ({source.detail})"
        yield Finding(
            id="source-read",
            status="pass" if good else "unknown",
            severity="info" if good else "warning",
            message=message,
            evidence=(Evidence("status", source.status, source.name),),
            meaning=None if good else "what this source knows is unknown in the report",
        )


def check_pynvml(snapshot: Snapshot, _: Topology) -> Iterator[Finding]:
    """Warn where another module would be imported in place of nvidia-ml-py's pynvml."""
    if snapshot.foreign_pynvml is None:
        return
    yield Finding(
        id="source-pynvml",
        status="warn",
        severity="warning",
        message=f"{snapshot.foreign_pynvml} hides the module pynvml of nvidia-ml-py",
        evidence=(Evidence("module", snapshot.foreign_pynvml, "sys.path"),),
        meaning="NVML would be read through a deprecated wrapper or a stranger's module",
        remedy="pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py",
    )


def check_matrix(snapshot: Snapshot, _: Topology) -> Iterator[Finding]:
    """Give a warning per damage of a topo -m text, or one pass."""
    matrix = snapshot.topo_matrix
    if matrix is None:
        return
    for warning in matrix.warnings:
        yield Finding(
            id="source-nvidia-smi-text",
            status="warn",
            severity="warning",
            message=f"nvidia-smi text: {warning}",
            meaning="cells that could not be read with certainty are unknown",
            remedy="use the whole output of nvidia-smi topo -m",
        )
    if not matrix.warnings:
        yield Finding(
            id="source-nvidia-smi-text",
            status="pass",
            severity="info",
            message=f"nvidia-smi text: whole, {len(matrix.rows)} rows",
        )


def check_symmetry(_: Snapshot, topology: Topology) -> Iterator[Finding]:
    """Warn of GPUs whose own row shows fewer NVLinks than the others show towards it."""
    labels = {(path.a, path.b): path.labels.nvidia_smi for path in topology.paths}
    names = {device.key: device.alias or device.key for device in topology.devices}
    fewer: dict[str, list[tuple[str, str, str]]] = {}
    for (a, b), label in labels.items():
        other = labels.get((b, a))
        if a < b and label and other and label != other:
            low, high = sorted((label, other), key=_links_in)
            poor, rich = (a, b) if label == low else (b, a)
            fewer.setdefault(poor, []).append((rich, low, high))
    for poor, pairs in fewer.items():
        rich, low, high = pairs[0]
        more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        yield Finding(
            id="nvlink-symmetry",
            status="warn",
            severity="warning",
            subject=(poor, *(pair[0] for pair in pairs)),
            message=f"{names[poor]} to {names[rich]}{more} is {low}, the way back is {high}",
            evidence=(
                Evidence(f"{poor}/{rich}", low, "nvidia-smi"),
                Evidence(f"{rich}/{poor}", high, "nvidia-smi"),
            ),
            meaning=f"NVLinks of {names[poor]} are down",
            remedy=f"nvidia-smi nvlink -s on {names[poor]}",
        )


def _links_in(label: str) -> int:
    """Return the number of links in ``NV17``; labels without one come first."""
    digits = label.removeprefix("NV")
    return int(digits) if label.startswith("NV") and digits.isdigit() else 0


def check_agreement(snapshot: Snapshot, topology: Topology) -> Iterator[Finding]:
    """Warn where sources disagree, once for all subjects of the same disagreement."""
    if len([s for s in snapshot.sources if s.status in ("ok", "partial")]) < 2:
        return
    groups: dict[tuple[object, ...], list[Conflict]] = {}
    for conflict in topology.conflicts:
        kind = (conflict.field, tuple(sorted(conflict.values.items())), conflict.used)
        groups.setdefault(kind, []).append(conflict)
    labels = {device.key: device.alias or device.key for device in topology.devices}
    for some in groups.values():
        first = some[0]
        said = ", ".join(f"{source} says {value}" for source, value in first.values.items())
        names = [
            "–".join(labels.get(key, key) for key in conflict.subject.split("|"))
            for conflict in some
        ]
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield Finding(
            id="source-agreement",
            status="warn",
            severity="warning",
            subject=tuple(conflict.subject for conflict in some),
            message=f"{first.field} of {listed}: {said}; used {first.used}: {first.why}",
            evidence=tuple(
                Evidence(first.field, value, source) for source, value in first.values.items()
            ),
            meaning="one of the sources is wrong about this node, or asks something else",
        )
    if not topology.conflicts:
        yield Finding(
            id="source-agreement", status="pass", severity="info",
            message="the sources agree wherever they speak of the same",
        )  # fmt: skip
