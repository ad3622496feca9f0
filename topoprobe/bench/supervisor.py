"""Starts a group of measuring processes, listens to them, and ends every one of them.

Each member is a fresh interpreter in its own session, since a fork of a process that has
threads or a GPU context is not safe to measure in. Nothing here waits without a limit: a
member that cannot be killed is left behind and named.
"""

import contextlib
import json
import mmap
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped, unused-ignore]

from topoprobe.bench.child import STEP

_BOOTSTRAP = (
    "import json, sys; spec = json.loads(sys.argv[1]); sys.path[:] = spec['path']; "
    "from topoprobe.bench.child import run; run(spec)"
)
# A group's counters are looked at this often; its pipes wake us up at once.
_LOOK_S = 0.1
# A group that has moved more lately than this is slow, and does not hang.
_STILL_S = 1.0
# After the first member has failed: how long the others may take to show what they died of.
_GRACE_S = 0.3
# How long a member has after SIGTERM, and then after SIGKILL.
_TERM_S, _KILL_S = 0.15, 0.5
# One message is a list of some hundred times.
_MAX_LINE = 1 << 20

OnMessage = Callable[[int, dict[str, Any]], None]


class Job(NamedTuple):
    """A group to run: `specs` hold what each member's ``main`` gets (see ``child``).

    `until` is the end on the monotonic clock; from the moment that every member has said
    "ready", the group may stand still for `stall_s` seconds.
    """

    entry: str
    noun: str
    specs: Sequence[Mapping[str, Any]]
    until: float
    stall_s: float
    environment: Mapping[str, str | None] = {}


class _Member:
    """One process: its pipe, what it said, and how it ended."""

    def __init__(
        self, name: str, process: "subprocess.Popen[bytes]", fd: int, stderr: str
    ) -> None:
        self.name = name
        self.process = process
        self.fd = fd
        self.stderr = stderr
        self.buffer = b""
        self.open = True
        self.ready = self.done = False
        self.error: tuple[float, str] | None = None

    def ended(self) -> bool:
        """Say whether it has ended; reaps it, and never waits."""
        return self.process.poll() is not None

    def failed(self) -> bool:
        return self.error is not None or (not self.open and not self.done)


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """Give a private directory that is removed whatever happens."""
    directory = tempfile.mkdtemp(prefix="topoprobe-bench-")
    try:
        yield directory
    finally:
        with _uninterrupted():
            shutil.rmtree(directory, ignore_errors=True)


def run_group(job: Job, directory: str, on_message: OnMessage) -> str | None:
    """Run `job` to its end and return None, or one line that says which member failed, and how.

    `on_message` gets each member's index and message as it comes. Whatever happens, Ctrl-C
    included, no member is left running, save one that the kernel does not let go: that one
    is named in the line returned. OSError if the group cannot be started.
    """
    group = _Group(job, directory)
    reason = None
    try:
        group.start()
        reason = group.watch(on_message)
    finally:
        with _uninterrupted():
            left = group.end()
    if left:
        reason = f"{reason or 'it did not end'}; cannot be killed, left behind: {', '.join(left)}"
    return reason


class _Group:
    def __init__(self, job: Job, directory: str) -> None:
        self._job = job
        self._directory = directory
        self._members: list[_Member] = []
        self._steps = mmap.mmap(-1, mmap.PAGESIZE)
        self._poll = select.poll()

    def start(self) -> None:
        """Start all members; an interrupt waits until each is known, so none is lost."""
        if not sys.executable:
            raise OSError("Python does not know its own interpreter (sys.executable is empty)")
        progress = os.path.join(self._directory, "progress")
        with open(progress, "w+b") as file:
            file.truncate(STEP.size * len(self._job.specs))
            self._steps = mmap.mmap(file.fileno(), 0)
        for index, spec in enumerate(self._job.specs):
            with _uninterrupted():
                member = self._start_one(index, spec, progress)
                self._members.append(member)
                self._poll.register(member.fd, select.POLLIN)

    def _start_one(self, index: int, spec: Mapping[str, Any], progress: str) -> _Member:
        stderr = os.path.join(self._directory, f"stderr-{index}")
        read_end, write_end = os.pipe()
        full = {
            **spec,
            "path": [entry for entry in sys.path if os.path.isabs(entry)],
            "entry": self._job.entry,
            "parent": os.getpid(),
            "fd": write_end,
            "index": index,
            "progress": progress,
        }
        command = [sys.executable, "-I", "-W", "ignore", "-c", _BOOTSTRAP, json.dumps(full)]
        try:
            with open(stderr, "wb") as error_file:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=error_file,
                    cwd=self._directory,
                    env=_environment(self._job.environment),
                    start_new_session=True,
                    pass_fds=(write_end,),
                )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        return _Member(f"{self._job.noun} {index}", process, read_end, stderr)

    def watch(self, on_message: OnMessage) -> str | None:
        """Pass messages on until all members are done; return why it ended before, or None."""
        moved, seen, failed_at = time.monotonic(), self._counters(), None
        while not all(member.done for member in self._members):
            for fd, _ in self._poll.poll(_LOOK_S * 1e3):
                index = next(i for i, member in enumerate(self._members) if member.fd == fd)
                self._receive(index, on_message)
            now = time.monotonic()
            if any(member.failed() for member in self._members):
                failed_at = failed_at or now
                self._running()  # Reaps those that have ended: how they did is what names them.
                if now - failed_at >= _GRACE_S or not any(m.open for m in self._members):
                    return self._who_failed()
            elif now >= self._job.until:
                return self._who_hangs("the deadline had passed", now - moved)
            elif self._counters() != seen or not all(m.ready for m in self._members):
                moved, seen = now, self._counters()
            elif now - moved >= self._job.stall_s:
                return self._who_hangs(f"nothing moved for {now - moved:.2g} s", now - moved)
        return None

    def _receive(self, index: int, on_message: OnMessage) -> None:
        member = self._members[index]
        chunk = os.read(member.fd, 1 << 16)
        member.buffer += chunk
        *lines, member.buffer = member.buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            member.ready |= message["kind"] == "ready"
            member.done |= message["kind"] == "done"
            if message["kind"] == "error":
                member.error = (message["time"], message["text"])
            on_message(index, message)
        if not chunk or len(member.buffer) > _MAX_LINE:
            self._poll.unregister(member.fd)
            member.open = False

    def _counters(self) -> tuple[int, ...]:
        return tuple(
            STEP.unpack_from(self._steps, i * STEP.size)[0] for i in range(len(self._members))
        )

    def _who_failed(self) -> str:
        """Name the member that failed first: the others' errors are mostly its consequence."""
        failed = [member for member in self._members if member.failed()]
        for member in failed:
            code = member.process.returncode
            if code is not None and code < 0:
                hint = " (out of memory, or by hand)" if code == -signal.SIGKILL else ""
                return f"{member.name} was killed by {_signal_name(-code)}{hint}" + _quote(member)
        for member in failed:
            if member.error is None:
                code = member.process.returncode
                how = "closed its pipe" if code is None else f"ended with exit status {code}"
                return f"{member.name} {how}" + _quote(member)
        first = min(failed, key=lambda member: member.error or (0.0, ""))
        return f"{first.name} failed: {first.error[1] if first.error else ''}"

    def _who_hangs(self, why: str, still_s: float) -> str:
        """Name the member that the others wait for: stopped, stuck, unready, or behind."""
        states = [_state(member.process.pid) for member in self._members]
        for member, state in zip(self._members, states, strict=True):
            if state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP):
                return f"{member.name} is stopped (SIGSTOP or a debugger): {why}"
        unready = [member.name for member in self._members if not member.ready]
        if unready:
            return f"{', '.join(unready)} had not started up: {why}"
        if still_s < _STILL_S:
            return "the deadline passed while it was running"
        for member, state in zip(self._members, states, strict=True):
            if state == psutil.STATUS_DISK_SLEEP:
                return f"{member.name} hangs in the kernel (uninterruptible sleep): {why}"
        steps = self._counters()
        behind = [
            m.name for m, step in zip(self._members, steps, strict=True) if step < max(steps)
        ]
        if behind:
            at = f"at step {min(steps)} of {max(steps)}"
            return f"{', '.join(behind)} missed its turn ({at}): {why}"
        return f"every {self._job.noun} stands at step {max(steps, default=0)}: {why}"

    def end(self) -> list[str]:
        """End all members and return those that could not be; waits no longer than needed."""
        finished = time.monotonic() + _KILL_S
        while all(m.done for m in self._members) and time.monotonic() < finished:
            if not self._running():
                break
            time.sleep(0.002)
        for number, wait_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
            self._signal_all(number, wait_s)
        left = self._running()
        for member in self._members:
            os.close(member.fd)
        for member in left:
            # Tell Popen that nobody will wait for it: it would warn, and look again for ever.
            member.process.returncode = -signal.SIGKILL
        self._steps.close()
        return [f"{member.name} (pid {member.process.pid})" for member in left]

    def _running(self) -> list[_Member]:
        return [member for member in self._members if not member.ended()]

    def _signal_all(self, number: int, wait_s: float) -> None:
        for member in self._running():
            with contextlib.suppress(OSError):
                os.killpg(member.process.pid, number)
        end = time.monotonic() + wait_s
        while self._running() and time.monotonic() < end:
            time.sleep(0.002)


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return our environment with `changes`; None takes a variable out."""
    environment = {k: v for k, v in os.environ.items() if k not in changes}
    return environment | {k: v for k, v in changes.items() if v is not None}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _state(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return ""


def _quote(member: _Member) -> str:
    """Return the last line that a member wrote to its stderr, to go behind a reason."""
    try:
        with open(member.stderr, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    text = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {text[:300]}" if text else ""


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back: it arrives when the block has ended, with nothing half done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
