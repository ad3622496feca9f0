"""Demos: in step with the machines they show, marked as made up, shown without GPU or compiler."""

import json
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from testbed.demos import CREATED, FOLDER, Demo, capture, demos, index, write_demos
from testbed.describe import expected_matrix, load_machine, machine_names
from testbed.made import Maker
from testbed.runner import NoLibraryError
from topoprobe.cli import main
from topoprobe.sources.archive import read_capture

DEMOS = {demo.name: demo for demo in demos()}
SICK = sorted(set(DEMOS) - set(machine_names()))
# GPUs that NVML shows, and how many NVLinks of each are up: of the boards, by their makers.
SIZES = {
    "a100-mig": (2, 0), "a100-pcie-4": (4, 12), "amd-nps4": (8, 0), "aws-p5": (8, 18),
    "azure-ndv4": (8, 12), "container-2-of-8": (2, 12), "dgx-1v": (8, 6), "dgx-2": (16, 6),
    "dgx-a100": (8, 12), "future-4": (4, 24), "gb200-tray": (4, 18), "gh200": (1, 0),
    "h100-nvl-pair": (2, 12), "h200-vm": (8, 18), "hgx-a100-4": (4, 12), "hgx-b200-8": (8, 18),
    "hgx-h100-4": (4, 18), "hgx-h100-8": (8, 18), "l40s-8": (8, 0), "pex-multilevel": (4, 0),
    "rtx3090-pair": (2, 4), "rtx4090-4": (4, 0), "t4-single": (1, 0), "wsl": (1, 0),
}  # fmt: skip

# Warnings of machines that are as they should be: lanes split by design; a GPU that no bus holds.
WARNED = {"rtx3090-pair": {"pcie-width"}, "wsl": {"gpu-present"}}


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["report", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def report_of(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, Any]:
    code, out, _ = shown(capsys, "--demo", name, "--json")
    assert code == 0
    report: dict[str, Any] = json.loads(out)
    return report


def up_links(report: dict[str, Any]) -> dict[str, int]:
    """Return alias → NVLinks that are up."""
    return {
        device["alias"]: sum(
            link["kind"] == "nvlink" and link["state"] == "up" and link["a"] == device["key"]
            for link in report["topology"]["links"]
        )
        for device in report["topology"]["devices"]
        if device["kind"] == "gpu" and device["alias"]
    }


def failing(report: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return what failed or warns: check and subject."""
    return [
        (finding["id"], finding["subject"])
        for finding in report["findings"]
        if finding["status"] in ("fail", "warn")
    ]


@pytest.mark.parametrize("demo", DEMOS.values(), ids=lambda demo: demo.name)
def test_shipped_demo_is_in_step(demo: Demo) -> None:
    """Run `scripts/generate demos` after a change of machines, faults or readers."""
    try:
        made = capture(demo)
    except NoLibraryError as error:
        pytest.skip(str(error))
    shipped = (FOLDER / f"{demo.name}.tar.xz").read_bytes()
    assert read_capture(shipped, "shipped") == read_capture(made, "made")


def test_nothing_else_is_shipped() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {"index.json", *(f"{name}.tar.xz" for name in DEMOS)}
    assert (FOLDER / "index.json").read_text() == index()
    assert set(SIZES) == set(machine_names())
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1 << 20


def test_a_capture_comes_out_alike_every_time() -> None:
    try:
        first, second = (capture(DEMOS["hgx-h100-8-sick"]) for _ in range(2))
    except NoLibraryError as error:
        pytest.skip(str(error))
    assert first == second


def test_check_names_what_is_not_in_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("testbed.demos.FOLDER", tmp_path)
    monkeypatch.setattr("testbed.demos.demos", lambda: (DEMOS["wsl"],))
    try:
        assert [os.path.basename(p) for p in write_demos(True)] == ["wsl.tar.xz", "index.json"]
    except NoLibraryError as error:
        pytest.skip(str(error))
    assert list(tmp_path.iterdir()) == []
    write_demos(False)
    assert write_demos(True) == []
    (tmp_path / "wsl.tar.xz").write_bytes((FOLDER / "t4-single.tar.xz").read_bytes())
    (tmp_path / "gone.tar.xz").write_bytes(b"")
    stale = [os.path.basename(path) for path in write_demos(False)]
    assert stale == ["wsl.tar.xz", "gone.tar.xz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.json", "wsl.tar.xz"]


@pytest.mark.parametrize("name", DEMOS)
def test_nothing_of_the_computer_that_made_it_is_in_it(name: str) -> None:
    snapshot = read_capture((FOLDER / f"{name}.tar.xz").read_bytes(), name)
    machine = load_machine(DEMOS[name].machine)
    assert snapshot.synthetic
    assert snapshot.created == CREATED
    assert (snapshot.environment, snapshot.foreign_pynvml, snapshot.texts) == (None, None, {})
    assert {source.seconds for source in snapshot.sources} == {None}
    host = snapshot.host
    assert (host.name, host.os, host.page_size, host.cgroup) == (None, None, None, None)
    assert host.kernel == machine.system.kernel
    assert host.cpus == len(machine.cpus)
    assert host.container == ("docker" if name == "container-2-of-8" else None)
    text = msgspec.json.encode(snapshot).decode()
    for trace in ("/dev/shm", "/tmp", "testbed-", f'"{os.uname().nodename}"'):
        assert trace not in text


@pytest.mark.parametrize("name", DEMOS)
def test_every_demo_is_marked_as_made_up(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOPOPROBE_SYNTHETIC", raising=False)
    code, out, err = shown(capsys, "--demo", name)
    assert code == 0
    assert out.startswith("SYNTHETIC: this machine is made up")
    assert err == f"topoprobe: demo {name}: {DEMOS[name].title}\n"
    assert report_of(capsys, name)["synthetic"] is True


@pytest.mark.parametrize("name", machine_names())
def test_the_map_is_that_of_the_machine(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, name)
    gpus, links = SIZES[name]
    assert up_links(report) == {f"GPU{number}": links for number in range(gpus)}
    assert not report["verdict"]["counts"].get("fail")
    assert {check for check, _ in failing(report)} == WARNED.get(name, set())
    alias = {d["key"]: d["alias"] for d in report["topology"]["devices"]}
    labels = {
        frozenset((alias[path["a"]], alias[path["b"]])): path["labels"]["nvidia_smi"]
        for path in report["topology"]["paths"]
    }
    header, *rows = expected_matrix(name)
    for row in rows[:gpus]:
        for other, cell in zip(header[1 : gpus + 1], row[1:], strict=False):
            if other != row[0]:
                # nvidia-smi 550 itself prints no more than 18 links.
                wanted = "NV24" if name == "future-4" else cell
                assert labels[frozenset((row[0], other))] == wanted


def test_the_sick_ones_are_sick(capsys: pytest.CaptureFixture[str]) -> None:
    reports = {name: report_of(capsys, name) for name in SICK}
    # 0000:61:00.0 is GPU3, 0000:bf and so on follow from the machine's tree.
    address = {
        name: {d["alias"]: d["key"] for d in report["topology"]["devices"] if d["alias"]}
        for name, report in reports.items()
    }
    links = up_links(reports["hgx-h100-8-sick"])
    assert links == {**{f"GPU{number}": 18 for number in range(8)}, "GPU5": 17}
    found = dict(failing(reports["hgx-h100-8-sick"]))
    assert "0000:61:00.0" in found["pcie-width"]
    assert address["hgx-h100-8-sick"]["GPU5"] in found["nvlink-symmetry"]
    lost = dict(failing(reports["hgx-h100-8-gpu-lost"]))
    assert lost["gpu-answers"] == [address["hgx-h100-8-gpu-lost"]["GPU6"]]
    assert failing(reports["hgx-h100-8-idle"]) == []
    # 0000:01:00.0 is the first switch of a DGX A100.
    uplink = dict(failing(reports["dgx-a100-uplink-x8"]))
    assert "0000:01:00.0" in uplink["pcie-width"]
    sources = {s["name"]: s["status"] for s in reports["rtx4090-4-driver-mismatch"]["sources"]}
    assert sources["nvml"] == "error"


def test_a_demo_is_what_the_program_reads_in_the_machine(
    maker: Maker, nvml: None, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = DEMOS["hgx-h100-8-sick"]
    made = maker(demo.machine, *demo.faults)
    command = [sys.executable, "-m", "topoprobe", "report", "--json", "--no-cross-check"]
    result = made.run(*command)
    assert result.code == 0, result.errors
    shipped, live = report_of(capsys, demo.name)["topology"], json.loads(result.output)["topology"]
    for device in (*shipped["devices"], *live["devices"]):
        if device["kind"] != "gpu":
            # From pci.ids of the system that runs this, if it has one; a demo brings its own.
            device["name"] = None
            device["unknown"].pop("name", None)
    assert shipped == live


def test_a_demo_needs_no_nvml_no_compiler_no_program() -> None:
    code = (
        "import sys; sys.modules['pynvml'] = None; from topoprobe.cli import main;"
        "code = main(['report', '--demo', 'hgx-h100-8', '--json']);"
        "print(sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr); sys.exit(code)"
    )
    env = {"PATH": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=env, cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["synthetic"] is True
    for heavy in ("rich", "torch", "numpy", "tarfile", "testbed"):
        assert f"'{heavy}'" not in result.stderr


@pytest.mark.parametrize("arguments", [["--demo"], ["--demo", "list"]])
def test_the_list_has_a_line_for_each(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = shown(capsys, *arguments)
    assert (code, err) == (0, "")
    assert [line.split(maxsplit=1) for line in out.splitlines()] == [
        [demo.name, demo.title] for demo in DEMOS.values()
    ]


def test_an_unknown_name_gives_one_line_with_the_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("hgx-h100-9", "../demos/wsl", "", "index.json", "wsl\0", "a\nb"):
        code, out, err = shown(capsys, "--demo", name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert all(known in err for known in DEMOS)


@pytest.mark.parametrize(
    "other", [["--from", "x"], ["--root", "/tmp"], ["--measure", "quick"]], ids=lambda o: o[0]
)
def test_a_demo_goes_with_no_other_input(
    other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = shown(capsys, "--demo", "wsl", *other)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--demo" in err


def test_the_list_is_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = shown(capsys, "--demo", "list", "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
