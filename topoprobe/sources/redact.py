"""A capture without names: what tells who, which machine and which part, replaced throughout.

Names of hosts and users, serial numbers, UUIDs, addresses (IP, MAC, GUID) and names of processes
go. Places (PCI addresses), models, versions, rates and counters stay, and equal things stay
equal, so that two captures still compare. docs/capture.md says what a key is good for.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from topoprobe.model.errors import InputError
from topoprobe.model.snapshot import Snapshot
from topoprobe.sources._redact_words import Identity, Redactor
from topoprobe.sources.raw_tree import RawEntry, RawTree
from topoprobe.sources.vpd import submodel

# Everybody has this key: it keeps captures of all nodes comparable, and no guess away.
OPEN_KEY = b"topoprobe/capture/1 open key"

# Values of the schema itself.
_FIXED = ("schema", "created", "status", "state", "kind", "remote_kind", "capability")
# Fields that name one thing whatever they look like.
_NAMING = {
    "serial": "serial", "uuid": "uuid", "cluster": "cluster", "guid": "guid",
    "system_guid": "guid", "mac": "mac",
}  # fmt: skip
_PRODUCTS = ("vendor", "product", "model", "cpu_model", "ids_name", "driver", "virtualisation")
_VERSIONS = ("firmware", "vbios", "driver", "nvml", "cuda")
_SECRET_VARIABLE = re.compile(
    r"(?:COMM_?ID|HOST(?:NAME|ID)?|ADDR(?:ESS)?|TOKEN|KEY|PASSWORD|SECRET|USER)$"
)
# Parameters of the kernel whose values are facts about devices.
_PARAMETER = re.compile(
    r"(?:intel_|amd_)?iommu[._a-z]*|pci[e._a-z]*|nvidia[._A-Za-z-]*|numa[._a-z]*|hugepages[a-z]*"
    r"|default_hugepagesz|transparent_hugepage|isolcpus|nohz_full|rcu_nocbs|mitigations|quiet|ro"
    r"|rw|processor[._a-z]+|intel_idle[._a-z]+|intel_pstate|amd_pstate|mlx[45][._a-z]*|maxcpus"
)
_PROCESSES = (
    # nvidia-smi -q
    re.compile(
        r"(Process ID[ \t]*:[^\n]*\n[ \t]*Type[ \t]*:[^\n]*\n[ \t]*Name[ \t]*:[ \t]*)([^\n]+)"
    ),
    # The table of nvidia-smi: |  0  N/A  N/A  1234  C  python3  123MiB |
    re.compile(
        r"(?m)^(\|[ \t]+\d+(?:[ \t]+[\w/]+){0,2}[ \t]+\d+[ \t]+(?:C|G|C\+G|M\+C)[ \t]+)"
        r"(\S[^|\n]*?)(?=[ \t]+(?:\d+MiB|N/A)[ \t]*\|)"
    ),
    # NVRM: Xid (…): 31, pid=1234, name=python3, …
    re.compile(r"(\bpid='?[^,\n]*, name=)([^,<\n]+)"),
    re.compile(r"(\bComm: )(\S+)"),
    re.compile(r"(\btask )([^\s:]+)(?=:\d)"),
)  # fmt: skip


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a capture holds, beside what it says about itself.

    `texts` are what commands printed, by command; `versions` those of programs and libraries;
    `gaps` say what of the capture is missing and why.
    """

    snapshot: Snapshot
    raw: RawTree = RawTree()
    texts: dict[str, str] = {}
    versions: dict[str, str] = {}
    gaps: dict[str, str] = {}


def redact(parts: Parts, hosts: Iterable[str], users: Iterable[str], key: bytes) -> Parts:
    """Return `parts` with all names replaced; `hosts` and `users` are names to look for."""
    words = Redactor(_identity(parts, hosts, users), key)
    tree = _walk(words, "", msgspec.to_builtins(parts.snapshot))
    if tree["host"]["name"]:
        tree["host"]["name"] = words.host(parts.snapshot.host.name or "")
    if tree["environment"] is not None:
        tree["environment"] = _environment(words, parts.snapshot.environment or {})
    if tree["kernel_log"] is not None:
        tree["kernel_log"] = [_free(words, line) for line in parts.snapshot.kernel_log or ()]
    tree["texts"] = {name: _free(words, text) for name, text in parts.snapshot.texts.items()}
    try:
        snapshot = msgspec.convert(tree, Snapshot)
    except msgspec.ValidationError as error:
        raise InputError(f"cannot redact this node: {error}; nothing was written") from error
    return Parts(
        snapshot=snapshot,
        raw=RawTree(
            {words.text(path, names=False): _entry(words, path, entry)
             for path, entry in parts.raw.entries.items()},
            _strings(words, parts.raw.unread),
        ),
        texts={name: _free(words, text) for name, text in parts.texts.items()},
        versions=parts.versions,
        gaps=_strings(words, parts.gaps),
    )  # fmt: skip


def _identity(parts: Parts, hosts: Iterable[str], users: Iterable[str]) -> Identity:
    raw_name = parts.raw.entries.get("/proc/sys/kernel/hostname")
    names = [*hosts, parts.snapshot.host.name or ""]
    names.append((raw_name.data or b"").decode("utf-8", "replace").strip() if raw_name else "")
    gpus = parts.snapshot.nvml.gpus if parts.snapshot.nvml else ()
    functions = parts.snapshot.sysfs.pci if parts.snapshot.sysfs else ()
    mig = [device.uuid for gpu in gpus for device in gpu.mig]
    uuids = [gpu.uuid for gpu in gpus] + [pci.uuid for pci in functions] + mig
    return Identity(
        hosts=tuple(dict.fromkeys(name for name in names if name)),
        users=tuple(dict.fromkeys(user for user in users if user)),
        serials=tuple(gpu.facts.serial for gpu in gpus if gpu.facts.serial),
        uuids=tuple(uuid[4:] for uuid in uuids if uuid and uuid[:4] in ("GPU-", "MIG-")),
    )


def _walk(words: Redactor, key: str, value: Any) -> Any:  # noqa: ANN401  (JSON)
    """Return a JSON value with its strings and the keys of its maps replaced."""
    if isinstance(value, dict):
        reasons = key in ("unknown", "unreadable")
        return {
            words.text(name, names=False): _walk(words, "" if reasons else name, item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_walk(words, key, item) for item in value]
    if not isinstance(value, str) or key in _FIXED:
        return value
    new = words.text(value, names=key not in _PRODUCTS, ip4=key not in _VERSIONS)
    if new == value and key in _NAMING and any(c.isalnum() and c != "0" for c in value):
        return words.word(_NAMING[key], value)
    return new


def _strings(words: Redactor, values: Mapping[str, str]) -> dict[str, str]:
    return {words.text(name, names=False): words.text(text) for name, text in values.items()}


def _free(words: Redactor, text: str) -> str:
    """Return a text that programs or the kernel wrote, names of processes replaced too."""
    for pattern in _PROCESSES:
        text = pattern.sub(lambda found: found[1] + words.word("process", found[2]), text)
    return words.text(text)


def _environment(words: Redactor, variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: words.word("value", text) if _SECRET_VARIABLE.search(name) else words.text(text)
        for name, text in variables.items()
    }


def _entry(words: Redactor, path: str, entry: RawEntry) -> RawEntry:
    if entry.data is None:
        return RawEntry(target=words.text(entry.target or "", names=False))
    name = path.rpartition("/")[2]
    if name == "config":
        # Registers: nothing in the first 256 bytes names a part.
        return entry
    if name == "vpd":
        return RawEntry(data=_vpd(entry.data))
    text = entry.data.decode("utf-8", "replace")
    if path == "/proc/sys/kernel/hostname":
        text = words.host(text.strip()) + "\n"
    elif path == "/proc/cmdline":
        text = " ".join(_parameter(words, word) for word in text.split()) + "\n"
    elif path == "/proc/net/route":
        text = _routes(words, text, (1, 2), 8)
    elif path == "/proc/net/ipv6_route":
        text = _routes(words, text, (0, 2, 4), 32)
    else:
        versions = name in ("fw_ver", "version", "information")
        text = words.text(text, names="/dmi/" not in path, ip4=not versions)
    return RawEntry(data=text.encode())


def _vpd(data: bytes) -> bytes:
    """Return vital product data with the one field that is read, all serial numbers gone."""
    model = (submodel(data) or "").encode("latin-1", "replace")
    field = b"SMDL=" + model if model else b""
    body = b"V0" + bytes([len(field)]) + field
    return b"\x90" + len(body).to_bytes(2, "little") + body + b"\x78"


def _parameter(words: Redactor, word: str) -> str:
    name, equals, value = word.partition("=")
    if _PARAMETER.fullmatch(name):
        return words.text(word)
    return f"{words.text(name)}={words.word('value', value)}" if equals else words.text(word)


def _routes(words: Redactor, text: str, columns: tuple[int, ...], width: int) -> str:
    """Replace the addresses in a table of routes, except those of the default route, zero."""
    lines = []
    for line in text.split("\n"):
        cells = line.split()
        for column in columns:
            if column < len(cells) and re.fullmatch(rf"[0-9A-Fa-f]{{{width}}}", cells[column]):
                if int(cells[column], 16):
                    cells[column] = words.word("", cells[column])[1:].ljust(width, "0")[:width]
        lines.append("\t".join(cells))
    return "\n".join(lines)
