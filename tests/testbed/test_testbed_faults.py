"""Faults: each can be laid on at least two machines, is written, and does what it says."""

import stat

import pytest

from testbed.build import machine_with
from testbed.describe import load_machine, machine_names
from testbed.faults import FAULTS, FaultError, apply_fault
from testbed.made import Made, Maker
from testbed.model import Machine
from testbed.nvml_data import nvml_data

# Small machines first: the two that a fault is written on are the first two that can have it.
ORDER = sorted(machine_names(), key=lambda name: len(load_machine(name).cpus))
# Faults that mean nothing without words.
WORDS = {"nvml-call": "nvml-call:nvmlDeviceGetUUID:15"}


def possible(fault: str) -> list[str]:
    found = []
    for name in ORDER:
        try:
            apply_fault(load_machine(name), WORDS.get(fault, fault))
        except FaultError:
            continue
        found.append(name)
    return found


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_fault_can_be_laid_on_two_machines_and_written(fault: str, maker: Maker) -> None:
    names = possible(fault)
    assert len(names) >= 2
    for name in names[:2]:
        assert contents(maker(name, WORDS.get(fault, fault))) != contents(maker(name))


def contents(made: Made) -> dict[str, object]:
    return {
        str(path.relative_to(made.root)): path.read_bytes() if path.is_file() else path.is_fifo()
        for path in made.root.rglob("*")
        if not path.is_dir() and not path.is_symlink()
    }


def test_an_unknown_fault_or_device_is_told() -> None:
    machine = load_machine("rtx3090-pair")
    with pytest.raises(FaultError, match="no fault 'melted'"):
        apply_fault(machine, "melted")
    with pytest.raises(FaultError, match="has no gpu5"):
        apply_fault(machine, "pcie-width:gpu5")
    with pytest.raises(FaultError, match="wants a number"):
        apply_fault(machine, "pcie-width:gpux")


def up(machine: Machine) -> list[int]:
    return [sum(link.up for link in gpu.links) for gpu in machine.gpus]


def test_a_link_down_between_two_gpus_is_down_at_both() -> None:
    assert up(machine_with("rtx3090-pair", ["nvlink-down:gpu0:1"])) == [3, 3]
    assert up(machine_with("dgx-1v", ["nvlink-down:gpu3"])).count(5) == 2


def test_a_link_down_to_a_switch_is_one_gpus() -> None:
    assert up(machine_with("hgx-h100-8", ["nvlink-down:gpu3"])) == [18] * 3 + [17] + [18] * 4


def test_fewer_links_count_down() -> None:
    assert up(machine_with("hgx-a100-4", ["nvlink-fewer:gpu2:4"]))[2] == 8


def test_faults_add_up() -> None:
    machine = machine_with("hgx-h100-8", ["nvlink-down:gpu3", "nvlink-down:gpu4:2", "acs-on"])
    assert up(machine)[3:5] == [17, 17]


def test_a_narrow_link_is_narrow_at_both_ends_and_can_do_more() -> None:
    machine = machine_with("hgx-h100-8", ["pcie-width:gpu3:8"])
    gpu = machine.device(machine.gpus[3].address)
    port = machine.device(gpu.parent)
    for end in (gpu.pcie, port.pcie, machine.gpus[3].pcie):
        assert end is not None
        assert (end.width, end.max_width) == (8, 16)


def test_idle_gpus_train_down_and_nothing_else_changes() -> None:
    machine = machine_with("hgx-h100-8", ["idle-downtrained"])
    assert {gpu.pcie.gen for gpu in machine.gpus} == {1}
    assert {gpu.pcie.max_gen for gpu in machine.gpus} == {5}


def test_a_missing_gpu_is_on_the_bus_and_not_in_nvml() -> None:
    machine = machine_with("hgx-h100-8", ["gpu-missing:gpu2"])
    assert [gpu.address for gpu in machine.nvml_gpus()][2] == "0000:61:00.0"
    assert machine.device("0000:52:00.0").kind == "gpu"


def test_a_lost_gpu_reads_all_ones(maker: Maker) -> None:
    made = maker("rtx3090-pair", "gpu-lost-handle:gpu1")
    folder = made.root / "sys/bus/pci/devices/0000:02:00.0"
    assert (folder / "config").read_bytes()[:4] == b"\xff" * 4
    assert (folder / "current_link_speed").read_text() == "Unknown\n"
    assert "79," in (made.root / "var/log/kern.log").read_text()


def test_a_far_nic_sits_below_another_node() -> None:
    machine = machine_with("hgx-h100-8", ["nic-far:nic0"])
    nic = machine.nics()[0]
    assert nic.rdma == "mlx5_0"
    assert nic.node == 1
    assert machine.device(nic.parent).kind == "root-port"


def test_a_mismatch_shows_in_proc(maker: Maker) -> None:
    made = maker("t4-single", "driver-mismatch")
    assert "470.82.01" in (made.root / "proc/driver/nvidia/version").read_text()


def test_a_hanging_file_is_a_fifo(maker: Maker) -> None:
    made = maker("dgx-1v", "sysfs-hang:nic1")
    state = made.root / "sys/class/infiniband/mlx5_1/ports/1/state"
    assert stat.S_ISFIFO(state.stat().st_mode)


def test_a_fault_in_a_container_counts_the_gpus_it_was_given() -> None:
    machine = machine_with("container-2-of-8", ["pcie-width:gpu0", "nvml-hang:gpu1"])
    assert machine.device("0000:48:00.0").pcie != machine.device("0000:07:00.0").pcie
    assert "fault nvmlDeviceGetNvLinkState 1 * hang 0" in nvml_data(machine)
    with pytest.raises(FaultError, match="has no gpu2"):
        apply_fault(machine, "ecc:gpu2")
