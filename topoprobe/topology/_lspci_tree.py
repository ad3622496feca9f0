"""What stands above each PCI function in lspci texts: by bus numbers, by paths, by the drawing.

A text may be an excerpt, so a parent is told only where the text shows it: the bridge whose
secondary bus is the function's own bus, the bridge that the drawing hangs it on, or a root bus.
"""

from dataclasses import dataclass, field

from topoprobe.model.texts import LspciDevice, LspciText, LspciTree
from topoprobe.model.topology import Conflict

# Port types that exist on root buses only, as lspci prints them.
_ON_ROOT = ("Root Port", "Root Complex Integrated Endpoint", "Root Complex Event Collector")
_HOST_BRIDGE, PCI_BRIDGE = 0x0600, 0x0604


@dataclass
class Parents:
    """Address → bridge above, or root bus as ``pci0000:15``; `unknown` holds why it is not told.

    `by_drawing` are those that the drawing alone tells, `assumed` root buses that are so only
    because no bridge of a list that seems whole leads to them.
    """

    above: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    by_drawing: set[str] = field(default_factory=set)
    assumed: set[str] = field(default_factory=set)
    conflicts: list[Conflict] = field(default_factory=list)


def parents_in(lspci: LspciText | None, tree: LspciTree | None) -> Parents:
    """Return what stands above every function of both texts."""
    found = Parents()
    _by_buses(lspci.devices if lspci else (), found)
    for node in tree.nodes if tree else ():
        drawn = node.parent or root_bus(node.address)
        listed = found.above.get(node.address)
        if listed is None:
            found.above[node.address] = drawn
            found.unknown.pop(node.address, None)
            found.by_drawing.add(node.address)
        elif listed != drawn:
            found.conflicts.append(
                Conflict(
                    subject=node.address, field="parent",
                    values={"lspci": listed, "lspci -t": drawn}, used="lspci",
                    why="the bus numbers in the list are those of the bridge itself",
                )
            )  # fmt: skip
    _break_circles(found)
    return found


def _break_circles(found: Parents) -> None:
    """Take out what would stand above itself: a path or a drawing may say anything."""
    sound: set[str] = set()
    for start in list(found.above):
        way: dict[str, None] = {}
        at: str | None = start
        while at is not None and at not in sound and at not in way:
            way[at] = None
            at = found.above.get(at)
        if at is not None and at in way:
            del found.above[at]
            found.unknown[at] = "the texts put it above itself"
        sound.update(way)


def root_bus(address: str) -> str:
    """Return the root bus that a function stands on, as sysfs names it: ``pci0000:15``."""
    return f"pci{address.rpartition(':')[0]}"


def _bus(address: str) -> tuple[str, int]:
    domain, bus, _ = address.split(":")
    return domain, int(bus, 16)


def _by_buses(devices: tuple[LspciDevice, ...], found: Parents) -> None:
    leads: dict[tuple[str, int], list[str]] = {}
    within: set[tuple[str, int]] = set()
    for device in devices:
        domain, bus = _bus(device.address)
        low, high = device.secondary_bus, device.subordinate_bus
        # Impossible ranges occur: a bridge never holds its own bus, or one below that.
        if low is not None and high is not None and bus < low <= high:
            leads.setdefault((domain, low), []).append(device.address)
            within.update((domain, number) for number in range(low, min(high, 255) + 1))
    rooted = _root_buses(devices)
    whole = _seems_whole(devices)
    for device in devices:
        domain, bus = _bus(device.address)
        bridges = leads.get((domain, bus), [])
        if device.above:
            found.above[device.address] = device.above[-1]
        elif len(bridges) == 1:
            found.above[device.address] = bridges[0]
        elif bridges:
            found.unknown[device.address] = f"several bridges of the text lead to bus {bus:02x}"
        elif (domain, bus) in within:
            found.unknown[device.address] = f"the bridge to its bus {bus:02x} is not in the text"
        elif (domain, bus) in rooted or whole:
            found.above[device.address] = root_bus(device.address)
            if (domain, bus) not in rooted:
                found.assumed.add(device.address)
        else:
            found.unknown[device.address] = "the text shows no bridge above it"


def _root_buses(devices: tuple[LspciDevice, ...]) -> set[tuple[str, int]]:
    """Return the buses that are root buses for certain."""
    with_paths = any(device.above for device in devices)
    rooted = {_bus(device.above[0]) for device in devices if device.above}
    for device in devices:
        place = _bus(device.address)
        # No bridge can lead to bus 0. A path of -PP that is one address long starts at a root.
        on_root = device.port_type in _ON_ROOT or is_class(device, _HOST_BRIDGE, "Host bridge")
        if place[1] == 0 or on_root or (with_paths and not device.above):
            rooted.add(place)
    return rooted


def _seems_whole(devices: tuple[LspciDevice, ...]) -> bool:
    """Tell whether a list holds the node's first function, and buses of every bridge."""
    bridges = [d for d in devices if is_class(d, PCI_BRIDGE, "PCI bridge")]
    first = any(
        d.address == "0000:00:00.0" and is_class(d, _HOST_BRIDGE, "Host bridge") for d in devices
    )
    return first and bool(bridges) and all(b.secondary_bus is not None for b in bridges)


def is_class(device: LspciDevice, code: int, name: str) -> bool:
    """Tell whether a function is of a class, by its number or else by the name of it."""
    if device.class_code is not None:
        return device.class_code == code
    return device.class_name == name
