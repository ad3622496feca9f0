"""The first of our code that runs in a measuring process: cuts it off and gives it a voice.

A member is a fresh interpreter started by ``supervisor``; its `spec` is a JSON object with
the keys below, plus whatever its entry module's ``main(spec, channel)`` wants.

    path      sys.path of the parent, absolute entries
    entry     the module whose main() runs
    parent    pid of the supervisor
    fd        write end of the member's private pipe: one JSON object a line
    index     which member this is, from 0
    progress  a file with one 8-byte step counter per member, shared with the supervisor
"""

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
STEP = struct.Struct("=Q")
# All that a member may write to any one file; its stderr and gloo's store need a few KB.
_MAX_FILE_BYTES = 4 << 20


class Channel:
    """The way back to the supervisor: messages over a pipe, steps through shared memory."""

    def __init__(self, fd: int, progress: str, index: int) -> None:
        self._fd = fd
        self._offset = index * STEP.size
        self._steps = 0
        with open(progress, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def send(self, kind: str, **fields: object) -> None:
        """Send one message; NaN is no JSON and never sent."""
        line = json.dumps({"kind": kind, **fields}, allow_nan=False).encode() + b"\n"
        view = memoryview(line)
        while view:
            view = view[os.write(self._fd, view) :]

    def step(self) -> None:
        """Count one step; a member whose counter stands still is the one that hangs."""
        self._steps += 1
        STEP.pack_into(self._map, self._offset, self._steps)


def run(spec: dict[str, Any]) -> None:
    """Run the entry module and leave; the exit status is 0 only if its main() returned."""
    _isolate(spec["parent"], spec["fd"])
    channel = Channel(spec["fd"], spec["progress"], spec["index"])
    try:
        importlib.import_module(spec["entry"]).main(spec, channel)
        channel.send("done")
    except BaseException as error:
        # The time tells the first error from those that it caused in the other members.
        text = " ".join(f"{type(error).__name__}: {error}".split())
        channel.send("error", time=time.monotonic(), text=text[:2000])
        raise
    # What is left are only the destructors of libraries, which can crash after all is said.
    sys.stderr.flush()
    os._exit(0)


def _isolate(parent: int, fd: int) -> None:
    """See that this process outlives nobody, leaves no core behind and is killed first."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # It died before the line above.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    soft = _MAX_FILE_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILE_BYTES)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.set_inheritable(fd, False)
    # If memory runs out after all, this process must go and not the user's job.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
