"""Programs of others, unchanged, run on the fake and print what the data file says."""

import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

from fakenvml.build import MissingError, build
from fakenvml.trial import Trial
from testbed.runner import ORACLES

pytestmark = pytest.mark.oracle
NAMES = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GB200"]


def trial(abi: str) -> Trial:
    try:
        return Trial(build(abi=abi))
    except MissingError as error:
        pytest.skip(str(error))


def smi(branch: str, *arguments: str, **env: str) -> str:
    """Return what the nvidia-smi of a branch prints, without its colours."""
    binary = next((ORACLES / f"nvidia-smi-{branch}").rglob("lib/**/nvidia-smi"), None)
    if not binary:
        pytest.skip("this nvidia-smi is not here; scripts/oracles fetches it")
    result = trial(branch).run([str(binary), *arguments], 20, **env)
    assert not result.stopped
    assert result.code == 0, result.output[-300:]
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output)


@pytest.mark.parametrize("branch", ["470", "535", "550"])
def test_nvidia_smi_lists_gpus_and_mig_devices(branch: str) -> None:
    lines = smi(branch, "-L").splitlines()
    assert [
        line.split(": ", 1)[1].split(" (")[0] for line in lines if line.startswith("GPU")
    ] == NAMES
    assert [line.split()[1] for line in lines if "MIG-" in line] == ["3g.40gb", "1g.10gb"]


@pytest.mark.parametrize("branch", ["470", "535", "550"])
def test_nvidia_smi_prints_its_table(branch: str) -> None:
    text = smi(branch)
    assert re.search(r"1024MiB|1536MiB", text)
    assert re.search(r"70W / +650W", text)
    assert "00000008:01:00.0" in text
    assert re.search(r"\| +1 +2 +0 +0 +\|", text), "the MIG device"


@pytest.mark.parametrize("branch", ["470", "535", "550"])
def test_nvidia_smi_prints_its_matrix(branch: str) -> None:
    rows = [line.split() for line in smi(branch, "topo", "-m").splitlines() if line[:3] == "GPU"]
    assert [row[1:4] for row in rows] == [
        ["X", "NV1", "NV1"], ["NV1", "X", "NV1"], ["NV2", "NV2", "X"],
    ]  # fmt: skip
    assert [row[4] for row in rows] == ["0-55,112-167", "0-223", "72-143"]
    # 550 asks for the GPU's own node by the public function.
    if branch == "550":
        assert rows[2][5:] == ["1", "10"]


def test_nvidia_smi_prints_the_pcie_classes() -> None:
    rows = [line.split() for line in smi("550", "topo", "-mp").splitlines() if line[:3] == "GPU"]
    assert [row[1:4] for row in rows] == [
        ["X", "PIX", "PHB"], ["PIX", "X", "NODE"], ["PHB", "NODE", "X"],
    ]  # fmt: skip


def test_nvidia_smi_prints_peer_access() -> None:
    def table(kind: str) -> list[list[str]]:
        lines = smi("550", "topo", "-p2p", kind).splitlines()
        return [
            line.split()[1:4] for line in lines if re.match(r" *GPU\d\t", line) and "OK" in line
        ]

    assert table("r") == [["X", "CNS", "OK"], ["CNS", "X", "OK"], ["OK", "OK", "X"]]
    assert table("w") == [["X", "OK", "DR"], ["OK", "X", "OK"], ["DR", "OK", "X"]]


def test_nvidia_smi_prints_the_links() -> None:
    status = smi("550", "nvlink", "-s", "-i", "0")
    rates = re.findall(r"Link (\d): (\S+)", status)
    assert rates == [
        ("0", "26.562"), ("1", "26.562"), ("2", "<inactive>"), ("3", "<inactive>"),
        ("4", "26.562"),
    ]  # fmt: skip
    errors = smi("550", "nvlink", "-e", "-i", "0")
    assert re.findall(r"Link 1: (\w+) Errors: (\d+)", errors) == [
        ("Replay", "11"), ("Recovery", "12"), ("CRC", "13"),
    ]  # fmt: skip
    capable = smi("550", "nvlink", "-c", "-i", "0")
    assert re.findall(r"Link 1, (\w+).*: (\w+)", capable) == [
        ("P2P", "true"), ("Access", "true"), ("P2P", "false"), ("System", "false"),
        ("SLI", "false"), ("Link", "false"),
    ]  # fmt: skip


@pytest.mark.parametrize("branch", ["470", "535", "550"])
def test_nvidia_smi_writes_its_log(branch: str) -> None:
    top = ElementTree.fromstring(smi(branch, "-q", "-x"))
    gpus = top.findall("gpu")
    assert [gpu.findtext("product_name") for gpu in gpus] == NAMES
    hopper = gpus[0]
    assert hopper.findtext("serial") == "1654323000001"
    assert hopper.findtext("minor_number") == "3"
    assert hopper.findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "8x"
    assert hopper.findtext("pci/replay_counter") == "5"
    assert hopper.findtext("remapped_rows/remapped_row_pending") == "Yes"
    assert hopper.findtext("temperature/gpu_temp") == "31 C"
    if branch != "470":
        assert hopper.findtext("fabric/state") == "Completed"
    assert [mig.findtext("gpu_instance_id") for mig in gpus[1].iter("mig_device")] == ["2", "9"]
    smi(branch, "-q")


def test_the_bounds_hold_where_nvidia_smi_floods(tmp_path: Path) -> None:
    binary = next((ORACLES / "nvidia-smi-470").rglob("lib/**/nvidia-smi"), None)
    if not binary:
        pytest.skip("this nvidia-smi is not here; scripts/oracles fetches it")
    floods = trial("470")
    data = tmp_path / "flood.data"
    data.write_text(floods.data.read_text() + "fault nvmlDeviceGetFieldValues * 84 999\n")
    command = [str(binary), "nvlink", "-s"]
    result = Trial(floods.folder, data).run(command, 5)
    assert result.stopped in ("time", "output")
    assert len(result.output) < 16 << 20


@pytest.mark.parametrize("program", [("gpustat", "--no-header"), ("nvitop", "-1")])
def test_monitors_show_every_gpu(program: tuple[str, ...]) -> None:
    found = shutil.which(program[0], path=f"{ORACLES / 'bin'}:{Path(sys.executable).parent}")
    if not found:
        pytest.skip(f"{program[0]} is not here; scripts/oracles fetches it")
    result = trial("current").run([found, *program[1:]])
    assert result.code == 0, result.errors
    assert [name for name in ("H100", "A100", "GB200") if name in result.output] == [
        "H100", "A100", "GB200",
    ]  # fmt: skip
