"""Why the map may be wrong, where sources disagree, and what could not be read."""

import re
from collections.abc import Iterator

from rich.console import Console

from topoprobe.model.report import Report
from topoprobe.model.topology import Topology
from topoprobe.output.names import first_of, labels_of, pairs, ranges
from topoprobe.output.say import say

_DRIVER_LACKS = re.compile(r"not on this driver\b")
# Facts whose absence the tables themselves show, or that nothing on this node could tell.
_SHOWN = ("limit_GBps", "bottleneck", "alias")
_OF_DEVICES = ("gpu", "mig", "nic", "numa-node")


def print_doubts(console: Console, report: Report) -> None:
    """Print what hides or flattens the hardware here, then where sources disagree."""
    if report.topology.doubts:
        say(console, "Why this may be wrong", "bold")
        for doubt in report.topology.doubts:
            say(console, f"  {doubt}", "yellow")
        console.print()
    conflicts = conflict_lines(report.topology)
    if conflicts:
        say(console, "Sources disagree", "bold")
        for text in conflicts:
            say(console, f"  {text}", "yellow")
        console.print()


def conflict_lines(topology: Topology) -> list[str]:
    """Return a line for each way in which sources disagree, with all that it is about."""
    labels = labels_of(topology)
    found: dict[tuple[str, str], list[str]] = {}
    for conflict in topology.conflicts:
        values = ", ".join(f"{source} {value}" for source, value in conflict.values.items())
        text = f"{values}; {conflict.used} is believed: {conflict.why}"
        found.setdefault((conflict.field, text), []).append(conflict.subject)
    lines = []
    for (field, text), subjects in found.items():
        joined = [tuple(subject.split("|", 1)) for subject in subjects if "|" in subject]
        names = [pairs((labels.get(a, a), labels.get(b, b)) for a, b in joined)] if joined else []
        alone = [labels.get(subject, subject) for subject in subjects if "|" not in subject]
        names += [first_of(ranges(alone).split(", "))] if alone else []
        lines.append(f"{field} of {', '.join(names)}: {text}")
    return lines


def print_unread(console: Console, report: Report) -> None:
    """Print what could not be read and why, the same reason once."""
    lines = list(unread_lines(report))
    if not lines:
        return
    say(console, "Not known", "bold")
    for text in lines:
        say(console, f"  {text}", "bright_black")
    console.print()


def unread_lines(report: Report) -> Iterator[str]:
    """Yield a line a reason; all that only a newer driver tells shares one."""
    for source in report.sources:
        if source.status != "ok":
            yield f"source {source.name}: {source.detail or source.status}"
    found: dict[tuple[str, str], dict[str, None]] = {}
    lacking: dict[tuple[str, ...], dict[str, None]] = {}
    fields: dict[tuple[str, str], dict[str, None]] = {}
    for what, name, field, why in _gaps(report.topology):
        if _DRIVER_LACKS.match(why):
            lacking.setdefault((what, name), {})[field] = None
        else:
            fields.setdefault((f"{what}|{name}", why), {})[field] = None
    for (subject, why), named in fields.items():
        what, name = subject.split("|", 1)
        found.setdefault((f"{what}{_fields(named)}", why), {})[name] = None
    for (about, why), names in found.items():
        yield f"{_names(names)}: {about}: {why}"
    by_fields: dict[tuple[str, ...], list[str]] = {}
    for (_, name), lacks in lacking.items():
        by_fields.setdefault(tuple(lacks), []).append(name)
    for missing, names_of in by_fields.items():
        facts = ", ".join(field.removeprefix("gpu.") for field in missing)
        yield f"{_names(dict.fromkeys(names_of))}: not on this driver: {facts}"


def _gaps(topology: Topology) -> Iterator[tuple[str, str, str, str]]:
    """Yield what kind of thing, its name, the field and the reason of everything unknown."""
    labels = labels_of(topology)
    for device in topology.devices:
        if device.kind in _OF_DEVICES:
            for field, why in device.unknown.items():
                if not field.startswith(_SHOWN):
                    yield "", labels[device.key], field, why
    for link in topology.links:
        end = link.b if link.kind == "pcie" else link.a
        for field, why in link.unknown.items():
            if not field.startswith((*_SHOWN, "mps_bytes")) and end in labels:
                yield f"{link.kind} ", labels[end], field, why
    for path in topology.paths:
        for field, why in path.unknown.items():
            if not field.startswith(_SHOWN):
                name = f"{labels.get(path.a, path.a)}–{labels.get(path.b, path.b)}"
                yield "", name, field, why


def _fields(fields: dict[str, None]) -> str:
    """Name up to three fields; the rest as a number: the reason says more than they do."""
    return first_of(list(fields), 3)


def _names(names: dict[str, None]) -> str:
    joined = [name.split("–", 1) for name in names if "–" in name]
    alone = [name for name in names if "–" not in name]
    parts = [pairs((a, b) for a, b in joined)] if joined else []
    if alone:
        parts.append(first_of(ranges(sorted(alone, key=lambda n: (len(n), n))).split(", ")))
    return ", ".join(parts)
