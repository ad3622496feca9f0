"""Our expected matrices hold what real machines of the kind printed in public.

fixtures/machines/NAME.public has these facts, restated by hand. An ``[[output]]`` there has:

- ``source``: who published it;
- ``case``: a file of the public cases, read where they lie beside this checkout; or else
- ``rules``: lines ``LABELS LABELS CLASS``, where a later line overrides an earlier one and ``-``
  states nothing; and ``cpus``, ``numa``, ``gpu-numa``: labels to what stands in these columns;
- ``ours``: labels of the output to ours, "" where we have no such device; the others are the same;
- ``leave``: columns or kinds of cells that can't be compared, and ``why``;
- ``links``: the active links of a GPU and the rate of one.
"""

import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.describe import MACHINES, expected_matrix, load_machine, machine_names

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases" / "topo_m"
KEYS = {"cpus": "cpu_affinity", "numa": "numa_affinity", "gpu-numa": "gpu_numa_id"}
Cells = dict[tuple[str, str], str]


def outputs(name: str) -> list[dict[str, Any]]:
    """Return what is public of the kind of machine; nothing where no file is there."""
    path = MACHINES / f"{name}.public"
    found: list[dict[str, Any]] = (
        tomllib.loads(path.read_text())["output"] if path.exists() else []
    )
    return found


PUBLIC = [(name, index) for name in machine_names() for index in range(len(outputs(name)))]
LINKS = [(name, o["links"]) for name in machine_names() for o in outputs(name) if "links" in o]


def ours(name: str) -> Cells:
    header, *rows = expected_matrix(name)
    return {
        (row[0], column): cell
        for row in rows
        for column, cell in zip(header[1:], row[1:], strict=False)
    }


def labels(text: str) -> Iterator[str]:
    """Turn ``GPU0-2,5`` into GPU0, GPU1, GPU2, GPU5."""
    match = re.fullmatch(r"(GPU|NIC)([\d,-]+)", text)
    assert match, f"not labels: {text!r}"
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        yield from (f"{match[1]}{i}" for i in range(int(first), int(last or first) + 1))


def stated(output: Mapping[str, Any]) -> Cells:
    """Return the cells that the rules and the columns of an output state, under its labels."""
    cells: Cells = {}
    for line in output.get("rules", "").strip().splitlines():
        left, right, cell = line.split()
        pairs = [(a, b) for a in labels(left) for b in labels(right) if a != b]
        assert pairs, line
        for a, b in pairs:
            cells[a, b] = cells[b, a] = cell
    for column in KEYS:
        for text, value in output.get(column, {}).items():
            cells |= {(label, column): value for label in labels(text)}
    return {place: cell for place, cell in cells.items() if cell != "-"}


def read(case: str) -> Cells:
    """Return the cells of a public case, under its labels; skips where it is not here."""
    path = CASES / f"{case}.json"
    if not path.exists():
        pytest.skip("the public cases are not beside this checkout")
    facts = json.loads(path.read_text())
    cells = {(a, b): cell for a, row in facts["matrix"].items() for b, cell in row.items()}
    for column, key in KEYS.items():
        cells |= {(label, column): value for label, value in facts[key].items() if value}
    return cells


def kind(place: tuple[str, str]) -> str:
    """Return ``GPU-GPU``, ``GPU-NIC``, ``NIC-NIC``, or the name of the column."""
    return place[1] if place[1] in KEYS else "-".join(sorted(label[:3] for label in place))


@pytest.mark.parametrize(("name", "index"), PUBLIC)
def test_every_cell_is_the_public_one(name: str, index: int) -> None:
    output, table = outputs(name)[index], ours(name)
    cells = read(output["case"]) if "case" in output else stated(output)
    to_ours = output.get("ours", {})
    compared = 0
    for (row, column), cell in cells.items():
        place = to_ours.get(row, row), to_ours.get(column, column)
        if "" in place or kind(place) in output.get("leave", []) or row == column:
            continue
        assert place in table, f"{row}, {column} is no cell of ours: {place}"
        assert table[place] == cell, f"{output['source']}: {row}, {column}"
        compared += 1
    assert compared


@pytest.mark.parametrize(("name", "index"), PUBLIC)
def test_an_output_is_well_said(name: str, index: int) -> None:
    output = outputs(name)[index]
    known = {"source", "case", "rules", "ours", "leave", "why", "links", *KEYS}
    assert output.keys() <= known
    assert output["source"]
    assert ("leave" in output) == ("why" in output)
    assert ("case" in output) != bool(output.keys() & {"rules", *KEYS})


@pytest.mark.parametrize(("name", "links"), LINKS)
def test_the_links_are_the_public_ones(name: str, links: str) -> None:
    expect = load_machine(name).expect
    assert expect
    assert f"{expect.nvlinks} x {expect.nvlink}" == links


@pytest.mark.parametrize("name", machine_names())
def test_what_is_not_public_is_derived(name: str) -> None:
    sources = tomllib.loads((MACHINES / f"{name}.toml").read_text())["sources"]
    derived = any(source.startswith("derived: ") for source in sources)
    assert outputs(name) or derived, "name a public output, or derive the matrix in `sources`"


def test_the_document_lists_every_machine() -> None:
    text = (ROOT / "docs/testbed.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (public|derived)", text, re.MULTILINE)
    assert rows == [(name, "public" if outputs(name) else "derived") for name in machine_names()]


def held(name: str) -> tuple[int, int]:
    """Return how many cells of a machine a public output holds, and how many there are."""
    wanted = {place for place, cell in ours(name).items() if cell != "X"}
    found = set()
    for output in outputs(name):
        to_ours = output.get("ours", {})
        for row, column in read(output["case"]) if "case" in output else stated(output):
            place = to_ours.get(row, row), to_ours.get(column, column)
            if kind(place) not in output.get("leave", []):
                found.add(place)
    return len(found & wanted), len(wanted)


def test_the_document_counts_the_cells() -> None:
    text = (ROOT / "docs/testbed.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| (\d+) of (\d+) \|$", text, re.MULTILINE)
    assert [(name, (int(a), int(b))) for name, a, b in rows] == [
        (name, held(name)) for name in machine_names()
    ]


def test_rules_state_pairs_both_ways_and_the_last_one_counts() -> None:
    rules = "GPU0-1 GPU0-1 SYS\nGPU0 NIC0,2 NODE\nGPU0 NIC2 -"
    assert stated({"rules": rules, "cpus": {"GPU0": "0-3"}}) == {
        ("GPU0", "GPU1"): "SYS",
        ("GPU1", "GPU0"): "SYS",
        ("GPU0", "NIC0"): "NODE",
        ("NIC0", "GPU0"): "NODE",
        ("GPU0", "cpus"): "0-3",
    }
