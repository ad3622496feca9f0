"""The lines of a ``nvidia-smi nvlink`` text, each read by itself."""

import re
from typing import NamedTuple

from topoprobe.sources._paste_clean import pci_address

# Quote marks, list dots and frames before a line, and the name that pdsh, docker compose or a
# log puts before each.
_BEFORE = r"^[\s>|*\-•\"']{0,40}(?:(?P<host>[A-Za-z][\w.@\-]{0,63})(?::|\s{0,20}\|)\s{1,8})?"
_GPU = re.compile(
    _BEFORE + r"(?P<kind>[A-Z]{2,8}) (?P<index>\d{1,3}): (?P<name>[^()]{1,100}?)"
    r"\s*(?:\(UUID:\s?(?P<uuid>[^)]{0,80})(?P<close>\))?)?\s*$"
)
_NAME = re.compile(
    r"(?:NVIDIA|Tesla|Quadro|GeForce|TITAN|GRID|RTX|GTX|Graphics Device|Orin|Thor|"
    r"[ABGHLTPVKR]{1,2}\d{1,4})\b"
)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LINK = re.compile(_BEFORE + r"Link (?P<index>\d{1,3})(?P<mark>[:,])\s*(?P<rest>\S.{0,200})$")
_SPEED = re.compile(r"(\d{1,5}(?:\.\d{1,6})?) GB/s")
# States by their words; "Not Supported" and what drivers to come may say stay unknown.
_STATES = {"<inactive>": "down", "inactive": "down", "<sleep>": "sleep", "sleep": "sleep"}
_STATE_WORDS = re.compile(r"<[A-Za-z /]{2,30}>|(?:in)?active|sleep|N/A|Not Supported", re.I)
_CAPABILITY = re.compile(r"([A-Z][\w /\-]{3,60}?supported): (\S{1,20})")
_COUNTER = re.compile(r"([A-Z][\w /.\-]{2,60}?): (\S.{0,40})")
_KNOWN_COUNTER = re.compile(
    r"Errors?\b|\bBER\b|\bevents\b|discards|\bPLR\b|\bCRC\b|packets|bytes", re.I
)
_RATE = re.compile(r"\d{1,4}(?:\.\d{1,6})?e[-+]?\d{1,4}", re.I)
_REMOTE = re.compile(
    r"(?:Remote Device )?(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
    r"(?:: Link (?P<link>\d{1,3}))?"
)
_ALL_INACTIVE = re.compile(
    _BEFORE + r"Unable to retrieve NVLink information as all links are inactive\.?\s*$", re.I
)
_INFO = re.compile(r"^[\s>|]{0,40}(?P<name>[A-Za-z][\w .\-]{1,40}):(?:\s+(?P<value>\S.{0,80}))?$")
_INFO_START = frozenset({"NVLE", "Firmware Version", "NVLink Version", "Version", "Encryption"})


class GpuLine(NamedTuple):
    """``GPU 0: NAME (UUID: …)``; `ours` is False for the line of another vendor's tool."""

    host: str
    number: int
    name: str
    uuid: str | None
    ours: bool


class LinkLine(NamedTuple):
    """``Link 0: 26.562 GB/s`` and the like.

    `kind` is ``status``, ``capabilities``, ``errors`` or ``remote``, `name` the name of the
    capability or counter, `value` what was read and `why` why nothing could be.
    """

    host: str
    number: int
    kind: str
    name: str
    value: bool | int | float | str | tuple[str, int | None] | None
    printed: str
    why: str | None = None


def read_gpu(line: str) -> GpuLine | None:
    """Read a GPU's line, or return None if it is none."""
    if "(UUID" not in line and " 0x" in line:
        return None
    found = _GPU.match(line)
    if found is None:
        return None
    uuid = (found["uuid"] or "").strip() or None
    name = found["name"].strip()
    if found["uuid"] is None and (found["kind"] != "GPU" or not _NAME.match(name)):
        return None
    if name.startswith("Link "):
        return None
    return GpuLine(found["host"] or "", int(found["index"]), name, uuid, found["kind"] == "GPU")


def is_whole_uuid(uuid: str) -> bool:
    """Tell whether no part of the UUID is redacted or cut."""
    return _UUID.fullmatch(uuid) is not None


def read_link(line: str, cut: bool) -> LinkLine | None:
    """Read a link's line, or return None if it is none; `cut`: the text may end within it."""
    found = _LINK.match(line)
    if found is None:
        return None
    host, index, rest = found["host"] or "", int(found["index"]), found["rest"].strip()
    if found["mark"] == ",":
        return _capability(host, index, rest)
    if speed := _SPEED.fullmatch(rest):
        return LinkLine(host, index, "status", "", float(speed[1]), rest)
    if _STATE_WORDS.fullmatch(rest):
        state = _STATES.get(rest.lower())
        why = None if state else f"nvidia-smi prints {rest!r} for it"
        return LinkLine(host, index, "status", "", state, rest, why)
    if remote := _REMOTE.fullmatch(rest):
        return _remote(host, index, remote)
    return _counter(host, index, rest, cut)


def _capability(host: str, index: int, rest: str) -> LinkLine | None:
    found = _CAPABILITY.fullmatch(rest)
    if found is None:
        return None
    value = {"true": True, "false": False}.get(found[2].lower())
    why = None if value is not None else f"the text says {found[2]!r}"
    return LinkLine(host, index, "capabilities", found[1], value, found[2], why)


def _remote(host: str, index: int, found: re.Match[str]) -> LinkLine:
    if set(found["address"].lower()) <= set("f:.0") and "ff:ff" in found["address"].lower():
        why = "nvidia-smi hides the other end (an NVSwitch that this machine does not see)"
        return LinkLine(host, index, "remote", "", None, found["address"], why)
    link = int(found["link"]) if found["link"] else None
    value = (pci_address(found["address"])[0], link)
    return LinkLine(host, index, "remote", "", value, found["address"])


def _counter(host: str, index: int, rest: str, cut: bool) -> LinkLine | None:
    found = _COUNTER.fullmatch(rest)
    if found is None or not _KNOWN_COUNTER.search(found[1]):
        return None
    name, printed = found[1], found[2].strip()
    number = printed.isascii() and printed.isdigit() and len(printed) <= 20
    if cut and not _STATE_WORDS.fullmatch(printed):
        return LinkLine(host, index, "errors", name, None, printed, "the text ends within it")
    # A rate of Blackwell is no count, even where its code is printed as a plain number.
    if "BER" in name and (number or _RATE.fullmatch(printed)):
        return LinkLine(host, index, "errors", name, printed, printed)
    if number:
        return LinkLine(host, index, "errors", name, int(printed), printed)
    return LinkLine(host, index, "errors", name, None, printed, f"the text says {printed!r}")


def is_all_inactive(line: str) -> bool:
    """Tell whether nvidia-smi says here that no link of the GPU above is active."""
    return _ALL_INACTIVE.match(line) is not None


def read_info(line: str, inside: bool) -> tuple[str, str | None] | None:
    """Read a line of ``-info`` as (name, value); `inside`: the line before was one too."""
    found = _INFO.match(line)
    if found is None or not (inside or found["name"] in _INFO_START):
        return None
    return found["name"], found["value"]


def is_partial_link(line: str) -> bool:
    """Tell whether the line begins as a link's does and cannot be read."""
    return re.match(r"[\s>|]{0,40}Link \d{1,3}\b", line) is not None
