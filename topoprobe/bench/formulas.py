"""Sizes and bandwidths of the collectives, by nccl-tests' definitions.

algbw = S/t and busbw = algbw · factor, where S is the *total* size of all_gather,
reduce_scatter, all_to_all, gather and scatter, and one rank's size of the others. Bandwidths
are GB/s = 1e9 bytes per second.
"""

from typing import NamedTuple

from topoprobe.limits.busbw import ALL_BUT_ONE, busbw_factor

__all__ = ["Size", "bandwidth_gbps", "busbw_factor", "round_size"]

# Counts of the ops in ALL_BUT_ONE are cut so that each rank's part is aligned to this.
_ALIGN_BYTES = 16


class Size(NamedTuple):
    """What is really moved: S in bytes, and nccl-tests' `count` times the element size."""

    total: int
    per_rank: int


def round_size(op: str, requested: int, ranks: int, element_bytes: int) -> Size:
    """Return the size that nccl-tests would run for `requested` bytes; 0 if it is too small.

    Every size is a whole number of elements. Ops that split S among the ranks cut each part
    to a multiple of 16 bytes.
    """
    count = requested // element_bytes
    if op not in ALL_BUT_ONE:
        return Size(count * element_bytes, count * element_bytes)
    step = max(1, _ALIGN_BYTES // element_bytes)
    part = count // ranks // step * step * element_bytes
    return Size(part * ranks, part)


def bandwidth_gbps(size_bytes: int, seconds: float) -> float:
    """Return size over time in GB/s (1e9 bytes per second); `seconds` must be above zero."""
    return size_bytes / seconds / 1e9
