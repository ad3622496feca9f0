"""Tables of links: what they run at, what they could, who limits; NVLinks per GPU; C2C."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from rich.console import Console

from topoprobe.model.report import Finding, Report
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.topology import Device, Link, Topology
from topoprobe.model.units import format_rate
from topoprobe.output.names import labels_of, ranges
from topoprobe.output.say import STYLE, table

_KINDS = {"gpu": "GPU", "nic": "NIC", "nvswitch": "NVSwitch", "nvme": "NVMe",
          "pcie-switch": "PCIe switch"}  # fmt: skip
_BAD = ("fail", "warn")
_HIDDEN = "nvswitch:hidden"

Row = tuple[str, ...]


def print_links(console: Console, report: Report) -> None:
    """Print all links of devices; rows that say the same of several devices become one."""
    pcie = pcie_rows(report)
    if pcie:
        header = ("PCIe above", "now", "maximum", "GB/s", "limited by", "note")
        _print(console, header, pcie, right=(3,))
    nvlink = nvlink_rows(report)
    if nvlink:
        header = ("NVLink of", "up", "version", "GB/s", "to", "note")
        _print(console, header, nvlink, right=(3,))
    c2c = c2c_rows(report.topology)
    if c2c:
        _print(console, ("C2C of", "up", "GB/s", "to"), c2c, right=(2,))


def _print(
    console: Console, header: Row, rows: Sequence[tuple[Row, str]], right: Sequence[int]
) -> None:
    cells = [row for row, _ in rows]
    if not any(row[-1] for row in cells):
        header, cells = header[:-1], [row[:-1] for row in cells]
    table(console, header, cells, right=right, styles=[style for _, style in rows])
    console.print()


def pcie_rows(report: Report) -> list[tuple[Row, str]]:
    """Return a row for each set of devices of one kind whose PCIe links are the same."""
    devices = {device.key: device for device in report.topology.devices}
    found: dict[tuple[str, Row, str], list[Device]] = {}
    for link in report.topology.links:
        device = devices.get(link.b or "")
        if link.kind != "pcie" or device is None or device.kind not in _KINDS:
            continue
        marks, style = _marks(report.findings, {device.key, link.key}, "pcie")
        row = (
            _speed(link.current), _speed(link.maximum), format_rate(link.limit_GBps.payload),
            _limited_by(link), "; ".join([*marks, *_low_generation(link, device)]),
        )  # fmt: skip
        found.setdefault((device.kind, row, style), []).append(device)
    order = list(_KINDS)
    labels = labels_of(report.topology)
    return [
        ((_named(kind, same, labels), *row), style)
        for (kind, row, style), same in sorted(
            found.items(), key=lambda item: (order.index(item[0][0]), _place(item[1], labels))
        )
    ]


def _place(devices: Sequence[Device], labels: Mapping[str, str]) -> tuple[int, str]:
    """Sort as labels count: GPU2 before GPU10."""
    return min((len(labels[device.key]), labels[device.key]) for device in devices)


def _named(kind: str, devices: Sequence[Device], labels: Mapping[str, str]) -> str:
    """Name devices: by alias in ranges, by address only one that stands alone."""
    names = sorted((labels[device.key] for device in devices), key=lambda n: (len(n), n))
    if kind in ("gpu", "nic") or len(names) == 1:
        prefix = "" if devices[0].alias or kind in ("gpu", "nic") else f"{_KINDS[kind]} "
        return prefix + ranges(names)
    return f"{len(names)} × {_KINDS[kind]}"


def _speed(speed: LinkSpeed) -> str:
    generation = "Gen?" if speed.generation is None else f"Gen{speed.generation}"
    return f"{generation} x{'?' if speed.width is None else speed.width}"


def _limited_by(link: Link) -> str:
    if link.limited_by == link.b:
        return f"device (port {_speed(link.maximum_a)})"
    if link.limited_by == link.a and link.a is not None:
        return f"port (device {_speed(link.maximum_b)})"
    if link.limited_by is not None:
        return link.limited_by
    return "port not visible" if "limited_by" in link.unknown else "–"


def _low_generation(link: Link, device: Device) -> list[str]:
    """Say that a low generation is no fault: links of idle GPUs go down to Gen1 to save power."""
    now, most = link.current.generation, link.maximum.generation
    if now is None or most is None or now >= most or link.limited_by == "training":
        return []
    state = device.gpu.performance_state if device.gpu else None
    return [f"idle (P{state})" if state else "idle?"]


def nvlink_rows(report: Report) -> list[tuple[Row, str]]:
    """Return a row for each set of GPUs whose NVLinks are the same."""
    topology = report.topology
    labels = labels_of(topology)
    links: dict[str, list[Link]] = {}
    for link in topology.links:
        if link.kind == "nvlink" and link.a:
            links.setdefault(link.a, []).append(link)
    found: dict[tuple[Row, str], list[str]] = {}
    to = _far_ends(topology, labels)
    for gpu, own in links.items():
        own = sorted(own, key=lambda link: -1 if link.index is None else link.index)
        up = [link for link in own if link.state == "up"]
        keys = {gpu, *(link.key for link in own)}
        marks, style = _marks(report.findings, keys, "nvlink", links.keys())
        row = (
            f"{len(up)}/{len(own)}",
            _most(up, lambda link: link.version or "?"),
            _most(up, lambda link: format_rate(link.signal_GBps)),
            to(up),
            "; ".join([*marks, *_oddities(own)]),
        )
        found.setdefault((row, style), []).append(labels.get(gpu, gpu))
    return [((ranges(names), *row), style) for (row, style), names in found.items()]


def _most(links: Sequence[Link], word: Callable[[Link], str]) -> str:
    """Return the word that most links have, "–" without any link."""
    return Counter(map(word, links)).most_common(1)[0][0] if links else "–"


def _oddities(links: Sequence[Link]) -> list[str]:
    """Say which links of a GPU are not as most of them, and which counted errors."""
    notes: dict[str, list[str]] = {}
    up = [link for link in links if link.state == "up"]
    rate = _most(up, lambda link: format_rate(link.signal_GBps))
    version = _most(up, lambda link: link.version or "?")
    for link in links:
        name = "?" if link.index is None else str(link.index)
        if link.state != "up":
            state = "state unknown" if link.state == "unknown" else link.state
            notes.setdefault(state, []).append(name)
            continue
        if format_rate(link.signal_GBps) != rate:
            notes.setdefault(f"{format_rate(link.signal_GBps)} GB/s", []).append(name)
        if (link.version or "?") != version:
            notes.setdefault(f"version {link.version or '?'}", []).append(name)
        for counter, count in link.errors.items():
            if count:
                notes.setdefault(f"{counter} {count}", []).append(name)
    if notes.keys() == {"down"} and not up:
        return []
    return [f"link {ranges(names)} {note}" for note, names in notes.items()]


def _far_ends(topology: Topology, labels: Mapping[str, str]) -> Callable[[Sequence[Link]], str]:
    switches = {device.key for device in topology.devices if device.kind == "nvswitch"}
    order = {device.key: number for number, device in enumerate(topology.devices)}

    def to(links: Sequence[Link]) -> str:
        ends = Counter(link.b for link in links)
        through = sorted((end, n) for end, n in ends.items() if end in switches and end)
        parts = []
        if through:
            spread = "+".join(str(n) for _, n in through)
            hidden = any(end == _HIDDEN for end, _ in through)
            parts.append(f"nvswitch ×{len(through)}: {spread}" if not hidden else
                         f"nvswitch (hidden): {spread}")  # fmt: skip
        direct = [(end, n) for end, n in ends.items() if end and end not in switches]
        direct.sort(key=lambda pair: (_by_alias(labels.get(pair[0], "")), order.get(pair[0], 0)))
        parts += [f"{labels.get(end, end)} ×{n}" for end, n in direct]
        if ends[None]:
            parts.append(f"not known ×{ends[None]}")
        return ", ".join(parts) or "–"

    return to


def _by_alias(label: str) -> tuple[int, str]:
    return len(label), label


def c2c_rows(topology: Topology) -> list[tuple[Row, str]]:
    """Return a row for each set of GPUs with the same chip-to-chip links to a CPU."""
    labels = labels_of(topology)
    links: dict[str, list[Link]] = {}
    for link in topology.links:
        if link.kind == "c2c" and link.a:
            links.setdefault(link.a, []).append(link)
    found: dict[Row, list[str]] = {}
    for gpu, own in links.items():
        up = [link for link in own if link.state == "up"]
        ends = dict.fromkeys(labels.get(link.b, link.b) if link.b else "not known" for link in own)
        row = (
            f"{len(up)}/{len(own)}",
            _most(own, lambda link: format_rate(link.signal_GBps)),
            ", ".join(ends),
        )
        found.setdefault(row, []).append(labels.get(gpu, gpu))
    return [((ranges(names), *row), "") for row, names in found.items()]


def _marks(
    findings: Sequence[Finding], keys: set[str], kind: str, gpus: Set[str] = frozenset()
) -> tuple[list[str], str]:
    """Return a mark for each finding of `kind` against `keys` alone, and the style of the worst.

    A finding that is about another one of `gpus` too is about a pair, and no mark of either.
    """
    bad = [f for f in findings if f.status in _BAD and f.id.startswith(f"{kind}-")]
    own = [f for f in bad if keys & set(f.subject) and not (gpus - keys) & set(f.subject)]
    worst = next((s for s in _BAD if any(finding.status == s for finding in own)), "")
    return [f"✗ {name}" for name in dict.fromkeys(f.id for f in own)], STYLE.get(worst, "")
