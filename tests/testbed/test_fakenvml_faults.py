"""Faults, latencies, traces and counts of the fake NVML: what is asked for happens, there only."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

from fakenvml.build import MissingError, build
from fakenvml.trial import EXAMPLE, Trial

Broken = Callable[..., Trial]


@pytest.fixture
def broken(tmp_path: Path) -> Broken:
    """Return the example with lines added."""
    try:
        library = build()
    except MissingError as error:
        pytest.skip(str(error))

    def add(*lines: str) -> Trial:
        data = tmp_path / "nvml.data"
        data.write_text(EXAMPLE.read_text() + "\n".join(lines) + "\n")
        return Trial(library, data)

    return add


def states(trial: Trial) -> list[object]:
    """Return the states of link 0 and 1 of the GPUs 0 and 2."""
    pairs = [(0, 0), (0, 1), (2, 0), (2, 1)]
    return trial.ask(*(f"n.nvmlDeviceGetNvLinkState(h[{g}], {link})" for g, link in pairs))


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ((), [1, 1, 1, 1]),
        (("fault nvmlDeviceGetNvLinkState * * 999",), ["!999"] * 4),
        (("fault nvmlDeviceGetNvLinkState 2 * 15",), [1, 1, "!15", "!15"]),
        (("fault nvmlDeviceGetNvLinkState * 1 4",), [1, "!4", 1, "!4"]),
        (("fault nvmlDeviceGetNvLinkState 2 1 4",), [1, 1, 1, "!4"]),
        (("fault nvmlDeviceGetNvLinkState * * 10 2",), [1, 1, "!10", "!10"]),
        (("fault nvmlDeviceGetNvLinkState * * 10 1 2",), [1, "!10", "!10", 1]),
        (("fault nvmlDeviceGetNvLink* 0 * 3",), ["!3", "!3", 1, 1]),
        (("fault nvmlDeviceGetNvLinkVersion * * 3",), [1, 1, 1, 1]),
        # The first line that fits decides; 0 shields.
        (
            ("fault nvmlDeviceGetNvLinkState 0 1 0", "fault nvmlDevice*State * * 27"),
            ["!27", 1, "!27", "!27"],
        ),
        # As older data files have it.
        (("fault nvmlDeviceGetNvLinkState 2 -1 15 0",), [1, 1, "!15", "!15"]),
    ],
)
def test_a_code_hits_its_function_gpu_link_and_call(
    lines: tuple[str, ...], wanted: list[object], broken: Broken
) -> None:
    assert states(broken(*lines)) == wanted


@pytest.mark.parametrize("code", [9, 18, 4, 15])
def test_a_failed_start_leaves_the_library_uninitialised(code: int, broken: Broken) -> None:
    trial = broken(f"fault nvmlInit* * * {code}")
    questions = ("started", "n.nvmlDeviceGetCount()", "n.nvmlSystemGetNVMLVersion()")
    assert trial.ask(*questions) == [f"!{code}", "!1", "12.550.163.01"]


def test_without_a_data_file_there_is_no_driver(broken: Broken) -> None:
    assert broken().ask("started", FAKE_NVML_DATA="") == ["!9"]


def test_a_lost_gpu_is_counted_and_has_no_handle(broken: Broken) -> None:
    trial = broken("fault nvmlDevice* 1 * 15")
    questions = (
        "[k for k in h if isinstance(k, str)]",
        "n.nvmlDeviceGetCount()",
        "n.nvmlDeviceGetHandleByUUID('GPU-11111111-1111-2222-3333-444444444444')",
        "n.nvmlDeviceGetHandleByPciBusId('0000:43:00.0')",
        "index(h[2])",
    )
    assert trial.ask(*questions) == [["!15"], 3, "!15", "!15", 2]


def test_a_gpu_can_be_lost_after_some_calls(broken: Broken) -> None:
    # The handle and two names go right.
    trial = broken("fault nvmlDevice* 0 * 15 3")
    assert trial.ask(*["n.nvmlDeviceGetName(h[0])[:6]"] * 4) == ["NVIDIA"] * 2 + ["!15"] * 2


def test_a_field_value_fails_alone_or_with_its_call(broken: Broken) -> None:
    question = "fields(h[0], (164, 0), (165, 0), 91)"
    one = broken("fault nvmlDeviceGetFieldValues 0 165 15")
    assert one.ask(question) == [[26562, "!15", 5]]
    whole = broken("fault nvmlDeviceGetFieldValues 0 * 15")
    assert whole.ask(question) == ["!15"]


def test_functions_without_data_can_fail_too(broken: Broken) -> None:
    question = "n.nvmlDeviceGetSupportedVgpus(h[0])"
    assert broken().ask(question) == ["!3"]
    assert broken("fault nvmlDeviceGetSupportedVgpus 0 * 4").ask(question) == ["!4"]


# Which of two threads is done first, rather than how long a call took.
_RACE = """
import sys, threading, time
import pynvml as n
n.nvmlInit()
done = []
def slow():
    n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(1))
    done.append("slow")
thread = threading.Thread(target=slow, daemon=True)
thread.start()
time.sleep(0.05)
n.nvmlDeviceGetName(n.nvmlDeviceGetHandleByIndex(0))
done.append("quick")
thread.join(float(sys.argv[1]))
print(*done)
"""


@pytest.mark.parametrize(
    ("lines", "join", "wanted"),
    [
        ((), "10", "slow quick"),
        (("fault nvmlDeviceGetName 1 * delay:0.5",), "10", "quick slow"),
        (("fault nvmlDeviceGetName 1 * hang",), "0.2", "quick"),
    ],
)
def test_a_delay_or_hang_holds_its_thread_alone(
    lines: tuple[str, ...], join: str, wanted: str, broken: Broken
) -> None:
    result = broken(*lines).python(_RACE, join)
    assert (result.output.strip(), result.stopped) == (wanted, "")


def test_a_delay_can_end_in_a_code(broken: Broken) -> None:
    trial = broken("fault nvmlDeviceGetName 1 * delay:0.01:10")
    assert trial.ask("n.nvmlDeviceGetName(h[1])") == ["!10"]


@pytest.mark.parametrize("action", ["hang", "9998"])
def test_a_hang_survives_signals_and_ends_by_kill(action: str, broken: Broken) -> None:
    trial = broken(f"fault nvmlDeviceGetUUID 0 * {action}")
    code = (
        "import pynvml as n\nn.nvmlInit()\nprint('before', flush=True)\n"
        "n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=trial.env(), stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "before\n"
            # It is in the call when the trace has grown no further; a moment is enough, and too
            # short a one would end it by the signals below and fail here.
            time.sleep(0.3)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
                process.send_signal(number)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
        finally:
            process.kill()
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("action", "number"), [("abort", signal.SIGABRT), ("segv", signal.SIGSEGV)]
)
def test_a_crash_ends_the_process_by_its_signal(
    action: str, number: signal.Signals, broken: Broken, tmp_path: Path
) -> None:
    trial = broken(f"fault nvmlDeviceGetUUID 0 * {action}")
    trace = tmp_path / "trace"
    code = "import pynvml as n; n.nvmlInit(); n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0))"
    result = trial.python(code, FAKE_NVML_TRACE=str(trace))
    assert result.code == -number
    # The last line names the guilty call.
    last = trace.read_text().splitlines()[-1]
    assert last == f"nvmlDeviceGetUUID gpu=0 arg=-1 rc={action}"


_CLOCK = """
import time
import pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
def least(call):
    times = []
    for _ in range(5):
        start = time.monotonic()
        call()
        times.append(time.monotonic() - start)
    return min(times)
print(least(lambda: n.nvmlDeviceGetName(h)), least(lambda: n.nvmlDeviceGetPcieThroughput(h, 0)))
"""


@pytest.mark.parametrize(
    ("lines", "name", "throughput"),
    [
        ((), 0, 0.02),
        (("latency * 1000", "latency nvmlDeviceGetName 5000"), 0.005, 0.001),
        (("latency nvmlDeviceGetPcieThroughput 0",), 0, 0),
    ],
)
def test_latencies_are_waited_for(
    lines: tuple[str, ...], name: float, throughput: float, broken: Broken
) -> None:
    # The quickest of a few calls: never quicker than told, and hardly 15 ms slower.
    times = map(float, broken(*lines).python(_CLOCK).output.split())
    for found, wanted in zip(times, (name, throughput), strict=True):
        assert wanted <= found < wanted + 0.015


def test_the_trace_has_a_line_a_call(broken: Broken, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trial = broken()
    questions = ("n.nvmlDeviceGetNvLinkState(h[0], 3)", "fields(h[0], (164, 1))")
    trial.ask(*questions, FAKE_NVML_TRACE=str(trace))
    lines = trace.read_text().splitlines()
    assert lines[0] == "nvmlInitWithFlags gpu=-1 arg=-1 rc=0"
    assert "nvmlDeviceGetHandleByIndex_v2 gpu=2 arg=2 rc=0" in lines
    assert lines[-3:] == [
        "nvmlDeviceGetNvLinkState gpu=0 arg=3 rc=3",
        "field:164 gpu=0 arg=1 rc=0",
        "nvmlDeviceGetFieldValues gpu=0 arg=-1 rc=0",
    ]
    assert all(re.fullmatch(r"[\w:]+ gpu=-?\d+ arg=-?\d+ rc=-?\d+", line) for line in lines)


def test_the_trace_is_bounded_over_processes(broken: Broken, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trial = broken()
    for _ in range(3):
        trial.ask(
            "[n.nvmlDeviceGetName(h[0]) for _ in range(1000)] and 0",
            FAKE_NVML_TRACE=str(trace),
            FAKE_NVML_TRACE_LIMIT="2000",
        )
    text = trace.read_text()
    assert len(text) <= 2000 + 3 * len("trace full\n")
    assert text.endswith("trace full\n")


def test_counts_are_written_per_function_and_gpu(broken: Broken, tmp_path: Path) -> None:
    trial = broken()
    question = "[n.nvmlDeviceGetName(h[2]) for _ in range(5)] and n.nvmlShutdown()"
    trial.ask(question, FAKE_NVML_COUNTS=str(tmp_path / "counts-%p"))
    (counts,) = tmp_path.glob("counts-*")
    assert re.fullmatch(r"counts-\d+", counts.name)
    lines = counts.read_text().splitlines()
    assert "nvmlDeviceGetName 2 5" in lines
    assert "nvmlInitWithFlags -1 1" in lines
    assert "nvmlDeviceGetHandleByIndex_v2 0 1" in lines


def test_counts_are_written_without_a_shutdown(broken: Broken, tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    broken().ask("n.nvmlDeviceGetName(h[1])", FAKE_NVML_COUNTS=str(counts))
    assert "nvmlDeviceGetName 1 1" in counts.read_text().splitlines()


_THREADS = """
import threading
import pynvml as n
n.nvmlInit()
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(3)]
def work():
    for _ in range(300):
        for h in handles:
            n.nvmlDeviceGetName(h)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
n.nvmlShutdown()
"""


def test_threads_lose_no_count(broken: Broken, tmp_path: Path) -> None:
    counts, trace = tmp_path / "counts", tmp_path / "trace"
    result = broken().python(_THREADS, FAKE_NVML_COUNTS=str(counts), FAKE_NVML_TRACE=str(trace))
    assert result.code == 0, result.errors
    lines = counts.read_text().splitlines()
    assert [f"nvmlDeviceGetName {i} 2400" in lines for i in range(3)] == [True] * 3
    assert trace.read_text().count("nvmlDeviceGetName gpu=1 arg=-1 rc=0\n") == 2400
