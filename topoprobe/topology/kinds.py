"""What a PCI function is, and what it hangs below."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from topoprobe.model.snapshot import PciRecord
from topoprobe.model.topology import DeviceKind

_NVIDIA, _AMD, _INTEL = 0x10DE, 0x1002, 0x8086
# Device/port types of the PCI Express capability.
_ROOT_PORT, _UPSTREAM, _DOWNSTREAM, _PCIE_TO_PCI = 4, 5, 6, 7


def parents_of(functions: Iterable[PciRecord]) -> dict[str, str | None]:
    """Return address → key of what it hangs below; host bridges below a device are in it too.

    The sysfs path names the bridges above a device. Trees copied without their links have no
    such path: there the bridge whose bus range holds the device's bus is its parent.
    """
    functions = list(functions)
    parents: dict[str, str | None] = {}
    known = {function.address for function in functions}
    for function in functions:
        if function.above:
            keys = [_key(part) for part in function.above] + [function.address]
            # A bridge that could not be read is skipped, so that no device hangs on nothing.
            keys = [key for key in keys if key in known or key.startswith("host-bridge:")]
            for upper, lower in pairwise(keys):
                parents.setdefault(lower, upper)
            parents.setdefault(function.address, None)
        else:
            parents[function.address] = _by_bus_range(function, functions)
    return parents


def _key(part: str) -> str:
    return f"host-bridge:{part[3:]}" if part.startswith("pci") else part


def _by_bus_range(function: PciRecord, functions: list[PciRecord]) -> str:
    domain, bus_text = function.address.split(":")[:2]
    bus = int(bus_text, 16)
    best: PciRecord | None = None
    for bridge in functions:
        low, high = bridge.secondary_bus, bridge.subordinate_bus
        if low is None or high is None or bridge.address == function.address:
            continue
        # Impossible ranges occur (hwloc has a test of them): a bridge never holds its own bus.
        if bridge.address.split(":")[0] != domain or not 0 < low <= bus <= high:
            continue
        if best is None or low > (best.secondary_bus or 0):
            best = bridge
    if best is not None:
        return best.address
    return f"host-bridge:{domain}:{bus_text}"


def is_bridge(function: PciRecord) -> bool:
    """Tell whether `function` is a PCI-to-PCI bridge: class 0604 and header type 1."""
    if function.class_code is None or function.class_code >> 8 != 0x0604:
        return False
    return function.header_type in (1, None)


def kind_of(
    function: PciRecord,
    parents: Mapping[str, str | None],
    by_address: Mapping[str, PciRecord],
) -> DeviceKind:
    """Return the kind of one PCI function."""
    if is_bridge(function):
        return _bridge_kind(function, parents, by_address)
    if function.class_code is None:
        return "other"
    base, sub = function.class_code >> 16, function.class_code >> 8 & 0xFF
    if base == 0x03 or base == 0x12:
        return "gpu" if _is_gpu(function.vendor, base, sub) else "other"
    if (base, sub) == (0x06, 0x80) and function.vendor == _NVIDIA:
        return "nvswitch"
    if base == 0x02:
        return "nic"
    return "nvme" if (base, sub) == (0x01, 0x08) else "other"


def _is_gpu(vendor: int | None, base: int, sub: int) -> bool:
    # The VGA controllers of management chips (ASPEED 1a03, Matrox 102b) are no GPUs; neither
    # is the graphics of an Intel CPU (0300), whereas Intel's accelerators are 0380.
    if vendor == _NVIDIA:
        return base == 0x03
    return vendor == _AMD or (vendor == _INTEL and (base, sub) != (0x03, 0x00))


def _bridge_kind(
    bridge: PciRecord, parents: Mapping[str, str | None], by_address: Mapping[str, PciRecord]
) -> DeviceKind:
    named: dict[int | None, DeviceKind] = {
        _ROOT_PORT: "root-port", _UPSTREAM: "pcie-switch", _DOWNSTREAM: "pcie-port",
        _PCIE_TO_PCI: "other",
    }  # fmt: skip
    if bridge.port_type in named:
        return named[bridge.port_type]
    # An ordinary user reads 64 bytes of config space, which end before the port type: below
    # a host bridge stands a root port, below a port a switch, below a switch its ports.
    parent = parents.get(bridge.address) or ""
    if parent not in by_address:
        return "root-port"
    above = _bridge_kind(by_address[parent], parents, by_address)
    return "pcie-port" if above == "pcie-switch" else "pcie-switch"
