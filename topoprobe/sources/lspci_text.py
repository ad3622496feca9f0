"""Read lists of lspci: plain, -n, -nn, -mm, -k, -PP, -v, -vv and -vvv, whole, grepped or cut.

A line below a device belongs to it only as long as lspci's order of lines holds: where that
starts over without a new device, the line of a device was lost, and what follows is nobody's.
"""

from dataclasses import dataclass, field
from typing import Any

from topoprobe.model.errors import ParseError
from topoprobe.model.texts import LspciDevice, LspciLink, LspciText
from topoprobe.sources._lspci_lines import (
    DeviceLine,
    Fact,
    is_short_path,
    read_device,
    read_facts,
)
from topoprobe.sources._paste_clean import clean_lines, is_elision, starts_anew

_FIX = "run `sudo lspci -vv` on the node and give its whole output"
_DENIED = "lspci says <access denied>: run it as root"
_PLAIN = "the text is a list without details; `sudo lspci -vv` prints them"
_NAMES_ONLY = "the text gives names, no numbers; `lspci -nn` prints both"
_SIMPLE = ("slot", "numa_node", "iommu_group", "port_type", "mps_bytes")
_TWICE = "the device is printed twice, and what is said differs"


def parse_lspci(text: str, name: str = "text") -> LspciText:
    """Parse all devices of all lspci lists in a text, and links without a device.

    Raises:
        ParseError: There is neither a device nor a link in it.
    """
    lines, ended = clean_lines(text)
    reader = _Reader()
    last = max((at for at, line in enumerate(lines) if line), default=-1)
    for at, line in enumerate(lines):
        if line:
            reader.take(line, at == last and not ended)
    reader.drop_clipped(lines)
    loose = tuple(_link(facts) for facts in reader.loose if facts.keys() & _LINK_LINES)
    if not reader.drafts and not loose:
        reason = "no device of an lspci list found"
        if reader.short_paths:
            reason = "lspci -P leaves out bus numbers, so its devices have no address"
        raise ParseError(f"{name}: {reason}; {_FIX}")
    return LspciText(
        devices=tuple(_device(draft) for draft in reader.drafts.values()),
        loose_links=loose,
        warnings=tuple(reader.all_warnings()),
    )


@dataclass
class _Draft:
    line: DeviceLine
    facts: dict[str, Fact] = field(default_factory=dict)
    conflict: bool = False
    cut: bool = False


_LINK_LINES = frozenset({"link_cap", "link_sta"})
# Lines at the start and the end of what -vv prints: with both, what is not between is not there.
_WHOLE = frozenset({"control", "driver"})


class _Reader:
    """Goes through the lines once and puts each below the device that it belongs to."""

    def __init__(self) -> None:
        self.drafts: dict[str, _Draft] = {}
        self.loose: list[dict[str, Fact]] = []
        self.current: dict[str, Fact] | None = None
        self.rank = 0
        self.bus = -1
        self.short_paths = 0
        self.orphans = 0
        self.elided = 0
        self.clipped = False

    def take(self, line: str, cut: bool) -> None:
        if device := read_device(line):
            self.take_device(device, cut)
        elif facts := read_facts(line, cut):
            for fact in facts:
                self.take_fact(fact)
        elif is_short_path(line):
            self.short_paths += 1
            self.leave()
        elif is_elision(line):
            self.elided += 1
            if self.current is not None:
                self.current["elided"] = Fact(0, "elided", True)
        elif starts_anew(line):
            self.leave()

    def leave(self) -> None:
        self.current, self.rank = None, 0

    def take_device(self, line: DeviceLine, cut: bool) -> None:
        draft = self.drafts.get(line.address)
        if draft is None:
            draft = self.drafts[line.address] = _Draft(line, cut=cut)
        elif not _same(draft.line, line):
            draft.conflict = True
        elif _knows_more(line, draft.line):
            draft.line = line
        self.bus = int(line.address.split(":")[1], 16)
        # Two lists of one node (-nn, then -vv) add up; the lines below must be of one list.
        self.current, self.rank = _Merged(draft.facts) if draft.facts else draft.facts, 0

    def take_fact(self, fact: Fact) -> None:
        known = self.current is not None and fact.name in self.current
        # A bridge stands on its primary bus.
        other = fact.name == "buses" and fact.value and fact.value[0] != self.bus
        if self.current is None or fact.rank < self.rank or known or other:
            if self.current is not None and fact.name not in _LINK_LINES:
                self.orphans += 1
            self.current, self.rank = {}, 0
            self.loose.append(self.current)
        self.current[fact.name] = fact
        self.rank = fact.rank

    def drop_clipped(self, lines: list[str]) -> None:
        """Drop a device whose domain the start of the text cut: lspci prints it for all."""
        first = next((read_device(line) for line in lines if line), None)
        others = [draft.line for draft in self.drafts.values()][1:]
        if first and others and first.fields["domain_assumed"]:
            if not any(line.fields["domain_assumed"] for line in others):
                del self.drafts[first.address]
                self.clipped = True

    def all_warnings(self) -> list[str]:
        warnings = []
        if self.short_paths:
            warnings.append(
                f"{self.short_paths} devices of lspci -P are left out: it prints no bus numbers"
            )
        if self.clipped:
            warnings.append("the first device is left out: the text begins within its address")
        if self.orphans:
            warnings.append("the line of a device is missing; what is below it is left out")
        if self.elided:
            warnings.append("lines of the list were left out of the text")
        if any(draft.conflict for draft in self.drafts.values()):
            warnings.append("addresses are printed twice with different devices: two nodes?")
        return warnings


class _Merged(dict[str, Fact]):
    """Facts of a second list of a device, told to the first list's: what differs is unknown."""

    def __init__(self, first: dict[str, Fact]) -> None:
        super().__init__()
        self.first = first

    def __setitem__(self, name: str, fact: Fact) -> None:
        super().__setitem__(name, fact)
        before = self.first.get(name)
        if before is None or before.value is None:
            self.first[name] = fact
        elif fact.value is not None and before.value != fact.value:
            self.first[name] = Fact(fact.rank, name, None, _TWICE)


def _same(a: DeviceLine, b: DeviceLine) -> bool:
    """Tell whether two lines can be of one device; -n and -nn say different parts of it."""
    keys = ("class_name", "class_code", "vendor", "device", "revision")
    pairs = [(a.fields.get(key), b.fields.get(key)) for key in keys]
    return all(x == y for x, y in pairs if x is not None and y is not None)


def _knows_more(a: DeviceLine, b: DeviceLine) -> bool:
    return sum(value is not None for value in a.fields.values()) > sum(
        value is not None for value in b.fields.values()
    )


def _device(draft: _Draft) -> LspciDevice:
    unknown: dict[str, str] = {}
    fields = dict(draft.line.fields)
    if draft.conflict:
        reason = "the text gives this address to two devices"
        keep = {"domain_assumed": fields["domain_assumed"], "title": fields["title"]}
        names = ("class_name", "class_code", "name", "vendor", "device", "revision", "link")
        unknown = dict.fromkeys(names, reason)
        return LspciDevice(address=draft.line.address, unknown=unknown, **keep)
    for number in ("class_code", "vendor", "device"):
        if fields.get(number) is None:
            unknown[number] = _NAMES_ONLY
    if draft.cut:
        unknown["title"] = "the text ends within it"
    facts = draft.facts
    for key in _SIMPLE:
        fields[key] = _value(facts, key, key, unknown)
    fields["driver"] = _value(facts, "driver", "driver", unknown)
    for key in ("acs_capability", "acs_control"):
        fields[key] = facts[key].value if key in facts else None
        if key in facts and facts[key].why:
            unknown[key] = facts[key].why or ""
    buses = _value(facts, "buses", "secondary_bus", unknown)
    if buses:
        fields["primary_bus"], fields["secondary_bus"], fields["subordinate_bus"] = buses
    if facts.keys() & _LINK_LINES:
        fields["link"] = _link(facts)
    elif "denied" in facts:
        unknown |= dict.fromkeys(("link", "acs_control", "port_type"), _DENIED)
    elif not facts.keys() - {"driver"}:
        unknown["link"] = _PLAIN
    elif not facts.keys() >= _WHOLE or facts.keys() & {"port_type", "elided"}:
        unknown["link"] = "the text has no LnkCap and no LnkSta line of it"
    return LspciDevice(address=draft.line.address, unknown=unknown, **fields)


def _value(facts: dict[str, Fact], name: str, key: str, unknown: dict[str, str]) -> Any:  # noqa: ANN401
    fact = facts.get(name)
    if fact is None:
        return None
    if fact.why:
        unknown[key] = fact.why
    return fact.value


def _link(facts: dict[str, Fact]) -> LspciLink:
    unknown: dict[str, str] = {}
    cap, sta = (_ends(facts, name, unknown) for name in ("link_cap", "link_sta"))
    return LspciLink(
        cap_speed_GTps=cap.get("speed"),
        cap_width=cap.get("width"),
        speed_GTps=sta.get("speed"),
        width=sta.get("width"),
        speed_word=sta.get("speed_word"),
        width_word=sta.get("width_word"),
        unknown=unknown,
    )


def _ends(facts: dict[str, Fact], name: str, unknown: dict[str, str]) -> dict[str, Any]:
    """Return what LnkCap or LnkSta says, and name what it does not."""
    before = "cap_" if name == "link_cap" else ""
    keys = {"speed": f"{before}speed_GTps", "width": f"{before}width"}
    line = "LnkCap" if before else "LnkSta"
    fact = facts.get(name)
    if fact is None or fact.value is None:
        reason = fact.why if fact and fact.why else f"the text has no {line} line of it"
        unknown |= dict.fromkeys(keys.values(), reason)
        return {}
    found: dict[str, Any] = fact.value
    for key, field_name in keys.items():
        if found[key] is None:
            says = key == "speed" and found["says_unknown"]
            unknown[field_name] = (
                "lspci prints 'unknown'" if says else f"the {line} line is cut or damaged"
            )
    return found
