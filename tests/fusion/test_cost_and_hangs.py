"""How many calls a scan makes, and that no call can hang or crash the program.

`scripts/full` hangs and crashes every function; here a sample of each kind.
"""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import json

from testbed.hang import can_hang
from testbed.made import Maker
from topoprobe.model.report import Report

Inspect = Callable[..., Report]
REPORT = (sys.executable, "-m", "topoprobe", "report", "--json", "--no-cross-check")


def calls(maker: Maker, name: str) -> list[tuple[str, int]]:
    """Return (function, GPU) of every NVML call of one report."""
    made = maker(name)
    trace = made.root / "trace"
    result = made.run("env", f"FAKE_NVML_TRACE={trace}", *REPORT)
    assert result.code == 0, result.errors
    found = re.findall(r"^(nvml\w+) gpu=(-?\d+)", trace.read_text(), re.M)
    return [(function, int(gpu)) for function, gpu in found]


# Of GPU 0 in each machine: 4 questions a link, 4 counters a link up to Hopper (none on Blackwell:
# one refusal, then fields), 7 other GPUs × 4 capabilities and 7 ancestors, and some 45 of the GPU.
@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize(
    ("name", "links", "most"), [("hgx-h100-8", 18 * 8, 50), ("hgx-b200-8", 18 * 4 + 1, 55)]
)
def test_calls_of_one_gpu(name: str, links: int, most: int, maker: Maker) -> None:
    made = Counter(gpu for _, gpu in calls(maker, name))
    pairs = 7 * 4 + 7
    assert links + pairs < made[0] <= links + pairs + most
    # Nothing is asked twice for the higher numbers: only their ancestors were asked before.
    assert {made[gpu] + gpu for gpu in range(8)} == {made[0]}


@pytest.mark.usefixtures("nvml")
def test_nothing_is_asked_that_blocks_or_changes(maker: Maker) -> None:
    functions = {function for function, _ in calls(maker, "hgx-b200-8")}
    assert not {f for f in functions if "Throughput" in f or "Set" in f or "Reset" in f}
    assert not {f for f in functions if "NvLinkCapability" in f}


SAMPLE = [
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetUUID",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetTemperature", "nvmlDeviceGetP2PStatus",
]  # fmt: skip


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("action", ["hang", "abort"])
@pytest.mark.parametrize("function", SAMPLE)
def test_a_call_that_never_returns_or_kills_costs_one_gpu(
    function: str, action: str, maker: Maker
) -> None:
    made = maker("hgx-h100-8", f"nvml-call:{function}:{action}:gpu3")
    start = time.monotonic()
    result = made.run(*REPORT, "--deadline", "3")
    # The deadline and what else a loaded machine takes; scripts/full holds it to 4 s.
    assert time.monotonic() - start < 3 * 2
    assert result.code == 0, result.errors
    report = json.decode(result.output, type=Report)
    gpus = {d.alias: d for d in report.topology.devices if d.kind == "gpu"}
    for index in {*range(8)} - {3}:
        facts = gpus[f"GPU{index}"].gpu
        assert facts is not None
        assert facts.nvlink_count == 18
        assert facts.ecc is not None
        assert "gpu" not in gpus[f"GPU{index}"].unknown
    name = re.sub(r"_v\d$", "", function)
    failed = [f for f in report.findings if f.id == "gpu-answers" and f.status == "fail"]
    assert [f.subject for f in failed] == [(gpus["GPU3"].key,)]
    assert f"NVML did not answer ({name})" in failed[0].message


@pytest.mark.root
@pytest.mark.usefixtures("nvml")
def test_a_file_that_never_answers_costs_its_device(maker: Maker, inspect: Inspect) -> None:
    if not can_hang():
        pytest.skip("/dev/fuse cannot be opened here")
    start = time.monotonic()
    made = maker("hgx-h100-8", "sysfs-hang:gpu3")
    report = inspect(made, "--deadline", "3", "--no-cross-check")
    assert time.monotonic() - start < 3 * 2
    sysfs = next(source for source in report.sources if source.name == "sysfs")
    assert made.machine.gpus[3].address in str(sysfs.detail)
    assert sum(d.kind == "gpu" for d in report.topology.devices) == 8


@pytest.mark.usefixtures("nvml")
def test_no_process_is_left_behind(maker: Maker) -> None:
    made = maker("rtx3090-pair", "nvml-hang:gpu1", "smi-hang")
    for _ in range(5):
        made.run(sys.executable, "-m", "topoprobe", "report", "--json", "--deadline", "1")
    left = subprocess.run(["pgrep", "-af", "."], capture_output=True, text=True, check=False)
    assert str(made.root) not in left.stdout
    assert not [p for p in Path("/proc").glob("[0-9]*/environ") if _belongs(p, str(made.root))]


def _belongs(environ: Path, root: str) -> bool:
    try:
        return root.encode() in environ.read_bytes()
    except OSError:
        return False
