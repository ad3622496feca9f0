"""Links of the PCI tree and of memory, as sysfs shows them."""

from collections.abc import Mapping

from topoprobe.model.snapshot import NumaRecord, PciRecord
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.topology import DeviceKind, Link

_SOURCE = "sysfs"


def memory_link(node: NumaRecord) -> Link:
    """Return the link between a NUMA node and its memory."""
    why = "channels and speed of the memory modules were not read"
    return Link(
        key=f"memory:numa:{node.node}",
        kind="memory",
        a=f"numa:{node.node}",
        b=f"numa:{node.node}/memory",
        state="up",
        unknown={"limit_GBps.line": why, "limit_GBps.payload": why},
        sources={"*": _SOURCE},
    )


def pcie_links(
    functions: Mapping[str, PciRecord],
    kinds: Mapping[str, DeviceKind],
    parents: Mapping[str, str | None],
) -> list[Link]:
    """Return one link per device that has one, keyed by its lowest function.

    Functions of one device share its link. Devices inside the root complex and inside a
    switch have none. Where the upper end is hidden (a GPU passed to a virtual machine), `a`
    is None and the link is what the device says of it.
    """
    links = []
    seen: set[str] = set()
    for address in sorted(functions):
        function = functions[address]
        slot = address.rpartition(".")[0]
        parent = parents.get(address)
        port = functions.get(parent or "")
        below_port = port is not None and kinds[port.address] in ("root-port", "pcie-port")
        has_link = function.maximum.width is not None or function.current.width is not None
        on_root_bus = port is None and has_link and kinds[address] != "root-port"
        if slot in seen or not (below_port or on_root_bus):
            continue
        seen.add(slot)
        links.append(_link(function, port if below_port else None))
    return links


def link_by_slot(links: Mapping[str, Link]) -> dict[str, str]:
    """Return address without function → key of the PCIe link above that device."""
    return {
        key.removeprefix("pcie:").rpartition(".")[0]: key
        for key, link in links.items()
        if link.kind == "pcie"
    }


def _link(lower: PciRecord, upper: PciRecord | None) -> Link:
    above = upper.maximum if upper else LinkSpeed()
    maximum = LinkSpeed(
        _least(above.generation, lower.maximum.generation),
        _least(above.width, lower.maximum.width),
    )
    current = LinkSpeed(
        lower.current.generation or (upper.current.generation if upper else None),
        lower.current.width or (upper.current.width if upper else None),
    )
    # Both ends must agree on the payload size; a mismatch would be a fault of its own.
    mps = _least(lower.mps_bytes, upper.mps_bytes if upper else None)
    unknown = _unknown(lower, upper, current, maximum)
    return Link(
        key=f"pcie:{lower.address}",
        kind="pcie",
        a=upper.address if upper else None,
        b=lower.address,
        state="up" if current.width else "unknown",
        current=current,
        maximum=maximum,
        maximum_a=above,
        maximum_b=lower.maximum,
        limited_by=limited_by(lower, upper, current, maximum),
        mps_bytes=mps,
        unknown=unknown,
        sources={"*": _SOURCE},
    )


def _least(a: int | None, b: int | None) -> int | None:
    known = [value for value in (a, b) if value is not None]
    return min(known) if known else None


def limited_by(
    lower: PciRecord, upper: PciRecord | None, current: LinkSpeed, maximum: LinkSpeed
) -> str | None:
    """Return who keeps the link below what its better end could do: a key, "training" or None."""
    if upper is None:
        # The slot may have fewer lanes than the card: nothing here can tell.
        return None
    if current.width and maximum.width and current.width < maximum.width:
        return "training"
    for mine, other in (
        (lower.maximum.width, upper.maximum.width),
        (lower.maximum.generation, upper.maximum.generation),
    ):
        if mine and other and mine != other:
            return lower.address if mine < other else upper.address
    return None


def _unknown(
    lower: PciRecord, upper: PciRecord | None, current: LinkSpeed, maximum: LinkSpeed
) -> dict[str, str]:
    unknown: dict[str, str] = {}
    if upper is None:
        why = "the upper end is not visible here (virtual machine or container)"
        unknown["a"] = unknown["maximum_a.generation"] = unknown["maximum_a.width"] = why
        unknown["limited_by"] = why
    for field, speed in (("current", current), ("maximum", maximum)):
        for part in ("generation", "width"):
            if getattr(speed, part) is None:
                name = f"{field}.{part}"
                unknown[name] = lower.unknown.get(name) or "sysfs has no such file for it"
    if current.width is None:
        unknown["state"] = unknown["current.width"]
    if lower.mps_bytes is None:
        unknown["mps_bytes"] = lower.unknown.get("mps_bytes") or "not in its config space"
    return unknown
