"""The tables of levels (what each kind of link could give) and of measurements."""

from rich.console import Console

from topoprobe.model.report import Measurement, Report
from topoprobe.model.units import format_rate, format_seconds, format_size
from topoprobe.output.clean import clean
from topoprobe.output.say import say, table


def print_levels(console: Console, report: Report) -> None:
    """Print the hierarchy of memory and links with its ceilings."""
    if not report.levels:
        return
    rows = [
        [
            level.name,
            level.each + (f" ×{level.count}" if level.count > 1 else ""),
            format_rate(level.limit_GBps.line),
            format_rate(level.limit_GBps.payload),
            format_rate(level.limit_GBps.expected),
            format_rate(level.measured_GBps),
        ]
        for level in report.levels
    ]
    header = ("LEVEL", "each", "line", "payload", "expected", "measured")
    table(console, header, rows, right=(2, 3, 4, 5))
    say(console, "GB/s, one direction; DRAM counts read + written; – is not known or not measured "
        "(topoprobe explain line, payload, expected)", "dim")  # fmt: skip
    console.print()


def print_measurements(console: Console, report: Report) -> None:
    """Print what was measured, a cell a line."""
    if not report.measurements:
        return
    header = ("MEASURED", "on", "size", "median", "p95", "algbw", "busbw", "data")
    rows = [_measured_row(measurement) for measurement in report.measurements]
    table(console, header, rows, right=(3, 4, 5, 6))
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
