r"""Read the drawing of ``lspci -t``, -tv or -tn.

A branch is told by its column. A line is read only if every branch to its left is open and
drawn in it, so that a lost line takes its children with it and gives them to nobody else.

    -+-[0000:15]---01.0-[16-1b]----00.0-[17-1b]--+-00.0-[18]----00.0  Mellanox …
     |                                           \-01.0-[1b]----00.0  NVIDIA …
     \-[0000:26]-
"""

import re
from dataclasses import dataclass

from msgspec.structs import replace

from topoprobe.model.errors import ParseError
from topoprobe.model.texts import LspciTree, LspciTreeNode
from topoprobe.sources._paste_clean import clean_lines, is_elision, starts_anew

_FIX = "run `lspci -tv` on the node and give its whole output"
# A bus of its own, the bus behind a bridge, a function, and the lines between them.
_ROOT = r"\[(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<root>[0-9a-f]{2})\]-"
_BEHIND = r"-\[(?P<first>[0-9a-f]{2})(?:-(?P<last>[0-9a-f]{2}))?\]-"
_FUNCTION = r"(?P<function>[01][0-9a-f]\.[0-7])(?=-\[|\s|$)"
_TOKEN = re.compile(
    rf"(?P<branch>[+\\]-)|{_ROOT}|{_BEHIND}|{_FUNCTION}(?P<name>\s{{2}}\S.*)?|(?P<dash>-)"
)
_START = re.compile(r"(?:\s|[>*\"'`]\s){0,40}-(?:\+-)?\[(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}\]-")
_LINE = re.compile(r"[\s|]{0,2000}[+\\]-")
_NAMED = re.compile(r"[+\\]-\[[0-9a-f]{4,8}:[0-9a-f]{2}\]-")
# No branch within a root bus can stand left of this: "-+-[0000:15]-".
_ROOT_WIDTH = 13
_MAX_DEPTH = 64


@dataclass
class _Bus:
    """A bus whose functions a branch holds; None: the branch holds buses (``+-[0000:d7]``)."""

    domain: str
    number: int
    bridge: str | None
    assumed: bool
    last: int = 255


@dataclass
class _Branch:
    bus: _Bus | None
    last: str = ""
    broken: bool = False


def parse_lspci_tree(text: str, name: str = "text") -> LspciTree:
    """Parse all drawings in a text; those of one node only, as an address is a node's.

    Raises:
        ParseError: There is none.
    """
    lines, ended = clean_lines(text)
    reader = _Reader()
    for at, line in _shifted(lines):
        reader.take(line, at == len(lines) - 1 and not ended)
    if not reader.roots and not reader.nodes:
        raise ParseError(f"{name}: no drawing of `lspci -t` found; {_FIX}")
    warnings = []
    if reader.lost:
        warnings.append(
            f"{reader.lost} lines of the drawing hang on a line that is not there; they are left "
            "out"
        )
    if reader.twice:
        warnings.append(f"{reader.twice} functions are drawn twice; the first is kept")
    return LspciTree(
        roots=tuple(reader.roots), nodes=tuple(reader.nodes.values()), warnings=tuple(warnings)
    )


def _shifted(lines: list[str]) -> list[tuple[int, str]]:
    """Put the lines below a drawing's first one under its branch, where blanks were lost."""
    result: list[tuple[int, str]] = []
    at = 0
    while at < len(lines):
        start = _START.match(lines[at])
        result.append((at, lines[at].expandtabs()))
        at += 1
        if start is None or "-+-[" not in start[0]:
            continue
        column = result[-1][1].index("-+-[") + 1
        end = at
        while end < len(lines) and not _START.match(lines[end]):
            end += 1
        below = [line for line in lines[at:end] if _LINE.match(line)]
        first = min((len(line) - len(line.lstrip()) for line in below), default=column)
        # A forum strips the blank that the lines begin with.
        pad = " " * (column - first) if first < column else ""
        for number in range(at, end):
            line = lines[number]
            result.append((number, pad + line.expandtabs() if _LINE.match(line) else line))
        at = end
    return result


def _inside(found: re.Match[str], bus: _Bus) -> bool:
    """Tell whether the buses behind a bridge are of those that the bus above it can have."""
    first = int(found["first"], 16)
    last = int(found["last"] or found["first"], 16)
    return bus.number < first <= last <= bus.last


class _Reader:
    """Goes through the lines once; `open` holds the branches that may go on, by column."""

    def __init__(self) -> None:
        self.roots: dict[str, None] = {}
        self.nodes: dict[str, LspciTreeNode] = {}
        self.open: dict[int, _Branch] = {}
        self.lost = 0
        self.twice = 0

    def take(self, line: str, cut: bool) -> None:
        if found := _START.match(line):
            self.open = {}
            start = found[0].rindex("[")
            at = start - 2 if found[0][start - 2] == "+" else start
            if at != start:
                self.open[at] = _Branch(None)
                self.walk(line, start, None, at, cut)
            else:
                self.walk(line, start, None, -1, cut)
        elif _LINE.match(line):
            self.take_branch(line, cut)
        elif is_elision(line):
            # Branches that name their buses go on; of the others, the owner may be left out.
            self.open = {at: branch for at, branch in self.open.items() if branch.bus is None}
        elif starts_anew(line):
            self.open = {}

    def take_branch(self, line: str, cut: bool) -> None:
        at = min(found for mark in "+\\" if (found := line.find(mark + "-")) >= 0)
        for column in [column for column in self.open if column > at]:
            del self.open[column]
        drawn = {column for column, mark in enumerate(line[:at]) if mark == "|"}
        if not self.open and not drawn and at < _ROOT_WIDTH and _NAMED.match(line, at):
            self.open[at] = _Branch(None)  # the start of the drawing is lost
        branch = self.open.get(at)
        if branch is None or branch.broken or drawn != self.open.keys() - {at}:
            self.lost += 1
            if branch:
                branch.broken = branch.bus is not None
            if line[at] == "\\":
                self.open.pop(at, None)
            return
        if line[at] == "\\":
            del self.open[at]
        self.walk(line, at + 2, branch, at, cut)

    def walk(self, line: str, at: int, branch: _Branch | None, column: int, cut: bool) -> None:
        """Read a line from a column on, where a function of the branch or a bus begins."""
        bus = branch.bus if branch else None
        above: str | None = None
        while at < len(line) and len(self.open) < _MAX_DEPTH:
            found = _TOKEN.match(line, at)
            if found is None:
                self.lost += 1
                return
            if found["branch"]:
                branch = _Branch(bus)
                if line[at] == "+":
                    self.open[at] = branch
            elif found["root"]:
                bus = self.root(found, above)
                branch = None
            elif found["first"]:
                if bus is None or above is None or not _inside(found, bus):
                    self.lost += 1
                    self.nodes.pop(above or "", None)
                    if branch:
                        branch.broken = True
                    return
                bus = self.behind(found, bus, above)
                branch = None
            elif found["function"]:
                if bus is None or (cut and found.end() == len(line) and not found["name"]):
                    self.lost += 1
                    return
                if branch and found["function"] <= branch.last:
                    # Functions of a bus ascend; these are of another one, whose line is lost.
                    self.lost += 1
                    branch.broken = True
                    return
                if branch:
                    branch.last = found["function"]
                above = self.function(found, bus)
                if above is None:
                    return
            at = found.end()

    def root(self, found: re.Match[str], above: str | None) -> _Bus:
        domain = (found["domain"] or "0000").lstrip("0").rjust(4, "0")
        if above is None:
            self.roots[f"{domain}:{found['root']}"] = None
        return _Bus(domain, int(found["root"], 16), above, found["domain"] is None)

    def behind(self, found: re.Match[str], bus: _Bus, above: str) -> _Bus:
        first = int(found["first"], 16)
        last = int(found["last"], 16) if found["last"] else first
        node = self.nodes[above]
        self.nodes[above] = replace(node, secondary_bus=first, subordinate_bus=last)
        return _Bus(bus.domain, first, above, bus.assumed, last)

    def function(self, found: re.Match[str], bus: _Bus) -> str | None:
        address = f"{bus.domain}:{bus.number:02x}:{found['function']}"
        if address in self.nodes:
            self.twice += 1
            return None
        name = (found["name"] or "").strip() or None
        self.nodes[address] = LspciTreeNode(
            address=address, domain_assumed=bus.assumed, parent=bus.bridge, name=name
        )
        return address
