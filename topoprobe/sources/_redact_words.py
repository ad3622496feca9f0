"""The words that name a person or a machine, found in text and replaced one for one.

Every replacement is a keyed digest of what it replaces: the same word gives the same
replacement, in any place and any capture with the same key, and two words give two.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable

from msgspec import Struct

# Words that name nobody, and would take facts with them if a host or user has them for a name.
_COMMON = frozenset(
    """localhost localdomain node nodes gpu gpus cpu host hgx dgx nvidia linux ubuntu debian root
    user admin nobody system kernel server none unknown pci pcie numa net nic eth mlx mlx4 mlx5
    nvme test mem memory local home data ok partial absent denied timeout error down sleep cns
    gns tns compute graphics switch infiniband ethernet active polling online port link read
    write nvlink atomics model version driver true false x86_64 aarch64""".split()  # noqa: SIM905
)
# With a number behind them, labels of devices; as bare words, nothing.
_LABELS = ("", "gpu", "nic", "cpu", "numa", "eth", "ib", "nvme", "mlx4_", "mlx5_", "nvswitch")
_HOMES = ("home", "users", "scratch", "work", "project", "projects", "nfs", "lustre", "gpfs")

_PATTERNS = (
    ("serial", r"(?:serial(?:[ _-]*(?:number|no\.?|num|\#))?|\bS/?N)\"?\s*[:=]\s*\"?"
               r"(?P<serial_value>(?=[\w.-]*\d)[A-Za-z0-9][\w.-]{4,63})"),
    ("uuid", r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])"),
    ("part", r"(?<=\bGPU-)[0-9a-f]{4,8}(?:-[0-9a-f]{0,12}){0,4}|"
             r"(?<=\bMIG-)[0-9a-f]{4,8}(?:-[0-9a-f]{0,12}){0,4}"),
    ("hex", r"(?<![^\W_])(?:0x[0-9a-f]{16}|"
            r"(?=[0-9]*[a-f])(?:[0-9a-f]{32}|[0-9a-f]{16}))(?![^\W_])"),
    ("name_mac", r"(?<=enx)[0-9a-f]{12}(?!\w)"),
    ("mac", r"(?<![0-9a-f])[0-9a-f]{2}(?:-[0-9a-f]{2}){5,19}(?![0-9a-f])"),
    ("run", r"(?:[0-9a-f]{0,16}:){2,24}[0-9a-f.]{0,15}"),
    ("ip4", r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)"),
    ("ip_name", r"(?<!\w)ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?!\w)"),
    ("mail", r"(?P<mail_user>[\w.+-]{1,64})@(?P<mail_host>[\w-][\w.-]{0,253})"),
    ("home", "(?:" + "|".join(rf"(?<=/{word}/)" for word in _HOMES) + r")[^/\s:;,\"'<>|)\]]+"),
)  # fmt: skip


_IP4 = re.compile(dict(_PATTERNS)["ip4"])
# In a run of groups with colons: a GUID, and a MAC of 6 to 20 bytes.
_IN_RUN = re.compile(
    r"(?<![0-9a-f])(?:[0-9a-f]{4}(?::[0-9a-f]{4}){3}|[0-9a-f]{2}(?::[0-9a-f]{2}){5,19})"
    r"(?![0-9a-f])",
    re.IGNORECASE,
)


class Identity(Struct, frozen=True, kw_only=True):
    """What is known beforehand: names of this host, of its users, serial numbers, UUIDs."""

    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    serials: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()


class Redactor:
    """Replaces words with a key; see `text`."""

    def __init__(self, identity: Identity, key: bytes) -> None:
        self._key = key
        self._uuids = tuple(sorted({uuid.lower() for uuid in identity.uuids}))
        self._literals = _literals(identity)
        literal = "|".join(
            rf"(?<![A-Za-z0-9-]){re.escape(word)}(?![A-Za-z0-9]|-\w)"
            for word in sorted(self._literals, key=len, reverse=True)
        )
        siblings = [rf"(?<![A-Za-z0-9-]){stem}\d+(?![A-Za-z0-9])" for stem in _stems(identity)]
        patterns = [f"(?P<{name}>{pattern})" for name, pattern in _PATTERNS]
        patterns += [f"(?P<sibling>{'|'.join(siblings)})"] if siblings else []
        self._plain = re.compile("|".join(patterns), re.IGNORECASE)
        self._whole = re.compile(
            "|".join([f"(?P<literal>{literal})", *patterns] if literal else patterns),
            re.IGNORECASE,
        )

    def text(self, text: str, *, names: bool = True, ip4: bool = True) -> str:
        """Return `text` with all such words replaced.

        `names` False leaves names of hosts and users alone (in the name of a product they mean
        the product), `ip4` False numbers of four parts (firmware versions are written so).
        """

        def replace(found: "re.Match[str]") -> str:
            kind = found.lastgroup or ""
            if kind == "ip4" and not ip4:
                return found[0]
            return self._replace(kind, found)

        return (self._whole if names else self._plain).sub(replace, text)

    def word(self, kind: str, text: str) -> str:
        """Return the replacement of a whole word: ``serial-1f0c…``."""
        return f"{kind}-{self._digest(kind, text.lower())[:12]}"

    def host(self, name: str) -> str:
        """Return the replacement of a host's name, its domain apart from it."""
        short, dot, domain = name.partition(".")
        return self.word("host", short) + (f".{self.word('domain', domain)}" if dot else "")

    def hexadecimal(self, digits: str) -> str:
        """Return as many other digits; nothing but zeros or ones stays."""
        if set(digits.lower()) in ({"0"}, {"f"}):
            return digits
        new = self._digest("hex", digits.lower())[: len(digits)]
        # One letter at least, so that it is never taken for a number.
        new = new if any(c > "9" for c in new) else "a" + new[1:]
        return new.upper() if digits != digits.lower() else new

    def _digest(self, kind: str, text: str) -> str:
        return hmac.new(self._key, f"{kind}\0{text}".encode(), hashlib.sha256).hexdigest()

    def _replace(self, kind: str, found: "re.Match[str]") -> str:
        text = found[0]
        if kind == "literal":
            known, word = self._literals[text.lower()]
            return self.host(word) if known == "host" else self.word(known, word)
        if kind == "sibling" or kind == "ip_name":
            return self.host(text)
        if kind == "serial":
            value = found["serial_value"]
            return text[: len(text) - len(value)] + self.word("serial", value)
        if kind == "uuid":
            return self._uuid(text)
        if kind == "part":
            return self._part(text)
        if kind == "hex":
            at = 2 if text[:2].lower() == "0x" else 0
            # A small number in so many digits is no identity.
            small = int(text[at:], 16) < 1 << 32
            return text if small else text[:at] + self.hexadecimal(text[at:])
        if kind in ("mac", "name_mac"):
            return self._mac(text)
        if kind == "run":
            before = found.string[found.start() - 1 : found.start()]
            return self._run(text, inside=before.isalnum() or before == "_")
        if kind == "ip4":
            return self._address(text) or text
        if kind == "mail":
            return f"{self.word('user', found['mail_user'])}@{self.host(found['mail_host'])}"
        return text if text in ("root", ".", "..") else self.word("user", text)

    def _uuid(self, text: str) -> str:
        new = self.hexadecimal(text.replace("-", ""))
        return "-".join((new[:8], new[8:12], new[12:16], new[16:20], new[20:]))

    def _part(self, text: str) -> str:
        """Replace the beginning of a UUID by the beginning of what the UUID is replaced by."""
        for uuid in self._uuids:
            if uuid.startswith(text.lower()):
                return self._uuid(uuid)[: len(text)]
        digest = iter(self._digest("part", text.lower()))
        return "".join(c if c == "-" else next(digest) for c in text)

    def _mac(self, text: str) -> str:
        digits = re.sub("[:-]", "", text).lower()
        if set(digits) in ({"0"}, {"f"}):
            return text
        if len(digits) == 40:
            # IPoIB: queue pair, prefix of the subnet, GUID of the port.
            new = self._digest("mac", digits[:24])[:24] + self.hexadecimal(digits[24:])
        else:
            # The second lowest bit of the first byte says: an address that nobody was given.
            new = "02" + self._digest("mac", digits)[: len(digits) - 2]
        mark = next((c for c in text if c in ":-"), "")
        return mark.join(new[i : i + 2] for i in range(0, len(new), 2))

    def _run(self, text: str, *, inside: bool) -> str:
        """Replace the addresses in groups with colons; `inside`: a word reaches into the first."""
        body = text.rstrip(".")
        groups = body.split(":")
        # All of it, or all but what belongs to a word before it or is a port behind it.
        for first, last in ((0, 0), (1, 0), (0, 1), (1, 1)):
            if first == 0 and inside:
                continue
            new = self._address(":".join(groups[first : len(groups) - last]))
            if new is not None:
                return (
                    ":".join([*groups[:first], new, *groups[len(groups) - last :]])
                    + (text[len(body) :])
                )
        text = _IN_RUN.sub(lambda found: self._guid_or_mac(found[0]), text)
        return _IP4.sub(lambda found: self._address(found[0]) or found[0], text)

    def _guid_or_mac(self, text: str) -> str:
        if text[2] == ":":
            return self._mac(text)
        new = self.hexadecimal(text.replace(":", ""))
        return ":".join(new[i : i + 4] for i in range(0, 16, 4))

    def _address(self, text: str) -> str | None:
        """Return the replacement of an IP address, None for what is none."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        mask = address.version == 4 and str(address).startswith("255.")
        if address.is_loopback or address.is_unspecified or mask:
            return text
        if address.version == 4:
            return self.word("ip4", str(address))
        new = "fd" + self._digest("ip6", address.exploded)[:30]
        return ":".join(new[i : i + 4] for i in range(0, 32, 4))


def tells(word: str) -> bool:
    """Tell whether a name points at anybody: ``root``, ``node`` and a host ``gpu3`` do not."""
    stem = word.lower().rstrip("0123456789")
    return len(word) > 2 and word.lower() not in _COMMON and stem not in _LABELS


def _literals(identity: Identity) -> dict[str, tuple[str, str]]:
    """Return the words to find as they are → what kind they are, and the word to digest."""
    found: dict[str, tuple[str, str]] = {}
    for serial in identity.serials:
        if len(serial) > 4:
            found[serial.lower()] = ("serial", serial)
    for user in identity.users:
        if tells(user):
            found[user.lower()] = ("user", user)
    for name in identity.hosts:
        short, _, domain = name.partition(".")
        for kind, word in (("host", short), ("domain", domain), ("host", name)):
            if tells(word):
                found[word.lower()] = (kind, word)
    return found


def _stems(identity: Identity) -> Iterable[str]:
    """Return the beginnings of host names that end in a number: those of their neighbours."""
    for name in identity.hosts:
        stem = name.partition(".")[0].rstrip("0123456789")
        if stem != name.partition(".")[0] and len(stem) > 2 and tells(stem.strip("-_")):
            yield re.escape(stem)
