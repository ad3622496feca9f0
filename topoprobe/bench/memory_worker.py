"""One worker of the host memory measurement: copies its own buffer on its own CPU.

Runs in a process of its own, without torch and numpy. All workers meet before each copy, and
worker 0 decides for all when the warm-up is over and when to stop.
"""

import ctypes
import mmap
import os
import platform
import random
import sys
import time
from typing import Any

from topoprobe.bench.child import Channel

_MPOL_BIND = 2
_SYS_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
# Prime, so that no two power-of-two blocks of a buffer hold the same bytes.
TILE_BYTES = 1_048_573
_WARM_MIN_S, _WARM_MAX_S, _WARM_CHANGE = 0.1, 0.5, 0.1


def main(spec: dict[str, Any], channel: Channel) -> None:
    """Copy until worker 0 says stop; send the start and end of each copy, and the verdict."""
    worker, size = spec["index"], spec["bytes"]
    os.sched_setaffinity(0, {spec["cpu"]})
    policy = bind_memory(spec["node"])
    # One mapping for both halves: its pages are one line of numa_maps.
    # Private, since shared memory gets no huge pages on most machines.
    mapping = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    advised = _advise_huge_pages(mapping)
    view = memoryview(mapping)
    source, target = view[:size], view[size:]
    tile = make_tile(worker)
    fill(source, tile, channel)
    fill(target, b"\xa5" * TILE_BYTES, channel)
    meeting = Meeting(spec["meeting"], worker)
    channel.send("ready")
    result = _copy_in_step(source, target, meeting, channel, spec)
    channel.send("times", **result)
    # Untimed: only a copy that starts from other bytes shows that it copied all of them.
    fill(target, b"\xa5" * TILE_BYTES, channel)
    target[:] = source
    channel.step()
    wrong = count_wrong(target, tile, channel)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    channel.send(
        "checked",
        wrong=wrong,
        policy=policy,
        huge_pages=_huge_share(address) if advised else "not available",
        on_node=pages_on_node(_read("/proc/self/numa_maps"), address, spec["node"]),
    )


class Meeting:
    """A barrier in shared memory: one slot a worker, with twice the meeting that it is at.

    Worker 0 cancels a meeting by being there with one more than that. Each slot has one
    writer and says all in one word, so the order of other writes does not matter.

    Spinning, since a wake-up takes longer than the skew that may be left between the workers;
    the processor is yielded in case that two workers share it.
    """

    def __init__(self, path: str, worker: int) -> None:
        with open(path, "r+b") as file:
            self._slots = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._worker = worker

    @staticmethod
    def create(path: str, workers: int) -> None:
        """Make the file that `workers` workers share."""
        with open(path, "wb") as file:
            file.write(bytes(8 * workers))

    def arrive(self, number: int, *, cancel: bool = False) -> bool:
        """Wait until all workers are at meeting `number` (from 1); False if it was cancelled."""
        slots = self._slots
        slots[self._worker] = 2 * number + cancel
        while min(slots) < 2 * number:
            os.sched_yield()
        return slots[0] != 2 * number + 1


def _copy_in_step(
    source: memoryview,
    target: memoryview,
    meeting: Meeting,
    channel: Channel,
    spec: dict[str, Any],
) -> dict[str, Any]:
    """Copy in step with the others; return starts and ends in seconds, and the warm-up count.

    memoryview's slice assignment is one memcpy for two contiguous buffers (copy_base in
    CPython's memoryobject.c). ctypes.memmove was measured to be no faster: both end in the
    same routine of the C library.
    """
    starts: list[float] = []
    ends: list[float] = []
    begun, warmup, number = time.monotonic(), 0, 0
    clock = time.monotonic
    while True:
        number += 1
        stop = False
        if spec["index"] == 0:
            if not warmup and is_warm(starts, ends, clock() - begun):
                warmup, begun = len(starts), clock()
            samples = len(starts) - warmup if warmup else 0
            stop = is_enough(samples, clock() - begun, clock(), spec)
        if not meeting.arrive(number, cancel=stop):
            # A time that ran out in the warm-up leaves nothing but warm-up.
            return {"starts": starts, "ends": ends, "warmup": warmup or len(starts)}
        start = clock()
        target[:] = source
        ends.append(clock())
        starts.append(start)
        channel.step()


def is_warm(starts: list[float], ends: list[float], elapsed_s: float) -> bool:
    """Say whether clocks and page tables have settled: by count, time, and the last two copies."""
    if len(starts) < 2 or elapsed_s < _WARM_MIN_S:
        return False
    last, before = ends[-1] - starts[-1], ends[-2] - starts[-2]
    return abs(last - before) <= _WARM_CHANGE * before or elapsed_s >= _WARM_MAX_S


def is_enough(samples: int, elapsed_s: float, now: float, spec: dict[str, Any]) -> bool:
    """Say whether to stop: all samples taken, enough of them in the time meant, or time is up."""
    if now >= spec["stop"] or samples >= spec["max_samples"]:
        return True
    return bool(samples >= spec["min_samples"] and elapsed_s >= spec["target_s"])


def bind_memory(node: int) -> str:
    """Bind this process's memory to NUMA node `node`; return how it is placed, in words."""
    number = _SYS_SET_MEMPOLICY.get(platform.machine())
    if number is None or sys.maxsize < 1 << 32:
        return f"first touch (no set_mempolicy for {platform.machine()} here)"
    words = node // 64 + 1
    mask = (ctypes.c_uint64 * words)()
    mask[node // 64] = 1 << (node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel takes one bit less than it is told, hence the one more.
    done = libc.syscall(
        ctypes.c_long(number),
        ctypes.c_long(_MPOL_BIND),
        ctypes.byref(mask),
        ctypes.c_ulong(64 * words + 1),
    )
    if done == 0:
        return "bound to the node (MPOL_BIND)"
    return f"first touch (set_mempolicy: {os.strerror(ctypes.get_errno())})"


def _advise_huge_pages(mapping: mmap.mmap) -> bool:
    # Without them, walks of the page table cost 5-30 % of what is measured.
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE)
    except (OSError, AttributeError):
        return False
    return True


def make_tile(worker: int) -> bytes:
    """Return the bytes that worker `worker` repeats through its buffer; no two are alike."""
    return random.Random(worker + 1).randbytes(TILE_BYTES)  # noqa: S311 - a pattern, no secret


def fill(view: memoryview, tile: bytes, channel: Channel) -> None:
    """Write `tile` over and over into `view`."""
    for offset in range(0, len(view), len(tile)):
        part = view[offset : offset + len(tile)]
        part[:] = tile[: len(part)] if len(part) < len(tile) else tile
        channel.step()


def count_wrong(view: memoryview, tile: bytes, channel: Channel) -> int:
    """Return how many tiles of `view` differ from `tile`."""
    wrong = 0
    for offset in range(0, len(view), len(tile)):
        part = view[offset : offset + len(tile)].tobytes()
        wrong += part != tile[: len(part)]
        channel.step()
    return wrong


def pages_on_node(numa_maps: str, address: int, node: int) -> float | None:
    """Return the share of the mapping's pages that lie on `node`, by numa_maps; None if unknown.

    The kernel merges neighbouring mappings: the line is the last that begins at or below
    `address`.
    """
    found: list[str] = []
    for line in numa_maps.splitlines():
        words = line.split()
        try:
            if int(words[0], 16) > address:
                break
        except (ValueError, IndexError):
            return None
        found = words
    pages: dict[str, int] = {}
    for word in found:
        name, _, count = word.partition("=")
        if name[:1] == "N" and name[1:].isdigit() and count.isdigit():
            pages[name[1:]] = int(count)
    total = sum(pages.values())
    return pages.get(str(node), 0) / total if total else None


def _huge_share(address: int) -> str:
    """Return how much of the mapping at `address` is in transparent huge pages, in words."""
    inside, sizes = False, {"Size": 0, "AnonHugePages": 0}
    for line in _read("/proc/self/smaps").splitlines():
        words = line.split()
        if words and "-" in words[0] and not words[0].endswith(":"):
            low, _, high = words[0].partition("-")
            inside = int(low, 16) <= address < int(high, 16)
        elif inside and words and words[0][:-1] in sizes:
            sizes[words[0][:-1]] += int(words[1])
    if not sizes["Size"]:
        return "unknown"
    return f"{100 * sizes['AnonHugePages'] / sizes['Size']:.0f} % of the buffers"


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
