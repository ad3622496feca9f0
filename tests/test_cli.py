"""The command line as a user meets it: whole processes, exit codes, streams."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

REPO = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((REPO / "docs/schema/report-1.json").read_text())
TOPO = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tPIX\t0-23\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSOC\t24-47\t1\t\tN/A\n"
    "NIC0\tPIX\tSOC\t X \t\t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)


def run(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "topoprobe", *args],
        capture_output=True, text=True, timeout=60, check=False, env=full, encoding="utf-8",
    )  # fmt: skip


def one_line(result: subprocess.CompletedProcess[str], code: int) -> str:
    """Assert a clean failure and return its one line."""
    assert result.returncode == code
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_version_prints_the_version() -> None:
    import topoprobe

    assert run("--version").stdout == f"topoprobe {topoprobe.__version__}\n"


def test_report_of_this_machine_is_valid() -> None:
    result = run("report", "--json")

    assert result.returncode == 0
    report = json.loads(result.stdout)
    jsonschema.validate(report, SCHEMA)
    assert report["schema"] == "topoprobe/report/1"
    assert report["synthetic"] is False
    assert any(device["kind"] == "numa-node" for device in report["topology"]["devices"])


def test_json_report_never_loads_what_it_does_not_need() -> None:
    code = (
        "import sys; from topoprobe.cli import main; main(['report','--json']);"
        "print(sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = result.stderr
    for heavy in ("torch", "numpy", "pandas", "textual", "rich"):
        assert f"'{heavy}'" not in loaded


def test_text_becomes_a_report(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TOPO)

    result = run("report", "--from", str(file), "--json")

    assert result.returncode == 0
    report = json.loads(result.stdout)
    jsonschema.validate(report, SCHEMA)
    devices = {device["key"]: device for device in report["topology"]["devices"]}
    assert list(devices) == ["GPU0", "GPU1", "NIC0"]
    assert [d["kind"] for d in devices.values()] == ["gpu", "gpu", "nic"]
    assert [d["alias"] for d in devices.values()] == ["GPU0", "GPU1", "NIC0"]
    assert devices["NIC0"]["name"] == "mlx5_0"
    assert (devices["GPU1"]["cpus"], devices["GPU1"]["numa"]) == ("24-47", 1)
    paths = {(p["a"], p["b"]): (p["class"], p["labels"]["nvidia_smi"])
             for p in report["topology"]["paths"]}  # fmt: skip
    assert paths == {
        ("GPU0", "GPU1"): ("NV12", "NV12"),
        ("GPU0", "NIC0"): ("PIX", "PIX"),
        ("GPU1", "NIC0"): ("SYS", "SOC"),
    }
    assert report["host"]["name"] is None
    assert report["host"]["unknown"]


def test_asymmetric_pair_gives_two_paths_and_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TOPO.replace("GPU1\tNV12", "GPU1\tNV11"))

    report = json.loads(run("report", "--from", str(file), "--json").stdout)

    classes = {(p["a"], p["b"]): p["class"] for p in report["topology"]["paths"]}
    assert classes["GPU0", "GPU1"] == "NV12"
    assert classes["GPU1", "GPU0"] == "NV11"
    found = [f for f in report["findings"] if f["id"] == "nvlink-symmetry"]
    assert [f["status"] for f in found] == ["warn"]
    assert report["verdict"]["counts"]["warn"] == 1


def test_saved_report_comes_back_the_same(tmp_path: Path) -> None:
    text, saved, again = (tmp_path / name for name in ("t.txt", "r.json", "s.json"))
    text.write_text(TOPO)
    assert run("report", "--from", str(text), "--json", "-o", str(saved)).returncode == 0

    result = run("report", "--from", str(saved), "--json", "-o", str(again))

    assert result.returncode == 0
    assert saved.read_bytes() == again.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.json", "s.json", "t.txt"]


def test_synthetic_can_be_turned_on_and_not_off(tmp_path: Path) -> None:
    text, saved = tmp_path / "t.txt", tmp_path / "r.json"
    text.write_text(TOPO)
    run("report", "--from", str(text), "--json", "-o", str(saved),
        env={"TOPOPROBE_SYNTHETIC": "1"})  # fmt: skip

    result = run("report", "--from", str(saved), env={"TOPOPROBE_SYNTHETIC": "0"})

    assert json.loads(saved.read_text())["synthetic"] is True
    assert result.stdout.startswith("SYNTHETIC")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b" \n\n", "empty"),
        (bytes(range(256)) * 64, "binary"),
        (b"\x7fELF\0\0\0", "binary"),
        (b"hello world\n", "topology matrix"),
        (b'{"schema": "topoprobe/report/2"}', "newer"),
        (b'{"a": 1}', "not a topoprobe report"),
        (b'{"schema": "topoprobe/report/1"}', "not a valid"),
        (b'{"schema": ', "not whole JSON"),
        (b"{" + b'"a":[' * 100_000, "nested too deeply"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unusable_content_is_one_line(tmp_path: Path, content: bytes, word: str) -> None:
    file = tmp_path / "input"
    file.write_bytes(content)

    line = one_line(run("report", "--from", str(file)), 1)

    assert word in line
    assert str(file) in line


def test_unusable_files_are_one_line(tmp_path: Path) -> None:
    fifo, huge = tmp_path / "fifo", tmp_path / "huge"
    os.mkfifo(fifo)
    with huge.open("wb") as file:
        file.truncate(10**9)

    assert "No such file" in one_line(run("report", "--from", str(tmp_path / "no")), 1)
    assert "a directory" in one_line(run("report", "--from", str(tmp_path)), 1)
    assert "not a regular file" in one_line(run("report", "--from", str(fifo)), 1)
    assert "too large" in one_line(run("report", "--from", str(huge)), 1)


def test_wrong_usage_exits_2() -> None:
    assert "nonsense" in one_line(run("nonsense"), 2)
    assert "COMMAND" in one_line(run(), 2)
    assert "--frob" in one_line(run("report", "--frob"), 2)
    assert "not a duration" in one_line(run("report", "--deadline", "soon"), 2)
    assert "no text for" in one_line(run("explain", "blorp"), 2)
    assert "--from" in one_line(run("report", "--from", "x", "--measure", "quick"), 2)


def test_root_without_sys(tmp_path: Path) -> None:
    result = run("report", "--root", str(tmp_path))

    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "not there" in result.stderr
    assert "No such file" in one_line(run("report", "--root", str(tmp_path / "no")), 1)


def test_text_report_fits_80_columns_without_colour(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TOPO)
    for args in (["report", "--full"], ["report", "--full", "--from", str(file)]):
        out = run(*args, env={"FORCE_COLOR": "1", "COLUMNS": "200"}).stdout
        assert "\x1b" not in out
        assert max(len(line) for line in out.splitlines()) <= 80


def test_wide_is_one_table_as_topo_m_prints_it(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TOPO)

    out = run("report", "--wide", "--from", str(file)).stdout

    assert "      GPU0  GPU1  NIC0\nGPU0  X     NV12  PIX\nGPU1  NV12  X     SYS\n" in out
    assert "NIC0  PIX   SYS   X\n" in out


def test_text_report_is_ascii_without_utf8(tmp_path: Path) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    result = run("report", "--full", env=env)

    assert result.returncode == 0
    assert result.stdout.isascii()


def test_explain_knows_every_class_finding_and_operation() -> None:
    from topoprobe.limits.busbw import OPS
    from topoprobe.terms import ALL, explain

    words = {"PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "NV4", "C2C", "copy"}
    words |= set(OPS)
    # Every id that the code could give a finding: by the contract's first words.
    first = "driver|gpu|nvlink|fabric|p2p|pcie|nic|numa|ecc|source|profile|bench"
    for room in ("health", "bench"):
        for file in (REPO / "topoprobe" / room).glob("*.py"):
            words |= set(re.findall(rf'"((?:{first})-[a-z0-9-]+)"', file.read_text()))
    words -= {"pcie-switch", "pcie-port", "numa-node"}  # kinds of devices
    assert {"pcie-width", "bench-torch", "source-read"} <= words
    for word in words:
        assert explain(word).text
    names = [term.name for term in ALL]
    assert len(names) == len(set(names))
    for term in ALL:
        for other in term.see:
            assert explain(other)


def test_hostile_names_cannot_drive_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "topo.txt"
    file.write_text(TOPO)
    report = json.loads(run("report", "--from", str(file), "--json").stdout)
    report["host"]["name"] = "evil\x1b[2J\nname"
    for device in report["topology"]["devices"]:
        device["alias"] = device["name"] = f"evil\x1b[2J {device['key']}"
    report["topology"]["devices"][1]["parent"] = "GPU0"
    saved = tmp_path / "r.json"
    saved.write_text(json.dumps(report))

    assert "\x1b" not in run("report", "--full", "--from", str(saved)).stdout
