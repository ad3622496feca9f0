"""Reads that may never return, done in a child process under a deadline.

A sick device can hold whoever reads its sysfs files or calls its driver in uninterruptible
sleep, where not even SIGKILL is delivered. So the parent only lists names; a child reads them
one by one and answers after each. When it sticks or dies, the item it was at is named, the
child is killed (or abandoned, if it cannot be), and a new one goes on behind that item.
"""

import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from topoprobe.sources._reader_child import Child

T = TypeVar("T")


class Answers(msgspec.Struct, Generic[T]):
    """What came back: `records` by item, `failed` item → reason, `hung` items among those."""

    records: dict[str, T]
    failed: dict[str, str]
    hung: list[str]


class Reading:
    """What one source is to be asked: items one after the other, in a child of its own.

    items
        Names; the first word of each (up to ``/``) picks the struct in `types` that `read`
        returns.
    stall_s
        The time that one item may take; a function gives it item by item.
    expand
        Called with an item and its record, names the items that follow from it. Runs in the
        parent and in the child, so it must depend on nothing else.
    lost
        Called when an item sticks or kills its reader; names the items not to ask any more, with
        the reason. What it changes is seen by the next child.
    """

    def __init__(
        self,
        items: Sequence[str],
        read: Callable[[str], Any],
        types: Mapping[str, Any],
        *,
        until: float,
        stall_s: float | Callable[[str], float],
        expand: Callable[[str, Any], Sequence[str]] | None = None,
        lost: Callable[[str, Sequence[str]], Mapping[str, str]] | None = None,
    ) -> None:
        self.todo = list(items)
        self.answers: Answers[Any] = Answers({}, {}, [])
        self.seconds = 0.0
        self._read, self._until = read, until
        self._decoders = {kind: msgspec.msgpack.Decoder(type_) for kind, type_ in types.items()}
        self._stall = stall_s if callable(stall_s) else lambda _: stall_s
        self._expand, self._lost = expand, lost
        self._started = time.monotonic()
        self._limit = 0.0
        self._child: Child | None = None

    def start(self) -> "Child | None":
        """Fork a child for what is left to do; None where nothing is, or the time is over."""
        if self.todo and time.monotonic() >= self._until:
            for item in self.todo:
                self.answers.failed[item] = "not read: the deadline had passed"
            self.todo = []
        if not self.todo:
            self.seconds = time.monotonic() - self._started
            return None
        self._child = Child(self.todo, self._read, self._expand)
        self._next()
        return self._child

    def waits_until(self) -> float:
        """Return when the item that is being read is given up (monotonic clock)."""
        return self._limit

    def step(self) -> bool:
        """Take what the child has sent, or give it up; return False when the child is done."""
        assert self._child is not None
        reason, hung = None, False
        try:
            for frame in self._child.frames():
                self._take(frame)
            if self.todo and time.monotonic() >= self._limit:
                reason, hung = self._stuck(), True
        except EOFError:
            if self.todo:
                reason = f"its reader died ({self._child.how_it_ended()})"
        if self.todo and reason is None:
            return True
        self._end(reason, hung)
        return False

    def abandon(self) -> None:
        """Kill the child that is running, if any."""
        if self._child is not None:
            self._child.end()

    def _take(self, frame: bytes) -> None:
        item = self.todo.pop(0)
        if frame[:1] == b"!":
            self.answers.failed[item] = frame[1:].decode("utf-8", "replace")
        else:
            record = self._decoders[item.split("/", 1)[0]].decode(frame[1:])
            self.answers.records[item] = record
            if self._expand:
                self.todo.extend(self._expand(item, record))
        self._next()

    def _next(self) -> None:
        if self.todo:
            self._limit = min(time.monotonic() + self._stall(self.todo[0]), self._until)

    def _stuck(self) -> str:
        return f"no answer within {self._stall(self.todo[0]):.3g} s"

    def _end(self, reason: str | None, hung: bool) -> None:
        assert self._child is not None
        abandoned = self._child.end()
        if reason is None:
            return
        stuck = self.todo.pop(0)
        if abandoned:
            reason += f"; its reader (pid {self._child.pid}) cannot be killed and was left behind"
        self.answers.failed[stuck] = reason
        if hung:
            self.answers.hung.append(stuck)
        if self._lost:
            dropped = self._lost(stuck, tuple(self.todo))
            self.answers.failed.update(dropped)
            self.todo = [item for item in self.todo if item not in dropped]


def run_readings(
    readings: Sequence[Reading], meanwhile: Callable[[], object] | None = None
) -> None:
    """Run all readings at the same time, each in its child, to their ends.

    `meanwhile` is called once when all have started; it must not fork, nor take long.
    """
    poll = select.poll()
    running: dict[int, Reading] = {}

    def begin(reading: Reading) -> None:
        child = reading.start()
        if child is not None:
            running[child.fd] = reading
            poll.register(child.fd, select.POLLIN)

    for reading in readings:
        begin(reading)
    try:
        if meanwhile:
            meanwhile()
        while running:
            soonest = min(reading.waits_until() for reading in running.values())
            # poll rounds down to whole ms and would spin below one: always wait at least one.
            ready = poll.poll(max(0.0, soonest - time.monotonic()) * 1e3 + 1)
            now = time.monotonic()
            fds = {fd for fd, _ in ready}
            fds |= {fd for fd, reading in running.items() if now >= reading.waits_until()}
            for fd in fds:
                reading = running[fd]
                if not reading.step():
                    poll.unregister(fd)
                    del running[fd]
                    begin(reading)
    finally:
        # An exception (Ctrl-C) leaves no reader behind that can be killed.
        for reading in running.values():
            reading.abandon()


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
    reading = Reading(items, read, types, until=until, stall_s=stall_s)
    run_readings([reading])
    return reading.answers
