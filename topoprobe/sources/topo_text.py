"""Read the text of ``nvidia-smi topo -m`` or ``-mp``, as saved, pasted, wrapped or cut.

NVIDIA calls this text unstable, and people send it damaged. The rule: what cannot be read
with certainty is named as unreadable and left out; nothing is ever guessed or filled in.
"""

import re

from topoprobe.model.errors import ParseError
from topoprobe.model.snapshot import TopoMatrix
from topoprobe.sources import _topo_errors as errors
from topoprobe.sources._topo_block import Block, read_block
from topoprobe.sources._topo_clean import clean_lines
from topoprobe.sources._topo_legend import Legend, command_before, is_legend_start, read_legend
from topoprobe.sources._topo_warnings import warnings_of
from topoprobe.sources._topo_words import HEADINGS, MAX_COLUMNS, Header, parse_header

# A text has a few; the bound is for texts that are none.
_MAX_HEADERS = 2000

# Links of other vendors' accelerators (T-Head, AMD, Huawei, Moore Threads).
_VENDOR_CELLS = ("ICN", "XGMI", "HCCS", "MTL")


def parse_topo(text: str, name: str = "text") -> TopoMatrix:
    """Parse the first whole topology matrix in a text.

    Args:
        text: What nvidia-smi printed, perhaps with other things around it.
        name: What to call the text in an error, e.g. its file name.

    Raises:
        ParseError: There is no topology matrix in the text, or none of its rows can be read.
    """
    lines, ended = clean_lines(text)
    headers = _headers(lines)
    if any(len(header.labels) > MAX_COLUMNS for _, header in headers):
        raise ParseError(
            f"{name}: the header row has more than {MAX_COLUMNS} columns; "
            "no node has so many devices, so give the output of one `nvidia-smi topo -m`"
        )
    blocks: list[tuple[Block, Legend, int]] = []
    for number, (at, header) in enumerate(headers):
        end = headers[number + 1][0] if number + 1 < len(headers) else len(lines)
        if any(line and not line.isspace() for line in lines[at + 1 : end]):
            blocks.append((*_read(lines, at, end, header, ended), at))
    found = [item for item in blocks if item[0].cells and not _is_p2p(item, lines)]
    if not found:
        raise ParseError(f"{name}: {_why_none(text, lines, headers, blocks)}")
    chosen = next((item for item in found if item[0].whole), None) or max(
        found, key=lambda item: sum(map(len, item[0].cells.values()))
    )
    block, legend, at = chosen
    if vendor := errors.vendor_of("\n".join(lines[max(at - 3, 0) : at] + legend.lines)):
        raise ParseError(
            f"{name}: a matrix of {vendor}, not of nvidia-smi; topoprobe reads NVIDIA's only"
        )
    if any(cell.startswith(_VENDOR_CELLS) for row in block.cells.values() for cell in row):
        raise ParseError(
            f"{name}: a matrix of another vendor's tool; topoprobe reads NVIDIA's only"
        )
    others = [item[0] for item in found if item[0] is not block]
    warnings = warnings_of(block, legend, others, found[0][0] is block)
    if lost := errors.lost_gpu("\n".join(lines)):
        warnings.append(f"the text also says: {lost}")
    return _matrix(block, legend, command_before(lines, at), warnings)


def _headers(lines: list[str]) -> list[tuple[int, Header]]:
    found = []
    for at, line in enumerate(lines):
        if "GPU" in line and (header := parse_header(line)):
            found.append((at, header))
    # "GPU0" alone, or in a sentence, is a header only if nothing better is there.
    return ([item for item in found if item[1].sure] or found)[:_MAX_HEADERS]


def _read(
    lines: list[str], at: int, end: int, header: Header, ended: bool
) -> tuple[Block, Legend]:
    stop = next((n for n in range(at + 1, end) if is_legend_start(lines[n])), end)
    last = stop == len(lines)
    block = read_block(lines[at:stop], header, last, ended)
    return block, read_legend(lines[stop:end], ended, end == len(lines), header.labels)


def _is_p2p(item: tuple[Block, Legend, int], lines: list[str]) -> bool:
    block, legend, at = item
    return block.p2p or legend.p2p or command_before(lines, at) == "p2p"


def _why_none(
    text: str,
    lines: list[str],
    headers: list[tuple[int, Header]],
    blocks: list[tuple[Block, Legend, int]],
) -> str:
    if any(_is_p2p(item, lines) for item in blocks):
        return errors.P2P
    reason = errors.what_it_is(text, lines)
    if reason.startswith(("no topology matrix found;", "no header row")) and any(
        h.sure for _, h in headers
    ):
        unreadable = next((item[0].unreadable for item in blocks if item[0].unreadable), None)
        if unreadable:
            row, why = next(iter(unreadable.items()))
            return (
                f"a header row is there, but no row below can be read with certainty ({row}: "
                f"{why}); give the output of `nvidia-smi topo -m` as printed"
            )
        return (
            "a header row is there, but the rows below it are cut off; "
            "give the whole output of `nvidia-smi topo -m`"
        )
    return reason


def _matrix(block: Block, legend: Legend, command: str | None, warnings: list[str]) -> TopoMatrix:
    unreadable = dict(block.unreadable)
    cells: dict[str, dict[str, str]] = {}
    for row, words in block.cells.items():
        cells[row] = {}
        for column, word in zip(block.keys, words, strict=True):
            if word:
                cells[row][column] = word
            else:
                unreadable[f"{row}/{column}"] = "it is empty, cut, or no cell of nvidia-smi's"
    cpu, numa, gpu_numa = (_affinity(block, heading) for heading in HEADINGS)
    headings = block.headings if block.whole_header else block.headings[:-1]
    return TopoMatrix(
        columns=tuple(block.keys),
        printed=tuple(block.printed),
        rows=tuple(block.cells),
        cells=cells,
        unreadable=unreadable,
        cpu_affinity=cpu,
        numa_affinity=numa,
        gpu_numa_id=gpu_numa,
        affinity_columns=tuple(headings),
        nic_legend=legend.nics,
        pcie_only=_pcie_only(cells, legend, command),
        warnings=tuple(warnings),
    )


def _affinity(block: Block, heading: str) -> dict[str, str]:
    """Return the cells of one column; NIC rows have none, so an empty one says nothing there."""
    if heading not in block.headings:
        return {}
    at = block.headings.index(heading)
    return {
        row: cell
        for row, cells in block.affinities.items()
        if (cell := cells[at]) is not None and (cell or re.fullmatch(r"GPU\d+(?:#\d+)?", row))
    }


def _pcie_only(
    cells: dict[str, dict[str, str]], legend: Legend, command: str | None
) -> bool | None:
    if any(word.startswith("NV") for row in cells.values() for word in row.values()):
        return False
    if command == "mp":
        return True
    if legend.nvlink or command == "m":
        return False
    # The legend of -mp is that of -m without its last line, NV#.
    return True if legend.complete else None
