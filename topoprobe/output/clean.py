"""Make any string safe and fit for the terminal it goes to."""

from typing import IO, cast

# What we print ourselves beyond ASCII, and what stands for it where the locale has no UTF-8.
# One character for one: lines are laid out before they are translated.
_ASCII = str.maketrans(
    {"×": "x", "–": "-", "—": "-", "↔": "-", "µ": "u", "·": ".", "…": "~", "≥": ">",
     "├": "|", "└": "`", "─": "-", "│": "|", "━": "-", "╺": "-", "╸": "-", "✗": "x", "−": "-",
     "°": "'"}
)  # fmt: skip


def clean(text: str) -> str:
    """Return `text` without control characters: names come from files that may be hostile."""
    return "".join(c if c.isprintable() else "?" for c in text)


class _AsciiFile:
    """Writes to `file` what it can show, with stand-ins for the rest."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.encoding = "utf-8"

    def write(self, text: str) -> int:
        self._file.write(text.translate(_ASCII).encode("ascii", "replace").decode("ascii"))
        return len(text)

    def flush(self) -> None:
        self._file.flush()

    def isatty(self) -> bool:
        return self._file.isatty()


def ascii_only(file: IO[str]) -> IO[str]:
    """Return a text file that writes ASCII to `file`."""
    return cast(IO[str], _AsciiFile(file))
