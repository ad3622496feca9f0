"""Network interfaces and RDMA devices through one root: ports, counters, names, functions.

Facts about the files: Documentation/ABI stable/sysfs-class-infiniband and
testing/sysfs-class-net in the kernel tree.
"""

import re

from topoprobe.model.errors import SourceError
from topoprobe.model.snapshot import NetRecord, RdmaPort, RdmaRecord
from topoprobe.sources.attributes import class_device_pci, value
from topoprobe.sources.rootfs import Root

NET = "/sys/class/net"
RDMA = "/sys/class/infiniband"

# "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
_RATE = re.compile(r"([0-9.]+) Gb/sec(?: \((.+)\))?")


def read_net(root: Root, name: str) -> NetRecord:
    """Return the network interface `name`."""
    unknown: dict[str, str] = {}
    with root.open(f"{NET}/{name}") as directory:
        # speed is -1 on virtio, and EINVAL while the link is down.
        speed = value(directory, "speed", unknown, "speed_mbps")
        state = value(directory, "operstate", unknown, "state")
        mtu = value(directory, "mtu", unknown, "mtu")
    if speed is not None and not (speed.isdigit() and 0 < int(speed) < 10**8):
        unknown["speed_mbps"], speed = f"the driver says {speed[:40]!r}", None
    try:
        members = tuple(root.read(f"{NET}/{name}/bonding/slaves").split())
    except SourceError:
        members = ()
    return NetRecord(
        name=name,
        pci=class_device_pci(root, NET, name),
        speed_mbps=int(speed) if speed else None,
        state=state,
        mtu=int(mtu) if mtu and mtu.isdigit() else None,
        bond_members=members,
        unknown=unknown,
    )


def read_rdma(root: Root, name: str) -> RdmaRecord:
    """Return the RDMA device `name` with its ports."""
    unknown: dict[str, str] = {}
    path = f"{RDMA}/{name}"
    with root.open(path) as directory:
        firmware = value(directory, "fw_ver", unknown, "firmware")
    try:
        numbers = sorted(int(port) for port in root.names(f"{path}/ports") if port.isdigit())
    except SourceError as error:
        unknown["ports"], numbers = str(error), []
    return RdmaRecord(
        name=name,
        pci=class_device_pci(root, RDMA, name),
        ports=tuple(_read_port(root, f"{path}/ports/{port}", port) for port in numbers),
        firmware=firmware,
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
    if rate is not None and found is None:
        unknown["rate_gbps"] = f"sysfs says {rate[:40]!r}"
    return RdmaPort(
        port=port,
        state=state.partition(": ")[2] or state if state else None,
        physical_state=physical.partition(": ")[2] or physical if physical else None,
        rate_gbps=float(found[1]) if found else None,
        rate_label=found[2] if found else None,
        link_layer=layer,
        unknown=unknown,
    )
