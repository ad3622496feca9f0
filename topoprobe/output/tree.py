"""The tree: host → NUMA → host bridge → root port → switch → device."""

from collections import defaultdict

from rich.console import Console
from rich.text import Text

from topoprobe.model.topology import Device, Link, Topology
from topoprobe.model.units import format_rate, format_size
from topoprobe.output.clean import clean

# Nodes with hundreds of uncore functions: those with nothing below say nothing to a reader.
_QUIET = "other"


def print_tree(console: Console, topology: Topology) -> None:
    """Print the devices as a tree, each with the link above it and that link's payload rate."""
    keys = {device.key for device in topology.devices}
    children: dict[str | None, list[Device]] = defaultdict(list)
    for device in topology.devices:
        children[device.parent if device.parent in keys else None].append(device)
    links: dict[str | None, Link] = {link.b: link for link in topology.links if link.b}
    if not any(device.parent for device in topology.devices):
        return
    console.print(Text("host", style="bold"))
    _print_level(console, None, "", children, links)
    console.print()


def _print_level(
    console: Console,
    parent: str | None,
    indent: str,
    children: dict[str | None, list[Device]],
    links: dict[str | None, Link],
) -> None:
    shown = [d for d in children[parent] if d.kind != _QUIET or children[d.key]]
    quiet = len(children[parent]) - len(shown)
    lines = [(_line(device, links.get(device.key)), device) for device in shown]
    rows: list[tuple[str, Device | None]] = list(lines)
    if quiet:
        rows.append((f"{quiet} other function{'s' if quiet > 1 else ''}", None))
    for number, (line, child) in enumerate(rows):
        last = number == len(rows) - 1
        prefix = indent + ("└─ " if last else "├─ ")
        console.print(_cut(prefix + line, console.width), soft_wrap=True)
        if child is not None:
            below = indent + ("   " if last else "│  ")
            _print_level(console, child.key, below, children, links)


def _cut(line: str, width: int) -> Text:
    line = clean(line)
    return Text(line if len(line) <= width else line[: width - 1] + "…", no_wrap=True)


def _line(device: Device, link: Link | None) -> str:
    names = ", ".join([*device.rdma, *device.netdevs, *device.blockdevs])
    parts = [device.alias or "", "" if device.key.startswith(device.kind) else device.kind]
    parts += [device.key, clean(names)]
    if link is not None and link.kind == "pcie":
        parts.append(_speed(link))
    if device.kind == "numa-node":
        parts.append(f"CPUs {device.cpus}" if device.cpus else "no CPUs")
        if device.memory_bytes:
            parts.append(format_size(device.memory_bytes))
    if device.slot:
        parts.append(f"slot {clean(device.slot)}")
    if device.name and device.kind not in ("pcie-port", "root-port"):
        parts.append(clean(device.name))
    return "  ".join(part for part in parts if part)


def _speed(link: Link) -> str:
    generation, width = link.maximum.generation, link.current.width
    if generation is None or width is None:
        return "link unknown"
    text = f"Gen{generation} x{width}"
    if link.maximum.width and width < link.maximum.width:
        text += f" of x{link.maximum.width} ✗"
    rate = link.limit_GBps.payload
    return f"{text} {format_rate(rate)} GB/s" if rate is not None else text
