"""Checks on the sources themselves: read or not, whole or damaged, in agreement or not."""

from collections.abc import Iterator

from topoprobe.model.report import Evidence, Finding
from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import Topology


def check_sources(snapshot: Snapshot, _: Topology) -> Iterator[Finding]:
    """Give one finding per source of the snapshot."""
    for source in snapshot.sources:
        good = source.status == "ok"
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
    """Warn of pairs whose two directions nvidia-smi shows differently."""
    labels = {(path.a, path.b): path.labels.nvidia_smi for path in topology.paths}
    for (a, b), label in labels.items():
        other = labels.get((b, a))
        if a < b and label and other and label != other:
            yield Finding(
                id="nvlink-symmetry",
                status="warn",
                severity="warning",
                subject=(a, b),
                message=f"{a} to {b} is {label}, {b} to {a} is {other}",
                evidence=(
                    Evidence(f"{a}/{b}", label, "nvidia-smi"),
                    Evidence(f"{b}/{a}", other, "nvidia-smi"),
                ),
                meaning="one of the two GPUs has NVLinks down",
                remedy="nvidia-smi nvlink -s on the GPU with the smaller number",
            )
