#!/usr/bin/env python3
"""Start-up cost as ratios to `python -c pass`, whole processes, interleaved in one run.

Usage: scripts/bench/startup.py [ROUNDS]   (default 15; exits 1 where a bound is passed)
"""

import compileall
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import topoprobe

SCRIPT = Path(sys.executable).with_name("topoprobe")
COMMANDS = {
    "python -c pass": ([sys.executable, "-c", "pass"], None),
    "topoprobe --version": ([str(SCRIPT), "--version"], 3.0),
    "topoprobe --help": ([str(SCRIPT), "--help"], None),
    "topoprobe report --json": ([str(SCRIPT), "report", "--json"], 9.0),
}


def seconds(command: list[str]) -> float:
    # Not run(timeout=): it polls with growing sleeps, so that times come out as 15.5, 31.5,
    # 63.5 ms. The alarm bounds a command that hangs instead.
    signal.alarm(60)
    start = time.perf_counter()
    code = subprocess.Popen(command, stdout=subprocess.DEVNULL).wait()
    end = time.perf_counter()
    signal.alarm(0)
    if code:
        raise SystemExit(f"{command}: exit status {code}")
    return end - start


def main() -> int:
    # pip compiles what it installs; a checkout is compiled at its first run, unless
    # PYTHONDONTWRITEBYTECODE is set. Measure what an installed topoprobe does.
    compileall.compile_dir(Path(topoprobe.__file__).parent, quiet=1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, (command, _) in COMMANDS.items():
            times[name].append(seconds(command))
    base = statistics.median(times["python -c pass"])
    worst = 0
    for name, (_, bound) in COMMANDS.items():
        ratio = statistics.median(times[name]) / base
        over = bound is not None and ratio > bound
        worst |= over
        limit = f"  bound {bound:g}" if bound else ""
        print(f"{name:26} {ratio * base * 1e3:7.1f} ms  {ratio:5.2f} x{limit}{'  OVER' * over}")
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
