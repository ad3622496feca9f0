"""Fill the limits of a Topology's links and paths."""

from collections.abc import Sequence

import msgspec

from topoprobe.limits.memory import memory_rate
from topoprobe.limits.nvlink import c2c_payload_rate
from topoprobe.limits.nvlink import payload_rate as nvlink_payload_rate
from topoprobe.limits.pcie import line_rate, payload_rate
from topoprobe.model.terms import Term
from topoprobe.model.topology import Device, LimitGBps, Link, Path, Topology

# What servers run with; used where config space could not be read, and then said so.
_USUAL_MPS = 256
# InfiniBand with an MTU of 4096: 30 to 42 bytes of headers and checks on each packet.
_NETWORK_SHARE = 4096 / (4096 + 36)
_NO_EXPECTED = "no healthy reference figures for this hardware are built in yet"


def with_limits(topology: Topology) -> Topology:
    """Return `topology` with the ceilings of each link and path filled in."""
    gpus = {device.key: device for device in topology.devices if device.gpu}
    links = tuple(_link(link, gpus.get(link.a or "")) for link in topology.links)
    by_key = {link.key: link for link in links}
    paths = tuple(_path(path, by_key) for path in topology.paths)
    return msgspec.structs.replace(topology, links=links, paths=paths)


def _link(link: Link, gpu: Device | None) -> Link:
    unknown = {**link.unknown, "limit_GBps.expected": _NO_EXPECTED}
    if link.kind in ("nvlink", "c2c", "network"):
        mode = gpu.gpu.nvlink_bandwidth_mode if gpu and gpu.gpu else None
        return _by_signal(link, unknown, mode)
    if link.kind == "memory" and gpu is not None:
        return _gpu_memory(link, gpu, unknown)
    if link.kind != "pcie":
        why = link.unknown.get("limit_GBps.line", "its rate is not in this version")
        unknown["limit_GBps.line"] = unknown["limit_GBps.payload"] = why
        return msgspec.structs.replace(link, unknown=unknown)
    # The negotiated width, and the generation both ends share: an idle link that has dropped
    # to Gen1 keeps its limit, since it comes back under load.
    generation, width = link.maximum.generation, link.current.width
    line = line_rate(generation, width) if generation and width else None
    if line is None or generation is None or width is None:
        why = "generation or width of the link is unknown"
        unknown["limit_GBps.line"] = unknown["limit_GBps.payload"] = why
        return msgspec.structs.replace(link, unknown=unknown)
    payload = payload_rate(generation, width, link.mps_bytes or _USUAL_MPS)
    sources = {**link.sources, "limit_GBps": "formula"}
    if link.mps_bytes is None:
        sources["limit_GBps.payload"] = f"formula, maximum payload size taken as {_USUAL_MPS} B"
    return msgspec.structs.replace(
        link, limit_GBps=LimitGBps(line, payload, None), unknown=unknown, sources=sources
    )


def _gpu_memory(link: Link, gpu: Device, unknown: dict[str, str]) -> Link:
    """Return the link between a GPU and its memory; no packet overhead is known on it."""
    unknown["limit_GBps.payload"] = "copies reach 82 to 97 % of the line, by kind of access"
    rate = memory_rate(gpu.name, gpu.gpu) if gpu.gpu else None
    if rate is None:
        why = "the driver tells no memory clock or no bus width"
        unknown["limit_GBps.line"] = unknown["limit_GBps.payload"] = why
        return msgspec.structs.replace(link, unknown=unknown)
    sources = {**link.sources, "limit_GBps": "formula: highest memory clock × bus width"}
    return msgspec.structs.replace(
        link, limit_GBps=LimitGBps(rate), unknown=unknown, sources=sources
    )


def _by_signal(link: Link, unknown: dict[str, str], mode: str | None) -> Link:
    """Return a link whose rate on the wire is what driver or kernel report.

    `mode` is the NVLink bandwidth mode of the GPU, None where there is none.
    """
    if link.signal_GBps is None:
        why = link.unknown.get("signal_GBps", "nobody reports its rate; it is not up")
        unknown["limit_GBps.line"] = unknown["limit_GBps.payload"] = why
        return msgspec.structs.replace(link, unknown=unknown)
    if link.kind == "network":
        payload: float | None = link.signal_GBps * _NETWORK_SHARE
    elif link.kind == "c2c":
        payload = c2c_payload_rate(link.signal_GBps)
    else:
        payload = nvlink_payload_rate(link.version, link.signal_GBps, mode)
    if payload is None:
        what = f"bandwidth mode {mode}" if link.version and mode else "this NVLink version"
        unknown["limit_GBps.payload"] = f"no figure is known for {what}"
    sources = {
        **link.sources,
        "limit_GBps": "signalling rate as reported",
        "limit_GBps.payload": "nominal data rate of this kind of link",
    }
    return msgspec.structs.replace(
        link, limit_GBps=LimitGBps(link.signal_GBps, payload, None), unknown=unknown,
        sources=sources,
    )  # fmt: skip


def _path(path: Path, links: dict[str, Link]) -> Path:
    hops = _bundled([links[key] for key in path.links])
    unknown = dict(path.unknown)
    unknown["limit_GBps.expected"] = _NO_EXPECTED
    if not hops or any(line is None for _, line, _ in hops):
        why = "a hop on the way has no known limit" if hops else "the links on the way are unknown"
        for name in ("bottleneck", "limit_GBps.line", "limit_GBps.payload"):
            unknown[name] = why
        return msgspec.structs.replace(path, unknown=unknown)
    payloads = [payload for _, _, payload in hops]
    key, line, payload = min(hops, key=lambda hop: (hop[2] or hop[1] or 0.0, hop[0]))
    if None in payloads:
        payload = None
        unknown["limit_GBps.payload"] = "a hop on the way has no known payload rate"
    return msgspec.structs.replace(
        path, bottleneck=key, limit_GBps=LimitGBps(line, payload, None), unknown=unknown
    )


def _bundled(hops: Sequence[Link]) -> list[tuple[str, float | None, float | None]]:
    """Return (key, line, payload) of each hop; links side by side, as of NVLink, are added up.

    A bundle is known by its first link. Through a switch there are two: one of each GPU.
    """
    bundles: dict[tuple[str, str | None], list[Link]] = {}
    for hop in hops:
        side_by_side = hop.kind in ("nvlink", "c2c")
        bundles.setdefault((hop.kind, hop.a if side_by_side else hop.key), []).append(hop)
    return [
        (some[0].key, _total([k.limit_GBps.line for k in some]),
         _total([k.limit_GBps.payload for k in some]))
        for some in bundles.values()
    ]  # fmt: skip


def _total(values: Sequence[float | None]) -> float | None:
    return None if None in values else sum(value for value in values if value is not None)


TERMS = (
    Term(
        "line",
        "the rate on the wire",
        "GB/s in one direction after line coding: what the link itself carries, packet "
        "headers included. PCIe 5.0 x16 is 63.0. No copy reaches it.",
        ("payload", "expected"),
    ),
    Term(
        "payload",
        "the rate that data can reach at most",
        "GB/s in one direction after packet overhead. For PCIe it follows from the maximum "
        "payload size (MPS): at 256 B each packet adds 24 B, so PCIe 5.0 x16 carries 57.6. For "
        "NVLink it is the nominal rate, 25 a link on H100 (450 for 18), of which copies reach at "
        "most 16/17; for C2C 45 a link, and both directions at once halve it.",
        ("line", "expected"),
    ),
    Term(
        "expected",
        "what healthy hardware of this kind reaches",
        "A figure with a source, for this operation, size and number of ranks; unknown "
        "where nobody has published one. A measurement is judged against it, not against "
        "the line rate.",
        ("line", "payload"),
    ),
    Term(
        "bottleneck",
        "the slowest link on a path",
        "The link whose payload rate is lowest bounds every copy over the path.",
        ("path", "payload"),
    ),
)
