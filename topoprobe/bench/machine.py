"""What a host measurement must know of the machine: CPUs, caches and free memory of a node.

All of it is read anew at the time of the measurement, since it belongs to this process (its
affinity, its cgroup) and not to the node's Snapshot. `root` is "/" but for tests.
"""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psutil  # type: ignore[import-untyped, unused-ignore]

_SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read_text(path: str) -> str | None:
    """Return the stripped text of a small file, or None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16).strip()
    except OSError:
        return None


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Return the CPUs in the kernel's list format, ``0-3,8``; ValueError for anything else."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if not part.strip():
            continue
        first, dash, last = part.partition("-")
        low = int(first)
        high = int(last) if dash else low
        # A list of a million CPUs is a broken file, and would eat the memory here.
        if not 0 <= low <= high < 1 << 20:
            raise ValueError(f"not a CPU list: {text!r}")
        cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))


def allowed_cpus() -> tuple[int, ...]:
    """Return the CPUs that this process may use; the kernel has taken its cpuset into it."""
    return tuple(sorted(os.sched_getaffinity(0)))


def choose_cpus(cpus: Sequence[int], limit: int, root: str = "/") -> tuple[int, ...]:
    """Return at most `limit` of `cpus`: one of each core first, evenly over the node."""
    if len(cpus) <= limit:
        return tuple(cpus)
    allowed = set(cpus)
    firsts = []
    for cpu in cpus:
        base = f"{root}sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            siblings = parse_cpu_list(read_text(base) or str(cpu))
        except ValueError:
            siblings = (cpu,)
        if cpu == min(allowed.intersection(siblings), default=cpu):
            firsts.append(cpu)
    # Two threads of one core share its path to memory: the second adds nothing.
    pool = firsts if len(firsts) >= limit else list(cpus)
    return tuple(pool[i * len(pool) // limit] for i in range(limit))


def l3_bytes(cpus: Iterable[int], root: str = "/") -> int | None:
    """Return the summed size of the last-level caches that `cpus` sit on, None if unknown."""
    caches: dict[str, int] = {}
    for cpu in cpus:
        base = f"{root}sys/devices/system/cpu/cpu{cpu}/cache/"
        try:
            indices = sorted(name for name in os.listdir(base) if name.startswith("index"))
        except OSError:
            continue
        levels = [(read_text(f"{base}{i}/level") or "0", i) for i in indices]
        level, index = max(levels, default=("0", ""))
        size = _parse_size(read_text(f"{base}{index}/size") or "")
        if size and level != "0":
            shared = read_text(f"{base}{index}/shared_cpu_list") or str(cpu)
            caches[shared] = size
    return sum(caches.values()) or None


def _parse_size(text: str) -> int | None:
    number, unit = text[:-1], text[-1:]
    return int(number) * _SIZE_UNITS[unit] if number.isdigit() and unit in _SIZE_UNITS else None


def free_bytes(node: int, root: str = "/") -> int:
    """Return how much memory this process could still take on NUMA node `node`, in bytes.

    The least of what the machine has available, what its memory cgroups leave, and what the
    node has free or could drop from its file cache: memory bound to a full node is met by
    the OOM killer, not by an error.
    """
    limits = [int(psutil.virtual_memory().available)]
    limits += _cgroup_room(root)
    meminfo = read_text(f"{root}sys/devices/system/node/node{node}/meminfo") or ""
    fields = {}
    for line in meminfo.splitlines():
        words = line.replace(":", " ").split()  # Node 0 MemFree: 123 kB
        if len(words) >= 4 and words[3].isdigit():
            fields[words[2]] = int(words[3]) << 10
    if "MemFree" in fields:
        limits.append(fields["MemFree"] + fields.get("Inactive(file)", 0))
    return max(0, min(limits))


class _Controller(NamedTuple):
    mount: str
    limit: str
    usage: str


_V1 = _Controller("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
_V2 = _Controller("sys/fs/cgroup", "memory.max", "memory.current")


def _cgroup_room(root: str) -> list[int]:
    """Return what each memory cgroup above this process still leaves, in bytes."""
    room = []
    for line in (read_text(f"{root}proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        found = _V1 if controllers else _V2
        # Limits add up along the way. In a container the path may name what lies outside
        # its view; its own cgroup is then the mount point itself, the last one tried.
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            base = "/".join([root + found.mount, *parts[:depth]])
            limit = read_text(f"{base}/{found.limit}") or ""
            usage = read_text(f"{base}/{found.usage}") or ""
            if limit.isdigit() and usage.isdigit():
                droppable = _inactive_file(read_text(f"{base}/memory.stat") or "")
                room.append(int(limit) - int(usage) + droppable)
    return room


def _inactive_file(stat: str) -> int:
    """Return the file cache that a memory cgroup can drop: it counts as used, and is free."""
    fields = dict(line.split(" ", 1) for line in stat.splitlines() if " " in line)
    text = fields.get("total_inactive_file") or fields.get("inactive_file") or ""
    return int(text) if text.isdigit() else 0
