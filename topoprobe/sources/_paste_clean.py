"""Undo what copying does to the characters of a ``nvidia-smi nvlink`` or ``lspci`` text.

Not the cleaner of topo texts: that one takes ``<inactive>`` for a tag, ``[m`` for a colour and
``|`` for a frame, and in these texts they are words, names and the lines of a drawing.
"""

import re

# Colour codes, the ESC whole or spelled out by cat -v, syslog, JSON, or a Windows console.
_ESC = r"(?:\x1b|(?<!\\)\\{1,8}(?:u001[bB]|x1[bB]|0?33|e)|\^\[|#033|&#27;|␛|←)"
_ANSI = re.compile(
    rf"{_ESC}\[[0-?]{{0,24}}[ -/]{{0,4}}[@-~]"
    r"|\x9b[0-?]{0,24}[@-~]"
    r"|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)"
    r"|\x1b[()][A-Za-z0-9]"
)
# A whole output as one JSON or Python string has no line ends of its own.
_ESCAPED = re.compile(r"(?<!\\)\\{1,8}([nrt])(?![a-z]{3})")
_TAG = re.compile(
    r"</?(?:br|pre|code|span|div|p|td|tr|b|i|font|details|summary|blockquote)\b[^<>\n]{0,200}>",
    re.I,
)
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&quot;": '"', "&amp;": "&"}
_BLANKS = "\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_NOTHING = "\x00\xad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_CHARACTERS = str.maketrans(
    dict.fromkeys(_BLANKS, " ")
    | dict.fromkeys(_NOTHING, "")
    | dict.fromkeys(_DASHES, "-")
    | {"│": "|", "┃": "|"}
)
_QUOTE_END = re.compile(r"[\"'`]{1,3},?$")
_ELISION = re.compile(
    r"(?:link\s{1,4})?[\[(<{*\-#/ \t|]{0,20}(?:\.{2,10}|…{1,4}|snip(?:ped)?|cut|omitted|truncated)"
    r"[\])>}*\-#/ \t|.…]{0,20}",
    re.I,
)
_COMMAND = re.compile(r"(?<![\w/.-])(?:nvidia-smi|lspci)(?:\s|$)|^\s{0,20}(?:```|~~~|#{1,6} )")
_PROMPT = re.compile(r"^\s{0,20}(?:\S{1,80}[@:]\S{0,120}|\[[^\]]{1,80}\]|\(\w{1,40}\))?\s?[$#%] ")

MAX_LINE = 4000


def clean_lines(text: str) -> tuple[list[str], bool]:
    """Return the lines without damage to their characters, and whether the last was ended."""
    if not text.isascii() or "\x00" in text:
        text = text.translate(_CHARACTERS)
    text = _ANSI.sub("", text)
    if "\\n" in text or "\\t" in text:
        text = _ESCAPED.sub(lambda found: "\t" if found[1] == "t" else "\n", text)
    text = text.replace("^I", "\t").replace("^M", "")
    if "&" in text:
        for entity, character in _ENTITIES.items():
            text = text.replace(entity, character)
    if "<" in text:
        text = _TAG.sub("", text)
    lines = [_without_end(line)[:MAX_LINE] for line in text.splitlines()]
    return lines, not lines or text[-1:].isspace() or not lines[-1].strip()


def _without_end(line: str) -> str:
    line = line.rstrip()
    if line and line[-1] in "\"'`,$":
        line = _QUOTE_END.sub("", line)
        if line.endswith("$") and line[:-1].strip():
            line = line[:-1]  # cat -A
    return line.rstrip()


def is_elision(line: str) -> bool:
    """Tell whether the line stands for lines that somebody left out: ``[...]``, ``<snip>``."""
    line = line.strip()
    return 0 < len(line) < 60 and _ELISION.fullmatch(line) is not None


def starts_anew(line: str) -> bool:
    """Tell whether an output ends here: a command, a prompt, a fence or heading of Markdown."""
    return _COMMAND.search(line) is not None or _PROMPT.match(line) is not None


def pci_address(printed: str) -> tuple[str, bool]:
    """Return an address in lower case with a domain of four digits, and if that was assumed."""
    *domain, bus, function = printed.lower().split(":")
    digits = domain[0].lstrip("0").rjust(4, "0") if domain else "0000"
    return f"{digits}:{bus}:{function}", not domain
