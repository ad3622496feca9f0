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
        "all_gather",
        "every rank ends up with the data of all ranks",
        "Each rank contributes its part and receives everybody's. S is the total that each "
        "rank ends up with, n times its own part; busbw = algbw × (n−1)/n. Sharded training "
        "gathers its weights with it.",
        ("algbw", "busbw", "rank"),
    ),
    Term(
        "reduce_scatter",
        "the sum over all ranks, one part of it to each",
        "Each rank gives S bytes and keeps the sum of its own nth part; busbw = algbw × "
        "(n−1)/n. Followed by all_gather it is an all_reduce.",
        ("algbw", "busbw", "rank"),
    ),
    Term(
        "all_to_all",
        "every rank sends a different part to every other",
        "The transpose of expert and sequence parallelism. S is the whole send buffer of a "
        "rank, its own part included; busbw = algbw × (n−1)/n. It loads all pairs at once.",
        ("algbw", "busbw", "rank"),
    ),
    Term(
        "broadcast",
        "one rank's data to all",
        "The root sends the same S bytes to every rank; busbw = algbw.",
        ("algbw", "busbw", "rank"),
    ),
    Term(
        "reduce",
        "the sum over all ranks, to one",
        "The root ends up with the sum of everybody's S bytes; busbw = algbw.",
        ("algbw", "busbw", "rank"),
    ),
    Term(
        "gather",
        "everybody's part to one rank",
        "The root collects one part of each rank. S is the total at the root; busbw = algbw "
        "× (n−1)/n.",
        ("algbw", "busbw", "rank"),
    ),
    Term(
        "scatter",
        "one rank deals out parts",
        "The root gives each rank its part. S is the total at the root; busbw = algbw × (n−1)/n.",
        ("algbw", "busbw", "rank"),
    ),
    Term(
        "sendrecv",
        "each rank sends to the next and receives from the one before",
        "A shift along the ring, as pipeline parallelism does. S is what each rank sends, "
        "and receives at the same time; busbw is in one direction.",
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
