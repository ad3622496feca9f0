"""What every part of the text is printed with: lines, facts in a row, tables."""

import os
import textwrap
from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.text import Text

from topoprobe.output.clean import ascii_only, clean

STYLE = {"fail": "bold red", "warn": "yellow", "unknown": "bright_black", "pass": "green"}
_WIDTH = 80
# With --wide nothing is wrapped or cut: wider than any line that a node can give.
_NO_WIDTH = 1 << 20
# No column of a table becomes narrower than this.
_NARROWEST = 8


def console_for(file: IO[str], *, wide: bool = False) -> Console:
    """Return a console on `file`: 80 columns off a terminal, no colour when piped or NO_COLOR."""
    terminal = file.isatty()
    utf8 = (getattr(file, "encoding", "") or "").lower().replace("-", "") == "utf8"
    return Console(
        file=file if utf8 else ascii_only(file),
        width=_NO_WIDTH if wide else None if terminal else _WIDTH,
        no_color=not terminal or bool(os.environ.get("NO_COLOR")),
        # rich would colour a pipe where FORCE_COLOR or TTY_COMPATIBLE is set by the site.
        force_terminal=terminal,
        highlight=False,
        markup=False,
        emoji=False,
        safe_box=True,
    )


def is_wide(console: Console) -> bool:
    """Tell whether this console takes lines of any length."""
    return console.width >= _NO_WIDTH


def line(console: Console, text: str, style: str = "") -> None:
    """Print one line as it is: the caller has laid it out."""
    console.print(Text(clean(text).rstrip(), style=style), soft_wrap=True)


def say(console: Console, text: str, style: str = "") -> None:
    """Print one logical line, wrapped at words with a hanging indent."""
    text = clean(text)
    indent = len(text) - len(text.lstrip())
    for number, part in enumerate(_wrap(text.strip(), max(20, console.width - indent - 2))):
        line(console, " " * (indent if number == 0 else indent + 2) + part, style)


def facts(console: Console, parts: Sequence[str | None], style: str = "") -> None:
    """Print what there is of `parts` in a row; a line breaks between two of them."""
    row = ""
    for part in (clean(part) for part in parts if part):
        if row and len(row) + 3 + len(part) > console.width:
            _whole(console, row, style)
            row = "  " + part
        else:
            row += ("   " if row else "") + part
    if row:
        _whole(console, row, style)


def _whole(console: Console, row: str, style: str) -> None:
    if len(row) <= console.width:
        line(console, row, style)
    else:
        say(console, row, style)


def table(
    console: Console,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    styles: Sequence[str] = (),
) -> None:
    """Print a table that keeps to the width: its widest columns wrap.

    `right` are the columns aligned to the right, `styles` one for each row.
    """
    cells = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    while sum(widths) + 2 * (len(widths) - 1) > console.width and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    for number, row in enumerate(cells):
        style = "bold" if number == 0 else styles[number - 1] if styles else ""
        for part in _row(row, widths, right):
            line(console, part, style)


def _row(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> list[str]:
    wrapped = [_wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for number in range(max(len(parts) for parts in wrapped)):
        cells = [_nth(parts, number) for parts in wrapped]
        padded = [
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(cells)
        ]
        lines.append("  ".join(padded))
    return lines


def _nth(parts: Sequence[str], number: int) -> str:
    return parts[number] if number < len(parts) else ""


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
