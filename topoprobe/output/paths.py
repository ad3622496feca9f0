"""The matrices of paths, ordered as ``nvidia-smi topo -m`` orders them."""

from collections.abc import Mapping
from functools import partial

from rich.console import Console

from topoprobe.model.topology import Topology
from topoprobe.output.matrix import Grid, blocks, fit, make_grid
from topoprobe.output.names import labels_of
from topoprobe.output.say import is_wide, line, say

_NOT_KNOWN = "?"
# Of these matrices nobody knows the full form by heart, and they are mostly alike.
_FOLDED = ("NIC×NIC", "GPU×NUMA")
_WORDS = {
    "NV#": "so many NVLinks", "C2C": "chip to chip", "PIX": "one PCIe switch at most",
    "PXB": "several switches", "PHB": "one host bridge", "NODE": "one NUMA node",
    "SYS": "between NUMA nodes", _NOT_KNOWN: "not known",
}  # fmt: skip
_P2P_WORDS = {
    "OK": "OK", "CNS": "CNS (chipset does not)", "GNS": "GNS (GPU does not)",
    "TNS": "TNS (topology does not)", "DR": "DR (disabled by a registry key)",
    "NS": "NS (not supported)", "U": "unknown",
}  # fmt: skip


def print_paths(console: Console, topology: Topology, *, full: bool = False) -> None:
    """Print GPU×GPU and GPU×NIC; with `full` also NIC×NIC, GPU×NUMA and what peers may do."""
    shown = [grid for grid in grids_of(topology, full=full, joined=is_wide(console)) if grid.rows]
    if not shown:
        return
    for grid in shown:
        _print_grid(console, grid, folded=grid.corner in _FOLDED)
    _print_legend(console, shown)
    if full:
        _print_peers(console, topology)
    console.print()


def grids_of(topology: Topology, *, full: bool, joined: bool) -> list[Grid]:
    """Return the unfolded matrices; `joined`: GPUs and NICs in one, as ``topo -m`` prints them."""
    labels = labels_of(topology)
    kinds = {device.key: device.kind for device in topology.devices}
    ends = list(dict.fromkeys(key for path in topology.paths for key in (path.a, path.b)))
    gpus = [labels.get(key, key) for key in ends if kinds.get(key) == "gpu"]
    nodes = [labels.get(key, key) for key in ends if kinds.get(key) == "numa-node"]
    others = ("gpu", "numa-node")
    nics = [labels.get(key, key) for key in ends if kinds.get(key) not in others]
    found: dict[tuple[str, str], str] = {}
    for path in topology.paths:
        found[labels.get(path.a, path.a), labels.get(path.b, path.b)] = path.class_ or _NOT_KNOWN

    def cell(row: str, column: str) -> str:
        return _either(found, row, column)

    grids = []
    if joined and len(gpus) + len(nics) > 1:
        grids.append(make_grid("", [*gpus, *nics], [*gpus, *nics], cell))
    if not joined:
        if len(gpus) > 1:
            grids.append(make_grid("GPU×GPU", gpus, gpus, cell))
        if gpus and nics:
            grids.append(make_grid("GPU×NIC", gpus, nics, cell))
        if len(nics) > 1 and (full or not gpus):
            grids.append(make_grid("NIC×NIC", nics, nics, cell))
    if gpus and nodes and (full or joined):
        grids.append(make_grid("GPU×NUMA", gpus, nodes, cell))
    return grids


def _print_legend(console: Console, grids: list[Grid]) -> None:
    cells = {cell for grid in grids for row in grid.cells for cell in row}
    words = ["NV#" if cell.startswith("NV") else cell for cell in cells]
    legend = ", ".join(f"{word} {_WORDS[word]}" for word in _WORDS if word in words)
    say(console, f"{legend} (topoprobe explain)", "dim")


def _print_grid(console: Console, grid: Grid, *, folded: bool) -> None:
    form = grid if is_wide(console) else fit(grid, console.width, folded=folded)
    for block in blocks(form, console.width):
        for number, row in enumerate(block):
            line(console, row, "" if number else "bold")
        console.print()


def _print_peers(console: Console, topology: Topology) -> None:
    """Say what the driver allows between GPUs: a matrix only where pairs differ."""
    labels = labels_of(topology)
    answers: dict[str, dict[tuple[str, str], str]] = {}
    for path in topology.paths:
        pair = labels.get(path.a, path.a), labels.get(path.b, path.b)
        for capability, word in path.p2p.items():
            answers.setdefault(capability, {})[pair] = word
    same: dict[tuple[tuple[tuple[str, str], str], ...], list[str]] = {}
    for capability, told in answers.items():
        same.setdefault(tuple(told.items()), []).append(capability)
    for items, capabilities in same.items():
        cells = dict(items)
        words = set(cells.values())
        legend = ", ".join(_P2P_WORDS.get(word, word) for word in sorted(words))
        say(console, f"peer access: {', '.join(capabilities)}: {legend}"
            + (" for all pairs that were asked" if len(words) == 1 else ""))  # fmt: skip
        if len(words) > 1:
            gpus = list(dict.fromkeys(name for pair in cells for name in pair))
            grid = make_grid("GPU×GPU", gpus, gpus, partial(_either, cells))
            _print_grid(console, grid, folded=False)


def _either(cells: Mapping[tuple[str, str], str], a: str, b: str) -> str:
    """Return the cell of a pair; the driver is asked the other way only where it may differ."""
    return cells.get((a, b)) or cells.get((b, a)) or _NOT_KNOWN
