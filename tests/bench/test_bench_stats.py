import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoprobe.bench.stats import (
    coefficient_of_variation,
    is_stable,
    percentile,
    time_stats,
)

times = st.lists(st.floats(min_value=1e-7, max_value=1e3), min_size=1, max_size=50)


def test_percentiles_of_a_hand_computed_list() -> None:
    # Positions q·(n−1) of 1..5: 0.05 → 0.2, 0.5 → 2, 0.95 → 3.8.
    stats = time_stats([5.0, 1.0, 4.0, 2.0, 3.0])
    assert stats.median == 3.0
    assert stats.p5 == pytest.approx(1.2, rel=1e-15)
    assert stats.p95 == pytest.approx(4.8, rel=1e-15)
    assert stats.max == 5.0


def test_one_value_is_all_its_percentiles() -> None:
    stats = time_stats([0.25])
    assert (stats.median, stats.p5, stats.p95, stats.max) == (0.25, 0.25, 0.25, 0.25)


def test_an_even_count_takes_the_middle_of_two() -> None:
    assert percentile([1.0, 2.0, 4.0, 8.0], 0.5) == 3.0


@pytest.mark.parametrize(("values", "q"), [([], 0.5), ([1.0], -0.1), ([1.0], 1.1)])
def test_percentile_refuses_nonsense(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, q)


@given(times)
def test_percentiles_are_ordered_and_inside(values: list[float]) -> None:
    stats = time_stats(values)
    assert min(values) <= stats.p5 <= stats.median <= stats.p95 <= stats.max
    assert stats.median == pytest.approx(statistics.median(values))


def test_cv_by_hand() -> None:
    # Mean 5, squared deviations 9+1+1+1+0+0+4+16 = 32, over n−1 = 7.
    cv = coefficient_of_variation([2, 4, 4, 4, 5, 5, 7, 9])
    assert cv == pytest.approx(math.sqrt(32 / 7) / 5, rel=1e-15)


def test_cv_needs_two_values_and_a_mean() -> None:
    assert coefficient_of_variation([]) is None
    assert coefficient_of_variation([1.0]) is None
    assert coefficient_of_variation([0.0, 0.0]) is None


def test_stable_up_to_five_per_cent() -> None:
    assert is_stable(0.05) is True
    assert is_stable(0.0501) is False
    assert is_stable(None) is None
