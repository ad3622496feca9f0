"""What holds for the ceilings of collectives on any wiring, and the rings of known graphs."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from topoprobe.limits.busbw import OPS, busbw_factor
from topoprobe.limits.collectives import collective_limit
from topoprobe.limits.collectives_ground import HOST, Bundle, Ground, Nic, Nvls, Wire
from topoprobe.limits.collectives_net import injection
from topoprobe.limits.mesh import closed_orders, ring_bandwidth
from topoprobe.model.report import CollectivePlacement


def bundle(number: int, name: str, rate: float = 25.0) -> Bundle:
    return Bundle(tuple(f"nvlink:{name}:{i}" for i in range(number)), number * rate)


def tree(gpus: tuple[str, ...], own: list[float], up: list[float]) -> Ground:
    """Return GPUs dealt out to two switches; `own` are their links, `up` those of the switches."""
    switches = ("s0", "s1")
    below = {gpu: switches[number % 2] for number, gpu in enumerate(gpus)}
    wires = {gpu: Wire(f"pcie:{gpu}", rate) for gpu, rate in zip(gpus, own, strict=True)}
    wires |= {key: Wire(f"pcie:{key}", rate) for key, rate in zip(switches, up, strict=True)}
    return Ground(
        gpus=gpus, names={gpu: gpu.upper() for gpu in gpus},
        parents={**below, **dict.fromkeys(switches, HOST)}, wires=wires,
        nics=tuple(Nic(f"nic{gpu}", 25.0) for gpu in gpus),
        rails={gpu: (f"nic{gpu}",) for gpu in gpus},
        nvls=Nvls(False, "not in this test"),
    )  # fmt: skip


RATES = st.sampled_from([3.5, 7.0, 14.4, 28.8, 57.6])


@st.composite
def trees(draw: st.DrawFn) -> Ground:
    gpus = tuple(f"g{number}" for number in range(draw(st.integers(2, 6))))
    own = draw(st.lists(RATES, min_size=len(gpus), max_size=len(gpus)))
    return tree(gpus, own, draw(st.lists(RATES, min_size=2, max_size=2)))


@st.composite
def switched(draw: st.DrawFn) -> Ground:
    base = draw(trees())
    counts = {gpu: draw(st.integers(1, 18)) for gpu in base.gpus}
    return replace(
        base,
        switched={gpu: bundle(number, gpu) for gpu, number in counts.items()},
        nvls=draw(st.sampled_from([Nvls(True, "up"), Nvls(False, "old"), Nvls(None, "silent")])),
    )


@st.composite
def meshes(draw: st.DrawFn) -> Ground:
    """Any wiring: closed into a ring or not, in one piece or in several."""
    base = draw(trees())
    pairs = {
        frozenset(pair): bundle(number, "-".join(pair))
        for pair in combinations(base.gpus, 2)
        if (number := draw(st.integers(0, 4)))
    }
    return replace(base, pairs=pairs)


GROUNDS = st.one_of(trees(), switched(), meshes())
PLACES: list[tuple[int, CollectivePlacement]] = [
    (1, "node"), (2, "flat"), (3, "one-nic"), (2, "rail"), (8, "rail"),
]  # fmt: skip


def busbw(
    op: str, ground: Ground, nodes: int = 1, placement: CollectivePlacement = "node"
) -> float:
    found = collective_limit(op, ground.gpus, ground, nodes=nodes, placement=placement)
    assert found.busbw_GBps is not None
    return found.busbw_GBps


@given(GROUNDS, st.sampled_from(OPS), st.sampled_from(PLACES))
def test_algbw_and_busbw_differ_by_the_factor(
    ground: Ground, op: str, place: tuple[int, CollectivePlacement]
) -> None:
    nodes, placement = place
    found = collective_limit(op, ground.gpus, ground, nodes=nodes, placement=placement)

    assert found.busbw_GBps is not None and found.algbw_GBps is not None
    assert found.busbw_GBps > 0
    factor = busbw_factor(op, found.world_size)
    assert found.algbw_GBps * factor == pytest.approx(found.busbw_GBps)


@given(GROUNDS, st.sampled_from(OPS), st.sampled_from(PLACES))
def test_no_bound_is_above_what_a_gpu_can_send(
    ground: Ground, op: str, place: tuple[int, CollectivePlacement]
) -> None:
    """All that gets out of the root, and for other operations out of the least GPU; not NVLS."""
    nodes, placement = place
    found = collective_limit(op, ground.gpus, ground, nodes=nodes, placement=placement)
    gpus = ground.gpus[:1] if op in ("gather", "scatter") else ground.gpus
    most = [injection(gpu, ground) for gpu in gpus]

    if found.nvls is False:
        assert found.busbw_GBps is not None
        assert found.busbw_GBps <= min(rate for rate in most if rate is not None) * (1 + 1e-9)


@given(GROUNDS, st.sampled_from(OPS), st.sampled_from(PLACES), st.data())
def test_more_links_never_lower_a_bound(
    ground: Ground, op: str, place: tuple[int, CollectivePlacement], data: st.DataObject
) -> None:
    """One more NVLink where there are some, or a faster PCIe link or NIC."""
    choices = [*ground.switched, *ground.pairs, *ground.wires, *range(len(ground.nics))]
    chosen = data.draw(st.sampled_from(choices))
    if isinstance(chosen, frozenset):
        number = len(ground.pairs[chosen].links) + 1
        more = replace(ground, pairs={**ground.pairs, chosen: bundle(number, "more")})
    elif isinstance(chosen, int):
        nics = list(ground.nics)
        nics[chosen] = replace(nics[chosen], rate=50.0)
        more = replace(ground, nics=tuple(nics))
    elif chosen in ground.switched:
        number = len(ground.switched[chosen].links) + 1
        more = replace(ground, switched={**ground.switched, chosen: bundle(number, chosen)})
    else:
        wire = ground.wires[chosen]
        more = replace(ground, wires={**ground.wires, chosen: replace(wire, rate=100.0)})

    assert busbw(op, more, *place) >= busbw(op, ground, *place) * (1 - 1e-9)


def graph(*pairs: str) -> dict[frozenset[str], float]:
    return {frozenset(pair): 1.0 for pair in pairs}


PETERSEN = graph(
    "01", "12", "23", "34", "40", "05", "16", "27", "38", "49", "57", "79", "96", "68", "85"
)


@pytest.mark.parametrize(
    ("ranks", "pairs", "rings"),
    [
        ("012", graph("01", "12", "20"), 2),  # one order, both ways
        ("01234", graph("01", "12", "23", "34", "40"), 2),
        # All pairs of four: 3 orders of half a link each way fill all three links of each.
        ("0123", graph("01", "02", "03", "12", "13", "23"), 3),
        # Two triangles, corner to corner: 3 orders, each over two of the three bridges. Half of
        # each fills every link: 3 rings, as many as each corner has links.
        ("012345", graph("01", "12", "20", "34", "45", "53", "03", "14", "25"), 3),
        # Four in a row of two squares with one pair missing: 0-1-2-3 closes only by 30.
        ("0123", graph("01", "12", "23", "30", "02"), 2),
        ("0123", graph("01", "12", "23"), None),  # a row does not close
        ("0123", graph("01", "02", "03"), None),  # nor does a star
        ("0123456789", PETERSEN, None),  # each has three links, and still no way around
    ],
)
def test_rings_of_known_graphs(
    ranks: str, pairs: dict[frozenset[str], float], rings: float | None
) -> None:
    found = ring_bandwidth(tuple(ranks), pairs)

    assert (found is None) == (rings is None)
    if found is not None:
        assert found[1]
        assert found[0] == pytest.approx(rings)


def test_a_wiring_that_rings_cannot_fill() -> None:
    """0 and 1 have three links to each other: no ring passes both ways between them at once."""
    pairs = graph("01", "12", "20") | {frozenset("01"): 3.0}

    assert ring_bandwidth(("0", "1", "2"), pairs) == (2, True)


def test_too_many_ways_around_give_the_weakest_gpu_as_bound() -> None:
    """Eight GPUs, all joined, one pair with two links: beyond what is looked at."""
    ranks = tuple("01234567")
    pairs = graph(*("".join(pair) for pair in combinations(ranks, 2))) | {frozenset("01"): 2.0}

    assert ring_bandwidth(ranks, pairs) == (7, False)


def test_orders_come_once_each() -> None:
    """(n-1)!/2 ways around five that are all joined."""
    pairs = graph(*("".join(pair) for pair in combinations("01234", 2)))

    orders = [frozenset(order) for order in closed_orders(tuple("01234"), pairs)]

    assert len(orders) == len(set(orders)) == 12
