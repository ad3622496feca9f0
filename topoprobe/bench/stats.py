"""Statistics of one cell: pure functions over the times of its iterations.

Percentiles interpolate linearly between the two nearest order statistics (Hyndman and Fan's
type 7, numpy's default): of sorted x[0..n-1], quantile q stands at position q·(n−1).
"""

import math
from collections.abc import Sequence

from topoprobe.model.report import TimeStats

# Below this many iterations a 5th percentile is the minimum by another name.
MIN_SAMPLES = 20
# nccl-tests users and the health checks built on it call a cell above this unstable.
STABLE_CV = 0.05


def percentile(values: Sequence[float], q: float) -> float:
    """Return quantile `q` (0 to 1) of `values`, interpolated linearly; ValueError if empty."""
    if not values or not 0 <= q <= 1:
        raise ValueError("a percentile needs values, and q between 0 and 1")
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    # This form returns x exactly where both neighbours are x, unlike a·(1−f) + b·f.
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def time_stats(times: Sequence[float]) -> TimeStats:
    """Return median, p5, p95 and max of `times` in seconds."""
    return TimeStats(
        median=percentile(times, 0.5),
        p5=percentile(times, 0.05),
        p95=percentile(times, 0.95),
        max=max(times),
    )


def coefficient_of_variation(times: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n−1) over the mean; None below two values."""
    if len(times) < 2:
        return None
    mean = math.fsum(times) / len(times)
    if mean <= 0:
        return None
    variance = math.fsum((t - mean) ** 2 for t in times) / (len(times) - 1)
    return math.sqrt(variance) / mean


def is_stable(cv: float | None) -> bool | None:
    """Say whether a cell with this `cv` may be judged; None where there is no cv."""
    return None if cv is None else cv <= STABLE_CV
