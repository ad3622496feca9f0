"""Network interfaces and RDMA devices through one root: ports, counters, names, functions.

Facts about the files: Documentation/ABI stable/sysfs-class-infiniband and
testing/sysfs-class-net in the kernel tree. Everything here can stick in the driver, so it
runs in the reader's child, one device an item.
"""

import re

from topoprobe.model.errors import SourceAbsent, SourceError
from topoprobe.model.snapshot import NetRecord, RdmaPort, RdmaRecord
from topoprobe.sources.attributes import class_device_pci, value
from topoprobe.sources.rootfs import Directory, Root
from topoprobe.sources.vpd import submodel

NET = "/sys/class/net"
RDMA = "/sys/class/infiniband"

# "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
_RATE = re.compile(r"([0-9.]{1,9}) Gb/sec(?: \((.+)\))?")
_NUMBER = re.compile(r"[0-9]{1,20}")
_MELLANOX = "0x15b3"
# A card's data end after some hundred bytes; every four of them are a transaction with it.
_VPD_LIMIT = 4096
# Files beside the counters that count nothing.
_NO_COUNTERS = ("lifespan",)
_PROBES = 2


def read_net(root: Root, name: str) -> NetRecord:
    """Return the network interface `name`."""
    unknown: dict[str, str] = {}
    with root.open(f"{NET}/{name}") as directory:
        # speed is -1 on virtio, and EINVAL while the link is down.
        speed = value(directory, "speed", unknown, "speed_mbps")
        state = value(directory, "operstate", unknown, "state")
        mtu = _number(directory, "mtu", unknown)
        mac = value(directory, "address", unknown, "mac")
        hardware = _number(directory, "type", unknown, "hardware")
        # An interface that is switched off answers EINVAL here.
        carrier = _number(directory, "carrier", unknown)
        changes = _number(directory, "carrier_changes", unknown)
        dev_port = _number(directory, "dev_port", unknown)
        port_name = _optional(directory, "phys_port_name")
        lower = tuple(n[6:] for n in directory.names() if n.startswith("lower_"))
    if speed is not None and not (_is_number(speed) and 0 < int(speed) < 10**8):
        unknown["speed_mbps"], speed = f"the driver says {speed[:40]!r}", None
    try:
        members = tuple(root.read(f"{NET}/{name}/bonding/slaves").split())
    except SourceError:
        members = ()
    pci = class_device_pci(root, NET, name)
    return NetRecord(
        name=name,
        pci=pci,
        speed_mbps=int(speed) if speed else None,
        state=state,
        mtu=mtu,
        # A tunnel has no address of its own: the file is empty.
        mac=mac or None,
        hardware=hardware,
        carrier=None if carrier is None else carrier != 0,
        carrier_changes=changes,
        dev_port=dev_port,
        port_name=port_name or None,
        bond_members=members,
        lower=lower,
        default_route=_has_default_route(root, name, unknown),
        sriov_vfs=_virtual_functions(root, f"{NET}/{name}/device", unknown) if pci else None,
        unknown=unknown,
    )


def read_rdma(root: Root, name: str) -> RdmaRecord:
    """Return the RDMA device `name` with its ports."""
    unknown: dict[str, str] = {}
    path = f"{RDMA}/{name}"
    with root.open(path) as directory:
        firmware = value(directory, "fw_ver", unknown, "firmware")
        # These two are the driver's own: EFA has no board_id.
        hca, board = _optional(directory, "hca_type"), _optional(directory, "board_id")
        guid = value(directory, "node_guid", unknown, "guid")
        system = value(directory, "sys_image_guid", unknown, "system_guid")
        node_type = value(directory, "node_type", unknown, "node_type")
    try:
        numbers = sorted(int(n) for n in root.names(f"{path}/ports") if _is_number(n))
    except SourceError as error:
        unknown["ports"], numbers = str(error), []
    ports = tuple(_read_port(root, f"{path}/ports/{port}", port) for port in numbers)
    return RdmaRecord(
        name=name,
        pci=class_device_pci(root, RDMA, name),
        ports=ports,
        firmware=firmware,
        hca=hca or None,
        board=board or None,
        guid=guid,
        system_guid=system,
        node_type=node_type.partition(": ")[2] or node_type if node_type else None,
        netdevs=_netdevs(root, path, ports),
        vpd_model=_vpd_model(root, f"{path}/device", ports, unknown),
        sriov_vfs=_virtual_functions(root, f"{path}/device", unknown),
        unknown=unknown,
    )


def _read_port(root: Root, path: str, port: int) -> RdmaPort:
    unknown: dict[str, str] = {}
    with root.open(path) as directory:
        state = value(directory, "state", unknown, "state")
        physical = value(directory, "phys_state", unknown, "physical_state")
        rate = value(directory, "rate", unknown, "rate_gbps")
        layer = value(directory, "link_layer", unknown, "link_layer")
    found = _RATE.fullmatch(rate) if rate else None
    gbps = _float(found[1]) if found else None
    if rate is not None and gbps is None:
        unknown["rate_gbps"] = f"sysfs says {rate[:40]!r}"
    counters: dict[str, int] = {}
    for folder in ("hw_counters", "counters"):
        counters |= _read_counters(root, f"{path}/{folder}", folder, unknown)
    try:
        # An entry of the table that is not in use answers EINVAL.
        net = root.read(f"{path}/gid_attrs/ndevs/0")
    except SourceError:
        net = ""
    return RdmaPort(
        port=port,
        state=state.partition(": ")[2] or state if state else None,
        physical_state=physical.partition(": ")[2] or physical if physical else None,
        rate_gbps=gbps,
        rate_label=found[2] if found else None,
        link_layer=layer,
        net=net or None,
        counters=counters,
        unknown=unknown,
    )


def _read_counters(root: Root, path: str, folder: str, unknown: dict[str, str]) -> dict[str, int]:
    """Return the counters in the directory `path`; a folder that is not there holds none.

    Some functions refuse all of them, and their driver writes a line into the kernel's log at
    every try. So after the first few refusals the others are left alone.
    """
    counters: dict[str, int] = {}
    refused = 0
    try:
        with root.open(path) as directory:
            for name in directory.names():
                if name in _NO_COUNTERS:
                    continue
                field = f"counters.{name}"
                text = value(directory, name, unknown, field)
                if text is not None and _NUMBER.fullmatch(text):
                    counters[name] = int(text)
                    continue
                # "N/A (no PMA)": the device has no such counter.
                unknown.setdefault(field, f"the driver says {(text or '')[:40]!r}")
                refused += 1
                if refused == _PROBES and not counters:
                    unknown[folder] = (
                        "the driver refused the first ones; the others were not tried"
                    )
                    break
    except SourceAbsent:
        pass  # Drivers without counters of their own have no hw_counters.
    except SourceError as error:
        unknown[folder] = str(error)
    return counters


def _netdevs(root: Root, path: str, ports: tuple[RdmaPort, ...]) -> tuple[str, ...]:
    """Return the interfaces of an RDMA device: those its ports name, and of its function.

    The ports of a device that stands for a bond (``mlx5_bond_0``) name the bond.
    """
    try:
        same = root.names(f"{path}/device/net")
    except SourceError:
        same = []
    return tuple(dict.fromkeys([*(port.net for port in ports if port.net), *same]))


def _vpd_model(
    root: Root, device: str, ports: tuple[RdmaPort, ...], unknown: dict[str, str]
) -> str | None:
    """Return the sub-model in the vital product data, where it can tell what a card is for.

    Reading these data takes many slow transactions, so it is done for physical InfiniBand
    functions of Mellanox only: those of NVLink 5 boards that lead to the NVSwitches differ in
    nothing else from a NIC.
    """
    if not any(port.link_layer == "InfiniBand" for port in ports):
        return None
    try:
        with root.open(device) as directory:
            if directory.read("vendor") != _MELLANOX or directory.kind("physfn") is not None:
                return None
            return submodel(directory.read_bytes("vpd", _VPD_LIMIT))
    except SourceError as error:
        unknown["vpd_model"] = str(error)
        return None


def _virtual_functions(root: Root, device: str, unknown: dict[str, str]) -> int | None:
    """Return how many virtual functions are on; None where the device cannot have any."""
    try:
        with root.open(device) as directory:
            if directory.kind("sriov_numvfs") is None:
                return None
            return _number(directory, "sriov_numvfs", unknown, "sriov_vfs")
    except SourceError:
        return None  # No device behind it, as for a virtual interface.


def _has_default_route(root: Root, name: str, unknown: dict[str, str]) -> bool | None:
    """Tell whether a default route (IPv4 or IPv6) leaves through the interface `name`."""
    seen = False
    for path, is_default in (("route", _is_default), ("ipv6_route", _is_default6)):
        try:
            lines = root.read(f"/proc/net/{path}").splitlines()
        except SourceError as error:
            # A kernel without IPv6 has no table of it.
            if path == "route":
                unknown["default_route"] = str(error)
            continue
        seen = True
        if any(is_default(line.split(), name) for line in lines):
            unknown.pop("default_route", None)
            return True
    return False if seen and "default_route" not in unknown else None


def _is_default(words: list[str], name: str) -> bool:
    # Iface Destination Gateway Flags RefCnt Use Metric Mask …
    return len(words) > 7 and words[0] == name and words[1] == words[7] == "00000000"


def _is_default6(words: list[str], name: str) -> bool:
    # destination prefix source prefix next-hop metric refcnt use flags device; the kernel's own
    # entry that rejects everything has no next hop.
    if len(words) < 10 or words[9] != name:
        return False
    return words[0] == "0" * 32 and words[1] == "00" and words[4] != "0" * 32


def _number(
    directory: Directory, name: str, unknown: dict[str, str], field: str | None = None
) -> int | None:
    text = value(directory, name, unknown, field or name)
    if text is None or _is_number(text):
        return None if text is None else int(text)
    unknown[field or name] = f"sysfs says {text[:40]!r}"
    return None


def _optional(directory: Directory, name: str) -> str | None:
    """Return a value that most drivers do not have: its absence is nothing to report."""
    return value(directory, name, {}, name)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
