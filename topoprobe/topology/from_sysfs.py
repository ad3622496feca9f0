"""The map that sysfs gives: NUMA nodes, the PCI tree, and what sits on it."""

from collections import defaultdict

from topoprobe.model.snapshot import NumaRecord, PciRecord, SysfsRecord
from topoprobe.model.topology import Device, DeviceKind, Link, PciIds
from topoprobe.topology.kinds import kind_of, parents_of
from topoprobe.topology.links import memory_link, pcie_links

_SOURCE = "sysfs"


def tree_parts(record: SysfsRecord) -> tuple[dict[str, Device], dict[str, Link]]:
    """Return the devices and links of one `record`, by their keys."""
    parents = parents_of(record.pci)
    by_address = {function.address: function for function in record.pci}
    kinds = {f.address: kind_of(f, parents, by_address) for f in record.pci}
    bridge_numa = _host_bridge_numa(record.pci, parents)
    devices = [_numa_device(node) for node in record.numa]
    devices += [_memory_device(node) for node in record.numa if node.memory_bytes]
    known_nodes = {f"numa:{node.node}" for node in record.numa}
    for bridge in sorted(bridge_numa):
        devices.append(_host_bridge(bridge, bridge_numa[bridge], parents.get(bridge), known_nodes))
    devices += [
        _pci_device(function, kinds[function.address], parents[function.address], record)
        for function in record.pci
    ]
    devices += _virtual_nics(record)
    links: list[Link] = [memory_link(node) for node in record.numa if node.memory_bytes]
    links += pcie_links(by_address, kinds, parents)
    return (
        {device.key: device for device in tree_order(devices)},
        {link.key: link for link in links},
    )


def _numa_device(node: NumaRecord) -> Device:
    unknown = {
        {"distances": "numa_distances"}.get(name, name): why for name, why in node.unknown.items()
    }
    return Device(
        key=f"numa:{node.node}",
        kind="numa-node",
        numa=node.node,
        cpus=node.cpus,
        numa_distances={f"numa:{i}": d for i, d in enumerate(node.distances)} or None,
        memory_bytes=node.memory_bytes,
        unknown=unknown,
        sources={"*": _SOURCE},
    )


def _memory_device(node: NumaRecord) -> Device:
    return Device(
        key=f"numa:{node.node}/memory",
        kind="memory",
        parent=f"numa:{node.node}",
        numa=node.node,
        memory_bytes=node.memory_bytes,
        sources={"*": _SOURCE},
    )


def _host_bridge(key: str, numa: int | None, above: str | None, nodes: set[str]) -> Device:
    node = f"numa:{numa}"
    unknown = {} if numa is not None else {"numa": "its devices name no single NUMA node"}
    return Device(
        key=key,
        kind="host-bridge",
        # Below a VMD controller (domains from 10000) the bridge hangs on that device.
        parent=above or (node if node in nodes else None),
        numa=numa,
        unknown=unknown,
        sources={"*": _SOURCE},
    )


def _pci_device(
    function: PciRecord, kind: DeviceKind, parent: str | None, record: SysfsRecord
) -> Device:
    address = function.address
    net = [n for n in record.net if n.pci == address]
    rdma = tuple(r.name for r in record.rdma if r.pci == address)
    nvme = [n for n in record.nvme if n.pci == address]
    unknown = dict(function.unknown)
    if "numa_node" in unknown:
        unknown["numa"] = unknown.pop("numa_node")
    name = function.model or next((n.model for n in nvme if n.model), None) or function.ids_name
    if name is None:
        unknown["name"] = "no pci.ids on this system knows it"
    return Device(
        key=address,
        kind=kind,
        name=name,
        parent=parent,
        numa=function.numa_node,
        pci=PciIds(
            function.class_code,
            function.vendor,
            function.device,
            function.subsystem_vendor,
            function.subsystem_device,
            function.revision,
        ),
        uuid=function.uuid,
        driver=function.driver,
        slot=record.slots.get(address.rpartition(".")[0]),
        rdma=rdma,
        netdevs=tuple(n.name for n in net),
        blockdevs=tuple(n.name for n in nvme),
        cpus=function.cpus,
        unknown=unknown,
        sources={"*": _SOURCE},
    )


def _virtual_nics(record: SysfsRecord) -> list[Device]:
    """Bonds and other interfaces that hold members; plain virtual ones are no hardware."""
    return [
        Device(key=f"net:{net.name}", kind="nic", name=net.name, netdevs=(net.name,),
               unknown={"numa": "a bond of several devices"}, sources={"*": _SOURCE})
        for net in record.net
        if net.pci is None and net.bond_members
    ]  # fmt: skip


def _host_bridge_numa(
    functions: tuple[PciRecord, ...], parents: dict[str, str | None]
) -> dict[str, int | None]:
    """Return each host bridge with the one NUMA node that the devices below it agree on."""
    nodes: dict[str, set[int]] = defaultdict(set)
    for function in functions:
        top = function.address
        while (above := parents.get(top)) is not None:
            top = above
            if top.startswith("host-bridge:"):
                break
        if top.startswith("host-bridge:"):
            nodes[top].update({function.numa_node} - {None})  # type: ignore[arg-type]
    return {bridge: min(seen) if len(seen) == 1 else None for bridge, seen in nodes.items()}


def tree_order(devices: list[Device]) -> list[Device]:
    """Return the devices with every child right behind its parent's earlier children."""
    keys = {device.key for device in devices}
    children: dict[str | None, list[Device]] = defaultdict(list)
    for device in devices:
        children[device.parent if device.parent in keys else None].append(device)
    ordered: list[Device] = []
    stack = children[None][::-1]
    while stack:
        device = stack.pop()
        ordered.append(device)
        stack.extend(children[device.key][::-1])
    return ordered
