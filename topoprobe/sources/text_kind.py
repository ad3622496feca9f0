"""Tell by its content what a pasted text is.

A text is of a kind if the parser of that kind finds something in it that it is certain of:
no word or file name decides, so what a parser would refuse is never taken for its kind.
"""

from collections.abc import Callable

from topoprobe.model.errors import ParseError
from topoprobe.sources.lspci_text import parse_lspci
from topoprobe.sources.lspci_tree import parse_lspci_tree
from topoprobe.sources.nvlink_text import parse_nvlink
from topoprobe.sources.p2p_text import parse_p2p
from topoprobe.sources.topo_text import parse_topo


def detect(text: str) -> str | None:
    """Return ``topo``, ``nvlink``, ``p2p``, ``lspci`` or ``lspci-tree``, None for none of them.

    Of several kinds in one text the first of these is returned; `kinds_in` names all.
    """
    return next((kind for kind, has in _KINDS if has(text)), None)


def kinds_in(text: str) -> tuple[str, ...]:
    """Return all kinds that are in the text, in the order of `detect`."""
    return tuple(kind for kind, has in _KINDS if has(text))


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def has(text: str) -> bool:
        try:
            parse(text)
        except ParseError:
            return False
        return True

    return has


def _has_nvlink(text: str) -> bool:
    try:
        found = parse_nvlink(text)
    except ParseError:
        return False
    # The command alone is a text without GPUs; it says nothing.
    return any(gpu.links or gpu.info or gpu.all_inactive for gpu in found.gpus)


_KINDS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("topo", _parses(parse_topo)),
    ("nvlink", _has_nvlink),
    ("p2p", _parses(parse_p2p)),
    ("lspci", _parses(parse_lspci)),
    ("lspci-tree", _parses(parse_lspci_tree)),
)
