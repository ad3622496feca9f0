import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topoprobe.bench import machine

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return _write


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"{tmp_path}/"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("", ()),
        ("\n", ()),
        ("5", (5,)),
        ("0-1,64-65\n", (0, 1, 64, 65)),
        ("3,1,1-2", (1, 2, 3)),
    ],
)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert machine.parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["3-1", "a", "1-", "-1", "0-99999999999", "1-2-3", "0x1"])
def test_bad_cpu_lists(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        machine.parse_cpu_list(text)


@given(st.text(max_size=20))
def test_cpu_lists_of_rubbish_raise_nothing_else(text: str) -> None:
    with contextlib.suppress(ValueError):
        machine.parse_cpu_list(text)


def test_few_cpus_are_all_taken(root: str) -> None:
    assert machine.choose_cpus([0, 1, 5], 16, root) == (0, 1, 5)


def test_of_many_cpus_one_of_each_core_is_taken_evenly(write: Write, root: str) -> None:
    for core in range(8):
        for cpu in (core, core + 8):
            name = f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            write(name, f"{core},{core + 8}\n")
    assert machine.choose_cpus(list(range(16)), 4, root) == (0, 2, 4, 6)
    # The first thread of core 0 is not ours: its second stands in.
    assert machine.choose_cpus(list(range(1, 16)), 8, root) == (1, 2, 3, 4, 5, 6, 7, 8)


def test_last_level_caches_are_counted_once_each(write: Write, root: str) -> None:
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index, level, size, shared in (
            (0, 1, "32K", f"{cpu}"),
            (2, 2, "1024K", f"{cpu}"),
            (3, 3, "32768K", "0-1" if cpu < 2 else "2-3"),
        ):
            write(f"{base}/index{index}/level", f"{level}\n")
            write(f"{base}/index{index}/size", f"{size}\n")
            write(f"{base}/index{index}/shared_cpu_list", f"{shared}\n")
    assert machine.l3_bytes([0, 1], root) == 32 << 20
    assert machine.l3_bytes([0, 1, 2, 3], root) == 64 << 20
    assert machine.l3_bytes([9], root) is None


def test_free_memory_is_bounded_by_the_node(write: Write, root: str) -> None:
    write(
        "sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:  8000 kB\nNode 1 MemFree:  100 kB\nNode 1 Inactive(file):  50 kB\n",
    )
    assert machine.free_bytes(1, root) == 150 << 10


def test_free_memory_is_bounded_by_cgroup_v2_of_any_level(write: Write, root: str) -> None:
    write("proc/self/cgroup", "0::/pod/box\n")
    write("sys/fs/cgroup/pod/box/memory.max", "max\n")
    write("sys/fs/cgroup/pod/box/memory.current", "1000\n")
    write("sys/fs/cgroup/pod/memory.max", "5000\n")
    write("sys/fs/cgroup/pod/memory.current", "4500\n")
    write("sys/fs/cgroup/pod/memory.stat", "anon 9\ninactive_file 300\n")
    assert machine.free_bytes(0, root) == 800


def test_free_memory_in_a_container_with_cgroup_v1(write: Write, root: str) -> None:
    # The path is that of the host; what the container sees is its own cgroup at the mount.
    write("proc/self/cgroup", "4:memory:/docker/abc\n3:cpuset:/docker/abc\n0::/\n")
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n")
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", "2500\n")
    assert machine.free_bytes(0, root) == 0


def test_this_machine_answers() -> None:
    assert machine.allowed_cpus()
    assert machine.free_bytes(0) > 0
