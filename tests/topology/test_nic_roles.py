"""The role of each NIC is the one that a person who knows the machine would give it."""

import time
from pathlib import Path

import pytest

from testbed.build import machine_with, write_machine
from topoprobe.model.nic import NicFacts
from topoprobe.model.snapshot import NetRecord, PciRecord, RdmaPort, RdmaRecord, SysfsRecord
from topoprobe.sources.rootfs import Root
from topoprobe.sources.sysfs import read_node
from topoprobe.topology.nic_roles import nic_facts

# Machine → role → names of its NICs: rdma, or the interface where there is no rdma. By what the
# machines' makers say of them: fabric ports beside the GPUs, others for storage and services.
MACHINES: dict[str, dict[str, str]] = {
    "a100-mig": {},
    "a100-pcie-4": {"compute": "mlx5_0"},
    "amd-nps4": {"compute": "mlx5_0 mlx5_1"},
    "azure-ndv4": {"compute": " ".join(f"mlx5_ib{i}" for i in range(8))},
    "container-2-of-8": {"compute": "mlx5_0 mlx5_1 mlx5_2 mlx5_3"},
    "dgx-1v": {"compute": "mlx5_0 mlx5_1 mlx5_2 mlx5_3", "management": "enp14s0"},
    "dgx-2": {"compute": " ".join(f"mlx5_{i}" for i in range(8))},
    "dgx-a100": {
        "compute": "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_6 mlx5_7 mlx5_8 mlx5_9",
        "storage": "mlx5_4 mlx5_5",
    },
    "gb200-tray": {"compute": "mlx5_0 mlx5_1 mlx5_3 mlx5_4", "storage": "mlx5_2 mlx5_5"},
    "gh200": {"compute": "mlx5_0"},
    "h200-vm": {"compute": " ".join(f"mlx5_{i}" for i in range(8))},
    "hgx-a100-4": {"compute": "mlx5_0 mlx5_1"},
    "hgx-b200-8": {
        "nvswitch-management": "mlx5_0 mlx5_1 mlx5_2 mlx5_3",
        "compute": "mlx5_4 mlx5_7 mlx5_8 mlx5_9 mlx5_10 mlx5_13 mlx5_14 mlx5_15",
        "storage": "mlx5_5 mlx5_6 mlx5_11 mlx5_12",
    },
    "hgx-h100-4": {"compute": "mlx5_0 mlx5_1 mlx5_2 mlx5_3"},
    "hgx-h100-8": {
        "compute": "mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_9 mlx5_10 mlx5_11",
        "storage": "mlx5_1 mlx5_2 mlx5_7 mlx5_8",
    },
    "l40s-8": {"compute": "mlx5_0 mlx5_1"},
    "pex-multilevel": {"compute": "mlx5_0 mlx5_1", "storage": "mlx5_2 mlx5_3 ens1f0v0"},
    "t4-single": {"management": "ens4"},
}


def read_machine(tmp_path: Path, name: str, *faults: str) -> SysfsRecord:
    write_machine(machine_with(name, faults), tmp_path / "root")
    record = read_node(Root(str(tmp_path / "root")), 30.0).sysfs
    assert record is not None
    return record


def by_role(record: SysfsRecord) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for key, facts in nic_facts(record).items():
        names = [d.name for d in record.rdma if d.pci == key]
        names = names or [n.name for n in record.net if n.pci == key]
        assert facts.role_reason
        found.setdefault(facts.role, set()).update(names)
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_machine(tmp_path: Path, name: str) -> None:
    expected = {role: set(names.split()) for role, names in MACHINES[name].items()}
    assert by_role(read_machine(tmp_path, name)) == expected


def test_all_32_of_aws_are_compute(tmp_path: Path) -> None:
    roles = by_role(read_machine(tmp_path, "aws-p5"))
    assert list(roles) == ["compute"]
    assert len(roles["compute"]) == 32


@pytest.mark.parametrize("fault", ["nic-down:nic0", "nic-rate:nic0:40", "nic-far:nic0"])
@pytest.mark.parametrize("name", ["hgx-h100-8", "dgx-1v", "azure-ndv4", "gb200-tray"])
def test_role_stays_with_a_port_at_fault(tmp_path: Path, name: str, fault: str) -> None:
    """A compute port that is down or slow is a fault only as long as it counts as compute."""
    expected = {role: set(names.split()) for role, names in MACHINES[name].items()}
    assert by_role(read_machine(tmp_path, name, fault)) == expected


def test_facts_of_a_nic(tmp_path: Path) -> None:
    facts = nic_facts(read_machine(tmp_path, "pex-multilevel"))
    physical, virtual = facts["0000:17:00.0"], facts["0000:17:00.2"]
    assert (physical.virtual_functions, physical.physical_function) == (1, None)
    assert (virtual.virtual_functions, virtual.physical_function) == (None, "0000:17:00.0")
    assert virtual.role_reason is not None
    assert virtual.role_reason.startswith("a virtual function of 0000:17:00.0")
    near = facts["0000:42:00.0"]
    assert (near.hca, near.board, near.firmware) == ("MT4123", "MT_0000000223", "20.39.1002")
    assert (near.speed_mbps, near.net_state, near.virtual_functions) == (200000, "up", 0)
    (port,) = near.ports
    assert (port.state, port.rate_gbps, port.link_layer) == ("ACTIVE", 200.0, "InfiniBand")
    assert port.counters["symbol_error"] == 0
    assert near.role_reason == "RDMA, and shares a PCIe switch with 4 GPUs"


def gpu(bus: int) -> PciRecord:
    return PciRecord(address=f"0000:{bus:02x}:00.0", above=(f"pci0000:{bus:02x}",),
                     class_code=0x030200, vendor=0x10DE, device=0x2330)  # fmt: skip


def card(address: str, driver: str | None = "mlx5_core", **more: object) -> PciRecord:
    fields = {"vendor": 0x15B3, "device": 0x1021, "class_code": 0x020000,
              "above": (f"pci{address[:7]}",), "driver": driver, **more}  # fmt: skip
    return PciRecord(address=address, **fields)  # type: ignore[arg-type]


def port(name: str, address: str, rate: float = 400.0, layer: str = "Ethernet") -> RdmaRecord:
    return RdmaRecord(
        name=name,
        pci=address,
        ports=(RdmaPort(port=1, state="ACTIVE", rate_gbps=rate, link_layer=layer),),
    )


def only(record: SysfsRecord, key: str = "0000:41:00.0") -> NicFacts:
    return nic_facts(record)[key]


NIC = "0000:41:00.0"


def test_azure_accelerated_networking_is_no_compute() -> None:
    # One GPU, one fast port: the name decides.
    record = SysfsRecord(pci=(gpu(1), card(NIC)), rdma=(port("mlx5_an0", NIC, 100.0),))
    facts = only(record)
    assert facts.role == "management"
    assert "mlx5_an0" in str(facts.role_reason)


def test_default_route_through_a_bond_and_a_vlan() -> None:
    record = SysfsRecord(
        pci=(gpu(1), card(NIC), card("0000:41:00.1")),
        net=(
            NetRecord(name="bond0", bond_members=("ens1f0", "ens1f1", "gone0")),
            NetRecord(name="bond0.7", lower=("bond0",), default_route=True),
            NetRecord(name="ens1f0", pci=NIC, speed_mbps=100_000, hardware=1),
            NetRecord(name="ens1f1", pci="0000:41:00.1", speed_mbps=100_000, hardware=1),
        ),
        rdma=(
            RdmaRecord(name="mlx5_bond_0", pci=NIC, netdevs=("bond0", "ens1f0")),
        ),
    )  # fmt: skip
    facts = nic_facts(record)
    assert {key: f.role for key, f in facts.items()} == {
        NIC: "management", "0000:41:00.1": "management", "net:bond0": "management",
    }  # fmt: skip
    assert facts[NIC].bond == facts["0000:41:00.1"].bond == "net:bond0"
    assert facts["net:bond0"].bond is None
    assert "bond0.7" in str(facts[NIC].role_reason)


def test_ports_of_a_bonded_card_share_the_role() -> None:
    """Only the first function of a bonded card has an RDMA device."""
    above = ("pci0000:40", "0000:40:01.0", "0000:41:00.0")
    bridges = tuple(PciRecord(address=a, class_code=0x060400, above=above[:i])
                    for i, a in ((1, "0000:40:01.0"), (2, "0000:41:00.0")))  # fmt: skip
    record = SysfsRecord(
        pci=(
            *bridges,
            PciRecord(address="0000:43:00.0", above=above, class_code=0x030200, vendor=0x10DE),
            card("0000:44:00.0", above=above),
            card("0000:44:00.1", above=above),
        ),
        net=(
            NetRecord(name="bond0", bond_members=("a", "b")),
            NetRecord(name="a", pci="0000:44:00.0", hardware=1),
            NetRecord(name="b", pci="0000:44:00.1", hardware=1),
        ),
        rdma=(
            RdmaRecord(
                name="mlx5_bond_0",
                pci="0000:44:00.0",
                netdevs=("bond0", "a"),
                ports=(RdmaPort(port=1, state="ACTIVE", rate_gbps=400, link_layer="Ethernet"),),
            ),
        ),
    )
    facts = nic_facts(record)
    assert {f.role for f in facts.values()} == {"compute"}
    assert (len(facts["0000:44:00.0"].ports), len(facts["0000:44:00.1"].ports)) == (1, 0)


def test_bond_of_members_that_are_not_there() -> None:
    facts = only(SysfsRecord(net=(NetRecord(name="bond9", bond_members=("x0",)),)), "net:bond9")
    assert facts.role == "unknown"
    assert "none of its members" in str(facts.role_reason)


@pytest.mark.parametrize(
    ("driver", "speed", "role"),
    [("ena", None, "management"), ("virtio-pci", None, "management"), ("igb", 1000, "management"),
     ("bnxt_en", 25_000, "management"), ("bnxt_en", 200_000, "unknown"), ("gve", None, "unknown"),
     ("vfio-pci", None, "unknown"), (None, None, "unknown"), ("cxi_ss1", 200_000, "compute")],
)  # fmt: skip
def test_card_without_rdma(driver: str | None, speed: int | None, role: str) -> None:
    net = NetRecord(name="eth0", pci=NIC, hardware=1, speed_mbps=speed)
    record = SysfsRecord(pci=(gpu(1), card(NIC, driver, vendor=1)), net=(net,) if driver else ())
    facts = only(record)
    assert facts.role == role
    assert facts.role_reason


def test_100_gigabit_without_rdma_beside_nics_with_it_is_management() -> None:
    fabric = "0000:42:00.0"
    record = SysfsRecord(
        pci=(gpu(1), card(NIC, "ice", vendor=0x8086), card(fabric)),
        net=(NetRecord(name="eth0", pci=NIC, hardware=1, speed_mbps=100_000),),
        rdma=(port("mlx5_0", fabric, layer="InfiniBand"),),
    )
    assert {key: facts.role for key, facts in nic_facts(record).items()} == {
        NIC: "management", fabric: "compute",
    }  # fmt: skip


def test_one_ethernet_card_may_carry_anything() -> None:
    record = SysfsRecord(pci=(gpu(1), gpu(2), card(NIC)), rdma=(port("mlx5_0", NIC),))
    facts = only(record)
    assert facts.role == "unknown"
    assert "1 card of Ethernet at 400 Gb/s for 2 GPUs" in str(facts.role_reason)


def test_without_a_gpu_nothing_tells_the_role() -> None:
    facts = only(SysfsRecord(pci=(card(NIC),), rdma=(port("mlx5_0", NIC),)))
    assert (facts.role, facts.role_reason) == ("unknown", "no GPU is on the bus to tell it by")


def test_more_infiniband_than_gpus_is_not_guessed() -> None:
    """Eight for the fabric and two for storage, all alike, in a VM without a PCIe tree."""
    names = [f"0000:{bus:02x}:00.0" for bus in range(0x41, 0x4B)]
    record = SysfsRecord(
        pci=(*(gpu(bus) for bus in range(1, 9)), *(card(name) for name in names)),
        rdma=tuple(port(f"mlx5_{i}", n, layer="InfiniBand") for i, n in enumerate(names)),
    )
    assert {facts.role for facts in nic_facts(record).values()} == {"unknown"}


def test_function_that_may_lead_to_nvswitches_without_root(tmp_path: Path) -> None:
    """A user cannot read vital product data: then no role is better than the wrong one."""
    write_machine(machine_with("hgx-b200-8", ()), tmp_path / "root")
    for path in (tmp_path / "root/sys/devices").rglob("vpd"):
        path.unlink()
    record = read_node(Root(str(tmp_path / "root")), 30.0).sysfs
    assert record is not None
    assert by_role(record)["unknown"] == {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}
    assert "root" in str(nic_facts(record)["0000:07:00.0"].role_reason)


def test_interface_without_device_is_no_nic() -> None:
    assert nic_facts(SysfsRecord(net=(NetRecord(name="docker0"),))) == {}


def test_many_virtual_functions_are_quick() -> None:
    physical = card(NIC)
    virtual = [card(f"0000:42:{i // 8:02x}.{i % 8}", physfn=NIC) for i in range(128)]
    loose = [card(f"0000:43:{i // 8:02x}.{i % 8}") for i in range(128)]
    record = SysfsRecord(
        pci=(gpu(1), physical, *virtual, *loose),
        rdma=tuple(port(f"mlx5_{i}", f.address) for i, f in enumerate((*virtual, *loose))),
    )
    start = time.monotonic()
    facts = nic_facts(record)
    assert time.monotonic() - start < 2.0
    assert facts[NIC].virtual_functions == 128
    assert len(facts) == 257
