"""The head of the text: which machine this is, what is in it, and the verdict on it."""

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Console

from topoprobe.model.report import Report
from topoprobe.model.topology import Device, Link, Topology
from topoprobe.model.units import format_size
from topoprobe.output.names import labels_of, layer, product, ranges
from topoprobe.output.say import STYLE, facts, say

_VERDICT = {"fail": "fault", "warn": "warning", "pass": "passed", "skip": "not applicable",
            "unknown": "unknown"}  # fmt: skip


def print_head(console: Console, report: Report) -> None:
    """Print the summary; that a machine is made up comes before everything else."""
    host, topology = report.host, report.topology
    if report.synthetic:
        say(
            console,
            "SYNTHETIC: this machine is made up; nothing here was measured",
            "bold magenta",
        )
    facts(console, [host.name or "a node", host.product, host.cpu_model], "bold")
    facts(console, [*_gpus(topology), *_nics(topology), *_others(topology), _driver(report)])
    for sentence in nvlink_summary(topology):
        say(console, sentence)
    about = [host.os, host.kernel, host.machine]
    about.append(f"{host.sockets} sockets" if host.sockets and host.sockets > 1 else None)
    about.append(f"{host.cpus} CPUs" if host.cpus else None)
    about.append(format_size(host.memory_bytes) if host.memory_bytes else None)
    # "yes": the processor says so, and nobody says whose.
    hypervisor = "" if host.virtualisation == "yes" else f" ({host.virtualisation})"
    about.append(f"virtual{hypervisor}" if host.virtualisation else None)
    about.append(f"in {host.container}" if host.container else None)
    facts(console, about, "dim")
    _print_verdict(console, report)
    console.print()


def _print_verdict(console: Console, report: Report) -> None:
    if report.verdict is None:
        return
    parts = []
    for status, word in _VERDICT.items():
        number = report.verdict.counts.get(status, 0)
        plural = "s" if status in ("fail", "warn") and number != 1 else ""
        parts.append(f"{number} {word}{plural}")
    say(console, "verdict   " + ", ".join(parts), STYLE.get(report.verdict.status, ""))


def _gpus(topology: Topology) -> Iterator[str]:
    gpus = [device for device in topology.devices if device.kind == "gpu"]
    if not gpus:
        yield "no GPU"
    # Only a GPU of NVIDIA can be hidden from NVML: those have an alias where it answers.
    hidden = [gpu for gpu in gpus if gpu.alias is None and "alias" in gpu.unknown]
    shown = [gpu for gpu in gpus if gpu not in hidden]
    yield from _counted(gpu.name or "GPU" for gpu in shown or gpus)
    if hidden and shown:
        yield f"{len(hidden)} more GPU{'s' if len(hidden) > 1 else ''} that NVML does not show"
    mig = sum(device.kind == "mig" for device in topology.devices)
    if mig:
        yield f"{mig} MIG devices"


def _nics(topology: Topology) -> Iterator[str]:
    nics = [device for device in topology.devices if device.kind == "nic"]
    virtual = [nic for nic in nics if nic.nic and nic.nic.physical_function]
    yield from _counted(_rate(nic) or _model(nic) for nic in nics if nic not in virtual)
    if virtual:
        yield f"{len(virtual)} virtual functions of NICs"


def _rate(nic: Device) -> str | None:
    """Return ``400 Gb/s InfiniBand`` of the fastest port, None where no port tells its rate."""
    if nic.nic is None:
        return None
    rates = [(port.rate_gbps, layer(port.link_layer)) for port in nic.nic.ports if port.rate_gbps]
    if rates:
        rate, kind = max(rates, key=lambda pair: pair[0])
        return f"{rate:g} Gb/s {kind or 'NIC'}"
    speed = nic.nic.speed_mbps
    return f"{speed / 1000:g} Gb/s Ethernet" if speed and speed > 0 else None


def _model(nic: Device) -> str:
    """Return what a NIC without a known rate is called: ``ConnectX-7 NIC``."""
    return f"{product(nic.name)} NIC" if "[" in (nic.name or "") else "NIC"


def _others(topology: Topology) -> Iterator[str]:
    kinds = Counter(str(d.kind) for d in topology.devices if not d.key.endswith(":hidden"))
    for kind, name in (("nvswitch", "NVSwitch"), ("nvme", "NVMe")):
        if kinds[kind]:
            yield f"{kinds[kind]} × {name}"


def _driver(report: Report) -> str | None:
    """Return ``driver 535.261.03`` where the NVML source says nothing else of itself."""
    details = [s.detail for s in report.sources if s.name == "nvml" and s.status == "ok"]
    return next((detail for detail in details if detail and detail.startswith("driver ")), None)


def _counted(names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        yield f"{count} × {name}"


def nvlink_summary(topology: Topology) -> list[str]:
    """Return ``8 GPUs joined by NVSwitch, 18 × NVLink 4.0 each`` for each kind of island."""
    labels = labels_of(topology)
    gpus = [device.key for device in topology.devices if device.kind == "gpu"]
    switches = {device.key for device in topology.devices if device.kind == "nvswitch"}
    up: dict[str, list[Link]] = {}
    for link in topology.links:
        if link.kind == "nvlink" and link.state == "up" and link.a:
            up.setdefault(link.a, []).append(link)
    sentences: dict[str, list[str]] = {}
    for island in topology.islands:
        by = {"NVSwitch" if link.b in switches else "NVLink" for key in island
              for link in up.get(key, ())}  # fmt: skip
        each = Counter(_each(up.get(key, [])) for key in island)
        usual = each.most_common(1)[0][0]
        odd = [f"{labels.get(key, key)} {_each(up.get(key, []))}" for key in island
               if _each(up.get(key, [])) != usual]  # fmt: skip
        what = f"joined by {' and '.join(sorted(by)) or 'NVLink'}, {usual} each"
        sentence = ", but ".join([what, ", ".join(odd)] if odd else [what])
        size = (
            ("both GPUs" if len(gpus) == 2 else f"all {len(gpus)} GPUs")
            if len(island) == len(gpus)
            else f"{len(island)} of {len(gpus)} GPUs"
        )
        names = ranges(sorted((labels.get(key, key) for key in island), key=_in_order))
        sentences.setdefault(f"{size} {sentence}", []).append(names)
    return [
        text if text.startswith(("all ", "both ")) else f"{text}: {'; '.join(names)}"
        for text, names in sentences.items()
    ]


def _in_order(name: str) -> tuple[int, str]:
    return len(name), name


def _each(links: list[Link]) -> str:
    versions = sorted({link.version or "?" for link in links})
    return f"{len(links)} × NVLink {'/'.join(versions)}".replace(" ?", " of unknown version")
