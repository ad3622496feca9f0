"""What GPUs and NICs say of themselves: a fact a line, with who differs from the others."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console

from topoprobe.model.gpu import Ecc, GpuFacts
from topoprobe.model.topology import Device, Topology
from topoprobe.model.units import format_size
from topoprobe.output.names import by_value, labels_of, layer, product, ranges
from topoprobe.output.say import line, say, table

_LEFT = 18
_GPU_ADDRESS = re.compile(r"GPU [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def print_gpus(console: Console, topology: Topology) -> None:
    """Print the facts of NVML: one value where all GPUs agree, else each value with its GPUs."""
    lines = list(gpu_facts(topology))
    if not lines:
        return
    labels = labels_of(topology)
    silent = [d for d in topology.devices if d.kind == "gpu" and not _answers(d)]
    whose = [labels[d.key] for d in topology.devices if d.kind == "gpu" and _answers(d)]
    line(console, f"Facts of {ranges(whose)}" if silent else "Facts of all GPUs", "bold")
    for name, value in lines:
        say(console, f"  {name:{_LEFT}}{value}")
    for sentence in _mig(topology):
        say(console, f"  {sentence}")
    console.print()


def gpu_facts(topology: Topology) -> Iterator[tuple[str, str]]:
    """Yield the name of a fact and its value or values."""
    labels = labels_of(topology)
    gpus = {labels[d.key]: d for d in topology.devices if d.kind == "gpu" and _answers(d)}
    told: tuple[tuple[str, Callable[[Device, GpuFacts], str | None]], ...] = (
        ("model", lambda d, _: d.name),
        ("architecture", _architecture),
        ("memory", lambda d, _: format_size(d.memory_bytes) if d.memory_bytes else None),
        ("state", _state),
        ("ECC", lambda _, f: _ecc(f.ecc)),
        ("clocks held by", _throttled),
        ("MIG", lambda _, f: {True: "on", False: "off", None: None}[f.mig_enabled]),
        ("processes", lambda _, f: None if f.processes is None else str(len(f.processes))),
        ("fabric", _fabric),
        ("recovery action", lambda _, f: f.recovery_action),
        ("PCIe errors", _pcie_errors),
        ("PCIe replays", lambda _, f: None if f.pcie_replays is None else str(f.pcie_replays)),
    )
    for name, tell in told:
        values = {label: tell(d, d.gpu) for label, d in gpus.items() if d.gpu is not None}
        if any(value is not None for value in values.values()):
            yield name, _folded({k: v or "not told" for k, v in values.items()})
    for name, unit, read in _NUMBERS:
        numbers = {label: read(d.gpu) for label, d in gpus.items() if d.gpu is not None}
        text = _spread(numbers, unit)
        if text:
            yield name, text


def _answers(gpu: Device) -> bool:
    """Tell whether NVML told the facts of a GPU; where it stuck, they are unknown altogether."""
    return gpu.gpu is not None and "gpu" not in gpu.unknown


_NUMBERS: tuple[tuple[str, str, Callable[[GpuFacts], tuple[float | None, float | None]]], ...] = (
    ("SM clock", "MHz", lambda f: (f.clock_mhz.get("sm"), f.max_clock_mhz.get("sm"))),
    ("memory clock", "MHz", lambda f: (f.clock_mhz.get("memory"), f.max_clock_mhz.get("memory"))),
    ("power", "W", lambda f: (f.power_w, f.power_limit_w)),
    ("temperature", "°C", lambda f: (f.temperature_c, None)),
)


def _folded(values: Mapping[str, str]) -> str:
    same = by_value(values)
    if len(same) == 1:
        return next(iter(same))
    return "; ".join(f"{ranges(names)} {value}" for value, names in same.items())


def _spread(numbers: Mapping[str, tuple[float | None, float | None]], unit: str) -> str | None:
    """Return ``31–45 of 90 W``: figures that are never the same on two GPUs, as a range."""
    parts: dict[str, list[float]] = {}
    names: dict[str, list[str]] = {}
    for name, (value, most) in numbers.items():
        if value is not None:
            limit = f" of {most:g}" if most is not None else ""
            parts.setdefault(limit, []).append(value)
            names.setdefault(limit, []).append(name)
    texts = []
    for limit, found in parts.items():
        low, high = min(found), max(found)
        text = f"{low:g}" if low == high else f"{low:g}–{high:g}"
        whose = f"{ranges(names[limit])} " if len(parts) > 1 else ""
        texts.append(f"{whose}{text}{limit} {unit}")
    return "; ".join(texts) or None


def _architecture(_: Device, facts: GpuFacts) -> str | None:
    capability = f"compute capability {facts.compute_capability}"
    parts = [facts.architecture, capability if facts.compute_capability else None]
    return ", ".join(part for part in parts if part) or None


def _state(_: Device, facts: GpuFacts) -> str | None:
    parts = [
        None if facts.performance_state is None else f"P{facts.performance_state}",
        {True: "persistent", False: "not persistent", None: None}[facts.persistence],
    ]
    return ", ".join(part for part in parts if part) or None


def _throttled(_: Device, facts: GpuFacts) -> str | None:
    if facts.throttle_reasons is None:
        return None
    return ", ".join(facts.throttle_reasons) or "nothing"


def _ecc(ecc: Ecc | None) -> str | None:
    if ecc is None or ecc.enabled is None:
        return None
    counts = (
        ("corrected", ecc.corrected_volatile), ("uncorrected", ecc.uncorrected_volatile),
        ("corrected in all", ecc.corrected_total), ("uncorrected in all", ecc.uncorrected_total),
        ("rows remapped", ecc.remapped_corrected),
        ("rows remapped for uncorrected", ecc.remapped_uncorrected),
        ("pages retired", ecc.retired_corrected),
        ("pages retired for uncorrected", ecc.retired_uncorrected),
    )  # fmt: skip
    words = [f"{name} {count}" for name, count in counts if count]
    words += ["REMAPPING PENDING"] if ecc.remap_pending else []
    words += ["REMAPPING FAILED"] if ecc.remap_failed else []
    words += ["RETIREMENT PENDING"] if ecc.retired_pending else []
    if not words and all(count is None for _, count in counts):
        words = ["counters not told"]
    return ("on" if ecc.enabled else "off") + f", {', '.join(words) or 'nothing counted'}"


def _fabric(_: Device, facts: GpuFacts) -> str | None:
    fabric = facts.fabric
    if fabric is None or fabric.state is None:
        return None
    words = [fabric.state]
    if fabric.state == "completed" and fabric.status:
        words.append(f"with error {fabric.status}")
    words += [fabric.summary] if fabric.summary else []
    words += [name.replace("_", " ") for name, value in fabric.health.items() if value == "true"]
    words += [f"clique {fabric.clique}"] if fabric.clique is not None else []
    words += [f"cluster {fabric.cluster}"] if fabric.cluster else []
    return ", ".join(words)


def _pcie_errors(_: Device, facts: GpuFacts) -> str | None:
    counted = [f"{name} {count}" for name, count in facts.pcie_errors.items() if count]
    return ", ".join(counted) or ("none counted" if facts.pcie_errors else None)


def _mig(topology: Topology) -> Iterator[str]:
    labels = labels_of(topology)
    parts: dict[str, list[str]] = {}
    for device in topology.devices:
        if device.kind == "mig":
            size = f" ({format_size(device.memory_bytes)})" if device.memory_bytes else ""
            name = (device.name or device.key).rpartition("MIG ")[2]
            parent = labels.get(device.parent or "", device.parent or "?")
            parts.setdefault(parent, []).append(name + size)
    for parent, names in parts.items():
        yield f"{'MIG devices':{_LEFT}}{parent}: {', '.join(names)}"


def print_nics(console: Console, topology: Topology) -> None:
    """Print the NICs: names, what each is for and why, rate and state of its ports."""
    labels = labels_of(topology)
    nics = [device for device in topology.devices if device.kind == "nic"]
    nics.sort(key=lambda nic: (len(labels[nic.key]), labels[nic.key]))
    if not nics:
        return
    found: dict[tuple[str, ...], list[Device]] = {}
    for nic in nics:
        found.setdefault((_role(nic), _ports(nic), product(nic.name)), []).append(nic)
    rows = [
        [ranges(labels[nic.key] for nic in same), _known_as(same), *about]
        for about, same in found.items()
    ]
    header = ("NIC", "name", "for", "port", "model")
    keep = [i for i in range(len(header)) if any(row[i] for row in rows)]
    table(console, [header[i] for i in keep], [[row[i] for i in keep] for row in rows])
    reasons: dict[str, None] = {}
    for nic in nics:
        if nic.nic and nic.nic.role_reason:
            # Each of eight NICs names the GPU beside it: for a reader one reason, not eight.
            why = _GPU_ADDRESS.sub("a GPU", nic.nic.role_reason)
            reasons[f"{nic.nic.role}: {why}"] = None
    for reason in reasons:
        say(console, f"  {reason}", "dim")
    console.print()


def _known_as(nics: Sequence[Device]) -> str:
    """Return what the kernel calls them, where the label does not say it already."""
    names = [name for nic in nics if nic.alias for name in [*nic.rdma, *nic.netdevs][:1]]
    return ranges(names)


def _role(nic: Device) -> str:
    return nic.nic.role if nic.nic and nic.nic.role != "unknown" else ""


def _ports(nic: Device) -> str:
    """Return ``400 Gb/s InfiniBand active``, each port of the NIC."""
    if nic.nic is None:
        return ""
    texts = []
    for port in nic.nic.ports:
        rate = f"{port.rate_gbps:g} Gb/s" if port.rate_gbps else "rate not known"
        parts = (rate, layer(port.link_layer), (port.state or "").lower())
        texts.append(" ".join(part for part in parts if part))
    return ", ".join(dict.fromkeys(texts))
