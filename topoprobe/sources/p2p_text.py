"""Read the text of ``nvidia-smi topo -p2p``: which GPU pairs may access each other's memory.

A cell is kept only if its place is certain: a row must have as many cells as the header has
columns, and its X on the diagonal. Everything else is unreadable, with the reason.
"""

import re
from dataclasses import dataclass, field

from topoprobe.model.errors import ParseError
from topoprobe.model.texts import P2pCapability, P2pMatrix, P2pText
from topoprobe.sources._topo_clean import clean_lines
from topoprobe.sources._topo_words import MAX_COLUMNS, MAX_LINE, P2P_WORDS, is_class

_BEFORE = r"[\s>*\-•\"']{0,40}(?:[A-Za-z][\w.@\-]{0,63}:\s{1,8})?"
_HEADER = re.compile(_BEFORE + r"(?P<labels>(?:GPU\d{1,4}\s*)+)")
_LABEL = re.compile(r"GPU\d{1,4}")
_ROW = re.compile(_BEFORE + r"(?P<label>GPU\d{1,4})(?P<cells>\s.*)")
_LEGEND = re.compile(r"[\s>]{0,40}([A-Z]{1,6})\s{1,20}=\s{1,20}(\S.{0,100})")
_CELL = re.compile(r"[A-Z]{1,6}")
_COMMAND = re.compile(r"topo\s{1,8}--?p2p\s{1,8}(\w{1,12})")
_CAPABILITIES: dict[str, P2pCapability] = {
    "r": "read",
    "w": "write",
    "n": "nvlink",
    "a": "atomics",
    "p": "pcie",
}
# How far above a header its command may stand, in lines that are not empty.
_LOOK_BACK = 6
_NO_COMMAND = "the command line (topo -p2p r, w, n, a or p) is not in the text"


@dataclass
class _Block:
    """One matrix while it is read: rows by label, each with the lines it goes on in."""

    labels: list[str]
    command: str | None
    rows: list[tuple[str, list[str]]] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)
    open: bool = True


def parse_p2p(text: str, name: str = "text") -> P2pText:
    """Parse every p2p matrix in a text; other matrices in it are passed over.

    Raises:
        ParseError: There is none, or none of its rows can be read.
    """
    lines, _ = clean_lines(text)
    blocks = [block for block in _blocks(lines) if _is_p2p(block)]
    matrices = [_matrix(block) for block in blocks if len(block.labels) <= MAX_COLUMNS]
    whole = [matrix for matrix in matrices if matrix.cells]
    if not whole:
        raise ParseError(f"{name}: {_why_none(matrices)}")
    warnings = []
    for number, matrix in enumerate(whole, 1):
        missing = [label for label in matrix.columns if label not in matrix.rows]
        if missing:
            which = f"matrix {number}: " if len(whole) > 1 else ""
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            warnings.append(f"{which}rows missing or unreadable: {', '.join(missing[:8])}{more}")
    if len(whole) < len(blocks):
        warnings.append("a further p2p matrix in the text cannot be read")
    return P2pText(matrices=tuple(whole), warnings=tuple(warnings))


def _why_none(matrices: list[P2pMatrix]) -> str:
    fix = "run `nvidia-smi topo -p2p r` on the node and give its whole output"
    reason = next((why for matrix in matrices for why in matrix.unreadable.values()), None)
    if reason:
        return f"no row of the p2p matrix can be read with certainty ({reason}); {fix}"
    return f"no p2p capability matrix found; {fix}"


def _blocks(lines: list[str]) -> list[_Block]:
    blocks: list[_Block] = []
    recent: list[str] = []
    for line in lines:
        if not line.strip() or len(line) > MAX_LINE:
            continue
        block = blocks[-1] if blocks else None
        if found := _HEADER.fullmatch(line):
            labels = _LABEL.findall(found["labels"])
            goes_on = block and block.open and not block.rows
            if goes_on and block and not set(labels) & set(block.labels):
                block.labels += labels  # wrapped by the terminal
            else:
                blocks.append(_Block(labels, _command(recent)))
                recent = []
        elif block and (found := _LEGEND.fullmatch(line)):
            block.open = False
            block.legend.setdefault(found[1], found[2].strip())
        elif block and block.open and not _take_row(block, line):
            block.open = False
        recent = [*recent[1 - _LOOK_BACK :], line]
    return blocks


def _take_row(block: _Block, line: str) -> bool:
    if found := _ROW.fullmatch(line):
        block.rows.append((found["label"], [found["cells"]]))
        return True
    words = line.split()
    # A row goes on in the next line, its last word perhaps torn.
    if block.rows and all(_CELL.fullmatch(word) for word in words):
        label, parts = block.rows[-1]
        if len(parts) < 12:
            parts.append(line)
        return bool(label)
    return False


def _command(recent: list[str]) -> str | None:
    for line in reversed(recent):
        if found := _COMMAND.search(line[-400:]):
            return found[1].lower()
    return None


def _is_p2p(block: _Block) -> bool:
    words = {word for _, parts in block.rows for part in parts for word in part.split()}
    if any(is_class(word) and word != "X" for word in words):
        return False
    told = bool(block.legend.keys() & (P2P_WORDS - {"U"})) or block.command is not None
    return bool(block.rows) and (told or bool(words & P2P_WORDS))


def _matrix(block: _Block) -> P2pMatrix:
    labels = block.labels
    codes = P2P_WORDS | {"X"} | block.legend.keys()
    cells: dict[str, dict[str, str]] = {}
    unreadable: dict[str, str] = {}
    twice = len(set(labels)) < len(labels)
    columns = {label: at for at, label in enumerate(labels)}
    for label, parts in block.rows:
        read: list[str] | str
        if twice:
            read = "a label stands twice in the header"
        elif label not in columns:
            read = "no column of the header has this label"
        else:
            read = _cells(parts, len(labels), columns[label])
        if isinstance(read, str):
            if label not in cells:
                unreadable[label] = read
            continue
        row = {key: cell for key, cell in zip(labels, read, strict=True) if cell in codes}
        if label in cells and cells[label] != row:
            del cells[label]
            unreadable[label] = "it is printed more than once, and differs"
        elif label not in unreadable:
            cells[label] = row
    for label, row in cells.items():
        for key in labels:
            if key not in row:
                unreadable[f"{label}/{key}"] = "it is empty or no word of the legend"
    capability = _CAPABILITIES.get(block.command or "")
    return P2pMatrix(
        capability=capability,
        columns=tuple(dict.fromkeys(labels)),
        rows=tuple(label for label in labels if label in cells),
        cells=cells,
        unreadable=unreadable,
        legend=block.legend,
        unknown={} if capability else {"capability": _why_no_capability(block.command)},
    )


def _why_no_capability(command: str | None) -> str:
    if command is None:
        return _NO_COMMAND
    return f"the command line asks for {command!r}, which is none of r, w, n, a and p"


def _cells(parts: list[str], count: int, own: int) -> list[str] | str:
    """Return the cells of one row, or why they cannot be told."""
    readings = {tuple(" ".join(parts).split()), tuple("".join(parts).split())}
    fields = tuple(field.strip() for field in "".join(parts).strip(" \r\n").split("\t"))
    if len(fields) > 1 and not fields[0]:
        # Tab-separated: an empty field is a lost cell, and its place is certain.
        readings.add(tuple(fields[1 : count + 1]))
    fitting = [
        words
        for words in readings
        if len(words) == count and words[own] == "X" and words.count("X") == 1
    ]
    fitting = [words for words in fitting if all(words)] or fitting
    known = [words for words in fitting if set(words) <= P2P_WORDS | {"X"}]
    if len(known or fitting) == 1:
        return list((known or fitting)[0])
    if fitting:
        return "it goes on in the next line, and where a cell ends cannot be told"
    words = " ".join(parts).split()
    if len(words) != count:
        return f"it has {len(words)} cells, the header {count} columns"
    return "its X is not on the diagonal"
