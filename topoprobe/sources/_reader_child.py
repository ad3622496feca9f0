"""The child process that reads for `deadline`: forked, cut off from the caller, killable."""

import contextlib
import ctypes
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from topoprobe.model.errors import SourceError

_PR_SET_PDEATHSIG = 1
# One record of a source: an RDMA device with all its ports is a few KB.
_MAX_FRAME = 8 << 20
# How long a killed child may take to vanish before it is left behind.
_REAP_S = 0.2


class Child:
    """A forked reader. The parent is single-threaded when it forks, so plain fork is safe."""

    def __init__(
        self,
        items: Sequence[str],
        read: Callable[[str], Any],
        expand: Callable[[str, Any], Sequence[str]] | None = None,
    ) -> None:
        self.fd, write_end = os.pipe()
        self._buffer = bytearray()
        self._status: int | None = None
        self._ended = False
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.fd)
            _be_reader(write_end, items, read, expand)
        os.close(write_end)

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that have come, without waiting; EOFError after the last of all."""
        ended = False
        while select.select([self.fd], [], [], 0)[0]:
            chunk = os.read(self.fd, 1 << 16)
            if not chunk:
                ended = True
                break
            self._buffer += chunk
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                break
            yield bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
        if ended:
            raise EOFError

    def how_it_ended(self) -> str:
        """Say with which signal or status the child ended."""
        if not self._reap(_REAP_S):
            return "it closed its pipe"
        code = os.waitstatus_to_exitcode(self._status or 0)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def end(self) -> bool:
        """Kill and reap the child; return True if it could not be killed and was abandoned."""
        if self._ended:
            return False
        self._ended = True
        os.close(self.fd)
        if self._reap(0):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The child leads a session of its own: what it started dies with it.
            os.killpg(self.pid, signal.SIGKILL)
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


def _be_reader(
    write_end: int,
    items: Sequence[str],
    read: Callable[[str], Any],
    expand: Callable[[str, Any], Sequence[str]] | None,
) -> None:
    """Run in the child: answer each item, then leave without any of Python's shutdown."""
    status = 1
    todo = list(items)
    try:
        _isolate(write_end)
        while todo:
            item = todo.pop(0)
            try:
                record = read(item)
                frame = b"=" + msgspec.msgpack.encode(record)
                if expand:
                    todo.extend(expand(item, record))
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
