"""Our expected matrices hold what real machines of the kind printed in public."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.describe import expected_matrix

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "topo_m"
# Ours, and the public output of the same kind of machine.
SAME = {
    "dgx-1v": "014_microway_dgx1v",
    "hgx-a100-4": "025_polaris_a100_nv4_mixed_sep",
    "a100-pcie-4": "071_a100pcie_four_gpu_two_pairs",
}


def ours(name: str) -> dict[str, dict[str, str]]:
    header, *rows = expected_matrix(name)
    return {row[0]: dict(zip(header[1:], row[1:], strict=False)) for row in rows}


def facts(case: str) -> dict[str, Any]:
    path: Path = CASES / f"{case}.json"
    if not path.exists():
        pytest.skip("the public cases are not beside this checkout")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("name", SAME)
def test_classes_and_affinities_agree(name: str) -> None:
    public, table = facts(SAME[name]), ours(name)
    nics = {f"mlx5_{i}": f"NIC{i}" for i in range(8)}
    cells = 0
    for row, columns in public["matrix"].items():
        for column, label in columns.items():
            assert table[nics.get(row, row)][nics.get(column, column)] == label, (row, column)
            cells += 1
    assert cells >= 16
    for gpu, cpus in public["cpu_affinity"].items():
        assert table[gpu]["cpus"] == cpus
