"""The ways to a Report. Every face calls these: command line, terminal interface, tests."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topoprobe import __version__
from topoprobe.model.errors import InputError
from topoprobe.model.report import Report, Tool
from topoprobe.model.snapshot import Snapshot, TopoMatrix
from topoprobe.sources.deadline import run_readings
from topoprobe.sources.nvml import NvmlReading
from topoprobe.sources.nvml_module import driver_is_cold, foreign_pynvml
from topoprobe.sources.rootfs import Root
from topoprobe.sources.sysfs import SysfsReading

if TYPE_CHECKING:
    from topoprobe.model.gpu import SmiGpu
    from topoprobe.model.texts import P2pMatrix
    from topoprobe.sources.nvidia_smi import SmiReading


def now() -> str:
    """Return the time as the report writes it: RFC 3339, UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def marked_synthetic() -> bool:
    """Tell whether TOPOPROBE_SYNTHETIC marks this machine as made up; it can only turn it on."""
    return os.environ.get("TOPOPROBE_SYNTHETIC", "") not in ("", "0")


# A made tree carries this file, so that it is known for one without any environment.
_SYNTHETIC_MARK = "/.topoprobe-synthetic"


def inspect_node(
    root: str = "/", deadline_s: float = 10.0, *, cross_check: bool = True
) -> Snapshot:
    """Read the node below `root`: /sys, NVML and nvidia-smi at the same time.

    `cross_check` lets nvidia-smi run beside NVML; where NVML cannot be used it runs in any case.
    Raises InputError where `root` cannot be opened.
    """
    tree = Root(root)
    until = time.monotonic() + deadline_s
    sysfs = SysfsReading(tree, until, deadline_s)
    readings = [sysfs.reading]
    nvml, smi = None, None
    if tree.live:
        nvml = NvmlReading(until, deadline_s, cold=lambda: driver_is_cold(tree))
        # First: it takes longest.
        readings.insert(0, nvml.reading)
        if cross_check:
            smi = _nvidia_smi(until, deadline_s, matrices=True)
            readings += [smi.reading] if smi else []
    run_readings(readings, meanwhile=_import_the_rest)
    facts = sysfs.result()
    results = list(facts.results)
    record = None
    if nvml is not None:
        record, result = nvml.result()
        results.append(result)
    matrix: TopoMatrix | None = None
    p2p: dict[str, P2pMatrix] = {}
    gpus: tuple[SmiGpu, ...] = ()
    if tree.live and record is None:
        # nvidia-smi stands in for NVML; it has been asked for its matrices already, or not.
        fallback = _nvidia_smi(until, deadline_s, matrices=smi is None, gpus=True)
        if fallback is not None:
            run_readings([fallback.reading])
            gpus = fallback.gpus()
            smi = smi or fallback
    if smi is not None:
        matrix, p2p, result = smi.result()
        results.append(result)
    return Snapshot(
        created=now(),
        host=facts.host,
        sysfs=facts.sysfs,
        nvml=record,
        smi_gpus=gpus,
        topo_matrix=matrix,
        p2p=p2p,
        texts=smi.texts if smi else {},
        sources=tuple(results),
        foreign_pynvml=foreign_pynvml(),
        synthetic=marked_synthetic() or tree.exists(_SYNTHETIC_MARK),
    )


def _import_the_rest() -> None:
    """Import what makes a report of a Snapshot, while the readers' children are at work."""
    import topoprobe.health.registry  # noqa: PLC0415
    import topoprobe.limits.collectives  # noqa: PLC0415
    import topoprobe.limits.levels  # noqa: PLC0415
    import topoprobe.topology.build  # noqa: F401, PLC0415


def _nvidia_smi(
    until: float, deadline_s: float, *, matrices: bool, gpus: bool = False
) -> "SmiReading | None":
    # Its parsers and subprocess cost as much start-up time as all else that is imported here.
    from topoprobe.sources.nvidia_smi import SmiReading, find_nvidia_smi  # noqa: PLC0415

    program = find_nvidia_smi()
    return (
        SmiReading(program, until, deadline_s, matrices=matrices, gpus=gpus) if program else None
    )


def capture(
    path: str,
    root: str = "/",
    deadline_s: float = 10.0,
    *,
    redact: bool = False,
    key_path: str | None = None,
) -> dict[str, str]:
    """Write a capture of the node below `root` to `path`; return what is missing in it, and why.

    Reading ends after `deadline_s`, copying after as much again. `redact` replaces names, with
    the key in the file `key_path` if there is one. Raises InputError in one line.
    """
    from topoprobe.sources import capture as writer  # noqa: PLC0415  (not on the way of a report)
    from topoprobe.sources import redact as redaction  # noqa: PLC0415

    key = writer.read_key(key_path) if key_path else redaction.OPEN_KEY
    parts = writer.collect(Root(root), inspect_node(root, deadline_s), deadline_s)
    if redact or key_path:
        hosts, users = writer.names_of_this_host(), writer.names_of_users()
        parts = redaction.redact(parts, hosts, users, key)
    how = ("keyed" if key_path else "open") if redact or key_path else None
    writer.write_private(path, writer.encode(parts, f"topoprobe {__version__}", how))
    return parts.gaps


def load(path: str) -> Report:
    """Return the report in the file `path`, or the one that its capture or texts make.

    Raises InputError, ParseError or SchemaError in one line that names the file.
    """
    from topoprobe.loading import read  # noqa: PLC0415  (parsers that no live report needs)

    found = read(path, now(), synthetic=marked_synthetic())
    return found if isinstance(found, Report) else make_report(found)


def make_report(snapshot: Snapshot) -> Report:
    """Return the report on a snapshot, nothing measured yet."""
    from topoprobe.health.registry import run_checks, verdict  # noqa: PLC0415  (see above)
    from topoprobe.limits.apply import with_limits  # noqa: PLC0415
    from topoprobe.limits.collectives import collective_limits  # noqa: PLC0415
    from topoprobe.limits.levels import levels_of  # noqa: PLC0415
    from topoprobe.topology.build import build  # noqa: PLC0415

    topology = with_limits(build(snapshot))
    findings = run_checks(snapshot, topology)
    collectives = collective_limits(topology, snapshot.nvml.cuda if snapshot.nvml else None)
    unknown = {"profile": "SKU recognition is not in this version"}
    if not collectives:
        unknown["collective_limits"] = "no two GPUs, or no link or NIC of theirs has a known rate"
    return Report(
        tool=Tool("topoprobe", __version__),
        created=snapshot.created,
        host=snapshot.host,
        sources=snapshot.sources,
        topology=topology,
        findings=findings,
        synthetic=snapshot.synthetic,
        levels=levels_of(topology),
        collective_limits=collectives or None,
        verdict=verdict(findings),
        unknown=unknown,
    )


def measure(report: Report, snapshot: Snapshot, progress: Callable[[str], None]) -> Report:
    """Return `report` with a quick measurement of this very machine added."""
    from topoprobe.bench.quick import measure_quick  # noqa: PLC0415  (subprocesses, psutil)
    from topoprobe.health.registry import verdict  # noqa: PLC0415
    from topoprobe.limits.levels import levels_of  # noqa: PLC0415

    nodes = snapshot.sysfs.numa if snapshot.sysfs else ()
    measurements, more = measure_quick(nodes, progress=progress, synthetic=report.synthetic)
    findings = (*report.findings, *more)
    return msgspec.structs.replace(
        report,
        measurements=measurements,
        findings=findings,
        levels=levels_of(report.topology, measurements),
        verdict=verdict(findings),
    )


def require_devices(report: Report, root: str) -> None:
    """Raise InputError where nothing of the node could be read at all."""
    if not report.topology.devices:
        why = next((s.detail for s in report.sources if s.name == "sysfs" and s.detail), "no data")
        raise InputError(f"{root}: no device could be read: {why}")
