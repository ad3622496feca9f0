"""Read what stands around a ``nvidia-smi topo`` matrix: its legends and the command before it."""

import re
from collections import Counter
from typing import NamedTuple

from topoprobe.sources._topo_rows import prefix_pattern
from topoprobe.sources._topo_words import MAX_LINE

_START = re.compile(r"(?:^|[^A-Za-z])Legend:?\s*$|(?<![\w#])X\s{1,8}=\s+Self")
_KEY = re.compile(r"(?<![\w#])(X|SYS|SOC|NODE|PHB|PXB|PIX|NV#)\s{1,8}=")
_P2P = re.compile(r"(?<![\w])(?:CNS|GNS|TNS)\s+=|OK\s+=\s+Status")
_DEVICE = re.compile(r"(?<![A-Za-z0-9_])((?:NIC|DD)\d{1,4})\s?:\s+([A-Za-z0-9_][\w.\-]*)")
_NAME_END = re.compile(r"[\w.\-]{1,12}")
_COMMAND = re.compile(r"topo\s+(?:-(mp|p2p|m)\b|--(matrix|p2p)\b)")
_LOOK_BACK = 4


class Legend(NamedTuple):
    """The legends below a matrix."""

    lines: list[str]
    keys: frozenset[str]
    p2p: bool
    nics: dict[str, str]
    has_nics: bool
    conflicts: list[str]

    @property
    def nvlink(self) -> bool:
        """Whether the legend explains NV#."""
        return "NV#" in self.keys

    @property
    def complete(self) -> bool:
        """Whether all classes that every driver explains are there."""
        return self.keys >= {"X", "PHB", "PXB", "PIX"} and bool(self.keys & {"SYS", "SOC"})


def is_legend_start(line: str) -> bool:
    """Tell whether the legend, and with it the end of the matrix, begins here."""
    return ("Legend" in line or "Self" in line) and bool(_START.search(line[:MAX_LINE]))


def read_legend(lines: list[str], ended: bool, last: bool, labels: list[str]) -> Legend:
    """Read the lines below a matrix up to the next one.

    Args:
        lines: The lines, from the heading of the legend on.
        ended: The last of them has a line end.
        last: The text ends with them.
        labels: The labels of the matrix.
    """
    lines = [line[:400] for line in lines if line.strip()]
    keys = set()
    p2p = False
    for line in lines:
        if "=" in line:
            keys.update(_KEY.findall(line))
            p2p = p2p or bool(_P2P.search(line))
    at = next((n for n, line in enumerate(lines) if "NIC Legend" in line), len(lines))
    nics, conflicts = _nics(lines[at + 1 :])
    if last and nics and not conflicts:
        _drop_cut(nics, ended and all(label in nics for label in labels if label[:3] == "NIC"))
    return Legend(lines, frozenset(keys), p2p, nics, at < len(lines), conflicts)


def _nics(lines: list[str]) -> tuple[dict[str, str], list[str]]:
    nics: dict[str, str] = {}
    conflicts: list[str] = []
    prefix: re.Pattern[str] | None = None
    for line in lines:
        found = _DEVICE.search(line)
        if found is None:
            rest = line if prefix is None else prefix.sub("", line, count=1)
            if nics and _NAME_END.fullmatch(rest):
                nics.popitem()  # the line was wrapped within the name
            if nics and rest.strip() and "Legend" not in rest:
                break
            continue
        if prefix is None:
            prefix = prefix_pattern(line[: found.start()].rstrip())
        nic, device = found[1], found[2]
        if device[-1] in "_-.":  # cut at the right
            continue
        if nics.setdefault(nic, device) != device:
            conflicts.append(nic)
    # Two of one name: the lines were cut at the right.
    counts = Counter(nics.values())
    conflicts.extend(nic for nic, device in nics.items() if counts[device] > 1)
    for nic in conflicts:
        nics.pop(nic, None)
    return nics, conflicts


def _drop_cut(nics: dict[str, str], whole: bool) -> None:
    """Drop the name that a text ends with if it may go on; `whole`: no name is missing."""
    *others, nic = nics
    name = nics[nic]
    longer = any(nics[other].startswith(name) for other in others)
    if longer or not (whole or _is_final(name, nics[others[-1]] if others else "")):
        del nics[nic]


def _is_final(name: str, before: str) -> bool:
    """Tell whether the name that a text ends with is whole: its number is above the last's."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if digits == "0":
        return True
    count = before[len(stem) :]
    if not (before.startswith(stem) and count.isdigit() and digits):
        return False
    return (len(count), count) < (len(digits), digits)


def command_before(lines: list[str], at: int) -> str | None:
    """Return the option of the ``topo`` command in the lines right before a header."""
    near = [line for line in lines[max(at - 40, 0) : at] if line.strip()][-_LOOK_BACK:]
    for line in reversed(near):
        found = _COMMAND.search(line[-MAX_LINE:])
        if found:
            return "m" if found[2] == "matrix" else found[1] or found[2]
    return None
