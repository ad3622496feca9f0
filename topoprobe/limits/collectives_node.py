"""The bound of one collective within one node, and the sentence that says why."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf, isinf
from typing import NamedTuple

from topoprobe.limits.collectives_cuts import (
    Cut,
    above,
    crossing,
    direct,
    joined,
    mixed_cuts,
    tree_cuts,
)
from topoprobe.limits.collectives_ground import Bundle, Ground
from topoprobe.limits.mesh import ring_bandwidth

RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
# NCCL turns from rings to NVLS at five GPUs on H200, at six on B200 (AWS's tuner logs). Below
# five a ring is the better bound in any case but four, where NVLS was not seen to be taken.
NVLS_FROM = 5


class Bound(NamedTuple):
    """GB/s of bus bandwidth, the link that bounds it, why; `unknown` says why there is none."""

    busbw: float | None
    bottleneck: str | None
    reason: str
    nvls: bool | None = False
    unknown: str | None = None


def no_bound(why: str) -> Bound:
    """Return the bound of what cannot be told."""
    return Bound(None, None, f"no bound: {why}", False, why)


def node_bound(op: str, ranks: Sequence[str], ground: Ground, *, closed: bool = True) -> Bound:
    """Return the bound of `op` among `ranks` of one node; the first one is the root.

    `closed` tells whether a shift goes from the last rank back to the first.
    """
    for bundle in _bundles(ranks, ground):
        if bundle.rate is None:
            return no_bound(ground.unknown.get("nvlink", "the rate of an NVLink is not known"))
    if op == "sendrecv":
        return _shift(ranks, ground, closed)
    how = joined(ranks, ground)
    if how == "switch":
        return _on_switch(op, ranks, ground)
    if how == "mesh" and op in RINGS:
        found = ring_bandwidth(ranks, {p: b.rate or 0.0 for p, b in ground.pairs.items()})
        if found is not None:
            return _on_mesh(ranks, ground, *found)
    return _across(op, ranks, ground, pcie=how != "mesh" or op in RINGS)


def _bundles(ranks: Sequence[str], ground: Ground) -> Iterable[Bundle]:
    yield from (ground.switched[gpu] for gpu in ranks if gpu in ground.switched)
    yield from (bundle for pair, bundle in ground.pairs.items() if pair <= set(ranks))


def _on_switch(op: str, ranks: Sequence[str], ground: Ground) -> Bound:
    n, root = len(ranks), ranks[0]
    rates = {gpu: ground.switched[gpu].rate or 0.0 for gpu in ranks}
    slow = min(ranks, key=lambda gpu: rates[gpu])
    rate, link = rates[slow], ground.switched[slow].links[0]
    owner = "each GPU" if len(set(rates.values())) == 1 else ground.names[slow]
    wires = f"the {_count(ground.switched[slow])} of {owner} carry {_gb(rate)} each way"
    if op in ("gather", "scatter"):
        # The root moves n-1 parts, every other one only its own.
        if rates[root] <= rate * (n - 1):
            slow = root
        bound = rates[slow] * (1 if slow == root else n - 1)
        part = f"all parts pass the {_count(ground.switched[slow])} of the root"
        if slow != root:
            part = f"its own part passes the {_count(ground.switched[slow])}"
        return Bound(bound, ground.switched[slow].links[0],
                     f"{part}, {ground.names[slow]}: {_gb(rates[slow])}")  # fmt: skip
    if op == "all_to_all":
        return Bound(
            rate, link, f"every GPU sends to all others at once through the NVSwitches: {wires}"
        )
    ring = f"a ring through the NVSwitches fills the links of every GPU: {wires}"
    if op != "all_reduce":
        return Bound(rate, link, ring)
    nvls = ground.nvls
    if nvls.usable is False or n < NVLS_FROM:
        why = nvls.why if nvls.usable is False else f"NCCL takes it from {NVLS_FROM} GPUs on"
        return Bound(rate, link, f"{ring}; no NVLS: {why}", False)
    doubt = "" if nvls.usable else f"; this holds if NVLS can be used: {nvls.why}"
    return Bound(
        max(rate, rate * 2 * (n - 1) / (n + 1)), link,
        f"NVLS: the NVSwitches add and copy, so each GPU moves (1 + 1/{n}) of the data each way "
        f"instead of 2 × {n - 1}/{n} as in a ring, which would get {_gb(rate)}; {wires}{doubt}",
        nvls.usable,
    )  # fmt: skip


def _on_mesh(ranks: Sequence[str], ground: Ground, rate: float, exact: bool) -> Bound:
    most = {gpu: sum(direct(ground, gpu, other) for other in ranks if other != gpu)
            for gpu in ranks}  # fmt: skip
    slow = min(ranks, key=lambda gpu: most[gpu])
    link = next(b.links[0] for p, b in ground.pairs.items() if slow in p and p <= set(ranks))
    if len(ranks) == 2:
        bundle = ground.pairs[frozenset(ranks)]
        return Bound(rate, link, f"the two GPUs are joined by {_count(bundle)}: {_gb(rate)}")
    name = ground.names[slow]
    if not exact:
        why = (
            f"{name} can send no more than {_gb(rate)} to the others; whether rings reach it was "
            "not looked at: too many ways around"
        )
    elif rate < most[slow] * 0.999:
        why = f"the wiring lets rings use only {_gb(rate)} of {_gb(most[slow])} that {name} has"
    else:
        why = f"the direct NVLinks divide into rings that use all of the {_gb(rate)} of {name}"
    return Bound(rate, link, why)


def _across(op: str, ranks: Sequence[str], ground: Ground, *, pcie: bool) -> Bound:
    """Return the bound by the tightest cut."""
    n = len(ranks)
    nvlink = joined(ranks, ground) != "none"
    if pcie and any(isinf(cut.rate) for cut in tree_cuts(ranks, ground) if len(cut.side) == 1):
        return no_bound("the rate of a GPU's PCIe link is not known")
    cuts = list(mixed_cuts(ranks, ground, pcie=pcie) if nvlink else tree_cuts(ranks, ground))
    if not cuts:
        return no_bound("no PCIe link between these GPUs is known")

    def bound(cut: Cut) -> float:
        return cut.rate / _load(op, cut, ranks)

    tightest = min(cuts, key=lambda cut: (round(bound(cut), 6), min(len(cut.side), n)))
    if isinf(tightest.rate):
        return no_bound("no PCIe link between these GPUs is known")
    between = crossing(ranks, ground) if pcie else None
    doubt = f"; {between} may allow less: its rate is not known" if between else ""
    return Bound(
        bound(tightest),
        tightest.links[0] if tightest.links else _any_link(tightest.side, ranks, ground),
        f"{_why_cut(op, tightest, ranks, ground)}{doubt}",
    )


def _load(op: str, cut: Cut, ranks: Sequence[str]) -> float:
    """Return what crosses a cut in one direction, in units of the bus bandwidth."""
    n, m = len(ranks), len(cut.side)
    if op in RINGS:
        return 1.0
    if op == "all_to_all":
        return m * (n - m) / (n - 1)
    return (n - m if ranks[0] in cut.side else m) / (n - 1)


def _why_cut(op: str, cut: Cut, ranks: Sequence[str], ground: Ground) -> str:
    side = cut.side if len(cut.side) * 2 <= len(ranks) else frozenset(ranks) - cut.side
    who = ", ".join(ground.names[gpu] for gpu in ranks if gpu in side)
    over = f" over {' and '.join(cut.links)}" if cut.links else " over NVLink"
    others = [ground.names[gpu] for gpu in ranks if gpu not in side]
    whom = others[0] if len(others) == 1 else "the other GPUs"
    door = f"{_gb(cut.rate)} can pass between {who} and {whom}{over}"
    if op in RINGS:
        return f"{door}, and every ring crosses there once each way"
    if op == "all_to_all":
        n, m = len(ranks), len(side)
        return f"{door}, where {m} × {n - m} of the {n * (n - 1)} parts have to pass each way"
    return f"{door}, which is the way of what {_moves(op)} the root, {ground.names[ranks[0]]}"


def _any_link(side: frozenset[str], ranks: Sequence[str], ground: Ground) -> str | None:
    for pair, bundle in ground.pairs.items():
        if len(pair & side) == 1 and pair <= set(ranks):
            return bundle.links[0]
    return next((ground.switched[gpu].links[0] for gpu in side if gpu in ground.switched), None)


def _shift(ranks: Sequence[str], ground: Ground, closed: bool) -> Bound:
    """Return the bound of each rank sending to the next one, in the order of the GPUs' numbers."""
    hops = list(pairwise(ranks))
    if closed:
        hops.append((ranks[-1], ranks[0]))
    slowest: tuple[float, str, str | None] = (inf, "", None)
    over_pcie = []
    for a, b in hops:
        rate, through = _nvlink_way(a, b, ranks, ground)
        if not rate:
            over_pcie.append((a, b))
            continue
        names = f"{ground.names[a]} to {ground.names[b]}"
        way = f"{names} goes over NVLink at {_gb(rate)}"
        if through:
            way += f", through {ground.names[through]}"
        slowest = min(slowest, (rate, way, _any_link(frozenset((a,)), (a, through or b), ground)
                                or ground.switched[a].links[0]))  # fmt: skip
    if over_pcie:
        pcie = _shift_over_tree(over_pcie, ground)
        if pcie is None:
            return no_bound("the rate of a GPU's PCIe link is not known")
        slowest = min(slowest, pcie)
    rate, way, link = slowest
    return Bound(rate, link, f"each GPU sends to the next in order, and {way}")


def _nvlink_way(a: str, b: str, ranks: Sequence[str], ground: Ground) -> tuple[float, str | None]:
    """Return what NVLink carries from `a` to `b`: straight, else through one GPU between."""
    rate = direct(ground, a, b)
    if rate:
        return rate, None
    ways = [(min(direct(ground, a, c), direct(ground, c, b)), c) for c in ranks if c not in (a, b)]
    best = max(ways, default=(0.0, None), key=lambda way: way[0])
    return best if best[0] else (0.0, None)


def _shift_over_tree(
    hops: Sequence[tuple[str, str]], ground: Ground
) -> tuple[float, str, str | None] | None:
    used: Counter[tuple[str, bool]] = Counter()
    for a, b in hops:
        up, down = above(ground, a), above(ground, b)
        used.update((key, True) for key in up if key not in down)
        used.update((key, False) for key in down if key not in up)
    found = []
    for (key, _), times in used.items():
        wire = ground.wires.get(key)
        if wire is not None and wire.rate is not None:
            shared = f", shared by {times} of them" if times > 1 else ""
            way = f"{wire.link} on the way carries {_gb(wire.rate)}{shared}"
            found.append((wire.rate / times, way, wire.link))
    ends = {gpu for hop in hops for gpu in hop}
    if any((w := ground.wires.get(gpu)) is None or w.rate is None for gpu in ends):
        return None
    rate, way, link = min(found)
    between = crossing(sorted(ends), ground)
    doubt = f"; {between} may allow less: its rate is not known" if between else ""
    return rate, way + doubt, link


def _count(bundle: Bundle) -> str:
    number = len(bundle.links)
    each = (bundle.rate or 0.0) / number
    return f"{number} NVLink{'s' if number > 1 else ''} of {each:g} GB/s"


def _gb(rate: float) -> str:
    return f"{rate:.4g} GB/s"


def _moves(op: str) -> str:
    return "goes to" if op == "gather" else "comes from"
