#!/usr/bin/env python3
"""What `topoprobe report --json` costs on a synthetic node, as ratios to other programs there.

scripts/bench/report.py [RUNS] [PYTHON]     PYTHON: the interpreter of a plain installation

Run it on a quiet machine; nvitop and gpustat come from scripts/oracles.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MACHINE = ROOT / "scripts" / "machine"
SCAN = ROOT / "scripts" / "bench" / "scan.py"


def main() -> int:
    """Run everything inside the machines and print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    python = sys.argv[2] if len(sys.argv) > 2 else sys.executable
    report = [str(Path(python).parent / "topoprobe"), "report", "--json", "--no-cross-check"]
    scan = [python, str(SCAN)]
    plain = inside("hgx-h100-8", runs, {
        "python -c pass": [python, "-c", "pass"], "scan": scan, "report": report,
        "nvitop -1": ["nvitop", "-1"], "gpustat --json": ["gpustat", "--json"],
    })  # fmt: skip
    slow = inside("hgx-h100-8", runs, {"scan": scan, "report": report}, "nvml-latency:500")
    sixteen = inside("dgx-2", runs, {"report": report})
    eight = inside("dgx-1v", runs, {"report": report})
    show("report / bare scan", plain["report"], plain["scan"], 4)
    show("report / nvitop -1", plain["report"], plain.get("nvitop -1"), 1)
    show("report / gpustat --json", plain["report"], plain.get("gpustat --json"), 0.25)
    show("report / bare scan, 0.5 ms a call", slow["report"], slow["scan"], 1.3)
    show("16 GPUs / 8 GPUs", sixteen["report"], eight["report"], 2)
    print(f"{'peak memory, MB':36} {plain['peak_mb']:8.1f}            bound   80")
    return 0


def show(name: str, ours: float, theirs: "float | None", bound: float) -> None:
    """Print a line: the ratio, the two medians in ms, the bound."""
    if theirs is None:
        print(f"{name:36} not here: scripts/oracles fetches it")
        return
    ms = f"{ours * 1e3:.0f}/{theirs * 1e3:.0f} ms"
    print(f"{name:36} {ours / theirs:8.2f}  {ms:>12} bound {bound:4g}")


def inside(
    machine: str, runs: int, commands: dict[str, list[str]], fault: str = ""
) -> dict[str, float]:
    """Return the median seconds of each command, run in turn inside a machine."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(commands, file)
        file.flush()
        faults = ["--fault", fault] if fault else []
        done = subprocess.run(
            [str(MACHINE), "run", machine, *faults, "--", sys.executable, __file__, "--inner",
             str(runs), file.name],
            capture_output=True, text=True, check=True, timeout=600,
        )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(runs: int, commands: dict[str, list[str]]) -> dict[str, float]:
    """Time the commands, each once a round, after one round that counts for nothing."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    times: dict[str, list[float]] = {}
    peak = 0
    for number in range(runs + 1):
        for name, command in commands.items():
            before = time.perf_counter()
            try:
                process = subprocess.Popen(
                    command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            except FileNotFoundError:
                continue
            _, status, usage = os.wait4(process.pid, 0)
            if number and status == 0:
                times.setdefault(name, []).append(time.perf_counter() - before)
            if name == "report":
                peak = max(peak, usage.ru_maxrss)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {**medians, "peak_mb": peak / 1024}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.argv[1:2] == ["--inner"]:
        print(json.dumps(measure(int(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))))
        sys.exit(0)
    sys.exit(main())
