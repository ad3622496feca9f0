"""Whole synthetic machines through --root: the map equals what stands in their description."""

import json
from pathlib import Path

import jsonschema
import pytest

from testbed.build import machine_with, write_machine
from topoprobe import pipeline
from topoprobe.model.report import Report
from topoprobe.output.json import to_json

MACHINES = Path(__file__).resolve().parents[2] / "fixtures/machines"
NAMES = [path.stem for path in sorted(MACHINES.glob("*.toml"))]
SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs/schema/report-1.json").read_text()
)


def report_on(tmp_path: Path, name: str, *faults: str) -> Report:
    root = tmp_path / "root"
    write_machine(machine_with(name, faults), root)
    report = pipeline.make_report(pipeline.inspect_node(str(root)))
    jsonschema.validate(json.loads(to_json(report)), SCHEMA)
    return report


def failing(report: Report) -> list[tuple[str, str]]:
    return [(f.id, f.subject[0]) for f in report.findings if f.status == "fail"]


def test_hgx_h100(tmp_path: Path) -> None:
    report = report_on(tmp_path, "hgx-h100-8")

    kinds = [device.kind for device in report.topology.devices]
    assert kinds.count("gpu") == 8
    assert kinds.count("nvswitch") == 4
    assert report.synthetic is True
    assert failing(report) == []
    paths = {frozenset((p.a, p.b)): p for p in report.topology.paths}
    # GPU 1b and NIC 18 hang below one switch; GPU 9d is on the other socket.
    near = paths[frozenset(("0000:1b:00.0", "0000:18:00.0"))]
    assert near.class_ == "PIX"
    assert set(near.links) == {"pcie:0000:1b:00.0", "pcie:0000:18:00.0"}
    assert near.limit_GBps.payload == pytest.approx(57.614, rel=1e-4)
    assert paths[frozenset(("0000:1b:00.0", "0000:9d:00.0"))].class_ == "SYS"
    assert paths[frozenset(("0000:1b:00.0", "0000:43:00.0"))].class_ == "NODE"


def test_narrow_link_is_found_and_idle_generation_is_not(tmp_path: Path) -> None:
    report = report_on(tmp_path, "hgx-h100-8", "pcie-width:gpu3")

    assert failing(report) == [("pcie-width", "0000:61:00.0")]
    link = next(k for k in report.topology.links if k.key == "pcie:0000:61:00.0")
    assert (link.current.width, link.maximum.width) == (8, 16)
    assert link.limited_by == "training"
    assert link.limit_GBps.line == pytest.approx(31.5077, rel=1e-4)


def test_idle_gpu_keeps_its_limit(tmp_path: Path) -> None:
    report = report_on(tmp_path, "hgx-h100-8", "idle-downtrained:gpu3")

    assert failing(report) == []
    link = next(k for k in report.topology.links if k.key == "pcie:0000:61:00.0")
    assert link.limit_GBps.line == pytest.approx(63.0154, rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_no_healthy_machine_fails(tmp_path: Path, name: str) -> None:
    assert failing(report_on(tmp_path, name)) == []
