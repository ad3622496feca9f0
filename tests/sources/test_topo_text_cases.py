"""The parser against texts of real machines, where the folder with them is beside the checkout."""

import json
from pathlib import Path

import pytest

from topoprobe.model.errors import ParseError
from topoprobe.sources.topo_text import parse_topo

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "topo_m"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))

# The words of the facts' reason that the message must share.
KEYWORDS = ("no header row", "failed", "lost", "p2p")


@pytest.mark.skipif(not NAMES, reason="the folder of real cases is not here")
@pytest.mark.parametrize("name", NAMES or ["none"])
def test_case(name: str) -> None:
    text = (CASES / f"{name}.txt").read_bytes().decode("utf-8", "replace")
    facts = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    if facts["expect"].startswith("error"):
        with pytest.raises(ParseError) as caught:
            parse_topo(text, name)
        message = str(caught.value)
        assert message.startswith(f"{name}: ") and "\n" not in message
        for word in KEYWORDS:
            assert word not in facts["expect"] or word in message
        if "(0000:" in facts["expect"]:
            assert facts["expect"].split("(")[1].rstrip(")") in message
        return
    matrix = parse_topo(text, name)
    printed = dict(zip(matrix.columns, matrix.printed, strict=True))
    assert list(matrix.printed) == facts["col_labels"]
    assert [printed[row] for row in matrix.rows] == facts["row_labels"]
    assert matrix.cells == facts["matrix"]
    assert list(matrix.affinity_columns) == facts["affinity_columns"]
    for field in ("cpu_affinity", "numa_affinity", "gpu_numa_id", "nic_legend"):
        assert getattr(matrix, field) == facts[field], field
    whole = len(matrix.rows) == len(matrix.columns)
    assert bool(matrix.warnings) == ("warn" in facts["expect"] or not whole)
