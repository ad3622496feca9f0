"""Find the rows of a ``nvidia-smi topo`` matrix below its header, and read their cells.

The proof that a row is read right is its ``X``: nvidia-smi prints exactly one per row, on the
diagonal. A row whose X is not in the column of the row's own label is not read at all.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from topoprobe.sources._topo_words import (
    MAX_COLUMNS,
    MAX_LINE,
    P2P_WORDS,
    is_affinity,
    is_class,
    is_cut_label,
    is_fragment,
    is_labelish,
    is_standard_label,
    may_be_class,
)

# Stands where a line was wrapped and the parts of it may be one word or two (never in input).
SEAM = "\x00"

_WORD = re.compile(r"[A-Za-z0-9_]+(?:[.\-][A-Za-z0-9_]+)*")
_NOT_BLANK = re.compile(r"\S+")
_DIGITS = re.compile(r"\d+")
_MAX_PREFIX = 300


class Row(NamedTuple):
    """The text of one row: what follows the label, and the lines that may continue it."""

    label: str
    first: str
    rest: list[str]
    line: int
    # A line that is none of the matrix's follows: the row's own rest may be in it.
    loose: bool = False

    def joined(self) -> str:
        """Return the row as one line, with a SEAM where that is not certain."""
        pieces = [self.first]
        for part in self.rest:
            pieces += (_seam(pieces[-1], part), part.lstrip())
        return "".join(pieces)


def _seam(text: str, part: str) -> str:
    """Tell how two parts of a wrapped line join: a terminal wraps within words."""
    if not text.strip() or text[-1].isspace() or part[:1].isspace():
        return " "
    a, b = text.rsplit(None, 1)[-1], part.split(None, 1)[0]
    if is_class(a) and is_class(b):
        return " "
    if is_class(a + b):
        return SEAM if is_class(a) else ""
    if a + b == "N/A":
        return ""
    if is_affinity(a) and is_affinity(b) and "N/A" not in (a, b):
        return "" if a[-1] in ",-" or b[0] in ",-" else SEAM
    return " "


def find_rows(lines: Iterable[str], labels: frozenset[str]) -> tuple[list[Row], list[str]]:
    """Return the rows in these lines, and labels of rows which are of no known kind."""
    rows: list[Row] = []
    strange: list[str] = []
    prefix: re.Pattern[str] | None = None
    goes_on = False
    for number, whole in enumerate(lines):
        line = whole
        if not line or len(line) > MAX_LINE or line.isspace():
            continue
        found = _label_at(line, labels)
        if found is not None:
            start, end = found
            if prefix is None and line[:start].strip() and start <= _MAX_PREFIX:
                prefix = prefix_pattern(line[:start])
            rows.append(Row(line[start:end], line[end:], [], number))
            goes_on = True
            continue
        if prefix is not None and (same := prefix.match(line)):
            line = line[same.end() :]
        words = line.split()
        if not words:
            continue
        name = _strange_label(words)
        if name is not None:
            strange.append(name)
        # A row does not go on behind a line that is no part of it.
        if goes_on and name is None and _is_rest(words) and len(rows[-1].rest) < MAX_COLUMNS:
            rows[-1].rest.append(line)
        elif goes_on:
            goes_on = False
            rows[-1] = rows[-1]._replace(loose=True)
    return rows, strange


def _label_at(line: str, labels: frozenset[str]) -> tuple[int, int] | None:
    """Find the label of a row: the last one in the line, so that a prefix may hold one too."""
    for found in reversed(list(_WORD.finditer(line))):
        start, end = found.span()
        if found[0] not in labels and not is_standard_label(found[0]):
            # grep -A puts "-" between the file name and the line.
            start = line.rfind("-", start, end) + 1
            if not start or line[start:end] not in labels:
                continue
        after = line[end:].split(None, 3)[:3]
        if not line[end : end + 1].strip() and (
            # A wrapped row may have its label alone; the "N" of a cut NODE is none.
            (not after and is_labelish(line[start:end]))
            or any(is_class(word) or word in P2P_WORDS for word in after)
        ):
            return start, end
    return None


def prefix_pattern(prefix: str) -> re.Pattern[str]:
    """Match prefixes of the same shape: the digits of time stamps and line numbers differ."""
    return re.compile(_DIGITS.sub(r"\\d+", re.escape(prefix)))


def _is_cell_or_affinity(word: str) -> bool:
    return may_be_class(word) or is_affinity(word)


def _is_rest(words: list[str]) -> bool:
    """Tell whether a line is made of cells and affinities, but for what its ends have cut."""
    inner = words[1:-1] if len(words) > 1 else []
    ends = words[:1] + words[-1:]
    return all(map(_is_cell_or_affinity, inner)) and all(
        _is_cell_or_affinity(word) or (len(word) < 5 and is_fragment(word)) for word in ends
    )


def _strange_label(words: list[str]) -> str | None:
    """Return the label of a row that has one, and cells behind it, but no column."""
    if len(words) < 2 or may_be_class(words[0]) or is_affinity(words[0]):
        return None
    cells = [word for word in words[1:] if not is_affinity(word)]
    if len(cells) > 1 and all(map(is_class, cells)):
        return words[0]
    return None


def width(text: str) -> int:
    """Return how many cells a row begins with."""
    count = 0
    for word in text.split():
        if not may_be_class(word) and SEAM not in word:
            break
        count += 1
    return count


def choose_columns(labels: list[str], rows: list[Row], count: int) -> tuple[list[str], list[str]]:
    """Return the column labels that fit rows of so many cells, and what else are headings.

    An empty field in the header is a column without a label (Azure's VMs hide the names of
    their NICs) or a doubled tab: only the rows tell.
    """
    dense = [label for label in labels if label]
    known = {row.label for row in rows}
    # A device without a digit in its name and without a row is a heading that we do not know.
    end = len(dense)
    while end > 1 and dense[end - 1] not in known and not is_labelish(dense[end - 1]):
        end -= 1
    if end < len(dense) and len(dense) == len(labels):
        return dense[:end], dense[end:]
    if count == len(dense):
        return dense, []
    if count == len(labels):
        return labels, []
    if 0 < count < len(dense):
        surplus = dense[count:]
        if not any(is_standard_label(label) or label in known for label in surplus):
            return dense[:count], surplus
    if count > len(dense):
        bare = sum(width(part) == count for row in rows for part in row.rest)
        if bare == count - len(dense):
            return dense + [""] * bare, []
        front = _cut_front(dense, rows, count)
        gpus = [label for label in front if label.startswith("GPU")]
        # GPU labels never repeat: this front is that of another node in the same log.
        return (front if len(gpus) == len(set(gpus)) else dense), []
    return dense, []


def cut_label(labels: list[str], rows: list[Row]) -> str | None:
    """Return the last label of a header without headings if the right edge has cut it."""
    last = labels[-1]
    others = {row.label for row in rows}
    if last in labels[:-1]:
        # NIC1 of NIC10. Real repetitions are names cut to 7 characters, as mlx5_ib is.
        return last if last[-1].isdigit() and len(last) < 7 else None
    if last in others or len(labels) < 2:
        return None
    return last if is_cut_label(last, (labels[-2], *others)) else None


def _cut_front(labels: list[str], rows: list[Row], count: int) -> list[str]:
    """Return the labels with those before them that the rows prove, if the front was cut off.

    A row's X stands in the column of its label.
    """
    places = {}
    for row in rows:
        words = row.first.split(None, count)[:count]
        if width(row.first) == count and words.count("X") == 1:
            places[words.index("X")] = row.label
    missing = count - len(labels)
    whole = [places.get(at, "") for at in range(missing)] + labels
    fits = all(whole[at] == label for at, label in places.items())
    return whole if fits and all(whole) else labels


class Cells(NamedTuple):
    """A row that was read: a cell per column ("" where unreadable), and the text after them."""

    cells: list[str]
    after: list[str]
    tail: str


def read_cells(
    row: str, count: int, own: list[int], more: bool, cut: bool, clipped: bool
) -> Cells | str:
    """Read the cells of a row whose label stands at one of the columns `own`.

    Args:
        row: The text behind the label.
        count: How many columns there are.
        own: The columns with the row's label.
        more: Columns which we do not know, with values which could pass for cells, may follow.
        cut: The text ends with this row.
        clipped: The lines are cut at the right, within one more column.

    Returns:
        The cells, or the reason if they cannot be told with certainty.
    """
    words = row.split()
    if clipped and len(words) == count + 1:
        words.pop()  # of the column whose label is cut
    for at, word in enumerate(words[: count - 1]):
        if SEAM in word:  # "NV1|2" before the last cell: a digit alone is none
            words[at] = word.replace(SEAM, "")
    run = 0
    while run < len(words) and may_be_class(words[run]):
        run += 1
    if more and run > count and not any(map(is_class, words[count:run])):
        run = count
    if run == count and words[:count].count("X") == 1:
        at = words.index("X")
        if at not in own:
            return f"its X stands in column {at}, not in its own"
        cells = words[:count]
        if cut and len(words) == count and not is_final(cells[-1]):
            cells[-1] = ""
        return Cells(cells, words[count:], _tail(row, count))
    found = None if cut else _by_tab(row, count, own)
    if found is not None:
        return found
    if cut and run == len(words) < count:
        return f"the text ends within it, after {run} of {count} cells"
    if run != count:
        return f"{run} of its cells can be read, and there are {count} columns"
    return "it has no X of its own" if "X" not in words[:count] else "it has more than one X"


def is_final(word: str) -> bool:
    """Tell whether no other cell begins with the word: NV1 may be the start of NV12."""
    return is_class(word) and word[:2] != "NV"


def _tail(text: str, count: int) -> str:
    """Return the text after so many words, with its tabs: they stand for empty cells."""
    for number, word in enumerate(_NOT_BLANK.finditer(text), 1):
        if number == count:
            return text[word.end() :]
    return ""


def _by_tab(text: str, count: int, own: list[int]) -> Cells | None:
    """Read a row by its tabs, which keep their places where a cell is empty or spoilt."""
    fields = [field.strip() for field in text.rstrip("\n").split("\t")]
    if len(fields) <= count or fields[0] or any(len(field.split()) > 1 for field in fields):
        return None
    cells, after = fields[1 : count + 1], fields[count + 1 :]
    ill = [cell for cell in cells if not may_be_class(cell)]
    if (
        cells.count("X") != 1
        or cells.index("X") not in own
        or len(ill) > max(1, count // 4)
        or any(is_affinity(cell) for cell in ill)
        or any(may_be_class(field) for field in after)
        # A tab too many at the left would also leave an empty cell, and move one out.
        or ("" in cells and (not after or not cells[-1]))
    ):
        return None
    cells = [cell if may_be_class(cell) else "" for cell in cells]
    return Cells(cells, [field for field in after if field], "\t" + "\t".join(after))
