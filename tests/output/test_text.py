"""The whole text, on every synthetic machine: it fits, it says what it must, it hides nothing."""

import io
import re
import sys
from functools import lru_cache

import pytest
from msgspec import json

from testbed.describe import machine_names
from testbed.made import makers
from topoprobe.model.report import Report
from topoprobe.output.matrix import expand, fit
from topoprobe.output.paths import grids_of
from topoprobe.output.text import print_report


@lru_cache(maxsize=40)
def inspected(name: str, *faults: str) -> Report:
    with makers() as maker:
        made = maker(name, *faults)
        result = made.run(sys.executable, "-m", "topoprobe", "report", "--json")
        assert result.code == 0, result.errors[-2000:]
        return json.decode(result.output, type=Report)


def text(
    report: Report, encoding: str = "utf-8", *, full: bool = False, wide: bool = False
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_report(report, file, full=full, wide=wide)
    file.seek(0)
    return file.read()


def part(shown: str, start: str) -> list[str]:
    """Return the lines from the one that starts so to the next empty one."""
    lines = shown.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(start))
    return lines[begin : lines.index("", begin)]


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_fits_80_columns_and_ascii(nvml: None, name: str) -> None:
    report = inspected(name)

    for full in (False, True):
        shown = text(report, full=full)
        assert max(map(len, shown.splitlines())) <= 80
        assert shown.startswith("SYNTHETIC")
        assert "\x1b" not in shown
        plain = text(report, "ascii", full=full)
        assert plain.isascii()
        assert max(map(len, plain.splitlines())) <= 80
    # The first screen: what it is and whether all is well, before any table.
    head = text(report).partition("\n\n")[0].splitlines()
    assert len(head) <= 12
    assert any(line.startswith("verdict") for line in head)


@pytest.mark.parametrize("name", machine_names())
def test_no_matrix_of_any_machine_loses_a_cell(nvml: None, name: str) -> None:
    for grid in grids_of(inspected(name).topology, full=True, joined=False):
        for width in (40, 80, 200):
            shown = expand(fit(grid, width))
            cells = {
                frozenset((*row, *column)): cell
                for row, cells in zip(shown.rows, shown.cells, strict=True)
                for column, cell in zip(shown.columns, cells, strict=True)
            }
            for row, ours in zip(grid.rows, grid.cells, strict=True):
                for column, cell in zip(grid.columns, ours, strict=True):
                    assert cells[frozenset((*row, *column))] == cell


@pytest.mark.parametrize("name", ["dgx-2", "aws-p5"])
def test_wide_is_one_whole_table_and_cuts_nothing(nvml: None, name: str) -> None:
    report = inspected(name)
    ends = {key for path in report.topology.paths for key in (path.a, path.b)}
    count = sum(d.key in ends and d.kind != "numa-node" for d in report.topology.devices)

    shown = text(report, full=True, wide=True)

    assert "…" not in shown
    rows = [line for line in shown.splitlines() if re.match(r"(GPU|NIC|rdmap)\S+ .* X( |$)", line)]
    assert len(rows) == count
    assert {len(row.split()) for row in rows} == {count + 1}


def test_dgx_2_is_one_row(nvml: None) -> None:
    report = inspected("dgx-2")

    shown = text(report, full=True)

    assert part(shown, "GPU×GPU") == ["GPU×GPU  GPU0-15", "GPU0-15  NV6"]
    assert part(shown, "GPU×NUMA") == [
        "GPU×NUMA  numa:0  numa:1",
        "GPU0-7    PHB     SYS",
        "GPU8-15   SYS     PHB",
    ]
    assert "all 16 GPUs joined by NVSwitch, 6 × NVLink 2.0 each" in shown
    assert part(shown, "NVLink of") == [
        "NVLink of  up   version  GB/s  to",
        "GPU0-15    6/6  2.0      25.8  nvswitch ×6: 1+1+1+1+1+1",
    ]


def test_aws_p5_shows_each_gpu_with_its_four_nics(nvml: None) -> None:
    shown = part(text(inspected("aws-p5")), "NIC×GPU")

    assert len(shown) == 9
    assert shown[1] == "rdmap71-74s0    PIX   NODE  NODE  NODE  SYS   SYS   SYS   SYS"


def test_dgx_1v_is_shown_whole(nvml: None) -> None:
    shown = text(inspected("dgx-1v"), full=True)

    # As `nvidia-smi topo -m` of that machine prints it (fixtures/machines/dgx-1v.toml).
    assert part(shown, "GPU×GPU") == [
        "GPU×GPU  GPU0  GPU1  GPU2  GPU3  GPU4  GPU5  GPU6  GPU7",
        "GPU0     X     NV1   NV1   NV2   NV2   SYS   SYS   SYS",
        "GPU1     NV1   X     NV2   NV1   SYS   NV2   SYS   SYS",
        "GPU2     NV1   NV2   X     NV2   SYS   SYS   NV1   SYS",
        "GPU3     NV2   NV1   NV2   X     SYS   SYS   SYS   NV1",
        "GPU4     NV2   SYS   SYS   SYS   X     NV1   NV1   NV2",
        "GPU5     SYS   NV2   SYS   SYS   NV1   X     NV2   NV1",
        "GPU6     SYS   SYS   NV1   SYS   NV1   NV2   X     NV2",
        "GPU7     SYS   SYS   SYS   NV1   NV2   NV1   NV2   X",
    ]
    assert "GPU0       6/6  2.0      25.8  GPU1 ×1, GPU2 ×1, GPU3 ×2, GPU4 ×2" in shown


def test_idle_links_are_called_idle_and_nothing_is_wrong(nvml: None) -> None:
    shown = text(inspected("hgx-h100-8", "idle-downtrained:gpu3"), full=True)

    assert "verdict   0 faults, 0 warnings" in shown
    assert re.search(r"^GPU0-7 +Gen1 x16  Gen5 x16  57\.6  – +idle \(P8\)$", shown, re.MULTILINE)
    assert "✗" not in shown


def test_faults_stand_apart_from_what_is_alike(nvml: None) -> None:
    shown = text(inspected("hgx-h100-8", "nvlink-down:gpu3", "pcie-width:gpu2:8"), full=True)

    assert part(shown, "GPU×GPU")[4] == "GPU3     NV17  NV17  NV17  X     NV17  NV17  NV17  NV17"
    assert re.search(r"^GPU2 +Gen5 x8 +Gen5 x16  28\.8  training +✗ pcie-width$", shown,
                     re.MULTILINE)  # fmt: skip
    assert re.search(r"^GPU0-2, GPU4-7  18/18 .*$", shown, re.MULTILINE)
    assert re.search(r"^GPU3 +17/18 .*link 17 down", shown, re.MULTILINE)


def test_why_it_may_be_wrong_and_what_is_not_known(nvml: None) -> None:
    shown = text(inspected("h200-vm"))

    assert any("virtual machine (QEMU)" in line for line in part(shown, "Why this may be wrong"))
    assert any("flat PCI tree" in line for line in part(shown, "Why this may be wrong"))
    unread = part(text(inspected("dgx-2")), "Not known")
    # One short line for what the driver of the time cannot tell, not one a GPU.
    assert sum("not on this driver" in line for line in unread) == 1


def test_sources_that_disagree_are_folded_by_what_they_say(nvml: None) -> None:
    shown = part(text(inspected("future-4")), "Sources disagree")

    assert shown[1].startswith("  class of GPU0–GPU1, GPU2–GPU3: nvidia-smi NODE, nvml NV24;")
    assert len([line for line in shown if "class of" in line]) == 2


def test_colour_is_for_terminals_only(nvml: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    def shown() -> str:
        file = Terminal(io.BytesIO(), encoding="utf-8")
        print_report(inspected("rtx3090-pair"), file, full=True)
        file.seek(0)
        return file.read()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = shown()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = shown()

    assert "\x1b[33m" in coloured
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain)
    # The mark says again what the colour says.
    assert "WARNING" in plain
    assert "✗ pcie-width" in plain
