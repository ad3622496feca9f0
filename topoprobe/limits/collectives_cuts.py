"""Cuts: how much can pass between a set of GPUs and the others, over NVLink and the PCI tree.

Whatever an operation moves across a cut has to fit through it: each cut is a bound.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from math import inf
from typing import NamedTuple

from topoprobe.limits.collectives_ground import HOST, Ground

Cost = tuple[float, tuple[str, ...]]

# Up to here all cuts are looked at, of NVLink alone and with the PCI tree, where each takes
# longer; beyond, those that the wiring suggests.
_ALL_CUTS, _ALL_TREE_CUTS = 8, 4


class Cut(NamedTuple):
    """One side of a cut, what can pass in one direction, and the PCIe links that it passes."""

    side: frozenset[str]
    rate: float
    links: tuple[str, ...]


def direct(ground: Ground, a: str, b: str) -> float:
    """Return what NVLink carries from `a` to `b`, straight or through switches; 0 for none."""
    pair = ground.pairs.get(frozenset((a, b)))
    if pair is not None:
        return pair.rate or 0.0
    if a in ground.switched and b in ground.switched:
        return min(ground.switched[a].rate or 0.0, ground.switched[b].rate or 0.0)
    return 0.0


def joined(ranks: Sequence[str], ground: Ground) -> str:
    """Tell how NVLink joins `ranks`: through a ``switch``, a direct ``mesh``, ``part`` or none."""
    if all(gpu in ground.switched for gpu in ranks):
        return "switch"
    groups = components(ranks, ground)
    return "mesh" if len(groups) == 1 else "part" if len(groups) < len(ranks) else "none"


def components(ranks: Sequence[str], ground: Ground) -> list[frozenset[str]]:
    """Return the sets of `ranks` that NVLink joins."""
    groups = [frozenset((gpu,)) for gpu in ranks]
    for a, b in combinations(ranks, 2):
        both = a in ground.switched and b in ground.switched
        if both or frozenset((a, b)) in ground.pairs:
            mine = next(group for group in groups if a in group)
            other = next(group for group in groups if b in group)
            if mine is not other:
                groups = [group for group in groups if group not in (mine, other)]
                groups.append(mine | other)
    return groups


def above(ground: Ground, gpu: str) -> list[str]:
    """Return the devices from a GPU up to the host, itself first."""
    chain = [gpu]
    while chain[-1] != HOST and chain[-1] in ground.parents:
        chain.append(ground.parents[chain[-1]])
    return chain


def tree_cuts(ranks: Sequence[str], ground: Ground) -> list[Cut]:
    """Return one cut for each PCIe link that has some of `ranks` below it and some not.

    In a tree these are enough: what crosses any other cut crosses one of them as tightly.
    """
    below: dict[str, set[str]] = {}
    for gpu in ranks:
        for key in above(ground, gpu):
            below.setdefault(key, set()).add(gpu)
    return [
        Cut(frozenset(gpus), inf if wire.rate is None else wire.rate, (wire.link,))
        for key, gpus in below.items()
        if len(gpus) < len(ranks) and (wire := ground.wires.get(key)) is not None
    ]


def mixed_cuts(ranks: Sequence[str], ground: Ground, *, pcie: bool) -> Iterator[Cut]:
    """Yield cuts of `ranks` that leave the first one out, with all that NVLink carries over them.

    `pcie` adds what the PCI tree carries besides.
    """
    for side in _sides(ranks, ground, _ALL_TREE_CUTS if pcie else _ALL_CUTS):
        nvlink = _nvlink_across(side, ranks, ground)
        rate, links = _tree_across(side, ranks, ground) if pcie else (0.0, ())
        yield Cut(side, nvlink + rate, links)


def _sides(ranks: Sequence[str], ground: Ground, every: int) -> list[frozenset[str]]:
    others, everyone = ranks[1:], frozenset(ranks)
    if len(ranks) <= every:
        sizes = range(1, len(ranks))
        return [frozenset(side) for size in sizes for side in combinations(others, size)]
    found = [frozenset((gpu,)) for gpu in ranks]
    found += components(ranks, ground)
    found += [cut.side for cut in tree_cuts(ranks, ground)]
    turned = [everyone - side if ranks[0] in side else side for side in found]
    return sorted(set(filter(None, turned)), key=lambda side: (len(side), sorted(side)))


def _nvlink_across(side: frozenset[str], ranks: Sequence[str], ground: Ground) -> float:
    total = 0.0
    at_switch = [0.0, 0.0]
    for gpu in ranks:
        bundle = ground.switched.get(gpu)
        at_switch[gpu in side] += (bundle.rate or 0.0) if bundle else 0.0
    for pair, bundle in ground.pairs.items():
        if len(pair & side) == 1 and pair <= set(ranks):
            total += bundle.rate or 0.0
    return total + min(at_switch)


def _tree_across(
    side: frozenset[str], ranks: Sequence[str], ground: Ground
) -> tuple[float, tuple[str, ...]]:
    """Return the least that the PCI tree's links pass between `side` and the other ranks.

    Each device in the tree counts to one side or the other, whichever cuts less; a step
    without a link of its own (inside a switch or the CPU) is not cut.
    """
    children: dict[str, list[str]] = {}
    for gpu in ranks:
        chain = above(ground, gpu)
        for child, parent in pairwise(chain):
            known = children.setdefault(parent, [])
            if child not in known:
                known.append(child)

    def costs(key: str) -> tuple[Cost, Cost]:
        """Return the least cut below `key` where it counts to the others, and to `side`."""
        if key not in children:
            barred, free = (inf, ()), (0.0, ())
            return (barred, free) if key in side else (free, barred)
        totals: list[Cost] = [(0.0, ()), (0.0, ())]
        for child in children[key]:
            below = costs(child)
            wire = ground.wires.get(child)
            price = wire.rate if wire and wire.rate is not None else inf
            name = wire.link if wire else ""
            for mine in (0, 1):
                same, other = below[mine], below[1 - mine]
                part = min(same, (other[0] + price, (*other[1], name)), key=lambda cost: cost[0])
                totals[mine] = (totals[mine][0] + part[0], (*totals[mine][1], *part[1]))
        return totals[0], totals[1]

    return min(costs(HOST), key=lambda cost: cost[0])


def crossing(ranks: Sequence[str], ground: Ground) -> str | None:
    """Name what of the CPU lies between `ranks` on their way over PCIe; None below one switch."""
    chains = [above(ground, gpu) for gpu in ranks]
    shared = next((key for key in chains[0] if all(key in chain for chain in chains)), HOST)
    if shared != HOST and not shared.startswith("host-bridge:"):
        return None
    nodes = {ground.numa.get(gpu) for gpu in ranks}
    if len(nodes) > 1:
        return "the link between the NUMA nodes"
    return "the host bridge of the CPU" if shared != HOST else "the way between host bridges"
