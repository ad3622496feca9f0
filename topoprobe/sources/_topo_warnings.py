"""Say in one line each what is missing or damaged in a ``nvidia-smi topo`` matrix."""

from topoprobe.sources._topo_block import Block
from topoprobe.sources._topo_legend import Legend

_SHOWN = 6


def warnings_of(block: Block, legend: Legend, others: list[Block], first: bool) -> list[str]:
    """Return the warnings; none for a whole text."""
    warnings = list(block.warnings)
    if not block.whole_header:
        warnings.append(f"the header row is cut within {block.headings[-1]!r}")
    if missing := block.missing:
        rows = _ranges(block.keys, missing)
        verb = "rows {} are missing" if len(missing) > 1 else "row {} is missing"
        warnings.append(verb.format(rows) + _where(block, legend))
    for row, why in block.unreadable.items():
        warnings.append(f"row {row} cannot be read: {why}")
    warnings.extend(_cells(block))
    warnings.extend(_affinities(block))
    warnings.extend(_asymmetry(block))
    warnings.extend(_nics(block, legend))
    if any(_differs(block, other) for other in others):
        which = "first" if first else "first whole one"
        warnings.append(f"the text has several matrices, and they differ: the {which} is used")
    return warnings


def _where(block: Block, legend: Legend) -> str:
    seen = [*block.cells, *(key for key in block.unreadable if key in block.keys)]
    last = max(seen, key=block.keys.index)
    after = all(block.keys.index(key) > block.keys.index(last) for key in block.missing)
    if after and block.at_end and not legend.lines:
        return f": the text ends after {last}"
    return f": the matrix ends after {last}" if after else ""


def _ranges(keys: list[str], some: list[str]) -> str:
    """Return keys as ``GPU5…GPU15, mlx5_0…mlx5_9``: runs of one kind of label."""
    runs: list[list[str]] = []
    for key in some:
        if (
            runs
            and keys.index(runs[-1][-1]) + 1 == keys.index(key)
            and _kind(runs[-1][-1]) == (_kind(key))
        ):
            runs[-1].append(key)
        else:
            runs.append([key])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}…{run[-1]}" for run in runs)


def _kind(key: str) -> str:
    return key.rstrip("0123456789")


def _cells(block: Block) -> list[str]:
    bad = [
        f"{row}/{column}"
        for row, words in block.cells.items()
        for column, word in zip(block.keys, words, strict=True)
        if not word
    ]
    return [f"cells cannot be read: {_some(bad)}"] if bad else []


def _affinities(block: Block) -> list[str]:
    warnings = []
    for at, heading in enumerate(block.headings):
        # NICs have none: an empty cell that may be cut is no loss.
        bad = [
            row
            for row, cells in block.affinities.items()
            if cells[at] is None and row.startswith("GPU")
        ]
        if bad and (block.whole_header or at < len(block.headings) - 1):
            warnings.append(f"{heading} cannot be told of {_some(bad)}")
    return warnings


def _asymmetry(block: Block) -> list[str]:
    """Name pairs of which the two cells differ; NV counts may, with a link down on one side."""
    bad = []
    places = {key: at for at, key in enumerate(block.keys)}
    for row, words in block.cells.items():
        for column in block.cells:
            forth, back = words[places[column]], block.cells[column][places[row]]
            nvlink = forth[:2] == back[:2] == "NV"
            if forth and back and forth != back and not nvlink and places[row] < places[column]:
                bad.append(f"{row}–{column} ({forth}, {back})")
    return [f"the two cells of a pair differ: {_some(bad)}"] if bad else []


def _nics(block: Block, legend: Legend) -> list[str]:
    warnings = [f"the NIC legend does not tell the name of {nic}" for nic in legend.conflicts]
    nics = [key for key in block.keys if key.startswith("NIC") and key[3:].isdigit()]
    lacking = [nic for nic in nics if nic not in legend.nics and nic not in legend.conflicts]
    if legend.has_nics and lacking:
        warnings.append(f"the NIC legend lacks {_some(lacking)}")
    return warnings


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _differs(one: Block, other: Block) -> bool:
    """Tell whether two matrices contradict each other; one may have more rows."""
    if one.keys != other.keys:
        return True
    return any(
        a and b and a != b
        for row, words in one.cells.items()
        for a, b in zip(words, other.cells.get(row, words), strict=True)
    )
