"""What `--from` takes: a report, a capture, or texts of nvidia-smi and lspci, told by content."""

from collections.abc import Callable

import msgspec

from topoprobe.model.errors import ParseError
from topoprobe.model.report import Report
from topoprobe.model.snapshot import HostRecord, Snapshot, SourceResult
from topoprobe.model.texts import P2pMatrix
from topoprobe.sources.archive import is_capture, read_capture
from topoprobe.sources.lspci_text import parse_lspci
from topoprobe.sources.lspci_tree import parse_lspci_tree
from topoprobe.sources.nccl_xml import is_nccl_xml, parse_nccl_xml
from topoprobe.sources.nvlink_text import parse_nvlink
from topoprobe.sources.p2p_text import parse_p2p
from topoprobe.sources.saved import decode_report, decode_text, is_json, read_input
from topoprobe.sources.text_kind import kinds_in
from topoprobe.sources.topo_text import parse_topo

# Kind of a text → the command that prints it.
_COMMANDS = {
    "topo": "topo -m", "nvlink": "nvidia-smi nvlink", "p2p": "topo -p2p", "lspci": "lspci",
    "lspci-tree": "lspci -t",
}  # fmt: skip
_UNDERSTOOD = (
    "--from takes texts of nvidia-smi topo -m, -mp or -p2p, nvidia-smi nvlink -s, -e or -R, lspci "
    "-vv or -tv (several in one file), an NCCL topology file, a saved report or a capture"
)
# What parse_topo says of texts that are of these kinds, and damaged beyond use.
_OTHERS: dict[str, Callable[[str, str], object]] = {
    "this is the output of `nvidia-smi nvlink`": parse_nvlink,
    "this is the output of lspci": parse_lspci,
    "a p2p capability matrix": parse_p2p,
}


def read(path: str, created: str, *, synthetic: bool = False) -> Report | Snapshot:
    """Return the report in the file `path`, or the snapshot of the capture or texts in it.

    `created` is the time of a snapshot made of texts; `synthetic` marks what is read as made up.
    Raises InputError, ParseError or SchemaError in one line that names the file.
    """
    data = read_input(path)
    if is_capture(data):
        found: Report | Snapshot = read_capture(data, path)
    elif is_json(text := decode_text(data, path)):
        found = decode_report(text, path)
    else:
        return snapshot_of_texts(text, path, created, synthetic=synthetic)
    return msgspec.structs.replace(found, synthetic=found.synthetic or synthetic)


def snapshot_of_texts(text: str, path: str, created: str, *, synthetic: bool = False) -> Snapshot:
    """Return what all texts in `text` say; raises ParseError where there is none we read."""
    if is_nccl_xml(text):
        return snapshot_of_nccl(text, path, created, synthetic=synthetic)
    kinds = kinds_in(text)
    if not kinds:
        raise ParseError(_why_none(text, path))
    matrix = parse_topo(text, path) if "topo" in kinds else None
    nvlink = parse_nvlink(text, path) if "nvlink" in kinds else None
    p2p = parse_p2p(text, path) if "p2p" in kinds else None
    lspci = parse_lspci(text, path) if "lspci" in kinds else None
    tree = parse_lspci_tree(text, path) if "lspci-tree" in kinds else None
    tables, twice = _by_capability(p2p.matrices if p2p else ())
    results = [
        _result(name, path, found.warnings)
        for name, found in (
            ("nvidia-smi", matrix),
            ("nvidia-smi nvlink", nvlink),
            ("lspci", lspci),
            ("lspci -t", tree),
        )
        if found is not None
    ]
    if p2p is not None:
        results.append(_result("nvidia-smi topo -p2p", path, (*p2p.warnings, *twice)))
    made_from = " and ".join(_COMMANDS[kind] for kind in kinds)
    return Snapshot(
        created=created,
        host=HostRecord(unknown={"*": f"made from a {made_from} text, which does not tell"}),
        topo_matrix=matrix,
        p2p=tables,
        nvlink_text=nvlink,
        lspci=lspci,
        lspci_tree=tree,
        sources=tuple(results),
        synthetic=synthetic,
    )


def snapshot_of_nccl(text: str, path: str, created: str, *, synthetic: bool = False) -> Snapshot:
    """Return what an NCCL topology file says; raises ParseError where it is none."""
    system = parse_nccl_xml(text, path)
    return Snapshot(
        created=created,
        host=HostRecord(unknown={"*": "made from an NCCL topology file, which does not tell"}),
        nccl=system,
        sources=(_result("NCCL XML", path, system.warnings),),
        synthetic=synthetic,
    )


def _by_capability(matrices: tuple[P2pMatrix, ...]) -> tuple[dict[str, P2pMatrix], list[str]]:
    """Return capability → its first matrix, and a warning of each further one that differs."""
    tables: dict[str, P2pMatrix] = {}
    warnings = []
    for matrix in matrices:
        capability = matrix.capability or "unnamed"
        first = tables.setdefault(capability, matrix)
        if first.cells != matrix.cells:
            warnings.append(f"a further matrix ({capability}) differs from the first; left out")
    return tables, warnings


def _result(name: str, path: str, warnings: tuple[str, ...]) -> SourceResult:
    if not warnings:
        return SourceResult(name, "ok", f"text {path}")
    more = f" (and {len(warnings) - 1} more)" if len(warnings) > 1 else ""
    return SourceResult(name, "partial", warnings[0] + more)


def _why_none(text: str, path: str) -> str:
    """Say what the text is where something in it tells, else what would be understood."""
    said = _error_of(parse_topo, text, path)
    for mark, parse in _OTHERS.items():
        if mark in said:
            return _error_of(parse, text, path) or said
    if said.startswith(f"{path}: no topology matrix found;"):
        return f"{path}: no topology matrix found, and no other text that is known; {_UNDERSTOOD}"
    return said


def _error_of(parse: Callable[[str, str], object], text: str, path: str) -> str:
    try:
        parse(text, path)
    except ParseError as error:
        return str(error)
    return f"{path}: it says nothing about links; {_UNDERSTOOD}"
