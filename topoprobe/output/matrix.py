"""Matrices of short words, folded where they are too large for the eye: pure values, no I/O.

A grid is square where its rows and columns are the same names: a device against itself is ``X``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from topoprobe.output.names import span

SELF = "X"
# More rows than this are folded although the screen may be wide enough.
MOST_ROWS = 16

Group = tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A matrix. A row or column stands for a group of names that differ in nothing else.

    In a folded square grid the cell of a group with itself is that of any two of its members.
    """

    corner: str
    rows: tuple[Group, ...]
    columns: tuple[Group, ...]
    cells: tuple[tuple[str, ...], ...]

    @property
    def square(self) -> bool:
        """Whether rows and columns are the same devices."""
        return self.rows == self.columns


def make_grid(
    corner: str, rows: Sequence[str], columns: Sequence[str], cell: Callable[[str, str], str]
) -> Grid:
    """Return the unfolded grid of `cell` (row, column)."""
    return Grid(
        corner,
        tuple((row,) for row in rows),
        tuple((column,) for column in columns),
        tuple(
            tuple(SELF if row == column else cell(row, column) for column in columns)
            for row in rows
        ),
    )


def fold(grid: Grid) -> Grid:
    """Return an unfolded grid with neighbours that are the same made one; `expand` undoes it."""
    if grid.square:
        parts = _runs(len(grid.rows), lambda i, j: _twins(grid, i, j))
        rows = columns = parts
    else:
        rows = _runs(len(grid.rows), lambda i, j: grid.cells[i] == grid.cells[j])
        turned = transpose(grid).cells
        columns = _runs(len(grid.columns), lambda i, j: turned[i] == turned[j])
    return replace(
        grid,
        rows=tuple(tuple(grid.rows[i][0] for i in part) for part in rows),
        columns=tuple(tuple(grid.columns[i][0] for i in part) for part in columns),
        cells=tuple(
            tuple(grid.cells[row[0]][_other(row, column, grid.square)] for column in columns)
            for row in rows
        ),
    )


def expand(grid: Grid) -> Grid:
    """Return `grid` with every name in a row and a column of its own."""
    square = grid.square
    return replace(
        grid,
        rows=tuple((name,) for group in grid.rows for name in group),
        columns=tuple((name,) for group in grid.columns for name in group),
        cells=tuple(
            tuple(
                SELF if square and row == column else cell
                for cell, columns in zip(cells, grid.columns, strict=True)
                for column in columns
            )
            for cells, rows in zip(grid.cells, grid.rows, strict=True)
            for row in rows
        ),
    )


def transpose(grid: Grid) -> Grid:
    """Return `grid` with rows and columns exchanged."""
    cells = tuple(zip(*grid.cells, strict=True)) if grid.rows else ()
    corner = "×".join(reversed(grid.corner.split("×")))
    return Grid(corner, grid.columns, grid.rows, cells)


def fit(grid: Grid, width: int, *, folded: bool = False) -> Grid:
    """Return the form of an unfolded `grid` that reads best in `width` columns.

    As it is, unless it is to be `folded` in any case; else with rows and columns exchanged;
    else folded. What is still too wide is for `blocks` to break.
    """
    whole = [grid] if grid.square else [grid, transpose(grid)]
    less = [fold(form) for form in whole]
    for form in less if folded else (*whole, *less):
        if _width(form) <= width and len(form.rows) <= MOST_ROWS:
            return form
    return min(less, key=_width)


def blocks(grid: Grid, width: int) -> list[list[str]]:
    """Return the lines of `grid`, header first; several blocks where it is wider than `width`."""
    heads = [span(group) for group in grid.columns]
    left = _left(grid)
    widths = _widths(grid)
    found: list[list[str]] = []
    start = 0
    while start < len(heads):
        end, used = start + 1, left + 2 + widths[start]
        while end < len(heads) and used + 2 + widths[end] <= width:
            used += 2 + widths[end]
            end += 1
        lines = [[grid.corner, *heads[start:end]]]
        lines += [
            [span(group), *cells[start:end]]
            for group, cells in zip(grid.rows, grid.cells, strict=True)
        ]
        sizes = [left, *widths[start:end]]
        found.append(
            [
                "  ".join(cell.ljust(size) for cell, size in zip(cells, sizes, strict=True))
                for cells in lines
            ]
        )
        start = end
    return found


def _twins(grid: Grid, i: int, j: int) -> bool:
    """Tell whether exchanging two devices of a square grid changes nothing."""
    cells = grid.cells
    return cells[i][j] == cells[j][i] and all(
        cells[i][k] == cells[j][k] and cells[k][i] == cells[k][j]
        for k in range(len(cells))
        if k not in (i, j)
    )


def _runs(count: int, same: Callable[[int, int], bool]) -> list[list[int]]:
    """Return 0 to `count` in runs of neighbours that are all the same as the first of the run."""
    runs: list[list[int]] = []
    for i in range(count):
        if runs and same(runs[-1][0], i):
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _other(row: Sequence[int], column: Sequence[int], square: bool) -> int:
    """Return the member of `column` that shows how the two groups meet: not a device itself."""
    return column[1] if square and row == column and len(column) > 1 else column[0]


def _widths(grid: Grid) -> list[int]:
    return [
        max(len(span(group)), *(len(cells[i]) for cells in grid.cells))
        for i, group in enumerate(grid.columns)
    ]


def _left(grid: Grid) -> int:
    return max(len(grid.corner), *(len(span(group)) for group in grid.rows))


def _width(grid: Grid) -> int:
    return _left(grid) + sum(width + 2 for width in _widths(grid))
