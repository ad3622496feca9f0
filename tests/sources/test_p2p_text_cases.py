"""p2p matrices in texts of real machines, where the folder with them is beside the checkout."""

from pathlib import Path

import pytest

from topoprobe.sources.p2p_text import parse_p2p
from topoprobe.sources.text_kind import kinds_in

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "topo_m"
# Read off the texts: what the one cell off the diagonal says, and the kinds in the text.
FACTS = {
    "096_p2p_matrix_only": ("GNS", ("p2p",)),
    "032_rtx3090_pair_wrapped_legend": ("NS", ("topo", "p2p")),
    "039_rtx3090_pair_patched_p2p_ok": ("OK", ("topo", "p2p")),
}


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of real cases is not here")
@pytest.mark.parametrize("name", FACTS)
def test_case(name: str) -> None:
    text = (CASES / f"{name}.txt").read_bytes().decode("utf-8", "replace")
    word, kinds = FACTS[name]
    (matrix,) = parse_p2p(text).matrices
    assert matrix.cells == {
        "GPU0": {"GPU0": "X", "GPU1": word},
        "GPU1": {"GPU0": word, "GPU1": "X"},
    }
    assert len(matrix.legend) == 8
    assert kinds_in(text) == kinds
