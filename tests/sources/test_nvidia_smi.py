"""nvidia-smi is found where only root and we can put it, and is bounded when it runs."""

import os
import stat
import time
from pathlib import Path

import pytest

from topoprobe.sources.deadline import run_readings
from topoprobe.sources.nvidia_smi import SmiReading, find_nvidia_smi, run_bounded
from topoprobe.sources.nvml_ask import bits, ranges


def program(folder: Path, script: str, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)
    return path


def test_the_first_on_the_path_is_taken(tmp_path: Path) -> None:
    first, second = program(tmp_path / "a", "exit 0"), program(tmp_path / "b", "exit 0")
    path = f"relative:{first.parent}:{second.parent}"
    assert find_nvidia_smi(path) == str(first)


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o644])
def test_what_others_can_write_or_nobody_can_run_is_passed_over(mode: int, tmp_path: Path) -> None:
    bad, good = program(tmp_path / "a", "exit 0", mode), program(tmp_path / "b", "exit 0")
    assert find_nvidia_smi(f"{bad.parent}:{good.parent}") == str(good)


def test_a_folder_that_others_can_write_is_passed_over(tmp_path: Path) -> None:
    bad, good = program(tmp_path / "a", "exit 0"), program(tmp_path / "b", "exit 0")
    bad.parent.chmod(0o777 | stat.S_ISVTX)
    assert find_nvidia_smi(f"{bad.parent}:{good.parent}") == str(good)


def test_a_program_of_somebody_else_is_passed_over(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    bad, good = program(tmp_path / "a", "exit 0"), program(tmp_path / "b", "exit 0")
    os.chown(bad, 65534, 65534)
    assert find_nvidia_smi(f"{bad.parent}:{good.parent}") == str(good)


def test_output_is_cut_at_the_limit_and_the_program_ended() -> None:
    result = run_bounded(["yes"], time.monotonic() + 20, limit=100_000)
    assert (len(result.text), result.cut) == (100_000, True)


def test_the_status_of_the_program_is_kept() -> None:
    result = run_bounded(["sh", "-c", "echo out; echo err >&2; exit 9"], time.monotonic() + 20)
    assert (result.status, result.cut) == (9, False)
    assert sorted(result.text.split()) == ["err", "out"]


def ran(path: Path, deadline: float) -> SmiReading:
    reading = SmiReading(
        str(path), time.monotonic() + deadline, deadline, matrices=True, gpus=False
    )
    run_readings([reading.reading])
    return reading


def test_one_that_hangs_is_asked_once_and_dies_with_its_reader(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    path = program(tmp_path / "a", f"echo $$ >> {marker}; exec sleep 1000")
    matrix, p2p, result = ran(path, 0.6).result()
    assert (matrix, p2p, result.status) == (None, {}, "timeout")
    pids = marker.read_text().split()
    assert len(pids) == 1
    until = time.monotonic() + 10
    while state(pids[0]) not in ("", "Z"):
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.01)


def state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_one_that_fails_says_so_with_its_own_words(tmp_path: Path) -> None:
    path = program(tmp_path / "a", "echo header; echo 'Failed to initialize NVML: oops'; exit 18")
    _, _, result = ran(path, 5).result()
    assert result.status == "error"
    assert result.detail == "topo -m ended with status 18: Failed to initialize NVML: oops"


def test_masks_become_lists_as_linux_writes_them() -> None:
    # CPUs 0-3, 64 and 127 in two 64-bit words.
    assert ranges(bits([0xF, 0x8000000000000001])) == "0-3,64,127"
    assert ranges([]) == ""
