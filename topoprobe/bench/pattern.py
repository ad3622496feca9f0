"""The data that a collective is checked with: every element depends on its rank and place.

Element i of rank r is ((i mod P)·M + O) mod P mod L, with a stride M and an offset O of the
rank's own. P is prime and near 2^20, so no two power-of-two blocks of a buffer hold the same
data: a shifted, swapped, lost or doubled block changes the sum. L keeps the sum over all
ranks below 2^24, where float32 still counts exactly.
"""

PERIOD = 1_048_573
_LARGEST = 65_521
_EXACT_FLOAT32 = 1 << 24


def modulus(ranks: int) -> int:
    """Return L: one above the largest element, so that `ranks` of them add up exactly."""
    return min(_LARGEST, _EXACT_FLOAT32 // ranks)


def stride_and_offset(rank: int) -> tuple[int, int]:
    """Return M and O of a rank; M is spread over the period so that neighbours differ."""
    # 648056 is P over the golden ratio: the most even spread of consecutive multiples.
    return (648_056 + 7_919 * rank) % PERIOD, (977 * (rank + 1)) % PERIOD


def element(rank: int, index: int, ranks: int) -> int:
    """Return element `index` of `rank` among `ranks`: the definition, for one element."""
    stride, offset = stride_and_offset(rank)
    return ((index % PERIOD) * stride + offset) % PERIOD % modulus(ranks)
