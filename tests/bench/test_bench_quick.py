import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from topoprobe.bench import collective, memory
from topoprobe.bench.collective import CellPlan
from topoprobe.bench.machine import allowed_cpus
from topoprobe.bench.quick import INTERRUPTED, measure_quick
from topoprobe.model.report import Finding, Measurement
from topoprobe.model.snapshot import NumaRecord

NODE = NumaRecord(node=0, cpus=",".join(map(str, allowed_cpus())), memory_bytes=8 << 30)
Result = tuple[tuple[Measurement, ...], tuple[Finding, ...]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MAX_TOTAL", 64 << 20)
    monkeypatch.setattr(memory, "_TARGET_S", 0.05)
    monkeypatch.setattr(collective, "QUICK_CELLS", (CellPlan(8, 1, 0.02, 40),))


def quick(
    budget_s: float = 60, act: Callable[[str], None] = lambda _: None, **more: Any
) -> Result:
    return measure_quick([NODE], budget_s=budget_s, progress=act, **more)


@pytest.mark.torch
def test_all_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    said: list[str] = []
    cells, findings = quick(act=said.append, synthetic=True)
    assert [(cell.op, cell.world_size) for cell in cells] == [
        ("copy", 1),
        ("all_reduce", 2),
        ("all_reduce", 4),
    ]
    assert all(cell.synthetic and cell.verified for cell in cells)
    assert {(finding.id, finding.status) for finding in findings} == {
        ("bench-memory", "pass"),
        ("bench-collective", "pass"),
    }
    assert said[0] == "memory bandwidth of numa:0"
    assert said[-1] == "all_reduce over 4 ranks: 8 B"
    assert capfd.readouterr() == ("", "")


def test_without_torch_there_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    cells, findings = quick()
    assert [cell.op for cell in cells] == ["copy"]
    (about,) = [finding for finding in findings if finding.id == "bench-torch"]
    assert about.status == "skip"
    assert "pip install 'topoprobe[bench]'" in about.message
    assert "python -m topoprobe" in about.message
    assert "\n" not in about.message


def test_without_time_every_cell_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "torch_is_installed", lambda: True)
    begun = time.monotonic()
    cells, findings = quick(budget_s=0.01)
    assert time.monotonic() - begun < 5
    assert [cell.n for cell in cells] == [0, 0, 0]
    assert {cell.unknown["time_s"] for cell in cells} == {"the time of 0.01 s was over"}
    assert {finding.status for finding in findings} == {"unknown"}


def test_ctrl_c_returns_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective, "torch_is_installed", lambda: True)

    def interrupt(what: str) -> None:
        if what == "all_reduce over 2 ranks: starting":
            raise KeyboardInterrupt

    cells, findings = quick(act=interrupt)
    assert cells[0].n >= 20
    assert [cell.n for cell in cells[1:]] == [0, 0]
    assert {cell.unknown["algbw_GBps"] for cell in cells[1:]} == {"interrupted"}
    assert INTERRUPTED in {finding.id for finding in findings}


def test_a_machine_without_numa_nodes_measures_what_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    cells, findings = measure_quick([], progress=lambda _: None)
    assert cells == ()
    assert [finding.id for finding in findings] == ["bench-torch"]


def test_importing_it_is_light() -> None:
    script = (
        "import sys, topoprobe.bench.quick\n"
        "print([m for m in ('torch', 'numpy', 'rich', 'pynvml') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
