import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

from topoprobe.bench import collective
from topoprobe.bench.cells import Tally
from topoprobe.bench.collective import CellPlan, Ranks
from topoprobe.bench.machine import allowed_cpus
from topoprobe.model.snapshot import NumaRecord

NODE = NumaRecord(node=0, cpus=",".join(map(str, allowed_cpus())))
SMALL = (CellPlan(8, 1, 0.02, 40), CellPlan(1 << 20, 1, 0.05, 40))
# The first cell is quick, the second goes on until somebody ends it.
ENDLESS = (SMALL[0], CellPlan(4 << 20, 1, 600, 10**6))


def measure(
    ranks: Ranks, act: Callable[[str], None] = lambda _: None, seconds: float = 30
) -> tuple[Tally, bool]:
    tally = Tally()
    return tally, collective.measure_group(ranks, time.monotonic() + seconds, act, tally)


def ranks_running() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return sorted((p for p in children if _is_rank(p)), key=lambda p: p.pid)


def _is_rank(process: psutil.Process) -> bool:
    try:
        return "topoprobe.bench.rank" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def in_shared_memory() -> set[str]:
    """Return what lies in shared memory, without the machines that other tests make there."""
    return {
        name
        for name in os.listdir("/dev/shm")
        if not name.startswith(("testbed-", "machine-", "tmp"))
    }


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shared = in_shared_memory()
    yield
    assert ranks_running() == []
    assert list(tmp_path.glob("topoprobe-*")) == []
    assert in_shared_memory() <= shared


@pytest.mark.torch
def test_two_benches_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    results: list[Tally] = []
    ranks = Ranks(2, SMALL, [NODE])
    threads = [
        threading.Thread(target=lambda: results.append(measure(ranks)[0])) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    for tally in results:
        assert [cell.bytes_total for cell in tally.measurements] == [8, 1 << 20]
        for cell in tally.measurements:
            assert cell.unknown == {}
            assert cell.verified is True
            assert cell.n >= 20
            assert cell.time_s is not None
            assert cell.algbw_GBps == cell.bytes_total / cell.time_s.median / 1e9
            assert cell.busbw_GBps == cell.algbw_GBps  # 2(n−1)/n is 1 for two
            assert (cell.world_size, cell.ranks, cell.devices) == (2, (0, 1), ("numa:0",) * 2)
        assert [finding.status for finding in tally.findings()] == ["pass"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.torch
def test_four_ranks_have_one_and_a_half_times_the_bus_bandwidth() -> None:
    pytest.importorskip("torch")
    tally, usable = measure(Ranks(4, SMALL, []))
    assert usable
    for cell in tally.measurements:
        assert cell.verified is True
        assert cell.algbw_GBps is not None
        assert cell.busbw_GBps == cell.algbw_GBps * 2 * (4 - 1) / 4
        oversubscribed = "true" if len(allowed_cpus()) < 4 else "false"
        assert cell.environment["oversubscribed"] == oversubscribed


@pytest.mark.torch
@pytest.mark.parametrize(
    ("number", "named"),
    [
        (signal.SIGKILL, "rank 1 was killed by SIGKILL"),
        (signal.SIGSTOP, "rank 1 is stopped (SIGSTOP"),
    ],
)
def test_a_rank_lost_in_the_middle_is_named_and_what_was_finished_is_kept(
    number: signal.Signals, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(collective, "_STALL_S", 1.2)

    def strike(what: str) -> None:
        if "4 MiB" in what:
            ranks_running()[1].send_signal(number)

    tally, _ = measure(Ranks(2, ENDLESS, [NODE]), strike)
    first, second = tally.measurements
    assert first.n >= 20
    assert first.verified is True
    assert (second.n, second.time_s, second.busbw_GBps) == (0, None, None)
    assert second.unknown["busbw_GBps"].startswith(named)
    (finding,) = tally.findings()
    assert (finding.id, finding.status) == ("bench-collective", "unknown")
    assert f"not measured at 4 MiB: {named}" in finding.message


@pytest.mark.torch
def test_an_interrupt_keeps_what_was_finished() -> None:
    pytest.importorskip("torch")

    def interrupt(what: str) -> None:
        if "4 MiB" in what:
            raise KeyboardInterrupt

    tally = Tally()
    with pytest.raises(KeyboardInterrupt):
        until = time.monotonic() + 30
        collective.measure_group(Ranks(2, ENDLESS, [NODE]), until, interrupt, tally)
    assert [cell.n > 0 for cell in tally.measurements] == [True, False]
    assert tally.measurements[1].unknown["algbw_GBps"] == "interrupted"


def _fake_torch(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "torch" / "distributed").mkdir(parents=True)
    (path / "torch" / "__init__.py").write_text(text)
    (path / "torch" / "distributed" / "__init__.py").write_text(
        "def is_available(): return False\n"
    )
    monkeypatch.syspath_prepend(str(path))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise OSError('libtorch_cpu.so: cannot open')", "OSError: libtorch_cpu.so: cannot open"),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("__version__ = '9.9'", "torch 9.9 was built without gloo"),
    ],
)
def test_a_torch_that_cannot_be_used_is_one_finding(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_torch(tmp_path / "fake", text, monkeypatch)
    tally, usable = measure(Ranks(2, SMALL, [NODE]))
    assert not usable
    assert tally.measurements == []
    (finding,) = tally.findings()
    assert (finding.id, finding.status) == ("bench-torch", "skip")
    assert reason in finding.message
    assert "pip install 'topoprobe[bench]'" in finding.message


def test_ranks_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    tally, usable = measure(Ranks(2, SMALL, [NODE]))
    assert usable
    assert [cell.n for cell in tally.measurements] == [0, 0]
    assert "could not be started" in tally.measurements[0].unknown["time_s"]


def test_ranks_are_spread_over_the_nodes_that_they_may_use() -> None:
    cpu = allowed_cpus()[0]
    nodes = [
        NumaRecord(node=0, cpus=str(cpu)),
        NumaRecord(node=1, cpus="100000"),
        NumaRecord(node=2, cpus=""),
        NumaRecord(node=3, cpus=str(cpu)),
    ]
    places = collective._places(Ranks(4, SMALL, nodes))
    assert places == [("numa:0", [cpu]), ("numa:3", [cpu])] * 2
    assert collective._places(Ranks(2, SMALL, [])) == [(None, [])] * 2


@pytest.mark.torch
@pytest.mark.parametrize("count", [2, 1000, 3 << 20])
@pytest.mark.parametrize(
    "fault", ["none", "lost rank", "doubled rank", "shifted", "lost block", "swapped", "nan"]
)
def test_the_check_sees_each_kind_of_fault(count: int, fault: str) -> None:
    torch = pytest.importorskip("torch")
    from topoprobe.bench import pattern, rank

    world = 4
    tiles = [rank.make_tile(torch, r, world, count) for r in range(world)]
    assert int(tiles[3][1]) == pattern.element(3, 1, world)
    expected = sum(tiles[1:], start=tiles[0])
    buffer = torch.zeros(count)
    rank.fill(buffer, expected)
    if fault == "lost rank":
        rank.fill(buffer, expected - tiles[2])
    elif fault == "doubled rank":
        rank.fill(buffer, expected + tiles[0])
    elif fault == "shifted":
        buffer = torch.roll(buffer, 1)
    elif fault == "lost block":
        buffer[count // 2 :] = 0
    elif fault == "swapped":
        buffer = torch.roll(buffer, count // 2)
    elif fault == "nan":
        buffer[count - 1] = float("nan")
    assert (rank.count_wrong(buffer, expected) == 0) is (fault == "none")


def test_wrong_data_of_any_rank_is_a_fault() -> None:
    tally = Tally()
    group = collective._Measured(Ranks(2, SMALL[:1], [NODE]), lambda _: None)
    group.hear(0, {"kind": "ready", "torch": "2", "init_s": 0.1})
    group.hear(1, {"kind": "checked", "cell": 0, "wrong": 7})
    group.hear(0, {"kind": "checked", "cell": 0, "wrong": 0})
    group.hear(0, {"kind": "cell", "cell": 0, "times": [0.5**28] * 20, "warmup": 3})
    group.conclude(None, tally)
    (cell,) = tally.measurements
    assert (cell.algbw_GBps, cell.busbw_GBps, cell.cv) == (2.147483648, 2.147483648, 0.0)
    assert cell.verified is False
    (finding,) = tally.findings()
    assert (finding.status, finding.severity, finding.subject) == ("fail", "error", ("numa:0",))
    assert finding.evidence[0].value == 7


def test_a_rank_lost_before_it_checked_leaves_the_data_unverified() -> None:
    tally = Tally()
    group = collective._Measured(Ranks(2, SMALL[:1], [NODE]), lambda _: None)
    group.hear(0, {"kind": "checked", "cell": 0, "wrong": 0})
    group.hear(0, {"kind": "cell", "cell": 0, "times": [2e-9] * 20, "warmup": 3})
    group.conclude("rank 1 was killed by SIGKILL", tally)
    (cell,) = tally.measurements
    assert cell.verified is None
    assert cell.unknown == {"verified": "rank 1 was killed by SIGKILL"}
    assert tally.findings()[0].message.endswith("measured, but then: rank 1 was killed by SIGKILL")
