"""Slurm's `slurmd -G` with AutoDetect=nvml reads our machines as their descriptions say."""

import re
from collections.abc import Callable

import pytest

from testbed.cpus import cpu_list
from testbed.describe import expected_matrix
from testbed.made import Made, Maker
from testbed.model import Machine
from testbed.runner import Result
from testbed.slurm import NODE, command, detected, plugins, write_config

pytestmark = [pytest.mark.oracle, pytest.mark.usefixtures("nvml")]
Find = Callable[[str], str]
Detect = Callable[[Made], Result]
# The machine has no file for a GPU in /dev, and its description no memory clocks.
EXPECTED_ERRORS = re.compile(
    r"_set_gres_device_desc: stat\(/dev/nvidia\S+\): No such file or directory"
    r"|_nvml_get_mem_freqs: .*: Not Supported"
)


@pytest.fixture
def slurmd(oracle: Find) -> Detect:
    """Give what runs `slurmd -G` in a machine; the test skips where there is none."""
    program, plugin_dir = oracle("slurmd"), plugins()
    if not plugin_dir:
        pytest.skip("Slurm's plugin for NVML is not here; scripts/oracles fetches it")

    def detect(made: Made) -> Result:
        config = write_config(made.machine, made.root, plugin_dir)
        result = made.run(*command(program, "-f", str(config), "-G", "-N", NODE))
        assert (result.code, result.stopped) == (0, ""), result.errors
        return result

    return detect


def test_every_gpu_has_its_cores_and_links(made: Made, slurmd: Detect) -> None:
    if made.machine.name == "wsl":
        pytest.skip("slurmd gives up where NVML tells no CPU affinity, as on WSL")
    result = slurmd(made)
    errors = [line for line in result.errors.splitlines() if "error:" in line]
    assert [line for line in errors if not EXPECTED_ERRORS.search(line)] == []
    found = [(gres["File"], gres["Cores"], gres["Links"]) for gres in detected(result.errors)]
    assert sorted(found) == sorted(expected(made.machine))


def expected(machine: Machine) -> list[tuple[str, str, str]]:
    """Return file, cores and links of every GPU, out of the matrix and the MIG table.

    Slurm counts a link where its far end is a GPU. The far end of a link to an NVSwitch is the
    switch, so it prints 0 between GPUs that nvidia-smi says are joined by NV18. MIG devices are
    numbered among themselves and have no links.
    """
    rows = expected_matrix(machine.name)[1:]
    switched = any(link.to_switch for gpu in machine.gpus for link in gpu.links)
    gpus = machine.nvml_gpus()
    result = []
    for gpu, row in zip(gpus, rows, strict=False):
        file, cores = f"/dev/nvidia{gpu.minor}", core_list(machine, row[-3])
        cells = row[1 : len(gpus) + 1]
        for number, mig in enumerate(gpu.mig):
            # gpu0/gi1/access is 12 and gpu0/gi1/ci0/access 13; the next instance is 9 further.
            minor = 3 + 9 * mig.gi
            caps = [f"/dev/nvidia-caps/nvidia-cap{minor + more}" for more in (0, 1)]
            empty = [-1 if other == number else 0 for other in range(len(gpu.mig))]
            result.append((",".join([file, *caps]), cores, join(empty)))
        if not gpu.mig:
            links = [-1 if cell == "X" else 0 if switched else direct(cell) for cell in cells]
            result.append((file, cores, join(links)))
    return result


def direct(cell: str) -> int:
    return int(cell[2:]) if cell.startswith("NV") else 0


def join(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def core_list(machine: Machine, affinity: str) -> str:
    """Return the cores of a list of CPUs.

    Linux numbers the first threads of all cores before any second one, so these are the cores.
    """
    count = len(machine.cpus) // len(machine.cpus[0].siblings)
    spans = [[int(end) for end in span.split("-")] for span in affinity.split(",")]
    cpus = [cpu for span in spans for cpu in range(span[0], span[-1] + 1)]
    return cpu_list(cpu for cpu in cpus if cpu < count)


def test_the_processors_are_those_of_the_machine(made: Made, oracle: Find) -> None:
    text = made.run(*command(oracle("slurmd"), "-C")).output
    cpus = made.machine.cpus
    sockets, threads = len({cpu.socket for cpu in cpus}), len(cpus[0].siblings)
    assert (
        f" CPUs={len(cpus)} Boards=1 SocketsPerBoard={sockets} "
        f"CoresPerSocket={len(cpus) // sockets // threads} ThreadsPerCore={threads} "
    ) in text


# Links as published: DGX-1V's hybrid cube mesh (4 of the 6 links of a GPU stay on its board),
# NV4 between all four A100, one NVLink bridge of 4 or of 12 links.
PUBLISHED = {
    "dgx-1v": """
        -1,1,1,2,2,0,0,0 1,-1,2,1,0,2,0,0 1,2,-1,2,0,0,1,0 2,1,2,-1,0,0,0,1
        2,0,0,0,-1,1,1,2 0,2,0,0,1,-1,2,1 0,0,1,0,1,2,-1,2 0,0,0,1,2,1,2,-1""",
    "hgx-a100-4": "-1,4,4,4 4,-1,4,4 4,4,-1,4 4,4,4,-1",
    "a100-pcie-4": "-1,12,0,0 12,-1,0,0 0,0,-1,12 0,0,12,-1",
    "rtx3090-pair": "-1,4 4,-1",
    "t4-single": "-1",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_links_of_public_machines(name: str, maker: Maker, slurmd: Detect) -> None:
    found = detected(slurmd(maker(name)).errors)
    assert [gres["Links"] for gres in found] == PUBLISHED[name].split()


def test_a_gpu_is_found_by_its_name(maker: Maker, slurmd: Detect) -> None:
    (gres,) = detected(slurmd(maker("gh200")).errors)
    assert gres["Type"] == "nvidia_gh200_480gb"


def test_mig_devices_are_named_by_their_profiles(maker: Maker, slurmd: Detect) -> None:
    found = {gres["Type"]: gres for gres in detected(slurmd(maker("a100-mig")).errors)}
    board = "nvidia_a100_80gb_pcie"
    assert {name: (gres["Cores"], gres["Links"]) for name, gres in found.items()} == {
        f"{board}_3g.40gb": ("0-31", "-1,0,0"),
        f"{board}_2g.20gb": ("0-31", "0,-1,0"),
        f"{board}_1g.10gb": ("0-31", "0,0,-1"),
        board: ("32-63", "0,-1"),
    }


def test_a_link_that_is_down_is_not_counted(maker: Maker, slurmd: Detect) -> None:
    found = detected(slurmd(maker("hgx-a100-4", "nvlink-down:gpu3")).errors)
    links = [[int(count) for count in gres["Links"].split(",")] for gres in found]
    # GPU 3 has 12 links, one of which is down.
    assert sum(links[3]) == -1 + 11


def test_a_lost_gpu_leaves_the_others(maker: Maker, slurmd: Detect) -> None:
    result = slurmd(maker("hgx-a100-4", "gpu-lost-handle:gpu1"))
    assert "Failed to get device handle for GPU 1: GPU is lost" in result.errors
    # It keeps its column: Slurm does not know its address, so no link leads there.
    assert [(gres["File"], gres["Links"]) for gres in detected(result.errors)] == [
        ("/dev/nvidia0", "-1,0,4,4"),
        ("/dev/nvidia2", "4,0,-1,4"),
        ("/dev/nvidia3", "4,0,4,-1"),
    ]
