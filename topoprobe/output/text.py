"""The Report as text for a terminal: verdict and levels first, then what is wrong or unknown."""

import os
from typing import IO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from topoprobe.model.report import Finding, Measurement, Report
from topoprobe.model.units import format_rate, format_seconds, format_size
from topoprobe.output.clean import ascii_only, clean
from topoprobe.output.tree import print_matrix, print_tree

_STYLE = {"fail": "bold red", "warn": "yellow", "unknown": "bright_black", "pass": "green"}
_MARK = {"fail": "FAULT", "warn": "WARNING", "unknown": "UNKNOWN", "skip": "SKIPPED"}
_WIDTH = 80


def print_report(report: Report, file: IO[str], *, full: bool = False) -> None:
    """Print `report` to `file`: 80 columns off a terminal, no colour when piped or NO_COLOR."""
    console = _console(file)
    _print_head(console, report)
    _print_levels(console, report)
    _print_measurements(console, report)
    _print_findings(console, report)
    if full:
        print_tree(console, report.topology)
        print_matrix(console, report.topology)
    _print_unread(console, report)
    if not full:
        say(console, "--full shows the tree and the matrix of paths, --json all of it", "dim")


def _console(file: IO[str]) -> Console:
    terminal = file.isatty()
    utf8 = (getattr(file, "encoding", "") or "").lower().replace("-", "") == "utf8"
    return Console(
        file=file if utf8 else ascii_only(file),
        width=None if terminal else _WIDTH,
        no_color=not terminal or bool(os.environ.get("NO_COLOR")),
        # rich would colour a pipe where FORCE_COLOR or TTY_COMPATIBLE is set by the site.
        force_terminal=terminal,
        highlight=False,
        markup=False,
        emoji=False,
        safe_box=True,
    )


def say(console: Console, line: str, style: str = "") -> None:
    """Print one logical line, wrapped at words with a hanging indent."""
    text = clean(line)
    indent = len(text) - len(text.lstrip())
    width = max(20, console.width - indent - 2)
    for number, part in enumerate(Text(text.strip()).wrap(console, width)):
        pad = " " * (indent if number == 0 else indent + 2)
        console.print(Text(pad + part.plain.rstrip(), style=style))


def _print_head(console: Console, report: Report) -> None:
    host = report.host
    counts: dict[str, int] = {}
    for device in report.topology.devices:
        counts[device.kind] = counts.get(device.kind, 0) + 1
    facts = [host.name or "a node", host.product, host.cpu_model]
    for kind, name in (("gpu", "GPU"), ("nvswitch", "NVSwitch"), ("nic", "NIC"), ("nvme", "NVMe")):
        if counts.get(kind):
            facts.append(f"{counts[kind]} × {name}")
    if not counts.get("gpu"):
        facts.append("no GPU")
    if report.synthetic:
        say(
            console,
            "SYNTHETIC: this machine is made up; nothing here was measured",
            "bold magenta",
        )
    say(console, "   ".join(fact for fact in facts if fact), "bold")
    about = [host.os, host.kernel, host.machine]
    if host.cpus:
        about.append(f"{host.cpus} CPUs")
    if host.memory_bytes:
        about.append(format_size(host.memory_bytes))
    if host.virtualisation:
        about.append(f"virtual ({host.virtualisation})")
    if host.container:
        about.append(f"in {host.container}")
    if any(about):
        say(console, "   ".join(fact for fact in about if fact), "dim")
    verdict = report.verdict
    if verdict is not None:
        words = {"fail": "fault", "warn": "warning", "pass": "passed", "skip": "not applicable",
                 "unknown": "unknown"}  # fmt: skip
        parts = []
        for status, word in words.items():
            number = verdict.counts.get(status, 0)
            plural = "s" if status in ("fail", "warn") and number != 1 else ""
            parts.append(f"{number} {word}{plural}")
        say(console, "verdict   " + ", ".join(parts), _STYLE.get(verdict.status, ""))
    console.print()


def _print_levels(console: Console, report: Report) -> None:
    if not report.levels:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("LEVEL")
    table.add_column("each")
    for name in ("line", "payload", "expected", "measured"):
        table.add_column(name, justify="right")
    for level in report.levels:
        times = f" ×{level.count}" if level.count > 1 else ""
        table.add_row(
            clean(level.name),
            clean(level.each) + times,
            format_rate(level.limit_GBps.line),
            format_rate(level.limit_GBps.payload),
            format_rate(level.limit_GBps.expected),
            format_rate(level.measured_GBps),
        )
    console.print(table)
    say(console, "GB/s, one direction; DRAM counts read + written; – is not known or not measured "
        "(topoprobe explain line, payload, expected)", "dim")  # fmt: skip
    console.print()


def _print_measurements(console: Console, report: Report) -> None:
    if not report.measurements:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("MEASURED", "on", "size"):
        table.add_column(name)
    for name in ("median", "p95", "algbw", "busbw", "data"):
        table.add_column(name, justify="right")
    for measurement in report.measurements:
        table.add_row(*_measured_row(measurement))
    console.print(table)
    say(console, "algbw, busbw in GB/s as nccl-tests defines them; ~ unstable (the spread is "
        "large); more in --json", "dim")  # fmt: skip
    console.print()


def _measured_row(m: Measurement) -> list[str]:
    where = (
        f"{m.world_size} ranks, {m.backend}" if m.kind == "collective" else ", ".join(m.devices)
    )
    if m.time_s is None:
        return [m.op, clean(where), format_size(m.bytes_total), *["–"] * 4, "not measured"]
    data = {True: "right", False: "CORRUPT", None: "unchecked"}[m.verified]
    unstable = "" if m.stable else "~"
    return [
        m.op + (" (synthetic)" if m.synthetic else ""),
        clean(where),
        format_size(m.bytes_total),
        unstable + format_seconds(m.time_s.median),
        format_seconds(m.time_s.p95),
        format_rate(m.algbw_GBps),
        format_rate(m.busbw_GBps),
        data,
    ]


def _print_findings(console: Console, report: Report) -> None:
    shown = [f for f in report.findings if f.status in ("fail", "warn")]
    shown += [f for f in report.findings if f.status in ("unknown", "skip")]
    for finding in shown:
        _print_finding(console, finding)
    if shown:
        console.print()


def _print_finding(console: Console, finding: Finding) -> None:
    mark = _MARK[finding.status]
    say(console, f"{mark:8} {finding.id}  {finding.message}", _STYLE.get(finding.status, ""))
    for name, value in (("meaning", finding.meaning), ("remedy", finding.remedy)):
        if value and finding.status in ("fail", "warn"):
            say(console, f"         {name}  {value}")


def _print_unread(console: Console, report: Report) -> None:
    """Say what could not be read and why, the same reason once."""
    reasons: dict[str, list[str]] = {}
    for device in report.topology.devices:
        for field, why in device.unknown.items():
            if device.kind in ("gpu", "nic", "numa-node") and field != "alias":
                reasons.setdefault(f"{field}: {why}", []).append(device.alias or device.key)
    for path in report.topology.paths:
        if "class" in path.unknown:
            name = f"{path.a}–{path.b}"
            reasons.setdefault(f"class: {path.unknown['class']}", []).append(name)
    if not reasons:
        return
    say(console, "Not known", "bold")
    for why, names in reasons.items():
        listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        say(console, f"  {listed}: {why}", "bright_black")
    console.print()
