"""The facts of every NIC of a node, with its role: what the report says of it."""

import re

from topoprobe.model.nic import NicFacts, NicPort
from topoprobe.model.snapshot import NetRecord, RdmaPort, SysfsRecord
from topoprobe.topology._nic_rules import Role, roles_of
from topoprobe.topology._nic_view import Nic, Node, view

# A port of the card's own switch that stands for a virtual function: pf0vf3, c1pf0sf8.
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")
_NET_FIELDS = {"speed_mbps": "speed_mbps", "state": "net_state", "mtu": "mtu"}


def nic_facts(record: SysfsRecord) -> dict[str, NicFacts]:
    """Return device key → facts and role of every NIC in `record`, bonds (``net:…``) included."""
    node = view(record)
    roles = roles_of(node)
    facts = {nic.key: _facts(nic, node, roles[nic.key]) for nic in node.nics}
    for net in record.net:
        if net.pci is None and net.bond_members:
            facts[f"net:{net.name}"] = _bond_facts(net, node, roles)
    return facts


def _facts(nic: Nic, node: Node, role: Role) -> NicFacts:
    own = [device for device in nic.rdma if device.pci == nic.key]
    net = _own_interface(nic)
    unknown = _net_unknown(net)
    for device in own:
        if "firmware" in device.unknown and not any(d.firmware for d in own):
            unknown["firmware"] = device.unknown["firmware"]
        if "ports" in device.unknown:
            unknown["ports"] = device.unknown["ports"]
    bond = next((node.bonds[n.name] for n in nic.nets if n.name in node.bonds), None)
    return NicFacts(
        role=role[0],
        role_reason=role[1],
        firmware=next((device.firmware for device in own if device.firmware), None),
        hca=next((device.hca for device in own if device.hca), None),
        board=next((device.board for device in own if device.board), None),
        ports=tuple(_port(port) for device in own for port in device.ports),
        speed_mbps=net.speed_mbps if net else None,
        net_state=net.state if net else None,
        mtu=net.mtu if net else None,
        physical_function=nic.pci.physfn,
        virtual_functions=_virtual_functions(nic, node),
        bond=f"net:{bond}" if bond else None,
        unknown=unknown,
    )


def _port(port: RdmaPort) -> NicPort:
    return NicPort(
        port=port.port,
        state=port.state,
        physical_state=port.physical_state,
        rate_gbps=port.rate_gbps,
        rate_label=port.rate_label,
        link_layer=port.link_layer,
        counters=port.counters,
        unknown=port.unknown,
    )


def _bond_facts(net: NetRecord, node: Node, roles: dict[str, Role]) -> NicFacts:
    members = [n for n in node.nics if {i.name for i in n.nets} & set(net.bond_members)]
    found = {roles[nic.key][0] for nic in members}
    if not members:
        role: Role = ("unknown", "none of its members is a NIC on the bus")
    elif len(found) == 1:
        role = (found.pop(), f"as its members, the first: {roles[members[0].key][1]}")
    else:
        role = ("unknown", f"its members differ: {', '.join(sorted(found))}")
    return NicFacts(
        role=role[0],
        role_reason=role[1],
        speed_mbps=net.speed_mbps,
        net_state=net.state,
        mtu=net.mtu,
        unknown=_net_unknown(net),
    )


def _own_interface(nic: Nic) -> NetRecord | None:
    """Return the interface of the NIC itself, not one that stands for a virtual function."""
    own = [n for n in nic.nets if not (n.port_name and _REPRESENTOR.fullmatch(n.port_name))]
    return min(own, key=lambda net: (net.dev_port or 0, net.name), default=None)


def _net_unknown(net: NetRecord | None) -> dict[str, str]:
    if net is None:
        return {}
    return {new: net.unknown[old] for old, new in _NET_FIELDS.items() if old in net.unknown}


def _virtual_functions(nic: Nic, node: Node) -> int | None:
    """Return how many virtual functions are on; None for a NIC that cannot have any."""
    said = [net.sriov_vfs for net in nic.nets]
    said += [device.sriov_vfs for device in nic.rdma if device.pci == nic.key]
    counted = len([n for n in node.nics if n.pci.physfn == nic.key])
    return next((number for number in said if number is not None), counted or None)
