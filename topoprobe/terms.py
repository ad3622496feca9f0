"""All explained words, collected from the rooms that own them."""

from topoprobe.bench.terms import TERMS as BENCH
from topoprobe.health.registry import TERMS as HEALTH
from topoprobe.limits.apply import TERMS as LIMITS
from topoprobe.limits.collectives import TERMS as COLLECTIVES
from topoprobe.model.errors import UsageError
from topoprobe.model.terms import Term
from topoprobe.topology.classes import TERMS as CLASSES

ALL: tuple[Term, ...] = CLASSES + LIMITS + COLLECTIVES + BENCH + HEALTH


def explain(word: str) -> Term:
    """Return the term `word` (any case; NV12 is NV#); raises UsageError with near words."""
    folded = word.lower()
    if folded[:2] == "nv" and folded[2:].isdigit():
        folded = "nv#"
    for term in ALL:
        if term.name.lower() == folded:
            return term
    import difflib  # noqa: PLC0415  (10 ms, only here)

    near = difflib.get_close_matches(folded, [term.name.lower() for term in ALL], n=4, cutoff=0.4)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise UsageError(f"no text for {word!r}{hint} (topoprobe explain lists all)")
