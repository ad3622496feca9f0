"""What the measured operations and figures mean."""

from topoprobe.model.terms import Term

TERMS = (
    Term(
        "copy",
        "host memory bandwidth of one NUMA node",
        "One process per CPU of the node copies between buffers on that node, all at once. The "
        "figure counts bytes read plus bytes written, as STREAM does.",
        ("algbw",),
    ),
    Term(
        "all_reduce",
        "every rank ends up with the sum over all ranks",
        "The collective of data-parallel training. S is the bytes on each rank; "
        "algbw = S/t, busbw = algbw × 2(n−1)/n, as nccl-tests defines them.",
        ("algbw", "busbw", "rank"),
    ),
    Term(
        "algbw",
        "algorithm bandwidth: size over time",
        "S/t in GB/s: what the program sees. It falls with the number of ranks even on a "
        "perfect network, so it cannot be held against a link.",
        ("busbw",),
    ),
    Term(
        "busbw",
        "bus bandwidth: what each link had to carry",
        "algbw times a factor of the operation (all_reduce: 2(n−1)/n), so that the figure "
        "can be held against the speed of a link whatever the number of ranks. A factor for "
        "in-switch reduction (NVLS) is not in it, so busbw may then exceed the link.",
        ("algbw",),
    ),
    Term(
        "rank",
        "one process of a parallel job",
        "Ranks are numbered from 0; the world size is how many there are. Usually one per GPU.",
        ("world size",),
    ),
    Term("world size", "the number of ranks", "See rank.", ("rank",)),
    Term(
        "bench-memory",
        "was host memory measured",
        "Says whether the copy on each NUMA node was measured, verified and stable.",
        ("copy",),
    ),
    Term(
        "bench-collective",
        "were the collectives measured",
        "Says whether the all_reduce cells were measured and their data was right. A rank that "
        "died, stopped or missed a collective is named.",
        ("all_reduce",),
    ),
    Term(
        "bench-torch",
        "is there a torch to measure collectives with",
        "Collectives run on torch.distributed. Install topoprobe[bench], or run topoprobe with "
        "an interpreter that already holds torch: python -m topoprobe report --measure quick.",
    ),
    Term(
        "bench-interrupted",
        "the measurement was ended by Ctrl-C",
        "What was measured before is in the report.",
    ),
)
