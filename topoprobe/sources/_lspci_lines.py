"""The lines of an lspci list, each read by itself."""

import re
from typing import Any, NamedTuple

from topoprobe.sources._paste_clean import pci_address

_ADDRESS = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-1][0-9a-fA-F]\.[0-7]"
_DEVICE = re.compile(
    rf"[\s>|*$#\"'`]{{0,24}}(?P<above>(?:{_ADDRESS}/){{0,32}})(?P<address>{_ADDRESS})\s{{1,8}}"
    r"(?P<title>\S.*)"
)
# -P prints "04:01.0/00.0": the bus of the function is not in the text.
_SHORT_PATH = re.compile(rf"[\s>|]{{0,24}}{_ADDRESS}(?:/[0-1][0-9a-fA-F]\.[0-7])+\s")
_TITLE = re.compile(
    r"(?P<class>[A-Z0-9][\w /,()&.+\-]{2,60}?)(?: \[(?P<code>[0-9a-f]{4})\])?: (?P<name>\S.*)"
)
_NUMBERS = re.compile(
    r"(?:Class )?(?P<code>[0-9a-f]{4}): (?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})"
    r"(?: \((?:rev|prog-if) .*)?"
)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\](?=\s*(?:\(|$))")
_REVISION = re.compile(r" \(rev ([0-9a-f]{2})\)")
_BEHIND = re.compile(r"\s*\((?:rev [0-9a-f]{2}|prog-if [^()]{0,80}(?:\([^()]*\))?)\)\s*$")
_NO_NAME = re.compile(r"Device ([0-9a-f]{4})$")
_OWN_CODE = re.compile(r"(.*\S)? ?\[([0-9a-f]{4})\]$")

_VALUE = re.compile(r"[\s>|*\"'`]{0,40}(?P<key>[A-Z][A-Za-z ]{2,24}?):\s*(?P<value>.*)")
_EXPRESS = re.compile(
    r"Capabilities: \[[0-9a-f]{2,3}(?: v\d)?\] (?:PCI )?Express (?:\(v\d\) )?"
    r"(?P<type>[A-Z][A-Za-z\-/ ]{3,50}?)(?: \(Slot[+-]\))?(?:, |$)"
)
_PAYLOAD = re.compile(r"MaxPayload (\d{3,4}) bytes, MaxReadReq \d")
_SPEED = re.compile(
    r"Speed (?:(?P<speed>\d{1,3}(?:\.\d)?)GT/s|(?P<none>unknown))(?: \((?P<word>\w{2,12})\))?(?=,)"
)
_WIDTH = re.compile(r"Width x(?P<width>\d{1,2})(?: \((?P<word>\w{2,12})\))?(?P<after>[,\s]|$)")
_FLAG = re.compile(r"([A-Z]\w{2,15})([+-])(?=\s|$)")
_IN_FLAGS = re.compile(r"(NUMA node|IOMMU group) (-?\d{1,5})(?=,|$)")
_ACS_FLAGS = 7


class DeviceLine(NamedTuple):
    """The line of a device: what LspciDevice takes from it."""

    address: str
    fields: dict[str, Any]


class Fact(NamedTuple):
    """A line below a device. `rank`: where in lspci's order of a device it stands."""

    rank: int
    name: str
    value: Any
    why: str | None = None


def read_device(line: str) -> DeviceLine | None:
    """Read the line of a device, or return None if it is none."""
    found = _DEVICE.fullmatch(line)
    if found is None:
        return None
    fields = _quoted(found["title"]) if found["title"][0] == '"' else _title(found["title"])
    if fields is None:
        return None
    # Of a path, only the first address carries the domain.
    first, *rest = [part for part in (found["above"] + found["address"]).split("/") if part]
    first, assumed = pci_address(first)
    domain = first.split(":")[0]
    path = [
        first,
        *(pci_address(part if part.count(":") > 1 else f"{domain}:{part}")[0] for part in rest),
    ]
    return DeviceLine(
        path[-1],
        {
            "domain_assumed": assumed,
            "title": found["title"].strip(),
            "above": tuple(path[:-1]),
            **fields,
        },
    )


def is_short_path(line: str) -> bool:
    """Tell whether the line names a device by a path without buses (``lspci -P``)."""
    return _SHORT_PATH.match(line) is not None


def _title(title: str) -> dict[str, Any] | None:
    revision = _REVISION.search(title)
    fields: dict[str, Any] = {"revision": int(revision[1], 16) if revision else None}
    if found := _NUMBERS.fullmatch(title):
        numbers = {
            "class_code": int(found["code"], 16),
            "vendor": int(found["vendor"], 16),
            "device": int(found["device"], 16),
        }
        return fields | numbers
    found = _TITLE.fullmatch(title)
    if found is None or not re.search(r"[A-Za-z]", found["class"]):
        return None
    name = found["name"]
    for _ in range(2):
        name = _BEHIND.sub("", name)
    if ids := _IDS.search(name):
        fields |= {"vendor": int(ids[1], 16), "device": int(ids[2], 16)}
        name = name[: ids.start()].rstrip()
    elif number := _NO_NAME.search(name):
        # lspci prints the number where its list has no name for it.
        fields["device"] = int(number[1], 16)
    code = int(found["code"], 16) if found["code"] else None
    return fields | {"class_name": found["class"], "class_code": code, "name": name}


def _quoted(title: str) -> dict[str, Any] | None:
    """Read what -mm prints: "CLASS" "VENDOR" "DEVICE" -ra1 -p00 "SUBVENDOR" "SUBDEVICE"."""
    parts = _QUOTED.findall(title[:1000])
    if len(parts) < 3:
        return None
    names, codes = zip(*(_name_and_code(part) for part in parts[:3]), strict=True)
    revision = re.search(r'" -r([0-9a-f]{2})\b', title)
    name = " ".join(part for part in names[1:] if part)
    return {
        "class_name": names[0],
        "class_code": codes[0],
        "name": name or None,
        "vendor": codes[1],
        "device": codes[2],
        "revision": int(revision[1], 16) if revision else None,
    }


def _name_and_code(part: str) -> tuple[str | None, int | None]:
    if re.fullmatch(r"[0-9a-f]{4}", part):
        return None, int(part, 16)
    if found := _OWN_CODE.fullmatch(part):
        return found[1] or None, int(found[2], 16)
    if number := _NO_NAME.fullmatch(part):
        return part, int(number[1], 16)
    return part, None


def read_facts(line: str, cut: bool) -> list[Fact]:
    """Read a line below a device; most say nothing that we keep.

    Args:
        line: The line.
        cut: The text ends within it, perhaps within its last word.
    """
    if "access denied" in line and "Capabilities" in line:
        return [Fact(40, "denied", True)]
    if found := _EXPRESS.search(line):
        return [Fact(40, "port_type", found["type"].strip())]
    if found := _PAYLOAD.search(line):
        return [Fact(45, "mps_bytes", int(found[1]))]
    found = _VALUE.match(line)
    if found is None:
        return []
    key, text = found["key"], found["value"].strip()
    if key == "Flags" and (words := _IN_FLAGS.findall(text)):
        # lspci -v puts them there; -vv gives them lines of their own.
        facts = [(_READERS[word], _number(number, cut)) for word, number in words]
        return [Fact(rank, name, *read) for (rank, name, _), read in facts]
    if key not in _READERS or (key == "Control" and not text.startswith("I/O")):
        return []
    rank, name, reader = _READERS[key]
    return [Fact(rank, name, *reader(text, cut))]


_Read = tuple[Any, str | None]


def _number(text: str, cut: bool) -> _Read:
    if cut or not re.fullmatch(r"-?\d{1,5}", text):
        return None, "the line is cut" if cut else f"the text says {text[:40]!r}"
    if text.startswith("-"):
        return None, f"the text says {text}: the firmware does not tell"
    return int(text), None


def _word(text: str, cut: bool) -> _Read:
    if cut or not re.fullmatch(r"\S{1,64}", text):
        return None, "the line is cut" if cut else f"the text says {text[:40]!r}"
    return text, None


def _buses(text: str, cut: bool) -> _Read:
    found = re.match(
        r"primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})\b", text
    )
    if found is None:
        return None, "the line with the bus numbers is cut or damaged"
    return tuple(int(part, 16) for part in found.groups()), None


def _flags(text: str, cut: bool) -> _Read:
    flags = {name: sign == "+" for name, sign in _FLAG.findall(text)}
    if 0 < len(flags) < _ACS_FLAGS:
        return flags, "the line is cut or wrapped, some of its flags are not there"
    return flags or None, None if flags else "the line has no flags"


def _capability(text: str, cut: bool) -> _Read:
    return _link(text, cut, True), None


def _status(text: str, cut: bool) -> _Read:
    return _link(text, cut, False), None


def _link(text: str, cut: bool, cap: bool) -> dict[str, Any]:
    """Return speed, its word, width, its word; None for what cannot be read, "" if unknown."""
    speed, width = _SPEED.search(text), _WIDTH.search(text)
    lanes = int(width["width"]) if width else None
    # At the end of a cut line, the 1 of 16; in LnkCap something always follows.
    if width and width.end() == len(text) and not width["word"] and (cut or cap):
        lanes = None if cut or lanes in (1, 3) else lanes
    return {
        "speed": float(speed["speed"]) if speed and speed["speed"] else None,
        "says_unknown": bool(speed and speed["none"]),
        "speed_word": speed["word"] if speed else None,
        "width": lanes,
        "width_word": width["word"] if width and lanes is not None else None,
    }


_READERS: dict[str, tuple[int, str, Any]] = {
    "Physical Slot": (10, "slot", _word),
    "Control": (15, "control", lambda text, cut: (None, None)),
    "NUMA node": (20, "numa_node", _number),
    "IOMMU group": (25, "iommu_group", _number),
    "Bus": (30, "buses", _buses),
    "LnkCap": (50, "link_cap", _capability),
    "LnkSta": (60, "link_sta", _status),
    "ACSCap": (70, "acs_capability", _flags),
    "ACSCtl": (80, "acs_control", _flags),
    "Kernel driver in use": (90, "driver", _word),
}
