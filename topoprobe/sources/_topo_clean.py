"""Undo what copying does to the characters of a ``nvidia-smi topo`` text.

Everything here is a certain repair: a colour code, a kind of blank, an escape. What a cell
means, and where it belongs, is not decided here.
"""

import re

# The header of topo -m is underlined (ESC[4m … ESC[0m) even into a pipe. Copies keep the code
# whole, or lose or spell out its ESC: "^[[4m" (cat -v), "#033[4m" (rsyslog), "\u001b[4m"
# (JSON), "[4m" (most web forms), "←[4m" (Windows consoles).
# The look-behind keeps a long run of backslashes from being searched from each of them.
_ESC = r"(?:\x1b|(?<!\\)\\{1,8}(?:u001[bB]|x1[bB]|0?33|e)|\^\[|#033|&#27;|␛|←)"
_ANSI = re.compile(
    rf"{_ESC}\[[0-?]{{0,24}}[ -/]{{0,4}}[@-~]"
    r"|\x9b[0-?]{0,24}[@-~]"
    r"|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)"
    r"|\x1b[()][A-Za-z0-9]"
    r"|\[(?:\d{1,3}(?:;\d{1,3}){0,4})?m"
    # The bracket is lost too: "4mGPU0".
    r"|(?<![A-Za-z0-9_])4m(?=GPU\d)"
)
_ESCAPED = re.compile(r"(?<!\\)\\{1,8}([nrt])")
_TAG = re.compile(r"</?[A-Za-z][^<>\n]{0,200}>")
# A line of a list of strings: the closing quote sticks to the last cell.
_QUOTE_END = re.compile(r"[\"'`]{1,3},?$")

_BLANKS = "\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_NOTHING = "\x00\xad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
# Frames around a pasted block and the "|" of docker compose and of a Markdown table.
_FRAMES = "|│┃║¦"
_CHARACTERS = str.maketrans(
    dict.fromkeys(_BLANKS, " ")
    | dict.fromkeys(_NOTHING, "")
    | dict.fromkeys(_DASHES, "-")
    | dict.fromkeys(_FRAMES, " ")
)


def clean_lines(text: str) -> tuple[list[str], bool]:
    """Return the lines of the text without damage to its characters.

    The second value says whether the last line was ended: where it was not, its last word may
    be a part of a word.
    """
    if not text.isascii() or "|" in text or "\x00" in text:
        text = text.translate(_CHARACTERS)
    if "[" in text or "\x1b" in text or "\x9b" in text or "4mGPU" in text:
        text = _ANSI.sub("", text)
    if "\\" in text:
        # A JSON or Python string of the whole output, perhaps quoted more than once.
        text = _ESCAPED.sub(lambda found: "\t" if found[1] == "t" else "\n", text)
    if "^I" in text:
        text = text.replace("^I", "\t")  # cat -A
    if "<" in text:
        text = _TAG.sub("", text)
    if "&nbsp;" in text:
        text = text.replace("&nbsp;", " ")
    lines = [_without_end(line) for line in text.splitlines()]
    # The closing quote of a string is no line.
    return lines, not lines or text[-1:].isspace() or not lines[-1].strip()


def _without_end(line: str) -> str:
    # Trailing tabs stay: they are the empty affinities of a NIC row. "$" is cat -A's line end.
    if line and line[-1] in "\"'`,$":
        line = _QUOTE_END.sub("", line)
        if line.endswith("$"):
            line = line[:-1]
    return line
