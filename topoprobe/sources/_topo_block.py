"""Read one matrix of a ``nvidia-smi topo`` text: a header, its rows, nothing behind them."""

from collections import Counter
from typing import NamedTuple

from topoprobe.sources._topo_affinity import cut_affinities, read_affinities
from topoprobe.sources._topo_rows import (
    Cells,
    Row,
    choose_columns,
    cut_label,
    find_rows,
    prefix_pattern,
    read_cells,
    width,
)
from topoprobe.sources._topo_words import (
    P2P_WORDS,
    Header,
    continues_header,
    is_class,
    is_standard_label,
    join_header,
    parse_header,
)

_MAX_HEADER_LINES = 12
_TAB = 8
_NO_COLUMN = "no column of the header has this label"


class Block(NamedTuple):
    """One matrix as read; rows are named by their columns' keys."""

    printed: list[str]
    keys: list[str]
    headings: list[str]
    whole_header: bool
    cells: dict[str, list[str]]
    affinities: dict[str, list[str | None]]
    unreadable: dict[str, str]
    warnings: list[str]
    at_end: bool
    p2p: bool

    @property
    def missing(self) -> list[str]:
        """The keys of the columns that no row was found for."""
        return [key for key in self.keys if key not in self.cells and key not in self.unreadable]

    @property
    def whole(self) -> bool:
        """Whether every cell of the matrix was read."""
        return not self.missing and not self.unreadable and not self.warnings


def read_block(lines: list[str], header: Header, ends: bool, ended: bool) -> Block:
    """Read the matrix whose header is the first of these lines.

    Args:
        lines: The lines from the header on, up to where the matrix must have ended.
        header: The first line, read.
        ends: The text ends with these lines.
        ended: The last of these lines has a line end.
    """
    wrapped, after = _wrapped_header(lines, header)
    readings = []
    for head, start in ((wrapped, after), (header, 1)) if wrapped else ((header, 1),):
        labels = frozenset(filter(None, head.labels))
        rows, strange = find_rows(lines[start:], labels)
        rows = [row._replace(line=row.line + start) for row in rows]
        used = max((number for number, line in enumerate(lines) if line.strip()), default=0)
        cut = used if ends else -1
        for joined in (True, False):
            readings.append(_Reading(head, rows, strange, joined, cut, ended).block())
    # Where a line goes on is not certain; the right reading is the one in which rows fit.
    return max(readings, key=lambda block: sum(map(len, block.cells.values())))


def _wrapped_header(lines: list[str], header: Header) -> tuple[Header | None, int]:
    text = lines[0]
    prefix = prefix_pattern(text[: header.start].rstrip() + " ")
    at = 1
    while at < min(len(lines), _MAX_HEADER_LINES):
        line = lines[at]
        if text[: header.start].strip() and (same := prefix.match(line)):
            line = line[same.end() :]
        if not continues_header(line, text[header.start :]):
            break
        text = join_header(text, line)
        at += 1
    return (parse_header(text), at) if at > 1 else (None, 1)


class _Reading:
    """One way to read the lines: those without a label go on the row before, or do not."""

    def __init__(
        self,
        header: Header,
        rows: list[Row],
        strange: list[str],
        joined: bool,
        cut: int,
        ended: bool,
    ) -> None:
        self.joined = joined
        self.cut = cut
        self.ended = ended
        counts = Counter(width(self.text(row)) for row in rows)
        counts.pop(0, None)
        count = counts.most_common(1)[0][0] if counts else 0
        labels = header.labels
        cut_at = None if header.headings else cut_label(labels, rows)
        self.clipped = cut_at is not None
        if cut_at is not None:
            self.printed, self.headings = [label for label in labels[:-1] if label], [cut_at]
        else:
            self.printed, more = choose_columns(labels, rows, count)
            self.headings = more + header.headings
        self.count = len(self.printed)
        self.more = any(heading not in _VALUES_TELL for heading in self.headings)
        self.keys = column_keys(self.printed)
        self.whole_header = header.whole and not self.clipped
        self.rows = rows
        self.unreadable = {label: _NO_COLUMN for label in strange if label not in self.printed}
        self.warnings: list[str] = []
        self.cells: dict[str, list[str]] = {}
        self.read: dict[str, tuple[Row, Cells]] = {}
        self.columns: dict[str, list[int]] = {}
        for at, label in enumerate(self.printed):
            self.columns.setdefault(label, []).append(at)

    def text(self, row: Row) -> str:
        return row.joined() if self.joined else row.first

    def block(self) -> Block:
        for row in self.rows:
            if self.joined or all(width(part) == self.count for part in row.rest):
                self.take(row, self.text(row))
            else:
                self.refuse(row.label, self.columns.get(row.label, []), "it may go on below")
            if not self.joined:
                for at, part in enumerate(row.rest, 1):
                    if width(part) == self.count:
                        self.take(Row("", part, [], row.line + at), part)
        self.drop_clipped()
        at_end = any(map(self.is_last, self.rows))
        return Block(
            self.printed,
            self.keys,
            self.headings,
            self.whole_header,
            self.cells,
            self.affinities(),
            self.unreadable,
            self.warnings,
            at_end,
            _is_p2p(self.rows),
        )

    def drop_clipped(self) -> None:
        """Drop what the right edge may have cut: the NV1 of NV12, of which the pair tells."""
        if _VALUES_TELL & set(self.headings) or not self.keys:
            return
        clipped = _NO_COLUMN in self.unreadable.values()
        pairs = self.cells.get(self.keys[-1], [])
        for at, key in enumerate(self.keys):
            cell = self.cells[key][-1] if key in self.cells else ""
            pair = pairs[at] if pairs else ""
            longer = pair != cell and pair.startswith(cell) if pair else clipped
            if cell.startswith("NV") and longer:
                self.cells[key][-1] = ""

    def is_last(self, row: Row) -> bool:
        return row.line + len(row.rest) >= self.cut >= 0

    def take(self, row: Row, text: str) -> None:
        own = self.columns.get(row.label, [])
        cut = row.loose or (self.is_last(row) and not self.ended)
        found: Cells | str
        if not own:
            found = _NO_COLUMN
        else:
            found = read_cells(text, self.count, own, self.more, cut, self.clipped)
            if isinstance(found, str) and not self.is_last(row):
                found = _by_offset(row.label, text, self.count, own) or found
        if isinstance(found, str):
            self.refuse(row.label, own, found)
            return
        key = self.keys[found.cells.index("X")]
        if key in self.unreadable:
            return
        if key in self.cells:
            if self.cells[key] != found.cells:
                del self.cells[key], self.read[key]
                self.unreadable[key] = "it is printed more than once, and differs"
            return
        self.cells[key] = found.cells
        self.read[key] = (row, found)

    def refuse(self, label: str, own: list[int], reason: str) -> None:
        if len(own) == 1 and self.keys[own[0]] not in self.cells:
            self.unreadable.setdefault(self.keys[own[0]], reason)
        elif not own and is_standard_label(label):
            self.unreadable.setdefault(label, reason)
        elif len(own) > 1:
            self.warnings.append(f"a row {label or 'without a label'} cannot be told: {reason}")

    def affinities(self) -> dict[str, list[str | None]]:
        result = {
            key: read_affinities(found.after, found.tail, self.tail_at(row, found), self.headings)
            for key, (row, found) in self.read.items()
        }
        for key, (row, _) in self.read.items():
            if row.loose:
                result[key] = [cell or None for cell in result[key]]
        if not self.whole_header:
            result = {key: [*cells[:-1], None] for key, cells in result.items()}
        for key, (row, _) in self.read.items():
            missing = len(self.cells) + len(self.unreadable) < self.count
            if self.is_last(row) and (missing or not self.ended):
                others = [cells for other, cells in result.items() if other != key]
                result[key] = cut_affinities(result[key], others, self.ended)
        return result

    def tail_at(self, row: Row, found: Cells) -> int | None:
        """Return the offset of the text behind the cells if the row stands in tab columns."""
        if row.rest or "\t" in row.first:
            return None
        places = _places(row.label, row.first)[: self.count]
        if [place for place, _ in places] != list(range(self.count)):
            return None
        return len(row.label) + len(row.first) - len(found.tail)


_VALUES_TELL = frozenset({"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"})


def column_keys(printed: list[str]) -> list[str]:
    """Return a unique key per column: its label, ``colN`` without, ``LABEL#k`` of several."""
    counts = Counter(printed)
    seen: Counter[str] = Counter()
    keys: list[str] = []
    taken = {label for label in printed if counts[label] == 1}
    for at, label in enumerate(printed):
        key = label
        if not label or counts[label] > 1:
            key = f"{label}#{seen[label]}" if label else f"col{at}"
            seen[label] += 1
            while key in taken:
                key += "#"
            taken.add(key)
        keys.append(key)
    return keys


def _is_p2p(rows: list[Row]) -> bool:
    words = [word for row in rows for word in row.first.split(None, 40)[:40]]
    return any(word in P2P_WORDS for word in words) and not any(
        is_class(word) and word != "X" for word in words
    )


def _places(label: str, text: str) -> list[tuple[int, str]]:
    """Return (column, word) by nvidia-smi's tab stops, counted from the label; -1 if off them."""
    places = []
    end = 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        at = len(label) + start - (word == "X")  # printed as " X "
        places.append((-1 if at % _TAB else at // _TAB - 1, word))
    return places


def _by_offset(label: str, text: str, count: int, own: list[int]) -> Cells | None:
    """Read a row with empty cells by the offsets that the expanded tabs of nvidia-smi give."""
    if "\t" in text or len(label) >= _TAB:
        return None
    cells = [""] * count
    after: list[str] = []
    for at, word in _places(label, text):
        if at == -1:
            return None
        if at < count:
            cells[at] = word if is_class(word) else "?"
        else:
            after.append(word)
    # A cell lost with its blanks would move the others to the left, and leave the last empty.
    if (
        "?" in cells
        or not cells[-1]
        or any(map(is_class, after))
        or cells.count("X") != 1
        or cells.index("X") not in own
    ):
        return None
    return Cells(cells, [], "")
