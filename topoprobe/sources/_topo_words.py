"""The words of a ``nvidia-smi topo`` matrix: cells, labels, headings; and the header row."""

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

MAX_COLUMNS = 1024
# 1024 columns of 40 characters; nothing longer can be a line of a matrix.
MAX_LINE = 40 * MAX_COLUMNS

_KNOWN = frozenset({"X", "SYS", "SOC", "NODE", "PHB", "PXB", "PIX"})
# The left part of a cell that a line's end has cut; "NV1" of "NV12" cannot be told by itself.
_FRAGMENTS = frozenset(word[:end] for word in (*_KNOWN, "NV#") for end in range(1, len(word)))
_TAILS = frozenset(word[start:] for word in _KNOWN for start in range(1, len(word)))
P2P_WORDS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
_CLASS_SHAPE = re.compile(r"[A-Z]{2,8}\d{0,3}")
_CPU_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")

# "GPU0000:07:00.0" is an address and "GPU0:" the start of a sentence, not labels.
_FIRST_LABEL = re.compile(r"(?<![A-Za-z0-9_])GPU\d{1,4}(?![0-9:.\-])")
# Copies glue labels: GPU0GPU1…GPU7mlx5_0.
_GLUED = re.compile(r"((?:GPU|NIC|DD)\d{1,4}|mlx\d_\d{1,3})(?=[A-Za-z])")
_HEADING = re.compile(r"(CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID)(?:0m)?")
HEADINGS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_STANDARD_LABEL = re.compile(r"(?:GPU|NIC|DD)\d{1,4}|mlx\d_\w+")
_LABEL_SHAPE = re.compile(r"[A-Za-z][\w.\-]*[\d_][\w.\-]*")
_HEADING_WORDS = frozenset({"CPU", "NUMA", "GPU", "Affinity", "ID"})
_MAX_STARTS = 3
_WIDE_GAP = re.compile(r"\t+|  +")


def is_class(word: str) -> bool:
    """Tell whether the word is a cell that nvidia-smi is known to print."""
    return word in _KNOWN or (
        word[:2] == "NV" and word[2:].isdigit() and word.isascii() and len(word) <= 5
    )


def may_be_class(word: str) -> bool:
    """Tell whether the word can be a cell, known or of a future driver (``ICN7``)."""
    return is_class(word) or (_CLASS_SHAPE.fullmatch(word) is not None and word not in _FRAGMENTS)


def is_fragment(word: str) -> bool:
    """Tell whether the word can be a part of a cell or affinity that a line's end has cut."""
    return (
        word in _FRAGMENTS
        or word in _TAILS
        or word in ("N/", "/A", "A")
        or (word[:1] == "V" and word[1:].isdigit())
    )


def is_affinity(word: str) -> bool:
    """Tell whether the word is made like a part of an affinity: digits, commas, dashes, N/A."""
    return word == "N/A" or (word != "" and not word.strip("0123456789,-"))


def is_whole_affinity(word: str) -> bool:
    """Tell whether the word is an affinity that no cut shows on; a list must ascend."""
    if not is_affinity(word):
        cut = "N/A".startswith(word) or word.endswith(("-", ",", ".", "…", "/"))
        return not cut
    if word == "N/A":
        return True
    if not _CPU_LIST.fullmatch(word) or len(word) > 4096:
        return False
    numbers = [part.lstrip("0") or "0" for part in word.replace("-", ",").split(",")]
    sizes = [(len(number), number) for number in numbers]
    return sizes == sorted(sizes)


def fits_heading(cell: str, heading: str) -> bool:
    """Tell whether the cell can stand under the heading, any under one that we do not know."""
    return heading not in HEADINGS or is_affinity(cell)


def cpu_count(cpus: str) -> int:
    """Return how many CPUs a whole list names, 0 for what is none."""
    if not _CPU_LIST.fullmatch(cpus) or len(cpus) > 4096:
        return 0
    ends = [part.split("-") for part in cpus.split(",")]
    return sum(int(end[-1][:9]) - int(end[0][:9]) + 1 for end in ends)


class Header(NamedTuple):
    """A header row.

    start
        Where in the line the first label stands.
    labels
        The labels, "" for an empty field.
    headings
        The headings behind them.
    whole
        False where the last heading is cut.
    sure
        False where the line could be prose or a row as well ("GPU0 is lost", "GPU0").
    """

    start: int
    labels: list[str]
    headings: list[str]
    whole: bool
    sure: bool


def parse_header(line: str) -> Header | None:
    """Read a header row, or return None if the line is none."""
    line = line[:MAX_LINE]
    first = None
    # The prefix of a log may name a GPU too.
    for found in islice(_FIRST_LABEL.finditer(line), _MAX_STARTS):
        header = _header_from(line, found.start())
        if header is not None and header.sure:
            return header
        first = first or header
    return first


def _header_from(line: str, start: int) -> Header | None:
    body = _GLUED.sub(r"\1\t", line[start:])
    heading = _HEADING.search(body)
    end = heading.start() if heading else len(body)
    labels = _fields(body[:end])
    headings = _split_headings(body[end:])
    # "=" is of prose or a legend, a backslash of an escape that was torn apart.
    if any(is_class(word) or word in P2P_WORDS or {"=", "\\"} & set(word) for word in labels):
        return None
    if heading is None:
        labels, headings = _cut_heading(labels)
    while not labels[-1]:
        labels.pop()
    odd = any(label and not is_labelish(label) for label in labels[:-1])
    odd = odd or not (is_labelish(labels[-1]) or is_cut_label(labels[-1], ()))
    sure = not odd and (len(labels) > 1 or heading is not None)
    return Header(start, labels, headings, all(map(_is_whole, headings)), sure)


def _cut_heading(labels: list[str]) -> tuple[list[str], list[str]]:
    # "CPU" or "CPU Affi": the line was cut within the heading, and CPU is no device.
    for at in range(max(len(labels) - 2, 1), len(labels)):
        if labels[at] == "CPU" and "CPU Affinity".startswith(" ".join(labels[at:])):
            return labels[:at], [" ".join(labels[at:])]
    return labels, []


def _fields(text: str) -> list[str]:
    """Split on tabs, and a field with blanks in it on those; an empty field is kept as ""."""
    fields: list[str] = []
    for field in text.split("\t"):
        fields.extend(field.split() or [""])
    return fields


def _split_headings(text: str) -> list[str]:
    headings: list[str] = []
    at = 0
    for found in _HEADING.finditer(text):
        headings.extend(_other_headings(text[at : found.start()]))
        headings.append(" ".join(found[1].split()))
        at = found.end()
    headings.extend(_other_headings(text[at:]))
    return headings


def _other_headings(text: str) -> list[str]:
    return [part for part in _WIDE_GAP.split(text.strip()) if part]


def _is_whole(heading: str) -> bool:
    return heading in HEADINGS or not any(known.startswith(heading) for known in HEADINGS)


def is_labelish(word: str) -> bool:
    """Tell whether the word is made like a device label: it has a digit or an underscore."""
    return _LABEL_SHAPE.fullmatch(word) is not None


def is_standard_label(word: str) -> bool:
    """Tell whether the word is a label of a kind that nvidia-smi is known to print."""
    return _STANDARD_LABEL.fullmatch(word) is not None


def continues_header(line: str, header: str) -> bool:
    """Tell whether the line can be the wrapped rest of the header before it."""
    words = line.split()
    before = set(header.split())
    return bool(words) and all(
        (word not in before or word in _HEADING_WORDS)
        and not is_class(word)
        and (
            is_labelish(word)
            or word[0] == "_"
            or word in _HEADING_WORDS
            or word.isdigit()
            # A heading that was cut at the line's end: "Af", "finity".
            or any(known.endswith(word) or known.startswith(word) for known in _HEADING_WORDS)
        )
        for word in words
    )


def is_cut_label(word: str, others: Iterable[str]) -> bool:
    """Tell whether the last label of a header is only the left part of one like the others."""
    stems = ("GPU#", "NIC#", "DD#", *others)
    return any(stem.startswith(word) and stem != word for stem in stems)


def join_header(line: str, rest: str) -> str:
    """Join a wrapped header: a terminal wraps within a word, an editor between words."""
    if not line or line[-1].isspace() or rest[:1].isspace():
        return line + " " + rest
    first = rest.split(None, 1)[0]
    if first in _HEADING_WORDS or is_standard_label(first):
        return line + " " + rest
    return line + rest
