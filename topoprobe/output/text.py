"""The Report as text for a terminal: the order of its parts. Summary and verdict come first."""

from typing import IO

from rich.console import Console

from topoprobe.model.report import Finding, Report
from topoprobe.output.doubts import print_doubts, print_unread
from topoprobe.output.gpus import print_gpus, print_nics
from topoprobe.output.head import print_head
from topoprobe.output.levels import print_levels, print_measurements
from topoprobe.output.links import print_links
from topoprobe.output.paths import print_paths
from topoprobe.output.say import STYLE, console_for, say
from topoprobe.output.tree import print_tree

_MARK = {"fail": "FAULT", "warn": "WARNING", "unknown": "UNKNOWN", "skip": "SKIPPED"}


def print_report(report: Report, file: IO[str], *, full: bool = False, wide: bool = False) -> None:
    """Print `report` to `file`: 80 columns off a terminal, no colour when piped or NO_COLOR.

    `full` adds tree, links, facts and more matrices; `wide` folds, wraps and cuts nothing.
    """
    console = console_for(file, wide=wide)
    print_head(console, report)
    print_levels(console, report)
    print_measurements(console, report)
    _print_findings(console, report)
    if full:
        print_tree(console, report.topology)
    print_paths(console, report.topology, full=full)
    if full:
        print_links(console, report)
        print_gpus(console, report.topology)
        print_nics(console, report.topology)
    print_doubts(console, report)
    print_unread(console, report)
    if not full:
        say(console, "--full shows tree, links and facts, --wide folds nothing, --json has "
            "all of it", "dim")  # fmt: skip


def _print_findings(console: Console, report: Report) -> None:
    shown = [f for f in report.findings if f.status in ("fail", "warn")]
    shown += [f for f in report.findings if f.status in ("unknown", "skip")]
    for number, finding in enumerate(shown):
        after = shown[number + 1] if number + 1 < len(shown) else None
        _print_finding(console, finding, last=after is None or _advice(after) != _advice(finding))
    if shown:
        console.print()


def _advice(finding: Finding) -> tuple[str, str, str | None, str | None]:
    return finding.id, finding.status, finding.meaning, finding.remedy


def _print_finding(console: Console, finding: Finding, *, last: bool) -> None:
    """Print a finding; what it means and what to do once, after the last one of its kind."""
    mark = _MARK[finding.status]
    say(console, f"{mark:8} {finding.id}  {finding.message}", STYLE.get(finding.status, ""))
    if not last or finding.status not in ("fail", "warn"):
        return
    for name, value in (("meaning", finding.meaning), ("remedy", finding.remedy)):
        if value:
            say(console, f"         {name}  {value}")
