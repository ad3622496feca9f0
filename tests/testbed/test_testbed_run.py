"""`scripts/machine`, and programs run inside a machine: bounded, as root and as nobody."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.describe import machine_names
from testbed.hang import can_hang
from testbed.made import Maker
from testbed.runner import run

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "machine"

Done = subprocess.CompletedProcess[str]


def script(*arguments: str, start: tuple[str, ...] = (sys.executable,)) -> Done:
    command = [*start, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_list_prints_a_name_a_line() -> None:
    assert script("list").stdout.split() == machine_names()


def test_faults_are_listed_with_what_they_do() -> None:
    assert "nvlink-down" in script("faults").stdout


def test_make_writes_a_tree(tmp_path: Path) -> None:
    target = tmp_path / "m"
    assert script("make", "rtx3090-pair", str(target), "--fault", "xid:gpu1:94").returncode == 0
    assert (target / "sys/bus/pci/devices/0000:01:00.0/vendor").read_text() == "0x10de\n"
    assert ": 94," in (target / "var/log/kern.log").read_text()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("make", "dgx-9", "x"), "no machine 'dgx-9'"),
        (("make", "gh200", "x", "--fault", "melted"), "no fault 'melted'"),
        (("make", "gh200", "/"), "not empty"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments: tuple[str, ...], word: str) -> None:
    done = script(*arguments)
    assert done.returncode == 2
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("namespaces")
def test_run_shows_the_machine_and_exits_as_the_program() -> None:
    command = "cat /sys/class/dmi/id/product_name; echo $TOPOPROBE_SYNTHETIC; exit 7"
    done = script("run", "dgx-1v", "--", "sh", "-c", command)
    assert done.returncode == 7
    assert done.stdout == "DGX-1 with V100-32\n1\n"


@pytest.mark.usefixtures("namespaces")
def test_run_ends_a_program_that_hangs() -> None:
    done = script("run", "t4-single", "--timeout", "0.5", "--", "sleep", "100")
    assert done.returncode == 124


@pytest.mark.root
def test_run_works_as_nobody() -> None:
    if os.geteuid() != 0 or not shutil.which("runuser"):
        pytest.skip("needs root, to become nobody")
    nobody = ("runuser", "-u", "nobody", "--")
    if subprocess.run([*nobody, "unshare", "-Urm", "true"], check=False).returncode:
        pytest.skip("no user namespaces here")
    # The environment that runs this test may be closed to others.
    start = (*nobody, "/usr/bin/env", "PATH=/usr/local/bin:/usr/bin:/bin", "python3")
    if script("list", start=start).returncode:
        pytest.skip("nobody cannot run the script with the system's own Python")
    done = script("run", "dgx-1v", "--", "cat", "/sys/class/dmi/id/product_name", start=start)
    assert done.stdout == "DGX-1 with V100-32\n", done.stderr


def test_a_flood_is_cut_at_the_limit() -> None:
    result = run(["yes"], os.environ, timeout=20, limit=100_000)
    assert result.stopped == "output"
    assert len(result.output) < 1_000_000


def test_a_program_that_waits_is_cut_in_time() -> None:
    assert run(["sleep", "100"], os.environ, timeout=0.2).stopped == "time"


def test_an_ordinary_program_is_left_alone() -> None:
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"], os.environ)
    assert (result.code, result.output, result.errors, result.stopped) == (3, "out\n", "err\n", "")


@pytest.mark.usefixtures("namespaces")
def test_a_hanging_file_hangs_a_plain_reader(maker: Maker) -> None:
    made = maker("dgx-1v", "sysfs-hang:nic0")
    path = "/sys/class/infiniband/mlx5_0/ports/1/state"
    assert made.run("cat", path, timeout=0.5).stopped == "time"


@pytest.mark.root
@pytest.mark.usefixtures("namespaces")
def test_a_reader_of_a_silent_file_cannot_be_killed(maker: Maker) -> None:
    if not can_hang():
        pytest.skip("/dev/fuse cannot be opened here")
    script = (
        "cat /sys/class/infiniband/mlx5_0/ports/1/state & p=$!; sleep 0.3; kill -9 $p; sleep 0.2; "
        "grep State /proc/$p/status"
    )
    # In the kernel (D), as the reader of a sick device is; not gone, and no zombie (Z).
    result = maker("dgx-1v", "sysfs-hang:nic0").run("sh", "-c", script)
    assert "D (disk sleep)" in result.output, result.errors
