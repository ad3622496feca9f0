"""The tree (host → NUMA → host bridge → root port → switch → device) and the path matrix."""

from collections import defaultdict

from rich import box
from rich.console import Console
from rich.table import Table
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
        console.print(_cut(prefix + line, console.width))
        if child is not None:
            below = indent + ("   " if last else "│  ")
            _print_level(console, child.key, below, children, links)


def _cut(line: str, width: int) -> Text:
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


def print_matrix(console: Console, topology: Topology) -> None:
    """Print the classes of all paths as nvidia-smi orders them; wide ones in blocks."""
    paths = {(path.a, path.b): path.class_ or "?" for path in topology.paths}
    if not paths:
        return
    ends = [d for d in topology.devices if any(d.key in pair for pair in paths)]
    names = {d.key: _short(d) for d in ends}
    left = max(len(name) for name in names.values()) + 2
    cell = max(6, *(len(name) + 2 for name in names.values()))
    per_block = max(1, (console.width - left) // cell)
    for start in range(0, len(ends), per_block):
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
        table.add_column("")
        block = ends[start : start + per_block]
        for device in block:
            table.add_column(names[device.key], justify="center", no_wrap=True)
        for row in ends:
            cells = [_class(paths, row, column) for column in block]
            table.add_row(names[row.key], *cells)
        console.print(table)
        console.print()


def _class(paths: dict[tuple[str, str], str], row: Device, column: Device) -> str:
    if row.key == column.key:
        return "X"
    return paths.get((row.key, column.key)) or paths.get((column.key, row.key)) or "?"


def _short(device: Device) -> str:
    name = device.alias or next(iter([*device.rdma, *device.netdevs]), None) or device.key
    return clean(name.removeprefix("0000:"))
