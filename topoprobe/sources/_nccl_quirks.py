"""Where NCCL's own reader of its files differs from XML: what it refuses, cuts or passes over.

The rules are those of xml.cc and xml.h in NCCL 2.6 to 2.30. It reads character by character:
blanks and line ends between elements, one blank between attributes, values in quotes as they
stand. Nothing is decoded and nothing but elements and comments is known.
"""

import re
from collections.abc import Iterator

from topoprobe.model.nccl import NcclQuirk

_MAX_VALUE = 253
_MAX_NAME = 253
_MAX_ATTRIBUTES = 16
_MAX_NODES = 255
# NCCL's MAX_SUBS: 32 before 2.21, 128 before 2.30, then 640.
_MAX_CHILDREN = {640: "of any version", 128: "before 2.30", 32: "before 2.21"}
_MAX_QUIRKS = 100
_NODES = frozenset(("system", "cpu", "pci", "gpu", "nic", "net", "nvlink", "c2c", "pcilink"))
_RCCL = frozenset(("xgmi",))
_TOKEN = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>"
    r"|<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>|[^<]+|<",
    re.DOTALL,
)
_TAG = re.compile(r"<(/?)([^\s/>=]+)(.*?)(/?)>", re.DOTALL)
_ATTRIBUTE = re.compile(r"([^\s=\"']+)(\s*=\s*)(\"[^\"]*\"|'[^']*')")


def quirks_of(text: str) -> tuple[NcclQuirk, ...]:
    """Return all that NCCL would stumble on, by line; at most a hundred."""
    found = sorted(_Scan().run(text), key=lambda quirk: quirk.line)
    return tuple(found[:_MAX_QUIRKS])


class _Scan:
    def __init__(self) -> None:
        self.line = 1
        self.nodes = 0
        self.open: list[tuple[str, int, int]] = []

    def run(self, text: str) -> Iterator[NcclQuirk]:
        texts = 0
        for token in _TOKEN.finditer(text):
            part = token[0]
            if part[0] != "<" or part == "<":
                if part.strip(" \r\n\t") and not texts:
                    texts += 1
                    yield self._fatal("text between elements", "delete it, or make it a comment")
                elif "\t" in part and not part.strip(" \r\n\t"):
                    yield self._fatal("a tab between elements", "indent with blanks")
            elif part.startswith("<!--"):
                yield from self._comment(part)
            elif part.startswith(("<?", "<![", "<!")):
                yield self._fatal(
                    "an XML declaration or instruction" if part[1] == "?" else "a CDATA section",
                    "delete it: the file begins with <system>",
                )
            else:
                yield from self._tag(part)
            self.line += part.count("\n")
            if self.nodes > _MAX_NODES * 40:
                return

    def _fatal(self, what: str, remedy: str) -> NcclQuirk:
        return NcclQuirk(self.line, f"{what}: NCCL refuses the file", remedy)

    def _comment(self, part: str) -> Iterator[NcclQuirk]:
        word = re.split(r"[ >/\n\r]", part[1:], maxsplit=1)[0]
        if "=" in word:
            yield self._fatal("a comment that begins with a word and =", "put a blank after <!--")

    def _tag(self, part: str) -> Iterator[NcclQuirk]:
        tag = _TAG.fullmatch(part)
        if tag is None:
            return
        closing, name, inside, single = tag[1], tag[2], tag[3], tag[4]
        if closing:
            if self.open:
                self.open.pop()
            return
        yield from self._attributes(name, inside)
        yield from self._count(name)
        if not single:
            self.open.append((name, self.line, 0))

    def _attributes(self, name: str, inside: str) -> Iterator[NcclQuirk]:
        pairs = list(_ATTRIBUTE.finditer(inside))
        blank = _ATTRIBUTE.sub("", inside)
        if any(character in blank for character in "\t\n\r"):
            yield self._fatal(
                f"a tab or line end inside <{name}>", "one blank between attributes, one line"
            )
        if any(pair[2] != "=" for pair in pairs):
            yield self._fatal(f"blanks around = in <{name}>", 'write name="value"')
        if any(pair[3][0] == "'" for pair in pairs):
            yield NcclQuirk(
                self.line, f"single quotes in <{name}>: NCCL before 2.30 reads past them",
                "use double quotes",
            )  # fmt: skip
        if len(pairs) > _MAX_ATTRIBUTES:
            yield NcclQuirk(
                self.line, f"{len(pairs)} attributes in <{name}>: NCCL takes the first "
                f"{_MAX_ATTRIBUTES}", "delete those that NCCL does not know", fatal=False,
            )  # fmt: skip
        for pair in pairs:
            value = pair[3][1:-1]
            if len(value) > _MAX_VALUE or len(pair[1]) > _MAX_NAME:
                yield self._fatal(
                    f"{pair[1][:40]} of <{name}> has {len(value)} characters, more than "
                    f"{_MAX_VALUE}", "shorten it",
                )  # fmt: skip
            if re.search(r"&[#\w]{1,40};", value):
                yield NcclQuirk(
                    self.line, f"{pair[1][:40]} of <{name}> has an entity, which NCCL does not "
                    "decode", "write the character itself", fatal=False,
                )  # fmt: skip

    def _count(self, name: str) -> Iterator[NcclQuirk]:
        if name not in _NODES | _RCCL:
            return
        self.nodes += 1
        if self.nodes == _MAX_NODES + 1:
            yield self._fatal(
                f"more than {_MAX_NODES} elements",
                "leave out what holds no GPU or NIC, or `export nccl-xml --drop gpu,nic`",
            )
        if not self.open:
            return
        above, line, children = self.open[-1]
        self.open[-1] = (above, line, children + 1)
        versions = _MAX_CHILDREN.get(children)
        if versions:
            yield NcclQuirk(
                line, f"<{above}> holds more than {children} elements: NCCL {versions} refuses "
                "the file", "leave out what holds no GPU or NIC, or split it over switches",
            )  # fmt: skip
