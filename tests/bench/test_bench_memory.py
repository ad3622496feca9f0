import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from topoprobe.bench import memory, memory_worker, supervisor
from topoprobe.bench.cells import Tally
from topoprobe.bench.machine import allowed_cpus
from topoprobe.bench.memory_worker import Meeting, is_enough, is_warm
from topoprobe.model.report import Measurement
from topoprobe.model.snapshot import NumaRecord

CPUS = ",".join(map(str, allowed_cpus()))
NODE = NumaRecord(node=0, cpus=CPUS, memory_bytes=8 << 30)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MAX_TOTAL", 64 << 20)
    monkeypatch.setattr(memory, "_TARGET_S", 0.05)


def measure(record: NumaRecord, seconds: float = 10) -> Tally:
    tally = Tally()
    memory.measure_node(record, time.monotonic() + seconds, lambda _: None, tally)
    return tally


def only(tally: Tally) -> Measurement:
    (cell,) = tally.measurements
    return cell


def test_a_node_is_measured() -> None:
    tally = measure(NODE)
    cell = only(tally)
    assert (cell.op, cell.kind, cell.backend, cell.devices) == (
        "copy",
        "memory",
        "cpu",
        ("numa:0",),
    )
    assert cell.n >= 20
    assert cell.verified is True
    assert cell.unknown == {}
    assert cell.busbw_GBps is None
    assert cell.time_s is not None
    assert cell.algbw_GBps == cell.bytes_total / cell.time_s.median / 1e9
    assert 0 < cell.bytes_total <= 64 << 20
    assert cell.environment["counted"] == "read + written"
    assert cell.path_used is not None
    assert cell.path_used.startswith(("bound to the node", "first touch"))
    assert cell.warmup is not None
    assert cell.warmup >= 2
    assert [finding.status for finding in tally.findings()] in (["pass"], ["warn"])


def test_memory_without_cpus_is_no_host_memory() -> None:
    tally = measure(NumaRecord(node=2, cpus="", memory_bytes=96 << 30))
    assert tally.measurements == []
    (finding,) = tally.findings()
    assert (finding.id, finding.status, finding.subject) == ("bench-memory", "skip", ("numa:2",))


def test_a_node_without_memory_is_passed_over() -> None:
    tally = measure(NumaRecord(node=1, cpus="0", memory_bytes=0))
    assert tally.measurements == []
    assert tally.findings() == ()


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (NumaRecord(node=1, cpus="100000-100003,100008"), "may not use any CPU"),
        (NumaRecord(node=1, cpus="zero"), "are not known"),
        (NumaRecord(node=1, unknown={"cpus": "no permission"}), "no permission"),
    ],
)
def test_what_cannot_be_measured_says_why(record: NumaRecord, reason: str) -> None:
    cell = only(measure(record))
    assert (cell.n, cell.time_s, cell.algbw_GBps) == (0, None, None)
    assert reason in cell.unknown["algbw_GBps"]
    assert "busbw_GBps" not in cell.unknown


def test_too_little_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda node: 100 << 20)
    assert "too little free memory" in only(measure(NODE)).unknown["algbw_GBps"]


@pytest.mark.parametrize("how", ["kill", "raise", "short"])
def test_a_worker_that_fails_is_named(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bench_bad_worker.py").write_text(
        "import os, signal\n"
        "from topoprobe.bench import memory_worker\n"
        "def main(spec, channel):\n"
        "    copy = memory_worker._copy_in_step\n"
        "    def bad(*args):\n"
        "        result = copy(*args)\n"
        f"        how = {how!r} if spec['index'] == 0 else ''\n"
        "        if how == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n"
        "        if how == 'raise': raise MemoryError('gone')\n"
        "        if how == 'short': result['ends'] = result['ends'][:9]\n"
        "        return result\n"
        "    memory_worker._copy_in_step = bad\n"
        "    memory_worker.main(spec, channel)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def run_bad(job: supervisor.Job, *rest: Any) -> str | None:
        return supervisor.run_group(job._replace(entry="bench_bad_worker"), *rest)

    monkeypatch.setattr(memory, "run_group", run_bad)
    tally = measure(NODE)
    cell = only(tally)
    assert cell.n == 0
    expected = {
        "kill": "worker 0 was killed by SIGKILL",
        "raise": "worker 0 failed: MemoryError: gone",
        "short": "of 20 copies fitted",
    }
    assert expected[how] in cell.unknown["algbw_GBps"]
    assert [finding.status for finding in tally.findings()] == ["unknown"]


def test_wrong_data_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench_flipper.py").write_text(
        "from topoprobe.bench import memory_worker\n"
        "def main(spec, channel):\n"
        "    count = memory_worker.count_wrong\n"
        "    def flip(view, tile, channel):\n"
        "        view[len(view) // 2] ^= 1\n"
        "        return count(view, tile, channel)\n"
        "    memory_worker.count_wrong = flip\n"
        "    memory_worker.main(spec, channel)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def run_flipper(job: supervisor.Job, *rest: Any) -> str | None:
        return supervisor.run_group(job._replace(entry="bench_flipper"), *rest)

    monkeypatch.setattr(memory, "run_group", run_flipper)
    tally = measure(NODE)
    assert only(tally).verified is False
    (finding,) = tally.findings()
    assert (finding.status, finding.severity) == ("fail", "error")
    assert finding.evidence[0].value == len(allowed_cpus())


def test_workers_that_take_turns_are_not_taken_for_fast_ones() -> None:
    plan = memory._Plan(NODE, (0, 1), 2, 1 << 20, None)
    # Each copies for 1 s, one after the other: the iteration took 2 s.
    answers: list[dict[str, Any]] = [
        {"warmup": 1, "starts": [0.0, 10.0], "ends": [1.0, 11.0]},
        {"warmup": 1, "starts": [0.0, 11.0], "ends": [1.0, 12.0]},
    ]
    assert memory._Cell(plan, answers)._times() == ([2.0], 1)


class NoChannel:
    def step(self) -> None:
        pass


@pytest.mark.parametrize("fault", ["none", "lost", "shifted", "swapped", "doubled", "other"])
def test_the_check_sees_each_kind_of_fault(fault: str) -> None:
    channel: Any = NoChannel()
    tile = memory_worker.make_tile(0)
    size, block = 4 << 20, 1 << 20
    data = bytearray(size)
    memory_worker.fill(memoryview(data), tile, channel)
    good = bytes(data)
    if fault == "lost":
        data[block : 2 * block] = bytes(block)
    elif fault == "shifted":
        data[1:] = good[:-1]
    elif fault == "swapped":
        data[:block], data[2 * block : 3 * block] = good[2 * block : 3 * block], good[:block]
    elif fault == "doubled":
        data[block : 2 * block] = good[:block]
    elif fault == "other":
        memory_worker.fill(memoryview(data), memory_worker.make_tile(1), channel)
    wrong = memory_worker.count_wrong(memoryview(data), tile, channel)
    assert (wrong == 0) is (fault == "none")


def test_meetings(tmp_path: Path) -> None:
    path = str(tmp_path / "meeting")
    Meeting.create(path, 2)
    one, two = Meeting(path, 0), Meeting(path, 1)
    two._slots[1] = 2 * 5
    assert one.arrive(4)
    assert one.arrive(5)
    assert not one.arrive(5, cancel=True)
    assert not two.arrive(5)


def test_when_it_is_warm_and_when_enough() -> None:
    assert not is_warm([0.0], [1.0], 1.0)
    assert not is_warm([0, 1], [0.01, 1.01], 0.05)
    assert is_warm([0, 1], [0.100, 1.105], 0.2)
    assert not is_warm([0, 1], [0.100, 1.200], 0.2)
    assert is_warm([0, 1], [0.100, 1.200], 0.5)
    spec = {"stop": 100.0, "min_samples": 20, "max_samples": 30, "target_s": 1.0}
    assert not is_enough(19, 50, 50, spec)
    assert not is_enough(25, 0.5, 50, spec)
    assert is_enough(20, 1.0, 50, spec)
    assert is_enough(30, 0.1, 50, spec)
    assert is_enough(0, 0.1, 100, spec)


def test_pages_on_the_node() -> None:
    maps = (
        "559f8a000000 bind:1 file=/usr/bin/python mapped=9 N0=9 kernelpagesize_kB=4\n"
        "7f0000000000 bind:1 anon=100 dirty=100 N0=25 N1=75 kernelpagesize_kB=4\n"
        "7f1000000000 bind:1 anon=4 N0=4 kernelpagesize_kB=4\n"
    )
    assert memory_worker.pages_on_node(maps, 0x7F0000001000, 1) == 0.75
    assert memory_worker.pages_on_node(maps, 0x7F0000001000, 3) == 0
    assert memory_worker.pages_on_node(maps, 0x100, 1) is None
    assert memory_worker.pages_on_node("", 0x100, 1) is None
    assert memory_worker.pages_on_node("rubbish\n", 0x100, 1) is None


def test_an_unknown_machine_falls_back_to_first_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert memory_worker.bind_memory(0).startswith("first touch")


def test_it_works_from_an_isolated_interpreter() -> None:
    script = (
        f"import sys, time; sys.path[:] = {[p for p in sys.path if os.path.isabs(p)]!r}\n"
        "from topoprobe.bench import memory, cells\n"
        "from topoprobe.model.snapshot import NumaRecord\n"
        "memory._MAX_TOTAL = 64 << 20; memory._TARGET_S = 0.05\n"
        f"tally, node = cells.Tally(), NumaRecord(node=0, cpus={CPUS!r})\n"
        "memory.measure_node(node, time.monotonic() + 10, lambda _: None, tally)\n"
        "print(tally.measurements[0].n)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        cwd="/",
        check=True,
    )
    assert int(done.stdout) >= 20
    assert done.stderr == ""
