import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped, unused-ignore]
import pytest

from topoprobe.bench.supervisor import Job, run_group, scratch

MEMBERS = """
import os, signal, subprocess, sys, time

def forever(channel):
    while True:
        channel.step()
        time.sleep(0.01)

def main(spec, channel):
    what = spec["what"]
    if what != "unready":
        channel.send("ready", pid=os.getpid())
    if what == "well":
        channel.step()
    elif what == "kill":
        time.sleep(0.2)
        print("Fatal: last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop":
        channel.step()
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "raise":
        raise RuntimeError("no such\\nthing")
    elif what == "late-raise":
        time.sleep(1.0)  # later than the other, also where starting takes long
        raise ConnectionError("peer gone")
    elif what == "exit":
        sys.stderr.write("bye\\n")
        sys.stderr.flush()
        os._exit(3)
    elif what == "spam":
        try:
            for _ in range(64):
                os.write(2, b"x" * (1 << 20))
        except OSError:
            pass
        raise RuntimeError("full")
    elif what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        forever(channel)
    elif what == "parent":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        forever(channel)
    elif what == "behind":
        time.sleep(600)
    elif what == "steps":
        for _ in range(5):
            channel.step()
        time.sleep(600)
    else:
        forever(channel)
"""


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "bench_members.py").write_text(MEMBERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "bench_members"


class Heard:
    def __init__(self) -> None:
        self.pids: list[int] = []
        self.kinds: list[tuple[int, str]] = []

    def __call__(self, index: int, message: dict[str, Any]) -> None:
        self.kinds.append((index, message["kind"]))
        if message["kind"] == "ready":
            self.pids.append(message["pid"])


def run(entry: str, *what: str, seconds: float = 10, stall: float = 5) -> tuple[str | None, Heard]:
    heard = Heard()
    specs = [{"what": each} for each in what]
    job = Job(entry, "member", specs, time.monotonic() + seconds, stall)
    with scratch() as directory:
        reason = run_group(job, directory, heard)
    assert not Path(directory).exists()
    assert not [pid for pid in heard.pids if psutil.pid_exists(pid)]
    return reason, heard


def test_all_well(entry: str, capfd: pytest.CaptureFixture[str]) -> None:
    reason, heard = run(entry, "well", "well", "well")
    assert reason is None
    assert sorted(heard.kinds) == [(i, k) for i in range(3) for k in ("done", "ready")]
    assert capfd.readouterr() == ("", "")


def test_a_killed_member_is_named_with_its_last_words(entry: str) -> None:
    reason, _ = run(entry, "go", "kill", "go")
    assert reason is not None
    assert reason.startswith("member 1 was killed by SIGKILL")
    assert reason.endswith("Fatal: last words")


def test_the_killed_one_is_named_and_not_the_one_that_noticed(entry: str) -> None:
    reason, _ = run(entry, "late-raise", "kill")
    assert reason is not None
    assert reason.startswith("member 1 was killed by SIGKILL")


def test_the_first_error_is_named(entry: str) -> None:
    reason, _ = run(entry, "late-raise", "raise", "late-raise")
    assert reason == "member 1 failed: RuntimeError: no such thing"


def test_a_silent_exit_is_named(entry: str) -> None:
    reason, _ = run(entry, "exit", "go")
    assert reason == "member 0 ended with exit status 3: bye"


def test_a_stopped_member_is_named(entry: str) -> None:
    reason, _ = run(entry, "steps", "stop", stall=0.5)
    assert reason is not None
    assert reason.startswith("member 1 is stopped (SIGSTOP")


def test_a_member_that_lags_is_named(entry: str) -> None:
    reason, _ = run(entry, "steps", "behind", "steps", stall=1.2)
    assert reason is not None
    assert reason.startswith("member 1 missed its turn (at step 0 of 5)")


def test_a_member_that_never_starts_up_is_named(entry: str) -> None:
    reason, _ = run(entry, "go", "go", "go", "go", seconds=1)
    assert reason == "the deadline passed while it was running"
    reason, _ = run("no_such_module", "go")
    assert reason is not None
    assert "ModuleNotFoundError: No module named 'no_such_module'" in reason


def test_a_deaf_member_is_killed_and_its_children_too(entry: str) -> None:
    before = set(psutil.pids())
    reason, _ = run(entry, "deaf", "parent", seconds=1.5)
    assert reason == "the deadline passed while it was running"
    time.sleep(0.2)
    left = [pid for pid in set(psutil.pids()) - before if _sleeps_600(pid)]
    assert not left


def _sleeps_600(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        return "time.sleep(600)" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def test_what_a_member_writes_is_bounded(entry: str, capfd: pytest.CaptureFixture[str]) -> None:
    sizes = []
    specs = [{"what": "spam"}]
    job = Job(entry, "member", specs, time.monotonic() + 10, 5)
    with scratch() as directory:
        reason = run_group(job, directory, lambda *_: None)
        sizes = [path.stat().st_size for path in Path(directory).glob("stderr-*")]
    assert reason == "member 0 failed: RuntimeError: full"
    assert max(sizes) <= 4 << 20
    assert capfd.readouterr() == ("", "")


def test_one_that_cannot_be_killed_is_left_behind_and_named(
    entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "killpg", lambda pid, number: None)
    heard = Heard()
    job = Job(entry, "member", [{"what": "go"}], time.monotonic() + 1, 5)
    with scratch() as directory:
        reason = run_group(job, directory, heard)
    (pid,) = heard.pids
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert reason is not None
    assert reason.endswith(f"cannot be killed, left behind: member 0 (pid {pid})")


def test_ctrl_c_leaves_nothing_behind(entry: str) -> None:
    pids: list[int] = []

    def interrupt(_: int, message: dict[str, Any]) -> None:
        if message["kind"] == "ready":
            pids.append(message["pid"])
        if len(pids) == 2:
            signal.raise_signal(signal.SIGINT)

    job = Job(entry, "member", [{"what": "go"}] * 2, time.monotonic() + 10, 5)
    with pytest.raises(KeyboardInterrupt), scratch() as directory:
        run_group(job, directory, interrupt)
    assert len(pids) == 2
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not Path(directory).exists()


def test_members_die_with_a_killed_supervisor(entry: str, tmp_path: Path) -> None:
    script = (
        f"import sys, time; sys.path[:] = {sys.path!r}\n"
        "from topoprobe.bench.supervisor import Job, run_group\n"
        f"job = Job({entry!r}, 'm', [{{'what': 'go'}}] * 2, time.monotonic() + 30, 9)\n"
        f"run_group(job, {str(tmp_path)!r}, lambda i, m: print(m['pid'], flush=True))\n"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
    deadline = time.monotonic() + 5
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def test_no_interpreter_is_an_os_error(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(OSError, match="interpreter"):
        run(entry, "go")
