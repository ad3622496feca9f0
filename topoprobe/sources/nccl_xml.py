"""Read NCCL topology files: dumps, hand-written ones, parts of them, and RCCL's variants.

The text is read by expat, element by element, without any DTD and within bounds. What is wrong
after the first elements is a warning: what stands before it is kept.
"""

import re
from xml.parsers import expat

from topoprobe.model.errors import ParseError
from topoprobe.model.nccl import NcclSystem
from topoprobe.sources._nccl_quirks import quirks_of
from topoprobe.sources._nccl_records import Element, system_of

# NCCL takes 256 elements a node; a dump of a whole NVLink domain has some thousands.
_MAX_BYTES = 8 << 20
_MAX_ELEMENTS = 100_000
_MAX_DEPTH = 64
_MAX_ATTRIBUTES = 64
_CHUNK = 1 << 16
_FIX = "give a file that NCCL_TOPO_DUMP_FILE wrote, or `topoprobe export nccl-xml`"
# Roots of other XML that people mix up with it.
_OTHERS = {
    "graphs": "this is an NCCL graph file (NCCL_GRAPH_DUMP_FILE), which holds no topology",
    "nvidia_smi_log": "this is the output of `nvidia-smi -q -x`",
    "topology": "this is an hwloc (lstopo) file",
    "algo": "this is an MSCCL algorithm",
    "html": "this is a web page",
}
_MINE = re.compile(
    r"<(?:system|graphs|nvidia_smi_log)[\s/>]|<(?:cpu|pci)\s[^<>]{0,4096}?\b(?:numaid|busid)\s*="
)
_DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>")


def is_nccl_xml(text: str) -> bool:
    """Tell whether `text` is meant as an NCCL topology, or as XML that is mistaken for one."""
    return "<" in text and _MINE.search(text) is not None


def parse_nccl_xml(text: str, name: str = "text") -> NcclSystem:
    """Parse an NCCL topology, whole, partial or damaged.

    Raises:
        ParseError: There is no cpu or pci element in it, or it is no file to be trusted.
    """
    if len(text) > _MAX_BYTES:
        raise ParseError(f"{name}: larger than any NCCL topology ({_MAX_BYTES >> 20} MiB); {_FIX}")
    reader = _Reader(name)
    warnings = reader.read(text)
    roots = [*reader.top.children]
    system = next((element for element in roots if element.name == "system"), None)
    if system is None:
        loose = [element for element in roots if element.name in ("cpu", "pci")]
        if not loose:
            raise ParseError(f"{name}: {_what_else(roots, warnings)}; {_FIX}")
        system = Element("system", loose[0].line, {}, loose)
        warnings.insert(0, f"line {loose[0].line}: no <system> around it; taken as a part of one")
    elif sum(element.name == "system" for element in roots) > 1:
        warnings.append("more than one <system> in the file; the first is taken")
    found = system_of(system, quirks_of(reader.sound), warnings)
    if not any(cpu.pci or cpu.numa is not None for cpu in found.cpus):
        why = warnings[0] if warnings else "no cpu or pci element, so it is no NCCL topology"
        raise ParseError(f"{name}: {why}; {_FIX}")
    return found


def _what_else(roots: list[Element], warnings: list[str]) -> str:
    for element in roots:
        if element.name in _OTHERS:
            return _OTHERS[element.name]
    return warnings[0] if warnings else "no <system> element, so it is no NCCL topology"


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.top = Element("", 0, {})
        self.stack = [self.top]
        self.elements = 0
        # The text up to where it stops being XML.
        self.sound = ""
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._open
        self.parser.EndElementHandler = self._close
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.ExternalEntityRefHandler = self._refuse
        self.parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self, text: str) -> list[str]:
        """Build the tree below `top`; return warnings."""
        if re.search(r"<!(?:DOCTYPE|ENTITY)\b", text, re.IGNORECASE):
            raise self._refused()
        # A declaration may only stand first; its line ends stay, so that lines keep numbers.
        declared = (_DECLARATION.match(text) or [""])[0]
        text = text[len(declared) :]
        head = "<x>" + "\n" * declared.count("\n")
        # One element around all, so that parts without <system> and texts around it are read.
        data = (head + text + "</x>").encode("utf-8", "replace")
        self.sound = declared + text
        try:
            for at in range(0, len(data), _CHUNK):
                self.parser.Parse(data[at : at + _CHUNK], False)
            self.parser.Parse(b"", True)
        except expat.ExpatError as error:
            whole = data[len(head) : max(self.parser.ErrorByteIndex, len(head))]
            self.sound = declared + whole.decode("utf-8", "ignore")
            return [self._damage(error)]
        return []

    def _damage(self, error: expat.ExpatError) -> str:
        what = expat.ErrorString(error.code) or "damaged"
        line = error.lineno
        still = [element for element in self.stack if element.line]
        if what == "mismatched tag" and still:
            what = f"<{still[-1].name}> of line {still[-1].line} is not closed"
        return f"line {line}: {what}; what stands before it is read"

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "x" and len(self.stack) == 1 and not self.elements:
            self.elements = 1
            return
        self.elements += 1
        line = self.parser.CurrentLineNumber
        if self.elements > _MAX_ELEMENTS or len(self.stack) > _MAX_DEPTH:
            much = "elements" if self.elements > _MAX_ELEMENTS else "nested elements"
            raise ParseError(f"{self.name}: line {line}: too many {much} for an NCCL topology")
        if len(attributes) > _MAX_ATTRIBUTES:
            raise ParseError(f"{self.name}: line {line}: too many attributes")
        element = Element(tag, line, attributes)
        self.stack[-1].children.append(element)
        self.stack.append(element)

    def _close(self, _tag: str) -> None:
        if len(self.stack) > 1:
            self.stack.pop()

    def _refuse(self, *_: object) -> int:
        raise self._refused()

    def _refused(self) -> ParseError:
        return ParseError(
            f"{self.name}: it declares a document type or entities, which NCCL's files never do; "
            "it is not read"
        )
