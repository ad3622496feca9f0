"""Collectives over gloo on this node: plans the cells, runs the ranks, concludes.

The data goes over TCP on the loopback interface, so the figures say what the host's software
path does, and that a group of ranks works here at all.
"""

import importlib.util
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from topoprobe.bench.cells import Tally
from topoprobe.bench.formulas import bandwidth_gbps, busbw_factor, round_size
from topoprobe.bench.machine import allowed_cpus, parse_cpu_list
from topoprobe.bench.stats import MIN_SAMPLES, coefficient_of_variation, is_stable, time_stats
from topoprobe.bench.supervisor import Job, run_group, scratch
from topoprobe.model.report import Measurement
from topoprobe.model.snapshot import NumaRecord
from topoprobe.model.units import MIB, format_seconds, format_size

_OP = "all_reduce"
_FLOAT32 = 4
# One operation of a quick cell takes a fraction of a second, even on a busy machine.
_STALL_S = 3.0
# What the ranks need at their end to say goodbye, taken off the time that they plan with.
_GOODBYE_S = 0.3

HOW_TO_GET_TORCH = (
    "pip install 'topoprobe[bench]', or run it with a Python that has torch: python -m topoprobe"
)

# What a rank inherits must not change what it measures, nor let it touch a GPU.
_ENVIRONMENT: dict[str, str | None] = {
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TORCH_DISTRIBUTED_DEBUG": None,
    "TORCH_LOGS": None,
}


class CellPlan(NamedTuple):
    """One size: `weight` is its share of the group's time, `target_s` what it should take."""

    size_bytes: int
    weight: float
    target_s: float
    max_samples: int


QUICK_CELLS = (
    CellPlan(8, 1, 0.4, 200),
    CellPlan(1 * MIB, 1, 0.4, 200),
    CellPlan(64 * MIB, 4, 1.5, 40),
)


class Ranks(NamedTuple):
    """A group to measure: how many ranks, in which sizes, and the nodes that they run on."""

    world: int
    plans: Sequence[CellPlan]
    nodes: Sequence[NumaRecord]

    def name(self) -> str:
        """Return it as findings call it."""
        return f"{_OP} over {self.world} ranks"


def torch_is_installed() -> bool:
    """Say whether a rank would find torch, without importing it."""
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def no_torch(reason: str, tally: Tally) -> None:
    """Add the one finding that says why there are no collectives, and how to get them."""
    tally.finding(
        "bench-torch",
        "skip",
        f"collectives not measured: {reason}; {HOW_TO_GET_TORCH}",
    )


def measure_group(
    ranks: Ranks, until: float, progress: Callable[[str], None], tally: Tally
) -> bool:
    """Measure one group and add what came of it to `tally`; False if torch cannot be used."""
    progress(f"{ranks.name()}: starting")
    group = _Measured(ranks, progress)
    reason: str | None = "interrupted"
    try:
        with scratch() as directory:
            job = Job(
                "topoprobe.bench.rank",
                "rank",
                _specs(ranks, directory, until),
                until,
                _STALL_S,
                _ENVIRONMENT,
            )
            reason = run_group(job, directory, group.hear)
    except OSError as error:
        reason = f"the ranks could not be started: {error}"
    finally:
        if group.no_torch is None:
            group.conclude(reason, tally)
    if group.no_torch is not None:
        no_torch(group.no_torch, tally)
        return False
    return True


def not_measured(ranks: Ranks, reason: str, tally: Tally) -> None:
    """Record that none of the group's cells was measured."""
    _Measured(ranks, lambda _: None).conclude(reason, tally)


def _specs(ranks: Ranks, directory: str, until: float) -> list[dict[str, Any]]:
    cells = [
        {
            "count": _size(plan, ranks.world) // _FLOAT32,
            "weight": plan.weight,
            "target_s": plan.target_s,
            "min_samples": MIN_SAMPLES,
            "max_samples": plan.max_samples,
        }
        for plan in ranks.plans
    ]
    common = {
        "world": ranks.world,
        "store": os.path.join(directory, "store"),
        "cells": cells,
        "stop": until - _GOODBYE_S,
    }
    places = _places(ranks)
    return [{**common, "cpus": places[rank][1]} for rank in range(ranks.world)]


def _size(plan: CellPlan, world: int) -> int:
    return round_size(_OP, plan.size_bytes, world, _FLOAT32).total


def _places(ranks: Ranks) -> list[tuple[str | None, list[int]]]:
    """Return each rank's NUMA node and CPUs: nodes in turn, as GPU ranks are spread as well."""
    allowed = set(allowed_cpus())
    nodes: list[tuple[str | None, list[int]]] = []
    for record in ranks.nodes:
        try:
            cpus = [cpu for cpu in parse_cpu_list(record.cpus or "") if cpu in allowed]
        except ValueError:
            cpus = []
        if cpus:
            nodes.append((f"numa:{record.node}", cpus))
    nodes = nodes or [(None, [])]
    return [nodes[rank % len(nodes)] for rank in range(ranks.world)]


class _Measured:
    """What the ranks of one group have said so far."""

    def __init__(self, ranks: Ranks, progress: Callable[[str], None]) -> None:
        self._ranks = ranks
        self._progress = progress
        self._cells: dict[int, dict[str, Any]] = {}
        self._wrong: dict[int, list[int]] = {}
        self._torch = "unknown"
        self._init_s: list[float] = []
        self.no_torch: str | None = None

    def hear(self, _rank: int, said: dict[str, Any]) -> None:
        """Take one message; those of rank 0 carry the cells, all ranks' the data check."""
        kind = said["kind"]
        if kind == "ready":
            self._torch = said["torch"]
            self._init_s.append(said["init_s"])
        elif kind == "no-torch":
            self.no_torch = said["text"]
        elif kind == "begin":
            size = format_size(_size(self._ranks.plans[said["cell"]], self._ranks.world))
            self._progress(f"{self._ranks.name()}: {size}")
        elif kind == "checked":
            # Not over the transport that is being checked, but past it.
            self._wrong.setdefault(said["cell"], []).append(said["wrong"] or 0)
        elif kind == "cell":
            self._cells[said["cell"]] = said

    def conclude(self, reason: str | None, tally: Tally) -> None:
        """Turn all that was said into measurements, and at most one finding of each sort."""
        corrupt, missing = [], []
        for number, plan in enumerate(self._ranks.plans):
            why = self._add_cell(number, plan, reason, tally)
            size = format_size(_size(plan, self._ranks.world))
            if why is not None:
                missing.append((size, why))
            if any(self._wrong.get(number, ())):
                corrupt.append(size)
        name = self._ranks.name()
        if corrupt:
            wrong = sum(map(sum, self._wrong.values()))
            message = f"{name}: wrong data at {', '.join(corrupt)}"
            tally.corrupt("bench-collective", message, self._subject(), wrong)
        if missing:
            sizes = ", ".join(size for size, _ in missing)
            message = f"{name} not measured at {sizes}: {reason or missing[0][1]}"
            tally.finding("bench-collective", "unknown", message, self._subject())
        elif reason:
            message = f"{name} measured, but then: {reason}"
            tally.finding("bench-collective", "unknown", message, self._subject())
        elif not corrupt:
            tally.good("bench-collective", name)

    def _add_cell(
        self, number: int, plan: CellPlan, reason: str | None, tally: Tally
    ) -> str | None:
        """Add one cell; return why it has no figures, or None if it has."""
        world = self._ranks.world
        size = _size(plan, world)
        said = self._cells.get(number, {})
        times: list[float] = said.get("times", [])
        cell = Measurement(
            op=_OP,
            kind="collective",
            backend="gloo",
            world_size=world,
            ranks=tuple(range(world)),
            devices=self._devices(),
            bytes_total=size,
            bytes_per_rank=size,
            n=len(times),
            path_used="TCP on lo",
            memory_kind="host",
            environment=self._environment(),
        )
        if len(times) < MIN_SAMPLES:
            why = reason or "the time was over"
            if said:
                took = f"{format_seconds(said['op_s'])} each"
                why = f"{MIN_SAMPLES} samples of {took} did not fit into {said['left_s']:.2g} s"
            tally.failed_cell(cell, why, busbw=True)
            return why
        wrong = self._wrong.get(number, [])
        complete = len(wrong) == world
        cv = coefficient_of_variation(times)
        stats = time_stats(times)
        algbw = bandwidth_gbps(size, stats.median)
        tally.measurement(
            msgspec.structs.replace(
                cell,
                time_s=stats,
                cv=cv,
                algbw_GBps=algbw,
                busbw_GBps=algbw * busbw_factor(_OP, world),
                verified=False if any(wrong) else True if complete else None,
                stable=is_stable(cv),
                warmup=said["warmup"],
                unknown={} if complete else {"verified": reason or "not every rank said"},
            )
        )
        return None

    def _devices(self) -> tuple[str, ...]:
        devices = [device for device, _ in _places(self._ranks)]
        return tuple(device for device in devices if device is not None)

    def _subject(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._devices()))

    def _environment(self) -> dict[str, str]:
        cpus = allowed_cpus()
        return {
            "counted": "payload once (S), as nccl-tests",
            "timing": "barrier before each; each time the maximum over the ranks",
            "clock": "perf_counter",
            "dtype": "float32",
            "placement": "in-place",
            "torch": self._torch,
            "python": platform.python_version(),
            "threads_per_rank": "1",
            "cpus": ",".join(map(str, cpus)),
            "oversubscribed": "true" if self._ranks.world > len(cpus) else "false",
            "init_s": f"{max(self._init_s):.3f}" if self._init_s else "unknown",
        }
