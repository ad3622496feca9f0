"""Network interfaces and RDMA devices: values that lie or refuse, bonds, routes, vital data."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.build import machine_with, write_machine
from topoprobe.model.errors import SourceError
from topoprobe.model.snapshot import NetRecord, RdmaRecord
from topoprobe.sources import rootfs
from topoprobe.sources.rdma import read_net, read_rdma
from topoprobe.sources.rootfs import Root
from topoprobe.sources.sysfs import read_node
from topoprobe.sources.vpd import submodel

CARD = "0000:41:00.0"
DEVICE = f"sys/devices/pci0000:40/0000:40:01.0/{CARD}"
# Made by hand after PCI Local Bus 3.0, appendix I: title "CX7", PN "900", V3 with the sub-model.
VPD = b"\x82\x03\x00CX7\x90\x23\x00PN\x03900V3\x17MLX:MN=MLNX:SMDL=SW_MNGRV\x00\x78"


def put(path: Path, **values: object) -> Path:
    """Write one file for every value, as the kernel ends them."""
    path.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (path / name).write_text(f"{value}\n")
    return path


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def add_net(root: Path, name: str, device: str = DEVICE, **files: object) -> Path:
    values = {"speed": 100000, "operstate": "up", "mtu": 9000, "address": "94:6d:ae:01:02:03",
              "type": 1, "carrier": 1, "carrier_changes": 2, "dev_port": 0, **files}  # fmt: skip
    directory = put(root / device / "net" / name, **values)
    if "virtual" not in device:
        link(directory / "device", root / device)
    link(root / "sys/class/net" / name, directory)
    return directory


def add_rdma(root: Path, name: str, layer: str = "InfiniBand", **files: object) -> Path:
    put(root / DEVICE, vendor="0x15b3")
    values = {"fw_ver": "28.39.1002", "hca_type": "MT4129", "board_id": "MT_0000000838",
              "node_guid": "946d:ae03:0001:0203", "sys_image_guid": "946d:ae03:0001:0200",
              "node_type": "1: CA", **files}  # fmt: skip
    directory = put(root / DEVICE / "infiniband" / name, **values)
    put(directory / "ports/1", state="4: ACTIVE", phys_state="5: LinkUp",
        rate="400 Gb/sec (4X NDR)", link_layer=layer)  # fmt: skip
    link(directory / "device", root / DEVICE)
    link(root / "sys/class/infiniband" / name, directory)
    return directory


def net(root: Path, name: str) -> NetRecord:
    return read_net(Root(str(root)), name)


def rdma(root: Path, name: str = "mlx5_0") -> RdmaRecord:
    return read_rdma(Root(str(root)), name)


def test_rdma_device_with_its_identity_and_counters(tmp_path: Path) -> None:
    directory = add_rdma(tmp_path, "mlx5_0")
    put(directory / "ports/1/counters", symbol_error=3, link_downed=65535, VL15_dropped=0)
    put(directory / "ports/1/hw_counters", out_of_sequence=7, lifespan=10)
    put(directory / "ports/1/gid_attrs/ndevs", **{"0": "ibp65s0"})
    put(tmp_path / DEVICE, sriov_numvfs=4)

    record = rdma(tmp_path)

    assert (record.hca, record.board, record.firmware) == ("MT4129", "MT_0000000838", "28.39.1002")
    assert (record.guid, record.node_type) == ("946d:ae03:0001:0203", "CA")
    assert record.system_guid == "946d:ae03:0001:0200"
    assert (record.pci, record.sriov_vfs, record.netdevs) == (CARD, 4, ("ibp65s0",))
    (port,) = record.ports
    assert port.counters == {
        "symbol_error": 3, "link_downed": 65535, "VL15_dropped": 0, "out_of_sequence": 7,
    }  # fmt: skip
    assert (port.rate_gbps, port.rate_label, port.net) == (400.0, "4X NDR", "ibp65s0")
    assert port.unknown == {}


def test_counter_without_a_number_is_unknown_and_never_zero(tmp_path: Path) -> None:
    directory = add_rdma(tmp_path, "mlx5_0")
    put(directory / "ports/1/counters", a_first=5, symbol_error="N/A (no PMA)", z_last=-1)

    (port,) = rdma(tmp_path).ports

    assert port.counters == {"a_first": 5}
    assert "N/A (no PMA)" in port.unknown["counters.symbol_error"]
    assert "'-1'" in port.unknown["counters.z_last"]


def test_refused_counters_are_tried_twice_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mlx5 functions without the right to their registers log a line at every read (gpud 1164)."""
    directory = add_rdma(tmp_path, "mlx5_0")
    put(directory / "ports/1/counters", **{f"counter_{i}": 0 for i in range(20)})
    tried = refuse(monkeypatch, "counter_")

    (port,) = rdma(tmp_path).ports

    assert port.counters == {}
    assert tried == ["counter_0", "counter_1"]
    assert "Invalid argument" in port.unknown["counters.counter_0"]
    assert "not tried" in port.unknown["counters"]


def refuse(monkeypatch: pytest.MonkeyPatch, prefix: str) -> list[str]:
    """Let reads of files that begin with `prefix` fail as drivers do; return what is tried."""
    tried: list[str] = []
    read_bytes = rootfs.Directory.read_bytes

    def read(self: rootfs.Directory, name: str, limit: int = rootfs.DEFAULT_LIMIT) -> bytes:
        if name.startswith(prefix):
            tried.append(name)
            raise SourceError(f"{self.path}/{name}: Invalid argument")
        return read_bytes(self, name, limit)

    monkeypatch.setattr(rootfs.Directory, "read_bytes", read)
    return tried


def test_missing_files_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    directory = add_rdma(tmp_path, "mlx5_0")
    for name in ("fw_ver", "board_id", "node_guid", "ports/1/rate"):
        (directory / name).unlink()

    record = rdma(tmp_path)

    assert (record.firmware, record.board, record.guid, record.hca) == (None, None, None, "MT4129")
    assert "not there" in record.unknown["firmware"]
    assert "not there" in record.unknown["guid"]
    # Not every driver has a board's name.
    assert "board" not in record.unknown
    assert record.ports[0].state == "ACTIVE"
    assert "not there" in record.ports[0].unknown["rate_gbps"]


@pytest.mark.parametrize("rate", ["fast", "1.2.3 Gb/sec", "400 Gb/sec (", ". Gb/sec", ""])
def test_odd_rate_is_unknown_with_its_text(tmp_path: Path, rate: str) -> None:
    directory = add_rdma(tmp_path, "mlx5_0")
    (directory / "ports/1/rate").write_text(rate + "\n")

    (port,) = rdma(tmp_path).ports

    assert port.rate_gbps is None
    assert rate[:20] in port.unknown["rate_gbps"]


def test_switch_management_function_is_marked_by_its_vital_data(tmp_path: Path) -> None:
    add_rdma(tmp_path, "mlx5_0")
    (tmp_path / DEVICE / "vpd").write_bytes(VPD)

    record = rdma(tmp_path)

    assert record.vpd_model == "SW_MNG"
    assert record.unknown == {}


def test_unreadable_vital_data_are_unknown(tmp_path: Path) -> None:
    add_rdma(tmp_path, "mlx5_0")
    record = rdma(tmp_path)
    assert record.vpd_model is None
    assert "vpd" in record.unknown["vpd_model"]


@pytest.mark.parametrize("case", ["ethernet", "virtual", "intel"])
def test_vital_data_are_asked_of_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    add_rdma(tmp_path, "mlx5_0", layer="Ethernet" if case == "ethernet" else "InfiniBand")
    if case == "virtual":
        (tmp_path / DEVICE / "physfn").symlink_to("../0000:41:00.1")
    if case == "intel":
        put(tmp_path / DEVICE, vendor="0x8086")
    tried = refuse(monkeypatch, "vpd")

    record = rdma(tmp_path)

    assert tried == []
    assert record.vpd_model is None
    assert record.unknown == {}


def test_submodel_by_hand() -> None:
    assert submodel(VPD) == "SW_MNG"
    assert submodel(VPD.replace(b"SMDL", b"MODL")) is None
    assert submodel(VPD[:30]) is None
    assert submodel(b"") is None
    assert submodel(b"\xff" * 256) is None
    assert submodel(b"\x00" * 256) is None


@given(st.binary(max_size=300), st.integers(0, len(VPD)))
def test_damaged_vital_data_never_raise(data: bytes, cut: int) -> None:
    submodel(data)
    submodel(VPD[:cut] + data)


def test_interface_with_its_values(tmp_path: Path) -> None:
    put(tmp_path / "proc/net", route="Iface\tDestination\tGateway", ipv6_route="")
    put(tmp_path / DEVICE, sriov_numvfs=0)
    add_net(tmp_path, "ens1f0np0", phys_port_name="p0")

    record = net(tmp_path, "ens1f0np0")

    assert (record.pci, record.speed_mbps, record.mtu, record.state) == (CARD, 100000, 9000, "up")
    assert (record.mac, record.hardware) == ("94:6d:ae:01:02:03", 1)
    assert (record.carrier, record.carrier_changes, record.dev_port) == (True, 2, 0)
    assert (record.port_name, record.sriov_vfs, record.default_route) == ("p0", 0, False)
    assert record.unknown == {}


@pytest.mark.parametrize("speed", ["-1", "0", "4294967295", "²", "", "9" * 30])
def test_odd_speed_is_unknown_with_its_text(tmp_path: Path, speed: str) -> None:
    add_net(tmp_path, "eth0", speed=speed)
    record = net(tmp_path, "eth0")
    assert record.speed_mbps is None
    assert speed in record.unknown["speed_mbps"]


def test_interface_that_is_off_answers_no_carrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_net(tmp_path, "eth0", operstate="down")
    refuse(monkeypatch, "carrier")
    record = net(tmp_path, "eth0")
    assert (record.carrier, record.state) == (None, "down")
    assert "Invalid argument" in record.unknown["carrier"]


def test_interface_without_device_and_without_files(tmp_path: Path) -> None:
    add_net(tmp_path, "tun0", device="sys/devices/virtual", address="", speed="-1")
    (tmp_path / "sys/class/net/tun0/mtu").unlink()
    record = net(tmp_path, "tun0")
    assert (record.pci, record.mac, record.mtu, record.sriov_vfs) == (None, None, None, None)
    assert {"mtu", "speed_mbps"} <= set(record.unknown)
    assert "mac" not in record.unknown


def test_bond_names_its_members_and_what_it_stands_on(tmp_path: Path) -> None:
    bond = add_net(tmp_path, "bond0", device="sys/devices/virtual")
    put(bond / "bonding", slaves="ens1f0 ens1f1")
    (bond / "lower_ens1f0").symlink_to("../../ens1f0")

    record = net(tmp_path, "bond0")

    assert record.bond_members == ("ens1f0", "ens1f1")
    assert record.lower == ("ens1f0",)
    assert record.pci is None


def test_rdma_device_of_a_bond_names_the_bond_first(tmp_path: Path) -> None:
    add_net(tmp_path, "ens1f0")
    directory = add_rdma(tmp_path, "mlx5_bond_0", layer="Ethernet")
    put(directory / "ports/1/gid_attrs/ndevs", **{"0": "bond0"})
    assert rdma(tmp_path, "mlx5_bond_0").netdevs == ("bond0", "ens1f0")


# The first two lines of a real /proc/net/route and the mask of a network that is no default.
ROUTE = (
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "eth1\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    "eth2\t00000000\t00000000\t0001\t0\t0\t0\t000000FE\t0\t0\t0\n"
)
NONE = "0" * 32
ROUTE6 = (
    f"{NONE} 00 {NONE} 00 fe80{'0' * 27}1 00000064 00000001 00000000 00000003 eth3\n"
    f"{NONE} 00 {NONE} 00 {NONE} ffffffff 00000001 00000000 00200200 eth1\n"
    f"fe80{'0' * 28} 40 {NONE} 00 {NONE} 00000100 00000001 00000000 00000001 eth1\n"
)


@pytest.mark.parametrize(
    ("name", "default"), [("eth0", True), ("eth1", False), ("eth2", False), ("eth3", True)]
)
def test_default_route(tmp_path: Path, name: str, default: bool) -> None:
    put(tmp_path / "proc/net", route=ROUTE, ipv6_route=ROUTE6)
    add_net(tmp_path, name)
    assert net(tmp_path, name).default_route is default


def test_default_route_without_tables_is_unknown(tmp_path: Path) -> None:
    add_net(tmp_path, "eth0")
    record = net(tmp_path, "eth0")
    assert record.default_route is None
    assert "/proc/net" in record.unknown["default_route"]


@given(st.text(max_size=200))
def test_odd_route_tables_never_raise(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    root = tmp_path_factory.mktemp("root")
    put(root / "proc/net", route=text, ipv6_route=text)
    add_net(root, "eth0")
    net(root, "eth0")


def test_a_hundred_virtual_functions(tmp_path: Path) -> None:
    for number in range(100):
        address = f"0000:42:{number // 8:02x}.{number % 8}"
        device = f"sys/devices/pci0000:40/0000:40:02.0/{address}"
        put(tmp_path / device, vendor="0x15b3", **{"class": "0x020000"})
        link(tmp_path / "sys/bus/pci/devices" / address, tmp_path / device)
        add_net(tmp_path, f"vf{number}", device=device, speed="-1")

    facts = read_node(Root(str(tmp_path)), 20.0)

    assert facts.sysfs is not None
    assert len(facts.sysfs.net) == 100
    assert {record.speed_mbps for record in facts.sysfs.net} == {None}
    assert facts.sysfs.net[0].pci == "0000:42:00.0"


def test_machine_of_the_testbed(tmp_path: Path) -> None:
    write_machine(machine_with("hgx-b200-8", ()), tmp_path / "root")
    facts = read_node(Root(str(tmp_path / "root")), 20.0)
    assert facts.sysfs is not None
    records = {record.name: record for record in facts.sysfs.rdma}
    assert len({record.guid for record in records.values()}) == 16
    assert [name for name, r in records.items() if r.vpd_model == "SW_MNG"] == [
        "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3",
    ]  # fmt: skip
    # Two ports of one BlueField card.
    assert records["mlx5_5"].system_guid == records["mlx5_6"].system_guid
    assert records["mlx5_5"].guid != records["mlx5_6"].guid
    assert records["mlx5_4"].ports[0].counters["symbol_error"] == 0
    assert records["mlx5_5"].ports[0].counters["roce_adp_retrans"] == 0
    assert "roce_adp_retrans" not in records["mlx5_4"].ports[0].counters
