"""Rings over directly joined GPUs: how much bandwidth a wiring gives to them all together.

The wires go both ways at full rate, so an order of the GPUs is two rings, one each way. Rings may
share a wire. The best mix of orders is a linear program: one unknown for each closed order (how
much it carries), one bound for each pair of GPUs.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

# A full mesh of seven GPUs has 360 orders. Irregular meshes beyond that are not known.
_MOST_ORDERS = 400
_TINY = 1e-9

Pairs = Mapping[frozenset[str], float]


def ring_bandwidth(ranks: Sequence[str], pairs: Pairs) -> tuple[float, bool] | None:
    """Return the bus bandwidth of the best rings over `pairs`, and whether that is exact.

    `pairs` holds GB/s in one direction. None where no ring closes. Where there are too many
    orders to look at, the result is what the GPU with the least can send: a bound all the same.
    """
    inside = {pair: rate for pair, rate in pairs.items() if pair <= set(ranks) and rate > 0}
    return _best_rings(tuple(ranks), frozenset(inside.items()))


@lru_cache(maxsize=64)
def _best_rings(
    ranks: tuple[str, ...], mesh: frozenset[tuple[frozenset[str], float]]
) -> tuple[float, bool] | None:
    # Five operations on the same GPUs ask the same.
    inside = dict(sorted(mesh, key=lambda item: sorted(item[0])))
    if len(ranks) == 2:
        rate = inside.get(frozenset(ranks))
        return None if rate is None else (rate, True)
    least = min(sum(rate for pair, rate in inside.items() if gpu in pair) for gpu in ranks)
    full = len(ranks) * (len(ranks) - 1) // 2
    if len(inside) == full and len(set(inside.values())) == 1:
        # Every wire is like every other: all orders carry the same, and every wire is full.
        return least, True
    orders = []
    for order in closed_orders(ranks, inside):
        orders.append(order)
        if len(orders) > _MOST_ORDERS:
            return least, False
    if not orders:
        return None
    rows = list(inside)
    columns = [[rows.index(pair) for pair in order] for order in orders]
    return min(least, 2 * most(columns, [inside[pair] for pair in rows])), True


def closed_orders(ranks: Sequence[str], pairs: Pairs) -> Iterator[tuple[frozenset[str], ...]]:
    """Yield each way around all `ranks` over joined pairs, as its pairs; each order once."""
    first = ranks[0]

    def walk(way: list[str]) -> Iterator[tuple[frozenset[str], ...]]:
        here = way[-1]
        if len(way) == len(ranks):
            # The same order backwards is found too: keep the one of the two.
            if frozenset((here, first)) in pairs and ranks.index(way[1]) < ranks.index(here):
                ends = [*way[1:], first]
                yield tuple(frozenset(hop) for hop in zip(way, ends, strict=True))
            return
        for there in ranks:
            if there not in way and frozenset((here, there)) in pairs:
                yield from walk([*way, there])

    yield from walk([first])


def most(columns: Sequence[Sequence[int]], bounds: Sequence[float]) -> float:
    """Return the largest sum of x >= 0 where in each row the x of its columns stay in its bound.

    The simplex method; Bland's rule keeps it from going in circles.
    """
    rows, count = len(bounds), len(columns)
    table = [[0.0] * (count + rows + 1) for _ in range(rows)]
    for number, column in enumerate(columns):
        for row in column:
            table[row][number] += 1.0
    for row, bound in enumerate(bounds):
        table[row][count + row], table[row][-1] = 1.0, bound
    goal = [-1.0] * count + [0.0] * (rows + 1)
    basis = [count + row for row in range(rows)]
    while True:
        enter = next((i for i, value in enumerate(goal[:-1]) if value < -_TINY), None)
        if enter is None:
            return round(goal[-1], 6)
        ratios = [
            (line[-1] / line[enter], basis[row], row)
            for row, line in enumerate(table)
            if line[enter] > _TINY
        ]
        leave = min(ratios)[2]
        pivot = table[leave][enter]
        chosen = table[leave] = [value / pivot for value in table[leave]]
        for line in (*(line for row, line in enumerate(table) if row != leave), goal):
            share = line[enter]
            if share:
                line[:] = [a - share * b for a, b in zip(line, chosen, strict=True)]
        basis[leave] = enter
