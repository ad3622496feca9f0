"""Units: how sizes, rates and durations are read and written.

In data, bandwidth is GB/s = 1e9 bytes/s in one direction, sizes are bytes, times are seconds.
Sizes step in binary (1 KiB = 1024 B), bandwidths in decimal, as nccl-tests prints them.
"""

from topoprobe.model.errors import UsageError

GB = 1e9
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_SECONDS_PER_SUFFIX = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Return the seconds in ``3``, ``3s``, ``2m``, ``500ms`` or ``1h``; must be above zero.

    Raises UsageError for anything else.
    """
    number = text.rstrip("hms")
    try:
        seconds = float(number) * _SECONDS_PER_SUFFIX[text[len(number) :]]
    except (KeyError, ValueError):
        raise UsageError(f"not a duration: {text!r}; write 3, 3s, 500ms or 2m") from None
    # "nan" and "inf" are floats to Python, and no deadline to anybody.
    if not 0 < seconds < 1e9:
        raise UsageError(f"not a usable duration: {text!r}; write 3, 3s, 500ms or 2m")
    return seconds


def format_size(size: int | float) -> str:
    """Return bytes in binary steps: ``64 MiB``, ``1.5 GiB``, ``8 B``."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value == int(value) or value >= 100 else f"{value:.1f} {unit}"


def format_rate(rate: float | None) -> str:
    """Return GB/s in about three figures: ``0.85``, ``31.5``, ``478``; ``–`` if None."""
    if rate is None:
        return "–"
    if rate >= 100:
        return f"{rate:.0f}"
    return f"{rate:.1f}" if rate >= 10 else f"{rate:.2f}" if rate >= 0.01 else f"{rate:.1g}"


def format_seconds(seconds: float) -> str:
    """Return a time with a fitting unit: ``35.1 µs``, ``2.40 ms``, ``1.20 s``."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            break
    value = seconds * factor
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
