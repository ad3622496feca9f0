"""Matrices: folding loses nothing, and the form chosen fits."""

from hypothesis import given
from hypothesis import strategies as st

from topoprobe.output.matrix import Grid, blocks, expand, fit, fold, make_grid, transpose
from topoprobe.output.names import pairs, ranges, span


def gpus(count: int, **odd: str) -> Grid:
    """Return GPUs that are all NV18 to each other, except those whose cells are given."""

    def cell(a: str, b: str) -> str:
        return odd.get(a) or odd.get(b) or "NV18"

    names = [f"GPU{i}" for i in range(count)]
    return make_grid("GPU×GPU", names, names, cell)


def lines(grid: Grid, width: int = 80) -> list[str]:
    return [line.rstrip() for block in blocks(grid, width) for line in block]


def test_four_gpus_stay_as_they_are() -> None:
    assert lines(fit(gpus(4), 80)) == [
        "GPU×GPU  GPU0  GPU1  GPU2  GPU3",
        "GPU0     X     NV18  NV18  NV18",
        "GPU1     NV18  X     NV18  NV18",
        "GPU2     NV18  NV18  X     NV18",
        "GPU3     NV18  NV18  NV18  X",
    ]


def test_sixteen_alike_are_one_row() -> None:
    assert lines(fit(gpus(16), 80)) == ["GPU×GPU  GPU0-15", "GPU0-15  NV18"]


def test_the_one_that_deviates_stands_alone() -> None:
    assert lines(fit(gpus(16, GPU3="NV17"), 80)) == [
        "GPU×GPU  GPU0-2  GPU3  GPU4-15",
        "GPU0-2   NV18    NV17  NV18",
        "GPU3     NV17    X     NV17",
        "GPU4-15  NV18    NV17  NV18",
    ]


def test_one_direction_that_deviates_is_not_folded_away() -> None:
    names = [f"GPU{i}" for i in range(16)]
    grid = make_grid(
        "", names, names, lambda a, b: "NV17" if (a, b) == ("GPU7", "GPU2") else "NV18"
    )

    folded = fold(grid)

    assert ("GPU7",) in folded.rows
    assert ("GPU2",) in folded.rows
    assert sum(cell == "NV17" for row in folded.cells for cell in row) == 1


def test_many_nics_become_rows_and_fold() -> None:
    rows = [f"GPU{i}" for i in range(8)]
    columns = [f"NIC{i}" for i in range(32)]
    grid = make_grid(
        "GPU×NIC", rows, columns, lambda g, n: "PIX" if int(n[3:]) // 4 == int(g[3:]) else "SYS"
    )

    shown = lines(fit(grid, 80))

    assert shown[:3] == [
        "NIC×GPU   GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7",
        "NIC0-3    PIX   SYS   SYS   SYS   SYS   SYS   SYS   SYS",
        "NIC4-7    SYS   PIX   SYS   SYS   SYS   SYS   SYS   SYS",
    ]
    assert len(shown) == 9


def test_what_is_still_too_wide_breaks_into_blocks() -> None:
    names = [f"a{i}" for i in range(6)]
    grid = make_grid("", names, names, lambda a, b: f"{min(a, b)}{max(a, b)}")

    assert lines(fit(grid, 19), 19) == [
        "    a0    a1", "a0  X     a0a1", "a1  a0a1  X", "a2  a0a2  a1a2",
        "a3  a0a3  a1a3", "a4  a0a4  a1a4", "a5  a0a5  a1a5",
        "    a2    a3", "a0  a0a2  a0a3", "a1  a1a2  a1a3", "a2  X     a2a3",
        "a3  a2a3  X", "a4  a2a4  a3a4", "a5  a2a5  a3a5",
        "    a4    a5", "a0  a0a4  a0a5", "a1  a1a4  a1a5", "a2  a2a4  a2a5",
        "a3  a3a4  a3a5", "a4  X     a4a5", "a5  a4a5  X",
    ]  # fmt: skip


CELLS = st.sampled_from(["NV18", "NV17", "SYS"])


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    rows = [f"GPU{i}" for i in range(draw(st.integers(1, 9)))]
    square = draw(st.booleans())
    columns = rows if square else [f"NIC{i}" for i in range(draw(st.integers(1, 9)))]
    # Few odd cells among many alike: the matrices in which folding could hide one.
    odd = draw(
        st.dictionaries(st.tuples(st.sampled_from(rows), st.sampled_from(columns)), CELLS,
                        max_size=4)
    )  # fmt: skip
    return make_grid("", rows, columns, lambda a, b: odd.get((a, b), "NV18"))


@given(grids())
def test_folding_loses_no_cell(grid: Grid) -> None:
    assert expand(fold(grid)) == grid


@given(grids())
def test_every_folded_cell_is_that_of_all_its_pairs(grid: Grid) -> None:
    folded = fold(grid)
    place = {name: i for i, (name,) in enumerate(grid.rows)}
    column_of = {name: i for i, (name,) in enumerate(grid.columns)}
    for rows, cells in zip(folded.rows, folded.cells, strict=True):
        for columns, cell in zip(folded.columns, cells, strict=True):
            under = {grid.cells[place[a]][column_of[b]] for a in rows for b in columns if a != b}
            assert under <= {cell}


@given(grids(), st.integers(16, 80), st.booleans())
def test_no_form_is_wider_than_the_screen(grid: Grid, width: int, folded: bool) -> None:
    form = fit(grid, width, folded=folded)

    assert all(len(line) <= width for line in lines(form, width))
    whole = expand(form)
    assert whole in (grid, transpose(grid))


def test_names_that_count_on_become_ranges() -> None:
    assert ranges(["GPU0", "GPU1", "GPU2", "GPU5", "NIC6"]) == "GPU0-2, GPU5, NIC6"
    assert ranges(["rdmap71s0", "rdmap72s0", "rdmap73s0"]) == "rdmap71-73s0"
    assert ranges(["29:00.0", "29:00.1"]) == "29:00.0-1"
    assert ranges(["a9", "a10", "a11"]) == "a9-11"
    # Numbers with zeros before them are no counting: 1b:00 has no neighbour 1c.
    assert ranges(["x08", "x09"]) == "x08, x09"
    assert ranges(["a0b0", "a0b1", "a1b1"]) == "a0b0-1, a1b1"
    assert span(["eth0", "ib3"]) == "eth0–ib3"
    assert pairs([("GPU0", "GPU1"), ("GPU0", "GPU2"), ("GPU1", "GPU4")]) == (
        "GPU0–GPU1-2, GPU1–GPU4"
    )


@given(st.lists(st.from_regex(r"\A[a-b]?[0-9]{1,3}[c]?[0-9]?\Z"), max_size=8))
def test_ranges_never_fail(names: list[str]) -> None:
    assert ranges(names).count(",") <= max(0, len(names) - 1)
