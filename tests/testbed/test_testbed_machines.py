"""The machine files: they load, agree with themselves, and are refused with the reason."""

import re
from collections import Counter

import pytest

from testbed.describe import (
    MACHINES,
    expected_matrix,
    load_machine,
    load_parts,
    machine_names,
    parse_machine,
)
from testbed.pcitree import DescriptionError, chain, level

GOOD = """
title = "two GPUs"
sources = []
tree = '''
0000:10:00.0 root4 node=0
  0000:11:00.0 pex88000
    0000:13:00.0 a100-pcie
    0000:14:00.0 a100-pcie
'''
[system]
vendor = "v"
product = "p"
kernel = "6"
driver = "535.261.03"
cuda = "12.2"
[cpu]
vendor = "GenuineIntel"
model = "m"
family = 6
number = 1
sockets = 1
cores = 4
memory_gib = 8
[nvlink]
pairs = [[0, 1, 12]]
"""


def test_there_are_enough_machines() -> None:
    assert len(machine_names()) >= 20


@pytest.mark.parametrize("name", machine_names())
def test_a_machine_has_what_its_file_expects(name: str) -> None:
    machine = load_machine(name)
    expect, gpus = machine.expect, machine.nvml_gpus()
    assert expect
    assert (len(gpus), len(machine.nics())) == (expect.gpus, expect.rdma)
    assert {sum(link.up for link in gpu.links) for gpu in gpus} == {expect.nvlinks}
    assert {(gpu.pcie.gen, gpu.pcie.width) for gpu in gpus} == {expect.pcie}


@pytest.mark.parametrize("name", machine_names())
def test_the_expected_matrix_is_square_and_symmetric(name: str) -> None:
    header, *rows = expected_matrix(name)
    labels = [row[0] for row in rows]
    assert header == ["", *labels, "cpus", "numa", "gpu-numa"]
    for i, row in enumerate(rows):
        assert [other[i + 1] for other in rows] == row[1 : len(rows) + 1]
        assert row[i + 1] == "X"


@pytest.mark.parametrize("name", machine_names())
def test_buses_do_not_overlap(name: str) -> None:
    machine = load_machine(name)
    owners: Counter[tuple[int, int]] = Counter()
    roots = {(d.domain, d.bus) for d in machine.devices if d.parent.startswith("pci")}
    for device in machine.devices:
        if device.kind == "root-port" and device.buses:
            owners.update((device.domain, b) for b in range(device.buses[0], device.buses[1] + 1))
    assert [bus for bus, count in owners.items() if count > 1 or bus in roots] == []


@pytest.mark.parametrize("name", machine_names())
def test_nvlinks_between_gpus_have_two_ends(name: str) -> None:
    machine = load_machine(name)
    ends = Counter(
        (gpu.address, link.remote)
        for gpu in machine.gpus
        for link in gpu.links
        if link.up and not link.to_switch
    )
    assert all(ends[b, a] == count for (a, b), count in ends.items())


@pytest.mark.parametrize("name", machine_names())
def test_names_of_interfaces_are_unique(name: str) -> None:
    devices = load_machine(name).devices
    for names in ([d.rdma for d in devices if d.rdma], [d.net for d in devices if d.net]):
        assert len(names) == len(set(names))


def test_every_part_is_used() -> None:
    text = "\n".join(path.read_text() for path in MACHINES.glob("*.toml"))
    unused = [part for part in load_parts() if not re.search(rf"\b{re.escape(part)}\b", text)]
    assert unused == []


def test_the_class_of_a_pair_follows_the_tree() -> None:
    machine = load_machine("pex-multilevel")
    devices = {device.address: device for device in machine.devices}

    def between(a: str, b: str, distant: bool = False) -> int:
        return level(devices, f"0000:{a}:00.0", f"0000:{b}:00.0", distant)

    assert between("40", "41") == 10  # one switch
    assert between("40", "46") == 20  # two lower switches below one upper
    assert between("40", "4a") == 20  # a lower switch below the upper
    assert between("40", "17") == 40  # another host bridge of the node
    assert between("40", "af", distant=True) == 50
    assert chain(devices, "0000:40:00.0")[-1] == "pci0000:3a"


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("a100-pcie\n", "b999\n", "no part 'b999'"),
        ("0000:14:00.0", "0000:13:00.0", "0000:13:00.0 is taken"),
        ("0000:14:00.0", "0000:12:00.0", "taken"),
        ("0000:14:00.0 a100-pcie", "14:00.0 a100-pcie", "wants an address"),
        ("node=0", "node=7", "no NUMA node 7"),
        ("node=0", "nod=0", "unknown nod"),
        ("[[0, 1, 12]]", "[[0, 1, 13]]", "the chip has 12"),
        ("[[0, 1, 12]]", "[[0, 2, 12]]", "no two GPUs 0 and 2"),
        ("pairs = [[0, 1, 12]]", 'switches = { "0000:99:00.0" = 1 }', "no NVSwitch at"),
        ("sources = []", "sources = []\nfoo = 1", "unknown keys: foo"),
        ("sources = []", "sources = []\nvisible = [4]", "no GPU 4"),
        ('kernel = "6"', 'colonel = "6"', "colonel"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(old: str, new: str, word: str) -> None:
    assert parse_machine("good", GOOD).gpus[0].links[0].remote == "0000:14:00.0"
    with pytest.raises(DescriptionError, match=re.escape(word)):
        parse_machine("bad", GOOD.replace(old, new, 1))


def test_an_unknown_machine_is_told() -> None:
    with pytest.raises(DescriptionError, match="no machine 'dgx-9'"):
        load_machine("dgx-9")
