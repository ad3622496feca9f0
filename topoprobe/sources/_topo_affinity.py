"""Read the cells behind a ``nvidia-smi topo`` matrix row: CPU, NUMA, whatever is next.

They can be empty (NUMA on a VM or on Windows), and nvidia-smi aligns them by tabs that do not
add up with the header's, so their places are certain only where their number or the tabs tell.
"""

from itertools import combinations

from topoprobe.sources._topo_rows import SEAM
from topoprobe.sources._topo_words import cpu_count, fits_heading, is_whole_affinity

_TAB = 8
_MAX_HEADINGS = 8


def read_affinities(
    words: list[str], tail: str, at: int | None, headings: list[str]
) -> list[str | None]:
    """Return one cell per heading, "" where it is empty and None where it cannot be told.

    Args:
        words: The words after the matrix cells.
        tail: The text that these words are from.
        at: The offset of the tail in its row, counted from the label, if the row has blanks in
            place of tabs and stands in nvidia-smi's own columns.
        headings: The headings of the columns.
    """
    cells = _place(_resolve(words, len(headings)), tail, at, headings)
    # What stands under a heading that we know must be of its kind.
    return [
        None if cell and not (is_whole_affinity(cell) and fits_heading(cell, heading)) else cell
        for cell, heading in zip(cells, headings, strict=True)
    ]


def cut_affinities(
    cells: list[str | None], others: list[list[str | None]], ended: bool
) -> list[str | None]:
    """Drop what is not certain in the affinities of a row that the text ends with.

    Args:
        cells: The affinities of that row.
        others: The affinities of the other rows.
        ended: A line end follows, which whoever cut the text may have added.
    """
    last = max((place for place, cell in enumerate(cells) if cell), default=-1)
    if last < 0:
        return [None] * len(cells)
    kept: list[str | None] = [*cells[:last], None] + [None] * (len(cells) - last - 1)
    word = cells[last] or ""
    same = [other[last] or "" for other in others if last < len(other)]
    longer = any(value != word and value.startswith(word) for value in same)
    # "N/A" is never the start of a longer value, and a value that others have is whole. A line
    # end speaks for a whole row, if its CPUs are as many as another's.
    if word == "N/A" or (not longer and (word in same or (ended and _is_like(word, last, same)))):
        kept[last] = word
    return kept


def _is_like(word: str, place: int, same: list[str]) -> bool:
    if place > 0:
        return True
    return cpu_count(word) in {cpu_count(value) for value in same if is_whole_affinity(value)}


def _resolve(words: list[str], count: int) -> list[str]:
    """Decide at a wrapped line's seam by the number of headings, or leave the seam in."""
    if not any(SEAM in word for word in words):
        return words
    apart = [part for word in words for part in word.split(SEAM)]
    if len(words) == count:
        return [word.replace(SEAM, "") for word in words]
    # Apart they are whole values each, or the seam was within one and another is empty.
    if len(apart) == count and all(map(is_whole_affinity, apart)):
        return apart
    return words


def _place(words: list[str], tail: str, at: int | None, headings: list[str]) -> list[str | None]:
    count = len(headings)
    unknown: list[str | None] = [None] * count
    if any(SEAM in word for word in words) or len(words) > count:
        return unknown
    if len(words) == count:
        return list(words)
    if not words:
        # Without tabs, a lost line end looks the same as empty cells.
        return [""] * count if "\t" in tail else unknown
    if "\t" in tail:
        return _by_tabs(tail, headings) or unknown
    if at is not None and count <= _MAX_HEADINGS:
        return _by_offset(words, tail, at, headings) or unknown
    return unknown


def _tabs_before(headings: list[str]) -> list[int]:
    # The driver prints two tabs before the values of GPU NUMA ID and one before the others.
    return [2 if heading == "GPU NUMA ID" else 1 for heading in headings]


def _by_tabs(tail: str, headings: list[str]) -> list[str | None] | None:
    fields = [field.strip() for field in tail.split("\t")]
    if fields[0] or any(len(field.split()) > 1 for field in fields):
        return None
    # Blanks and tabs at line ends are often stripped, so fields may be missing at the right.
    cells: list[str | None] = []
    at = 0
    astray = False
    for step in _tabs_before(headings):
        astray = astray or any(fields[at + 1 : at + step])
        at += step
        cells.append(fields[at] if at < len(fields) else "")
    if astray or any(fields[at + 1 :]):
        return None
    # If the first cell were lost with its tab, others would be taken for it.
    if at >= len(fields) and not {"-", ","} & set(fields[1]):
        return None
    return cells


def _by_offset(
    words: list[str], tail: str, at: int, headings: list[str]
) -> list[str | None] | None:
    """Find the only set of columns in which expanding nvidia-smi's tabs gives these offsets."""
    starts = []
    end = 0
    for word in words:
        start = tail.index(word, end)
        starts.append(at + start)
        end = start + len(word)
    tabs = _tabs_before(headings)
    fits = []
    for places in combinations(range(len(headings)), len(words)):
        cells: list[str | None] = [""] * len(headings)
        for place, word in zip(places, words, strict=True):
            cells[place] = word
        offset = at
        offsets = []
        for step, cell in zip(tabs, cells, strict=True):
            offset = (offset // _TAB + step) * _TAB
            if cell:
                offsets.append(offset)
                offset += len(cell)
        if offsets == starts:
            fits.append(cells)
    return fits[0] if len(fits) == 1 else None
