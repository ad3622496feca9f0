"""The data file's mistakes end the process with their place, and its page names every word."""

import re
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

from fakenvml.build import HERE, MissingError, build
from fakenvml.trial import EXAMPLE, Trial

GOOD = "gpu 0 bus 0000:01:00.0"


@pytest.fixture(scope="module")
def library() -> Path:
    try:
        return build()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("gpus 8", "unknown statement 'gpus'"),
        ("gpu 0 colour red", "unknown key 'colour'"),
        ("gpu 64 bus 0000:01:00.0", "GPU: 64 is not within 0 and 63"),
        ("gpu x name y", "'x' is not a number"),
        ("gpu 0 name", "name is missing"),
        ("gpu 0", "the key is missing"),
        ("gpu 0 temp warm", "temp: 'warm' is not a number"),
        ("gpu 0 temp !x", "temp: 'x' is not a number"),
        ("gpu 0 temp !1000", "not within"),
        ("gpu 0 bus 01:00", "'01:00' is not a PCI address"),
        ("gpu 1 name without a bus before it", "gpu 1 has no bus"),
        ("link 0 64 1 6 2 26562 0000:01:00.0", "link: 64 is not within"),
        ("link 0 0 1 6 2 26562", "the far end is missing"),
        ("link 0 0 1 6 2 26562 GPU3", "'GPU3' is not a PCI address"),
        ("link 0 * 1 6 2 26562 0000:01:00.0", "one by one"),
        ("link 0 * state 1", "one by one"),
        ("link 0 0 speed 3", "unknown key 'speed'"),
        ("level 0 1 99", "level: 99 is not within"),
        ("p2p 9 0 1 1", "capability: 9 is not within"),
        ("p2p 0 0 1 1 both", "oneway"),
        ("field 0 94 * int 3", "unknown type 'int'"),
        ("field 0 94 * u32", "the value is missing"),
        ("field 0 94 * f64 x", "'x' is not a number"),
        ("mig 0 16 gi 1", "MIG device: 16 is not within"),
        ("mig * 0 gi 1", "'*' is not a number"),
        ("process 0 1 1 X name", "not 'X'"),
        ("process 9 1 1 C name", "gpu 9, which does not exist"),
        ("fault nvmlInit * *", "action is missing"),
        ("fault nvmlInit * * explode", "'explode' is not a number"),
        ("fault nvmlInit * * delay:soon", "'soon' is no number of seconds"),
        ("latency * -5", "not within"),
        ("max_links 65", "not within"),
        ("driver", "the version is missing"),
        ("gpu 0 name " + "x" * 2000, "longer than"),
    ],
)
def test_a_mistake_names_its_line(line: str, word: str, library: Path, tmp_path: Path) -> None:
    data = tmp_path / "bad.data"
    data.write_text(f"# comment\n\n{GOOD}\n{line}\n")
    result = Trial(library, data).python("import pynvml; pynvml.nvmlInit()")
    assert result.code == -signal.SIGABRT
    assert result.errors.startswith(f"fakenvml: {data}:4: ")
    assert word in result.errors
    assert result.errors.count("\n") == 1


def test_a_file_that_is_not_there_is_named(library: Path, tmp_path: Path) -> None:
    result = Trial(library, tmp_path / "none").python("import pynvml; pynvml.nvmlInit()")
    assert result.code == -signal.SIGABRT
    assert f"{tmp_path / 'none'}:0: cannot be opened" in result.errors


def test_too_many_lines_are_refused(library: Path, tmp_path: Path) -> None:
    data = tmp_path / "long.data"
    data.write_text("#\n" * 200_001)
    result = Trial(library, data).python("import pynvml; pynvml.nvmlInit()")
    assert "more than 200000 lines" in result.errors


def test_the_most_gpus_and_links_fit(library: Path, tmp_path: Path) -> None:
    data = tmp_path / "big.data"
    lines = ["max_links 64", "gpu * name Fake"]
    lines += [f"gpu {i} bus {i:04x}:01:00.0" for i in range(64)]
    lines += [f"link * {i} 1 7 2 53125 ffffffff:ff:ff.0" for i in range(64)]
    data.write_text("\n".join(lines))
    questions = (
        "count",
        "index(h[63])",
        "n.nvmlDeviceGetNvLinkState(h[63], 63)",
        "fields(h[5], 91)",
    )
    assert Trial(library, data).ask(*questions) == [64, 63, 1, [64]]


def test_a_line_for_one_wins_over_a_line_for_all(library: Path, tmp_path: Path) -> None:
    data = tmp_path / "nvml.data"
    data.write_text(
        "gpu 0 temp 40\ngpu * temp 30\ngpu 0 bus 0:1:0.0\ngpu 1 bus 0:2:0.0\n"
        "field 0 95 * u32 1\nfield * 95 * u32 2\n"
        "link 0 1 replay 5\nlink * * replay 0\nlink * 1 1 6 2 26562 0000:07:00.0\n"
    )
    questions = [
        text.format(gpu)
        for text in (
            "n.nvmlDeviceGetTemperature(h[{}], 0)",
            "fields(h[{}], 95)",
            "n.nvmlDeviceGetNvLinkErrorCounter(h[{}], 1, 0)",
        )
        for gpu in (0, 1)
    ]
    assert Trial(library, data).ask(*questions) == [40, 30, [1], [2], 5, 0]


def test_the_page_names_every_key_and_statement() -> None:
    page = (HERE / "FORMAT.md").read_text()
    listed = set(re.findall(r"\w+", page))
    keys = re.findall(r"(?:NUMBER|TEXT)\((\w+)\)", (HERE / "keys.h").read_text())
    assert len(keys) > 100
    families = ("max_clock_", "app_clock_", "default_clock_", "boost_clock_")
    missing = {k for k in keys if not k.startswith(families)} - listed
    assert not missing
    statements = re.findall(r'\{"(\w+)", \w+_line\}', (HERE / "data.c").read_text())
    assert len(statements) == 16
    assert all(re.search(rf"^    {word} ", page, re.M) for word in {*statements} - {"gpu"})


def test_the_example_has_no_constant_of_a_machine_in_c() -> None:
    names = re.findall(r"name (NVIDIA \w+)", EXAMPLE.read_text())
    source = "".join(path.read_text() for path in HERE.glob("*.c"))
    assert names
    assert not [name for name in names if f'"{name}' in source]
