"""Checks on the PCI tree: link width, NUMA node."""

from collections.abc import Iterator

from topoprobe.model.report import Evidence, Finding
from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import Device, Link, Topology

_JUDGED = ("gpu", "nic", "nvme", "nvswitch", "pcie-switch")


def device_label(device: Device) -> str:
    """Name a device as a technician finds it: alias or kind, address, slot."""
    slot = f", slot {device.slot}" if device.slot else ""
    return f"{device.alias or device.kind} ({device.key}{slot})"


def check_width(snapshot: Snapshot, topology: Topology) -> Iterator[Finding]:
    """Judge the width of each link above a GPU, NIC, NVMe drive or switch."""
    if snapshot.nccl is not None:
        # Its widths are what NCCL plans with: neither of the moment nor of one end.
        return
    devices = {device.key: device for device in topology.devices}
    judged = [
        (link, device)
        for link in topology.links
        if link.kind == "pcie"
        and (device := devices.get(link.b or "")) is not None
        and device.kind in _JUDGED
    ]
    widest: dict[str, int] = {}
    for link, device in judged:
        widest[device.kind] = max(widest.get(device.kind, 0), link.current.width or 0)
    for link, device in judged:
        yield _width(link, device, widest[device.kind])


def _width(link: Link, device: Device, widest: int) -> Finding:
    """Judge one link; `widest` is the width that the best of its kind on this node runs at."""
    current, maximum = link.current.width, link.maximum.width
    label = device_label(device)
    source = link.sources.get("*", "sysfs")
    evidence = (
        Evidence("current.width", current, source),
        Evidence("maximum.width", maximum, source),
    )
    subject = (device.key, link.key)
    if current is None or maximum is None:
        why = link.unknown.get("current.width") or link.unknown.get("maximum.width")
        return Finding(
            id="pcie-width", status="unknown", severity="info", subject=subject,
            message=f"{label}: link width unknown: {why}", evidence=evidence,
        )  # fmt: skip
    if current >= maximum:
        return Finding(
            id="pcie-width", status="pass", severity="info", subject=subject,
            message=f"{label}: x{current}", evidence=evidence,
        )  # fmt: skip
    if link.a is None:
        # A T4 in a cloud machine shows x8 of its x16: its slot, which we do not see, has 8.
        return Finding(
            id="pcie-width", status="unknown", severity="info", subject=subject,
            message=f"{label}: x{current} of the device's x{maximum}; whether the slot has "
            "more lanes cannot be seen from here", evidence=evidence,
        )  # fmt: skip
    # Desktop boards split the lanes of one root port between two slots, and the port goes on
    # naming all of them. So what all of a kind share may be by design; one that is narrower
    # than its like is a fault. Drives and NICs differ among themselves for good reasons.
    grave = device.kind in ("gpu", "pcie-switch") and current < widest
    return Finding(
        id="pcie-width",
        status="fail" if grave else "warn",
        severity="error" if grave else "warning",
        subject=subject,
        message=f"{label}: trained x{current} of x{maximum}, which both ends allow"
        + (f"; upper end {link.a}" if link.a else ""),
        evidence=evidence,
        meaning=f"everything over this link runs at {current}/{maximum} of its speed",
        remedy="reseat the card; then swap riser or slot"
        if grave
        else "by design where the board splits its lanes; else reseat, swap riser or slot",
    )


def check_numa(snapshot: Snapshot, topology: Topology) -> Iterator[Finding]:
    """Warn of GPUs and NICs without NUMA node, on machines that have several."""
    if snapshot.sysfs is None or len(snapshot.sysfs.numa) < 2:
        return
    ends = [d for d in topology.devices if d.kind in ("gpu", "nic") and d.pci is not None]
    lost = [device for device in ends if device.numa is None]
    for device in lost:
        yield Finding(
            id="numa-node",
            status="warn",
            severity="warning",
            subject=(device.key,),
            message=f"{device_label(device)}: NUMA node unknown",
            evidence=(Evidence("numa_node", None, "sysfs"),),
            meaning="processes and NCCL cannot tell which socket is near",
            remedy="set it in firmware or hypervisor; bind processes by hand",
        )
    if ends and not lost:
        yield Finding(
            id="numa-node", status="pass", severity="info",
            subject=tuple(device.key for device in ends),
            message=f"NUMA node known for all {len(ends)} GPUs and NICs",
        )  # fmt: skip
