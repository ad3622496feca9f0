"""Host memory bandwidth of one NUMA node: copies on its CPUs, in memory bound to it."""

import os
import platform
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from topoprobe.bench.cells import Tally
from topoprobe.bench.formulas import bandwidth_gbps
from topoprobe.bench.machine import allowed_cpus, choose_cpus, free_bytes, l3_bytes, parse_cpu_list
from topoprobe.bench.memory_worker import Meeting
from topoprobe.bench.stats import MIN_SAMPLES, coefficient_of_variation, is_stable, time_stats
from topoprobe.bench.supervisor import Job, run_group, scratch
from topoprobe.model.report import Evidence, FindingStatus, Measurement
from topoprobe.model.snapshot import NumaRecord
from topoprobe.model.units import GIB, MIB, format_size

# A memory controller is full long before this many cores copy at once.
_MAX_WORKERS = 16
_MAX_TOTAL = 1 * GIB
_MIN_TOTAL = 32 * MIB
_MIN_PER_WORKER = 8 * MIB
_HUGE_PAGE = 2 * MIB
# Buffers in all over the node's last-level cache, so that copies come from memory.
_TIMES_CACHE = 4
# Of what is free, so that measuring takes memory from nobody.
_SHARE_OF_FREE = 4
_MAX_SAMPLES = 100
_TARGET_S = 1.0
# Fill, check and shut-down behind the timed part, as a share of the cell's time.
_CHECK_SHARE = 0.35
# Copies and fills of at most 512 MiB each report a step at least this often, by far.
_STALL_S = 3.0


def measure_node(
    record: NumaRecord, until: float, progress: Callable[[str], None], tally: Tally
) -> None:
    """Measure one node and add what came of it to `tally`; `until` is a monotonic time."""
    if record.memory_bytes == 0:
        return  # Nothing there to measure.
    name = f"numa:{record.node}"
    if record.cpus == "":
        tally.finding(
            "bench-memory",
            "skip",
            f"{name} has memory but no CPUs (memory of a GPU, or an expander): not host memory",
            (name,),
        )
        return
    try:
        if record.cpus is None:
            raise ValueError(record.unknown.get("cpus", "not read"))
        allowed = set(allowed_cpus())
        cpus = [cpu for cpu in parse_cpu_list(record.cpus) if cpu in allowed]
    except ValueError as error:
        _not_measured(record, f"the CPUs of {name} are not known: {error}", tally)
        return
    if not cpus:
        _not_measured(record, f"this process may not use any CPU of {name}", tally, "skip")
        return
    total, l3 = _total_bytes(record.node, cpus)
    if total < _MIN_TOTAL:
        reason = f"{name} has too little free memory (room for {format_size(total)} of buffers)"
        _not_measured(record, reason, tally)
        return
    progress(f"memory bandwidth of {name}")
    chosen = choose_cpus(cpus, min(_MAX_WORKERS, total // _MIN_PER_WORKER))
    each = total // (2 * len(chosen)) // _HUGE_PAGE * _HUGE_PAGE
    _measure(_Plan(record, chosen, len(cpus), each, l3), until, tally)


def not_measured(record: NumaRecord, reason: str, tally: Tally) -> None:
    """Record that the node's bandwidth was not measured, unless it has nothing to measure."""
    if record.memory_bytes != 0 and record.cpus != "":
        _not_measured(record, reason, tally)


def _total_bytes(node: int, cpus: list[int]) -> tuple[int, int | None]:
    """Return the size of all buffers together, and the last-level cache they must exceed."""
    l3 = l3_bytes(cpus)
    wanted = min(_MAX_TOTAL, max(_TIMES_CACHE * l3, 256 * MIB) if l3 else _MAX_TOTAL)
    return min(wanted, free_bytes(node) // _SHARE_OF_FREE), l3


class _Plan(NamedTuple):
    """How one node is measured: `each` is the bytes that one worker copies per iteration."""

    record: NumaRecord
    cpus: tuple[int, ...]
    allowed: int
    each: int
    l3: int | None

    def bytes_moved(self) -> int:
        """Bytes of one iteration, read and written, over all workers."""
        return 2 * self.each * len(self.cpus)


def _measure(plan: _Plan, until: float, tally: Tally) -> None:
    answers: list[dict[str, Any]] = [{} for _ in plan.cpus]
    reason: str | None = "interrupted"
    try:
        with scratch() as directory:
            specs = _specs(plan, directory, until)
            job = Job("topoprobe.bench.memory_worker", "worker", specs, until, _STALL_S)
            reason = run_group(job, directory, lambda index, said: answers[index].update(said))
    except OSError as error:
        reason = f"its workers could not be started: {error}"
    finally:
        _Cell(plan, answers).conclude(reason, tally)


def _specs(plan: _Plan, directory: str, until: float) -> list[dict[str, Any]]:
    meeting = os.path.join(directory, "meeting")
    Meeting.create(meeting, len(plan.cpus))
    common = {
        "node": plan.record.node,
        "bytes": plan.each,
        "meeting": meeting,
        "min_samples": MIN_SAMPLES,
        "max_samples": _MAX_SAMPLES,
        "target_s": _TARGET_S,
        "stop": until - _CHECK_SHARE * max(0.0, until - time.monotonic()),
    }
    return [{**common, "cpu": cpu} for cpu in plan.cpus]


class _Cell:
    """One node's measurement, from what its workers said."""

    def __init__(self, plan: _Plan, answers: list[dict[str, Any]]) -> None:
        self.plan = plan
        self.record = plan.record
        self.answers = answers

    def conclude(self, reason: str | None, tally: Tally) -> None:
        """Turn the answers into a measurement and, where there is something to say, a finding."""
        name = f"numa:{self.record.node}"
        have_times = all("starts" in answer for answer in self.answers)
        times, warmup = self._times() if have_times else ([], None)
        if len(times) < MIN_SAMPLES:
            few = f"only {len(times)} of {MIN_SAMPLES} copies fitted into its time"
            _not_measured(self.record, reason or few, tally, bytes_total=self.plan.bytes_moved())
            return
        checked = all("wrong" in answer for answer in self.answers)
        wrong = sum(answer.get("wrong", 0) for answer in self.answers)
        cv = coefficient_of_variation(times)
        stats = time_stats(times)
        tally.measurement(
            Measurement(
                op="copy",
                kind="memory",
                backend="cpu",
                world_size=1,
                ranks=(0,),
                devices=(name,),
                bytes_total=self.plan.bytes_moved(),
                bytes_per_rank=self.plan.bytes_moved(),
                n=len(times),
                time_s=stats,
                cv=cv,
                algbw_GBps=bandwidth_gbps(self.plan.bytes_moved(), stats.median),
                verified=(wrong == 0) if checked else False if wrong else None,
                stable=is_stable(cv),
                path_used=self._policy(),
                memory_kind="host",
                warmup=warmup,
                environment=self._environment(),
                unknown={} if checked else {"verified": reason or "not checked"},
            )
        )
        self._judge(name, wrong, reason, tally)

    def _judge(self, name: str, wrong: int, reason: str | None, tally: Tally) -> None:
        on_node = self._on_node()
        if wrong:
            message = f"copies in the memory of {name} do not hold what was copied"
            tally.corrupt("bench-memory", message, (name,), wrong)
        elif reason:
            tally.finding("bench-memory", "unknown", f"copy on {name}: {reason}", (name,))
        elif on_node is not None and on_node < 0.99:
            tally.finding(
                "bench-memory",
                "warn",
                f"{100 - 100 * on_node:.0f} % of the pages measured as {name} lie elsewhere",
                (name,),
                (Evidence("pages on the node", on_node, "/proc/self/numa_maps"),),
            )
        else:
            tally.good("bench-memory", name)

    def _times(self) -> tuple[list[float], int]:
        """Return each copy's time, first start to last end, and how many warm-ups came before.

        The workers' clocks are one clock. Their longest time alone would flatter workers that
        took turns on a busy CPU instead of copying at once.
        """
        warmup = self.answers[0]["warmup"]
        count = min(len(answer["ends"]) for answer in self.answers)
        return [
            max(answer["ends"][i] for answer in self.answers)
            - min(answer["starts"][i] for answer in self.answers)
            for i in range(warmup, count)
        ], warmup

    def _policy(self) -> str | None:
        policies = sorted({answer["policy"] for answer in self.answers if "policy" in answer})
        return "; ".join(policies) or None

    def _on_node(self) -> float | None:
        shares = [answer.get("on_node") for answer in self.answers]
        known = [share for share in shares if share is not None]
        return min(known) if len(known) == len(shares) else None

    def _environment(self) -> dict[str, str]:
        on_node = self._on_node()
        plan = self.plan
        buffers = plan.bytes_moved()  # Each byte of both halves is read or written once.
        over = f"{buffers / plan.l3:.1f}" if plan.l3 else "unknown"
        return {
            "counted": "read + written",
            "timing": "first start to last end of all workers, which start together",
            "clock": "CLOCK_MONOTONIC",
            "copy": "memcpy (memoryview slice)",
            "python": platform.python_version(),
            "cpus": ",".join(map(str, plan.cpus)),
            "workers": f"{len(plan.cpus)} of {plan.allowed} CPUs, one process each",
            "buffers_bytes": str(buffers),
            "last_level_cache_bytes": str(plan.l3) if plan.l3 else "unknown",
            # Below 4, part of the copies may have been served by the cache.
            "buffers_over_cache": over,
            "huge_pages": str(self.answers[0].get("huge_pages", "unknown")),
            "pages_on_node": "unknown" if on_node is None else f"{100 * on_node:.0f} %",
        }


def _not_measured(
    record: NumaRecord,
    reason: str,
    tally: Tally,
    status: FindingStatus = "unknown",
    bytes_total: int = 0,
) -> None:
    name = f"numa:{record.node}"
    tally.failed_cell(
        Measurement(
            op="copy",
            kind="memory",
            backend="cpu",
            world_size=1,
            ranks=(0,),
            devices=(name,),
            bytes_total=bytes_total,
            bytes_per_rank=bytes_total,
            n=0,
            memory_kind="host",
        ),
        reason,
        busbw=False,
    )
    tally.finding("bench-memory", status, f"copy on {name} not measured: {reason}", (name,))
