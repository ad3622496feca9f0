"""NVIDIA's own nvidia-smi, unchanged, prints for our machines what such machines print."""

import re
from xml.etree import ElementTree

import pytest

from testbed.describe import expected_matrix
from testbed.made import Made, Maker
from testbed.runner import nvidia_smi

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("nvml")]


DRIVERS = ["470.256.02", "535.261.03", "550.163.01"]


def smi(made: Made, *arguments: str) -> str:
    """Return what nvidia-smi prints in a machine, without its colours."""
    binary = nvidia_smi(made.machine)
    if not binary:
        pytest.skip("this nvidia-smi is not here; scripts/oracles fetches it")
    result = made.run(str(binary), *arguments)
    assert not result.stopped, f"nvidia-smi was stopped at the bound of {result.stopped}"
    assert result.code == 0, result.output[-500:] + result.errors[-500:]
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output)


def rows(text: str) -> list[list[str]]:
    """Return the cells of a printed matrix: labels, classes, affinities; blanks left out."""
    table = text.split("\n\nLegend")[0]
    return [
        [cell.strip() for cell in line.split("\t") if cell.strip()]
        for line in table.splitlines()
        if line.strip()
    ]


def test_the_matrix_is_the_expected_one(made: Made) -> None:
    printed = rows(smi(made, "topo", "-m"))[1:]
    wanted = expected_matrix(made.machine.name)[1:]
    old = made.machine.system.driver.startswith("470")
    # 470 labels NICs by their names and has no column for a GPU's own NUMA node.
    for row, theirs in zip(wanted, printed, strict=True):
        # Nothing is left of a blank cell in what was printed.
        ours = [cell for cell in row if cell != "blank"]
        is_gpu = ours[0].startswith("GPU")
        assert theirs[1:] == (ours[1:-1] if old and is_gpu else ours[1:])
        assert theirs[0] == (
            made.machine.nics()[int(ours[0][3:])].rdma if old and not is_gpu else ours[0]
        )


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", ["dgx-1v", "dgx-a100", "a100-pcie-4"])
def test_three_drivers_print_the_same_classes(name: str, driver: str, maker: Maker) -> None:
    made = maker(name, driver=driver)
    count = len(expected_matrix(made.machine.name)) - 1
    printed = [row[1 : count + 1] for row in rows(smi(made, "topo", "-m"))[1:]]
    assert printed == [row[1 : count + 1] for row in expected_matrix(made.machine.name)[1:]]


def test_the_links_have_their_number_and_rate(made: Made) -> None:
    expect = made.machine.expect
    assert expect
    if not expect.nvlinks:
        pytest.skip("no NVLink is wired")
    text = smi(made, "nvlink", "-s")
    rates = re.findall(r"Link \d+: ([\d.]+ GB/s)", text)
    assert rates == [expect.nvlink] * expect.gpus * expect.nvlinks


def test_the_log_has_names_buses_and_links(made: Made) -> None:
    top = ElementTree.fromstring(smi(made, "-q", "-x"))
    gpus = top.findall("gpu")
    assert [gpu.get("id", "").lower()[4:] for gpu in gpus] == [
        gpu.address for gpu in made.machine.nvml_gpus()
    ]
    for gpu, ours in zip(gpus, made.machine.nvml_gpus(), strict=True):
        assert gpu.findtext("product_name") == ours.part.name
        assert gpu.findtext("uuid") == ours.uuid
        link = "pci/pci_gpu_link_info/"
        assert gpu.findtext(f"{link}link_widths/current_link_width") == f"{ours.pcie.width}x"
        assert gpu.findtext(f"{link}pcie_gen/current_link_gen") == str(ours.pcie.gen)


@pytest.mark.parametrize(
    ("name", "status"),
    [("rtx4090-4", "CNS"), ("a100-mig", "NS"), ("dgx-1v", "TNS"), ("dgx-2", "OK")],
)
def test_peer_access(name: str, status: str, maker: Maker) -> None:
    table = rows(smi(maker(name), "topo", "-p2p", "r"))
    assert table[1][-1] == status


def test_a_link_down_makes_the_matrix_asymmetric(maker: Maker) -> None:
    table = rows(smi(maker("hgx-h100-8", "nvlink-down:gpu3"), "topo", "-m"))
    assert (table[4][1], table[1][4]) == ("NV17", "NV18")


@pytest.mark.parametrize(
    ("fault", "code", "word"),
    [
        ("driver-mismatch", 18, "version mismatch"),
        ("driver-missing", 9, "driver"),
        ("gpu-lost-handle:gpu1", 255, "Failed to run topology matrix"),
    ],
)
def test_broken_drivers_end_as_real_ones_do(
    fault: str, code: int, word: str, maker: Maker
) -> None:
    made = maker("rtx3090-pair", fault)
    binary = nvidia_smi(made.machine)
    if not binary:
        pytest.skip("nvidia-smi is not here; scripts/oracles fetches it")
    result = made.run(str(binary), "topo", "-m")
    assert result.code == code
    assert word in result.output + result.errors


def test_a_hang_is_ended_by_the_bound(maker: Maker) -> None:
    made = maker("rtx3090-pair", "nvml-hang:gpu1:nvmlDeviceGetUUID")
    binary = nvidia_smi(made.machine)
    if not binary:
        pytest.skip("nvidia-smi is not here; scripts/oracles fetches it")
    assert made.run(str(binary), "-L", timeout=1).stopped == "time"
