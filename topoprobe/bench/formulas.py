"""Sizes and bandwidths of the collectives, by nccl-tests' definitions.

algbw = S/t and busbw = algbw · factor, where S is the *total* size of all_gather,
reduce_scatter, all_to_all, gather and scatter, and one rank's size of the others. Bandwidths
are GB/s = 1e9 bytes per second.
"""

from typing import NamedTuple

# Factor of busbw for n ranks: the share of S that crosses each rank's link, at best.
_ALL_BUT_ONE = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
_WHOLE = ("broadcast", "reduce", "sendrecv")
# Counts of the ops in _ALL_BUT_ONE are cut so that each rank's part is aligned to this.
_ALIGN_BYTES = 16


class Size(NamedTuple):
    """What is really moved: S in bytes, and nccl-tests' `count` times the element size."""

    total: int
    per_rank: int


def busbw_factor(op: str, ranks: int) -> float:
    """Return busbw/algbw of `op` over `ranks`; ValueError below 2 ranks or for other ops."""
    if ranks < 2:
        raise ValueError("bus bandwidth means nothing below two ranks")
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in _ALL_BUT_ONE:
        return (ranks - 1) / ranks
    if op in _WHOLE:
        return 1.0
    raise ValueError(f"no bus bandwidth is defined for {op}")


def round_size(op: str, requested: int, ranks: int, element_bytes: int) -> Size:
    """Return the size that nccl-tests would run for `requested` bytes; 0 if it is too small.

    Every size is a whole number of elements. Ops that split S among the ranks cut each part
    to a multiple of 16 bytes.
    """
    count = requested // element_bytes
    if op not in _ALL_BUT_ONE:
        return Size(count * element_bytes, count * element_bytes)
    step = max(1, _ALIGN_BYTES // element_bytes)
    part = count // ranks // step * step * element_bytes
    return Size(part * ranks, part)


def bandwidth_gbps(size_bytes: int, seconds: float) -> float:
    """Return size over time in GB/s (1e9 bytes per second); `seconds` must be above zero."""
    return size_bytes / seconds / 1e9
