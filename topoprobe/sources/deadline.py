"""Reads that may never return, done in a child process under a deadline.

A sick device can hold whoever reads its sysfs files or calls its driver in uninterruptible
sleep, where not even SIGKILL is delivered. So the parent only lists names; a child reads them
one by one and answers after each. When it sticks or dies, the item it was at is named, the
child is killed (or abandoned, if it cannot be), and a new one goes on behind that item.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from topoprobe.model.errors import SourceError

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
# One record of a source: an RDMA device with all its ports is a few KB.
_MAX_FRAME = 8 << 20
# How long a killed child may take to vanish before it is left behind.
_REAP_S = 0.2


class Answers(msgspec.Struct, Generic[T]):
    """What came back: `records` by item, `failed` item → reason, `hung` items among those."""

    records: dict[str, T]
    failed: dict[str, str]
    hung: list[str]


def read_each(
    items: Sequence[str],
    read: Callable[[str], Any],
    types: Mapping[str, Any],
    *,
    until: float,
    stall_s: float,
) -> Answers[Any]:
    """Call ``read(item)`` for each item in a child and collect the records.

    `types` maps an item's first word (up to ``/``) to the struct that `read` returns for it.
    `until` is the end on the monotonic clock, `stall_s` the time that one item may take.
    SourceError from `read` becomes the item's reason; nothing is raised.
    """
    decoders = {kind: msgspec.msgpack.Decoder(type_) for kind, type_ in types.items()}
    answers: Answers[Any] = Answers({}, {}, [])
    todo = list(items)
    while todo:
        if time.monotonic() >= until:
            for item in todo:
                answers.failed[item] = "not read: the deadline had passed"
            break
        child = _Child(todo, read)
        try:
            done, reason, hung = _collect(child, todo, decoders, answers, until, stall_s)
        finally:
            abandoned = child.end()
        todo = todo[done:]
        if todo and reason:
            stuck = todo.pop(0)
            if abandoned:
                reason += f"; its reader (pid {child.pid}) cannot be killed and was left behind"
            answers.failed[stuck] = reason
            if hung:
                answers.hung.append(stuck)
    return answers


def _collect(
    child: "_Child",
    items: Sequence[str],
    decoders: Mapping[str, Any],
    answers: Answers[Any],
    until: float,
    stall_s: float,
) -> tuple[int, str | None, bool]:
    """Take answers until all are in, or return how many came and why no more did."""
    for number, item in enumerate(items):
        limit = min(time.monotonic() + stall_s, until)
        try:
            frame = child.receive(limit)
        except TimeoutError:
            return number, f"no answer within {stall_s:.3g} s", True
        except EOFError:
            return number, f"its reader died ({child.how_it_ended()})", False
        if frame[:1] == b"!":
            answers.failed[item] = frame[1:].decode("utf-8", "replace")
        else:
            answers.records[item] = decoders[item.split("/", 1)[0]].decode(frame[1:])
    return len(items), None, False


class _Child:
    """A forked reader. The parent is single-threaded when it forks, so plain fork is safe."""

    def __init__(self, items: Sequence[str], read: Callable[[str], Any]) -> None:
        self._fd, write_end = os.pipe()
        self._buffer = b""
        self._status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._fd)
            _be_reader(write_end, items, read)
        os.close(write_end)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def receive(self, limit: float) -> bytes:
        """Return the next frame; TimeoutError past `limit` (monotonic), EOFError at its end."""
        while True:
            if len(self._buffer) >= 4:
                size = int.from_bytes(self._buffer[:4], "big")
                if len(self._buffer) >= 4 + size:
                    frame, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
                    return frame
            # poll rounds down to whole ms and would spin below one: always wait at least one.
            wait_ms = max(0.0, limit - time.monotonic()) * 1e3
            if not self._poll.poll(wait_ms + 1 if wait_ms else 0):
                raise TimeoutError
            chunk = os.read(self._fd, 1 << 16)
            if not chunk:
                raise EOFError
            self._buffer += chunk

    def how_it_ended(self) -> str:
        """Say with which signal or status the child ended."""
        if not self._reap(_REAP_S):
            return "it closed its pipe"
        code = os.waitstatus_to_exitcode(self._status or 0)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def end(self) -> bool:
        """Kill and reap the child; return True if it could not be killed and was abandoned."""
        os.close(self._fd)
        if self._reap(0):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return not self._reap(_REAP_S)

    def _reap(self, wait_s: float) -> bool:
        # Never a blocking waitpid: on a child in uninterruptible sleep it would wait with it.
        end = time.monotonic() + wait_s
        while self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self._status = status
                break
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        return True


def _be_reader(write_end: int, items: Sequence[str], read: Callable[[str], Any]) -> None:
    """Run in the child: answer each item, then leave without any of Python's shutdown."""
    status = 1
    try:
        _isolate(write_end)
        for item in items:
            try:
                frame = b"=" + msgspec.msgpack.encode(read(item))
            except SourceError as error:
                frame = b"!" + str(error).encode("utf-8", "replace")
            if len(frame) > _MAX_FRAME:
                frame = b"!answer too large"
            _write_all(write_end, len(frame).to_bytes(4, "big") + frame)
        status = 0
    except BrokenPipeError:
        status = 0  # The parent is gone or has had enough.
    finally:
        os._exit(status)


def _isolate(keep_fd: int) -> None:
    """Cut the child off, so that one left behind in the kernel holds nothing of the caller's."""
    os.setsid()
    # An abandoned reader dies with its parent, or as soon as the driver lets go of it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Slurm and Kubernetes wait until every holder of the output pipes is gone.
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    # Python opens its own descriptors close-on-exec; those without it came from the caller.
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):
            if fd > 2 and fd != keep_fd and os.get_inheritable(fd):
                os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
