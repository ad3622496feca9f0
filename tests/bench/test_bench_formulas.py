import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoprobe.bench import pattern
from topoprobe.bench.formulas import bandwidth_gbps, busbw_factor, round_size


@pytest.mark.parametrize(
    ("op", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 4, 1.5),
        ("all_reduce", 8, 1.75),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875),
        ("all_to_all", 2, 0.5),
        ("gather", 4, 0.75),
        ("scatter", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("reduce", 8, 1.0),
        ("sendrecv", 2, 1.0),
    ],
)
def test_busbw_factors_of_nccl_tests(op: str, ranks: int, factor: float) -> None:
    assert busbw_factor(op, ranks) == factor


def test_no_bus_bandwidth_for_one_rank_or_an_unknown_op() -> None:
    with pytest.raises(ValueError, match="two ranks"):
        busbw_factor("all_reduce", 1)
    with pytest.raises(ValueError, match="juggle"):
        busbw_factor("juggle", 2)


@pytest.mark.parametrize(
    ("op", "requested", "ranks", "expected"),
    [
        ("all_reduce", 8, 4, (8, 8)),
        ("all_reduce", 10, 3, (8, 8)),  # whole float32 elements, and nothing else
        ("all_reduce", 3, 2, (0, 0)),
        ("broadcast", 1 << 20, 3, (1 << 20, 1 << 20)),
        ("all_gather", 1 << 20, 4, (1 << 20, 1 << 18)),
        # 1 MiB / 4 B = 262144; // 3 = 87381; cut to 4 elements = 87380 → 349520 B each.
        ("all_gather", 1 << 20, 3, (1_048_560, 349_520)),
        ("reduce_scatter", 8, 4, (0, 0)),
        ("all_to_all", 100, 2, (96, 48)),
    ],
)
def test_sizes_as_nccl_tests_rounds_them(
    op: str, requested: int, ranks: int, expected: tuple[int, int]
) -> None:
    assert tuple(round_size(op, requested, ranks, 4)) == expected


@given(st.integers(0, 1 << 34), st.integers(2, 72), st.sampled_from([1, 2, 4, 8]))
def test_a_split_size_is_whole_parts_and_never_above_what_was_asked(
    requested: int, ranks: int, element: int
) -> None:
    total, per_rank = round_size("all_gather", requested, ranks, element)
    assert total == per_rank * ranks <= requested
    assert per_rank % 16 == 0
    assert requested - total < (16 + element) * ranks + element


def test_bandwidth_is_decimal() -> None:
    assert bandwidth_gbps(1 << 30, 0.5) == 2.147483648


@given(st.integers(0, 1 << 30), st.integers(0, 255))
def test_elements_add_up_exactly_in_float32(index: int, rank: int) -> None:
    assert 0 <= pattern.element(rank, index, 256) < pattern.modulus(256)
    assert pattern.modulus(256) * 256 <= 1 << 24


@pytest.mark.parametrize("distance", [1, 2, 256, 1 << 18, 1 << 20, 1 << 22, (1 << 24) // 3])
def test_data_differs_by_place_and_by_rank(distance: int) -> None:
    places = range(0, 1 << 20, 4099)
    same = sum(pattern.element(0, i, 4) == pattern.element(0, i + distance, 4) for i in places)
    alike = sum(pattern.element(0, i, 4) == pattern.element(1, i, 4) for i in places)
    assert same < len(places) / 20
    assert alike < len(places) / 20
