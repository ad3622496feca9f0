"""What each NIC of a node is for, with the reason: rules from certain to less certain.

No NIC says what it is for, so every role is concluded. The first rule that applies decides, its
sentence says by what, and where none does the role is unknown: a wrong role would turn a healthy
storage port that is down into a fault of the compute fabric.
"""

import re
from collections.abc import Callable

from topoprobe.model.nic import NicRole
from topoprobe.topology._nic_view import Nic, Node

Role = tuple[NicRole, str]
_AMAZON, _MELLANOX = 0x1D0F, 0x15B3
# Azure's rules for udev rename RDMA devices: mlx5_ib<n> InfiniBand, mlx5_an<n> the other.
_AZURE_ETHERNET = re.compile(r"mlx[45]_an\d+")
# Drivers of cards and virtual cards that have no RDMA, or whose RDMA would show as a device.
_PLAIN_DRIVERS = {
    "ena": "the ordinary network of AWS", "mana": "the ordinary network of Azure",
    "virtio-pci": "a virtual machine's ordinary network",
    "vmxnet3": "a virtual machine's ordinary network", "e1000": "1 Gb/s at most",
    "e1000e": "1 Gb/s at most", "igb": "1 Gb/s at most", "igc": "2.5 Gb/s at most",
    "tg3": "1 Gb/s at most", "r8169": "5 Gb/s at most", "ixgbe": "10 Gb/s at most",
    "ixgbevf": "10 Gb/s at most", "i40e": "40 Gb/s at most", "iavf": "a virtual function",
}  # fmt: skip
# Below this a port of a GPU node carries access and services.
_SLOW_GBPS = 25.0
_FABRIC_GBPS = 100.0
# NVLink 5 boards join their NVSwitches by ConnectX-7 functions.
_CONNECTX7 = 0x1021


def roles_of(node: Node) -> dict[str, Role]:
    """Return PCI address → role and reason of every NIC of `node`."""
    roles = {nic.key: _role(nic, node) for nic in node.physical}
    for nic in node.nics:
        if nic.pci.physfn is not None:
            roles[nic.key] = _of_virtual_function(nic, node, roles)
    return roles


def _role(nic: Nic, node: Node) -> Role:
    for rule in _RULES:
        found = rule(nic, node)
        if found is not None:
            return found
    return "unknown", "no rule decides: " + _seen(nic, node)


def _of_virtual_function(nic: Nic, node: Node, roles: dict[str, Role]) -> Role:
    physical = nic.pci.physfn or ""
    if physical not in roles:
        return _role(nic, node)
    role, reason = roles[physical]
    return role, f"a virtual function of {physical}, of which holds: {reason}"


def _switch_management(nic: Nic, node: Node) -> Role | None:
    if any(device.vpd_model == "SW_MNG" for device in nic.rdma):
        return (
            "nvswitch-management",
            "its vital product data say SW_MNG: it leads to the NVSwitches of the GPU board, "
            "for their management only",
        )
    return None


def _by_provider(nic: Nic, node: Node) -> Role | None:
    for device in nic.rdma:
        if _AZURE_ETHERNET.fullmatch(device.name):
            return (
                "management",
                f"Azure names it {device.name}: accelerated networking, the virtual machine's "
                "ordinary Ethernet",
            )
    driver, vendor = nic.pci.driver or "", nic.pci.vendor
    if driver == "efa" or (vendor == _AMAZON and (nic.pci.device or 0) & 0xFFF0 == 0xEFA0):
        return "compute", "an Elastic Fabric Adapter, made for traffic between nodes of AWS"
    if driver.startswith("cxi"):
        return "compute", "a Slingshot adapter (driver cxi), made for traffic between nodes"
    return None


def _near_gpus(nic: Nic, node: Node) -> Role | None:
    """Compute: has RDMA and shares a PCIe switch with a GPU, at the full rate of such NICs."""
    if not (nic.rdma and nic.near):
        return None
    best = _near_best(node)
    if _class_of(nic, node) != best:
        return (
            "unknown",
            f"shares a PCIe switch with {_gpus(nic)}, but other NICs that do are "
            f"{_words(*best)} and this one is {_words(*_class_of(nic, node))}",
        )
    route = _route(nic, node)
    also = f" (the default route leaves through {route} too)" if route else ""
    return "compute", f"RDMA, and shares a PCIe switch with {_gpus(nic)}{also}"


def _default_route(nic: Nic, node: Node) -> Role | None:
    route = _route(nic, node)
    if route is None:
        return None
    names = {net.name for net in nic.nets}
    through = "it" if route in names else f"{route}, which stands on it"
    return "management", f"the default route leaves through {through}"


def _plain(nic: Nic, node: Node) -> Role | None:
    """Management: no RDMA, and an ordinary card by its driver or its rate."""
    if nic.rdma:
        return None
    driver = nic.pci.driver
    if driver in _PLAIN_DRIVERS:
        return "management", f"no RDMA; driver {driver}: {_PLAIN_DRIVERS[driver]}"
    if driver == "vfio-pci":
        return "unknown", "handed to a virtual machine or a program (driver vfio-pci)"
    if driver is None:
        return "unknown", "no driver is bound, so it shows neither RDMA nor an interface"
    rate = node.rate(nic)
    if nic.layer == "Ethernet" and rate is not None and not nic.near:
        if rate <= _SLOW_GBPS:
            return "management", f"Ethernet without RDMA at {rate:g} Gb/s"
        if rate <= _FABRIC_GBPS and any(other.rdma for other in node.physical):
            return "management", f"Ethernet without RDMA at {rate:g} Gb/s; other NICs have RDMA"
    return "unknown", f"shows no RDMA (driver {driver}), and nothing else tells its use"


def _slow(nic: Nic, node: Node) -> Role | None:
    rate = node.rate(nic)
    if nic.layer != "Ethernet" or rate is None or rate > _SLOW_GBPS:
        return None
    return "management", f"Ethernet at {rate:g} Gb/s: too slow for a fabric or storage of GPUs"


def _apart(nic: Nic, node: Node) -> Role | None:
    """Storage: RDMA away from the GPUs, where other NICs share their switches."""
    near = [other for other in node.physical if other.rdma and other.near]
    if not near or nic.near:
        return None
    best = _near_best(node)
    compute = [other for other in near if _class_of(other, node) == best]
    if len(compute) < len(node.gpus) and _same_card(nic, node, compute):
        return _out_of_place(nic, node, len(compute))
    if _may_lead_to_switches(nic, node):
        return (
            "unknown",
            "a ConnectX-7 apart from the GPUs without an interface: for storage, or the way to "
            "NVSwitches; its vital product data would tell, and reading them needs root",
        )
    return (
        "storage",
        f"RDMA ({_words(*_class_of(nic, node))}) apart from the GPUs; the {len(compute)} for "
        "compute share a PCIe switch with one: for storage or services",
    )


def _out_of_place(nic: Nic, node: Node, near: int) -> Role:
    """Return the role of a card like the `near` ones beside GPUs that is not beside one."""
    count = len([n for n in node.physical if n.rdma and n.model == nic.model and _open(n, node)])
    if not _fits(near, len(node.gpus)) and _fits(count, len(node.gpus)):
        return (
            "compute",
            f"the same card as the {near} NICs that share a PCIe switch with a GPU, whose number "
            f"it completes to {count}; its own place is apart from them",
        )
    return (
        "unknown",
        "the same card as those that share a PCIe switch with a GPU, but apart from them: either "
        "in the wrong slot or for storage",
    )


def _fastest(nic: Nic, node: Node) -> Role | None:
    """Where no NIC shares a switch with a GPU: compute are the fastest, if their number fits."""
    rivals = [n for n in node.physical if n.rdma and _open(n, node)]
    if not node.gpus:
        return "unknown", "no GPU is on the bus to tell it by"
    if nic not in rivals:
        return None
    best = max((_class_of(n, node) for n in rivals), key=_order)
    mine = _class_of(nic, node)
    group = [n for n in rivals if _class_of(n, node) == best]
    fabric = _is_fabric(group, best, len(node.gpus))
    cards, gpus = len({n.card for n in group}), len(node.gpus)
    if mine == best:
        if fabric:
            return (
                "compute",
                f"{_one_of(len(group))} of the fastest kind here ({_words(*best)}), for "
                f"{_count(gpus, 'GPU')}; none shares a PCIe switch with one",
            )
        return (
            "unknown",
            f"{_count(cards, 'card')} of {_words(*best)} for {_count(gpus, 'GPU')} without a "
            "common PCIe switch: the numbers do not tell what it is for",
        )
    if not fabric:
        return None
    return (
        "storage",
        f"RDMA ({_words(*mine)}) beside {len(group)} of {_words(*best)}, which serve the GPUs: "
        "for storage or services",
    )


_RULES: tuple[Callable[[Nic, Node], Role | None], ...] = (
    _switch_management, _by_provider, _near_gpus, _default_route, _plain, _slow, _apart, _fastest,
)  # fmt: skip


def _open(nic: Nic, node: Node) -> bool:
    """Tell whether only the rules on rates can decide what `nic` is for."""
    earlier = (_switch_management, _by_provider, _default_route, _slow)
    return not any(rule(nic, node) for rule in earlier)


def _is_fabric(group: list[Nic], best: tuple[str | None, float | None], gpus: int) -> bool:
    cards = len({nic.card for nic in group})
    layer, rate = best
    if layer == "InfiniBand":
        # InfiniBand is there for the fabric; more of it than GPUs may be for storage as well.
        return len(group) <= gpus or _fits(len(group), gpus) or _fits(cards, gpus)
    # One Ethernet card may carry anything.
    return cards > 1 and _fits(cards, gpus) and (rate or 0) >= _FABRIC_GBPS


def _near_best(node: Node) -> tuple[str | None, float | None]:
    near = [n for n in node.physical if n.rdma and n.near and _by_provider(n, node) is None]
    return max((_class_of(n, node) for n in near), key=_order)


def _class_of(nic: Nic, node: Node) -> tuple[str | None, float | None]:
    return nic.layer, node.rate(nic)


def _order(pair: tuple[str | None, float | None]) -> tuple[float, bool]:
    layer, rate = pair
    return (rate or 0, layer == "InfiniBand")


def _same_card(nic: Nic, node: Node, others: list[Nic]) -> bool:
    """Tell whether `nic` is of a model among `others`, with as many functions a card."""
    cards = [other.card for other in node.physical]
    return (nic.model, cards.count(nic.card)) in {(o.model, cards.count(o.card)) for o in others}


def _may_lead_to_switches(nic: Nic, node: Node) -> bool:
    unread = any("vpd_model" in device.unknown for device in nic.rdma)
    connectx7 = (nic.pci.vendor, nic.pci.device) == (_MELLANOX, _CONNECTX7)
    hidden = not node.switches_seen and len(node.gpus) > 1
    return unread and connectx7 and hidden and nic.layer == "InfiniBand" and not nic.nets


def _fits(count: int, gpus: int) -> bool:
    return count > 0 and gpus > 0 and (count % gpus == 0 or gpus % count == 0)


def _route(nic: Nic, node: Node) -> str | None:
    return next((node.routes[net.name] for net in nic.nets if net.name in node.routes), None)


def _gpus(nic: Nic) -> str:
    return f"GPU {nic.near[0]}" if len(nic.near) == 1 else f"{len(nic.near)} GPUs"


def _one_of(count: int) -> str:
    return "the only RDMA function" if count == 1 else f"one of {count} RDMA functions"


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _words(layer: str | None, rate: float | None) -> str:
    return (
        f"{layer or 'a link of unknown kind'} at {f'{rate:g} Gb/s' if rate else 'no known rate'}"
    )


def _seen(nic: Nic, node: Node) -> str:
    rdma = "RDMA" if nic.rdma else "no RDMA"
    return f"{rdma}, {_words(*_class_of(nic, node))}, driver {nic.pci.driver or 'none'}"
