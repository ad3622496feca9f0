"""The factor between algorithm and bus bandwidth, exactly as nccl-tests defines it."""

# Factor for n ranks: the share of S that crosses each rank's link, at best.
ALL_BUT_ONE = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
WHOLE = ("broadcast", "reduce", "sendrecv")
OPS = ("all_reduce", *ALL_BUT_ONE, *WHOLE)


def busbw_factor(op: str, ranks: int) -> float:
    """Return busbw/algbw of `op` over `ranks`; ValueError below 2 ranks or for other ops."""
    if ranks < 2:
        raise ValueError("bus bandwidth means nothing below two ranks")
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in ALL_BUT_ONE:
        return (ranks - 1) / ranks
    if op in WHOLE:
        return 1.0
    raise ValueError(f"no bus bandwidth is defined for {op}")
