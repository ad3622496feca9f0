"""The quick measurement of a node's host side: memory of each NUMA node, then all_reduce.

It shows in some seconds that the machine measures at all, and what its memory gives. Nothing
of it touches a GPU. Importing this module does not import torch.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from topoprobe.bench import collective, memory
from topoprobe.bench.cells import Tally
from topoprobe.model.report import Finding, Measurement
from topoprobe.model.snapshot import NumaRecord

T = TypeVar("T")

INTERRUPTED = "bench-interrupted"

_WORLDS = (2, 4)
# Held back from the budget: killing a group takes this long at worst.
_KILL_RESERVE_S = 0.7
_MEMORY_SHARE = 0.3
_MEMORY_MAX_S = 4.0
# Below this there is no point in starting.
_MEMORY_MIN_S, _GROUP_MIN_S = 0.4, 2.0
# A group that gets less than this finishes few cells: then the first gets all that is left.
_GROUP_USEFUL_S = 5.0


def measure_quick(
    numa_nodes: Sequence[NumaRecord],
    *,
    budget_s: float = 20.0,
    progress: Callable[[str], None],
    synthetic: bool = False,
) -> tuple[tuple[Measurement, ...], tuple[Finding, ...]]:
    """Measure the host memory of `numa_nodes` and all_reduce over 2 and 4 ranks with gloo.

    Args:
        numa_nodes: the node's NUMA nodes, as the host source saw them.
        budget_s: seconds that all of it may take; what does not fit is recorded as such.
        progress: called with a few words whenever something new begins.
        synthetic: marks every measurement as one of a simulated machine.

    Returns:
        The cells in the order of measurement, those that failed included (n = 0, and the
        reason in `unknown`), and findings whose ids begin with ``bench-``. After Ctrl-C it
        returns what there is, with a finding ``bench-interrupted``; the caller should exit.
    """
    run = _Run(numa_nodes, time.monotonic() + budget_s - _KILL_RESERVE_S, budget_s, progress)
    tally = Tally(synthetic)
    try:
        run.all_steps(tally)
    except KeyboardInterrupt:
        tally.finding(INTERRUPTED, "unknown", "interrupted: what was measured before is kept")
        run.skip_rest("interrupted", tally)
    return tuple(tally.measurements), tally.findings()


class _Run:
    """The steps in their order, and how far they have come."""

    def __init__(
        self,
        numa_nodes: Sequence[NumaRecord],
        until: float,
        budget_s: float,
        progress: Callable[[str], None],
    ) -> None:
        self._nodes = list(numa_nodes)
        self._groups = [
            collective.Ranks(world, collective.QUICK_CELLS, numa_nodes) for world in _WORLDS
        ]
        self._until = until
        self._late = f"the time of {budget_s:.3g} s was over"
        self._progress = progress
        self._memory_until = until - (1 - _MEMORY_SHARE) * max(0.0, until - time.monotonic())

    def all_steps(self, tally: Tally) -> None:
        """Run all steps."""
        while self._nodes:
            self._take(self._nodes, self._measure_node, tally)
        if not collective.torch_is_installed():
            self._groups.clear()
            collective.no_torch("torch is not installed", tally)
        while self._groups:
            if not self._take(self._groups, self._measure_group, tally):
                self._groups.clear()

    def _take(self, todo: list[T], step: Callable[[T, Tally], bool], tally: Tally) -> bool:
        """Run `step` on the first of `todo`, and take it off when it has kept its own record."""
        before = len(tally.measurements)
        ended = False
        try:
            result = step(todo[0], tally)
            ended = True
        finally:
            if ended or len(tally.measurements) > before:
                todo.pop(0)
        return result

    def _measure_node(self, record: NumaRecord, tally: Tally) -> bool:
        now = time.monotonic()
        share = (self._memory_until - now) / len(self._nodes)
        if share < _MEMORY_MIN_S:
            memory.not_measured(record, self._late, tally)
        else:
            memory.measure_node(record, now + min(share, _MEMORY_MAX_S), self._progress, tally)
        return True

    def _measure_group(self, group: collective.Ranks, tally: Tally) -> bool:
        """Measure one group; return False if torch is of no use here."""
        now = time.monotonic()
        left = self._until - now
        share = max(left / len(self._groups), min(left, _GROUP_USEFUL_S))
        if share < _GROUP_MIN_S:
            collective.not_measured(group, self._late, tally)
            return True
        return collective.measure_group(group, now + share, self._progress, tally)

    def skip_rest(self, reason: str, tally: Tally) -> None:
        """Record what was never begun."""
        for record in self._nodes:
            memory.not_measured(record, reason, tally)
        for group in self._groups if collective.torch_is_installed() else ():
            collective.not_measured(group, reason, tally)
