"""One rank of a collective measurement: the only module that imports torch, and only in main.

Runs in a process of its own. Ranks decide together: whatever steers them (is it warm, is it
enough) is computed from times that all of them have agreed on before, each the maximum over
the ranks, so all take the same branch.
"""

import datetime
import os
import time
from typing import Any, TypeAlias

from topoprobe.bench import pattern
from topoprobe.bench.child import Channel

# torch comes without types that would be worth the name, and is not here to be imported.
Torch: TypeAlias = Any
Tensor: TypeAlias = Any

# The supervisor ends a group that hangs, and says who hung; gloo must not give up before it.
_GLOO_PATIENCE_S = 600
_WARM_MIN_OPS, _WARM_MIN_S, _WARM_CHANGE = 3, 0.05, 0.1
# The warm-up may take this share of a cell's time, steady or not.
_WARM_SHARE = 0.25
# What is kept for the data check, and how hopeless a cell must be not to be tried.
_CHECK_SHARE, _HOPE = 0.2, 0.7
# Ranks agree on whether to go on after at most this many samples, or this time.
_BATCH, _BATCH_S = 20, 0.2


def main(spec: dict[str, Any], channel: Channel) -> None:
    """Join the group, measure each of spec["cells"] and leave the group again."""
    if spec["cpus"]:
        os.sched_setaffinity(0, spec["cpus"])
    torch = _import_torch(channel)
    dist = torch.distributed
    torch.set_num_threads(1)
    begun = time.monotonic()
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(spec["store"], spec["world"]),
        rank=spec["index"],
        world_size=spec["world"],
        timeout=datetime.timedelta(seconds=_GLOO_PATIENCE_S),
    )
    channel.send("ready", torch=torch.__version__, init_s=time.monotonic() - begun)
    group = _Group(torch, spec, channel)
    group.warm_up_largest()
    _run_cells(group, spec, channel)
    dist.destroy_process_group()


def _import_torch(channel: Channel) -> Torch:
    try:
        import torch  # noqa: PLC0415 - here alone, see the module's docstring
        import torch.distributed  # noqa: PLC0415
    except Exception as error:
        # A torch whose libraries are missing raises OSError, and worse ones anything.
        channel.send("no-torch", text=f"{type(error).__name__}: {error}"[:300])
        raise
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        channel.send("no-torch", text=f"torch {torch.__version__} was built without gloo")
        raise RuntimeError("no gloo")
    return torch


def _run_cells(group: "_Group", spec: dict[str, Any], channel: Channel) -> None:
    """Measure the cells in turn; each has the share of the time left that its weight gives."""
    cells = spec["cells"]
    for number, cell in enumerate(cells):
        if group.left_s() <= 0:
            return
        share = cell["weight"] / sum(later["weight"] for later in cells[number:])
        if spec["index"] == 0:
            channel.send("begin", cell=number)
        result = group.measure(cell, share)
        channel.send("checked", cell=number, wrong=result.pop("wrong"))
        if spec["index"] == 0:
            channel.send("cell", cell=number, **result)


class _Group:
    """The group as one rank sees it."""

    def __init__(self, torch: Torch, spec: dict[str, Any], channel: Channel) -> None:
        self._torch = torch
        self._dist = torch.distributed
        self._spec = spec
        self._channel = channel

    def warm_up_largest(self) -> None:
        """Run the largest cell once: connections and pages are made here.

        The first collective of a group pays for what all later ones use.
        """
        count = max(cell["count"] for cell in self._spec["cells"])
        buffer = self._torch.zeros(count, dtype=self._torch.float32)
        self._timed_op(buffer)

    def measure(self, cell: dict[str, Any], share: float) -> dict[str, Any]:
        """Return the times of one cell in seconds, its warm-up count, and the wrong elements."""
        # In place, the sum would grow without end from anything but zeros.
        buffer = self._torch.zeros(cell["count"], dtype=self._torch.float32)
        begun = time.monotonic()
        budget = share * self.left_s()
        warmup, op_s = self._warm_up(buffer, budget * _WARM_SHARE)
        left = budget * (1 - _CHECK_SHARE) - self._agree([time.monotonic() - begun])[0]
        result: dict[str, Any] = {"times": [], "warmup": warmup, "wrong": None}
        result |= {"op_s": op_s, "left_s": max(0.0, left)}
        # The last warm-up may have been a slow one; below this share there is no hope.
        if left >= _HOPE * cell["min_samples"] * op_s:
            result["times"] = self._sample(buffer, op_s, cell, left)
        if len(result["times"]) >= cell["min_samples"]:
            result["wrong"] = self._check(buffer)
        return result

    def left_s(self) -> float:
        """Return the least that any rank has left to plan with, in seconds."""
        return -self._agree([time.monotonic() - self._spec["stop"]])[0]

    def _timed_op(self, buffer: Tensor) -> float:
        """Return one operation's time on this rank, in seconds, from a common start."""
        self._dist.barrier()
        self._channel.step()
        start = time.perf_counter()
        self._dist.all_reduce(buffer)
        elapsed = time.perf_counter() - start
        self._channel.step()
        return elapsed

    def _agree(self, values: list[float]) -> list[float]:
        """Return the maximum over the ranks of each value."""
        tensor = self._torch.tensor(values, dtype=self._torch.float64)
        self._dist.all_reduce(tensor, op=self._dist.ReduceOp.MAX)
        self._channel.step()
        agreed: list[float] = tensor.tolist()
        return agreed

    def _warm_up(self, buffer: Tensor, limit_s: float) -> tuple[int, float]:
        """Repeat the operation until steady by count, time and trend; return count, last time."""
        begun = time.monotonic()
        before, count = float("inf"), 0
        while True:
            op_s = self._timed_op(buffer)
            op_s, elapsed = self._agree([op_s, time.monotonic() - begun])
            count += 1
            steady = abs(op_s - before) <= _WARM_CHANGE * before
            before = op_s
            if count < _WARM_MIN_OPS:
                continue
            if (steady and elapsed >= _WARM_MIN_S) or elapsed >= max(limit_s, _WARM_MIN_S):
                return count, op_s

    def _sample(
        self, buffer: Tensor, op_s: float, cell: dict[str, Any], limit_s: float
    ) -> list[float]:
        """Take samples until there are enough for the cell or its time is over."""
        times: list[float] = []
        begun = time.monotonic()
        batch = max(1, min(_BATCH, int(_BATCH_S / max(op_s, 1e-6))))
        while True:
            mine = [self._timed_op(buffer) for _ in range(batch)]
            *agreed, elapsed = self._agree([*mine, time.monotonic() - begun])
            times += agreed
            enough = len(times) >= cell["min_samples"] and elapsed >= cell["target_s"]
            if enough or len(times) >= cell["max_samples"] or elapsed >= limit_s:
                return times

    def _check(self, buffer: Tensor) -> int:
        """Return how many elements are wrong after an untimed run on known data."""
        world = self._spec["world"]
        mine = make_tile(self._torch, self._spec["index"], world, len(buffer))
        fill(buffer, mine)
        self._channel.step()
        self._dist.all_reduce(buffer)
        self._channel.step()
        tiles = [make_tile(self._torch, rank, world, len(buffer)) for rank in range(world)]
        wrong = count_wrong(buffer, sum(tiles[1:], start=tiles[0]))
        self._channel.step()
        return wrong


def make_tile(torch: Torch, rank: int, ranks: int, count: int) -> Tensor:
    """Return the first `count` elements, one period at most, of `rank`'s data (see pattern)."""
    stride, offset = pattern.stride_and_offset(rank)
    index = torch.arange(min(count, pattern.PERIOD), dtype=torch.int64)
    values = (index * stride + offset) % pattern.PERIOD % pattern.modulus(ranks)
    return values.to(torch.float32)


def fill(buffer: Tensor, tile: Tensor) -> None:
    """Write `tile` over and over into `buffer`."""
    for offset in range(0, len(buffer), len(tile)):
        part = buffer[offset : offset + len(tile)]
        part.copy_(tile[: len(part)])


def count_wrong(buffer: Tensor, tile: Tensor) -> int:
    """Return how many elements of `buffer` are not those of `tile`, repeated; NaN is wrong."""
    wrong = 0
    for offset in range(0, len(buffer), len(tile)):
        part = buffer[offset : offset + len(tile)]
        wrong += int((part != tile[: len(part)]).sum())
    return wrong
