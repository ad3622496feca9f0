"""PCIe switches that are one chip but show as two levels.

Broadcom's PEX88000 and PEX89000 present a switch below a switch, although every port reaches
every other at full rate. NCCL flattens them (ncclTopoFlattenBcmSwitches, by these very ids); so do
we for NCCL's name of a path, while nvidia-smi and the tree keep both levels.
"""

from collections.abc import Mapping

from topoprobe.model.topology import Device, PciIds


def bcm_generation(ids: PciIds | None, level: int) -> int:
    """Return 4 or 5 for a Broadcom switch of that generation and level (0 upper), else 0."""
    if ids is None or None in (ids.subsystem_vendor, ids.subsystem_device):
        return 0
    vendor_device = (ids.vendor, ids.device, ids.subsystem_vendor)
    subsystem = (ids.subsystem_device or 0) & 0xF000
    if vendor_device == (0x1000, 0xC010, 0x1000) and subsystem == 0xA000:
        return 4
    return 5 if vendor_device == (0x1000, 0xC030, 0x1000) and subsystem == level << 12 else 0


def chips_of(devices: Mapping[str, Device]) -> dict[str, str]:
    """Return lower switch → upper switch, for each pair that is one chip."""
    chips = {}
    for device in devices.values():
        if device.kind != "pcie-switch":
            continue
        upper = _switch_above(device, devices)
        generation = bcm_generation(device.pci, 1)
        if upper and generation and bcm_generation(upper.pci, 0) == generation:
            chips[device.key] = upper.key
    return chips


def _switch_above(device: Device, devices: Mapping[str, Device]) -> Device | None:
    above = devices.get(device.parent or "")
    while above is not None and above.kind == "pcie-port":
        above = devices.get(above.parent or "")
    return above if above is not None and above.kind == "pcie-switch" else None
