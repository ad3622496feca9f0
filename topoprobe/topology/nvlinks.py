"""NVLink and C2C: the links of every GPU, the switches they end at, and whom they join."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from topoprobe.model.gpu import NvmlGpu, NvmlLink, NvmlRecord
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.topology import Conflict, Device, Link, Plane

HIDDEN_SWITCH = "nvswitch:hidden"
_SOURCE = "nvml"
# NVML's version enum (nvmlDeviceGetNvLinkVersion) in the words of the data sheets.
_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}


def nvlink_links(
    record: NvmlRecord, keys: Mapping[int, str], devices: dict[str, Device]
) -> list[Link]:
    """Return a link per NVLink and C2C link of each GPU; adds switches that only NVML shows."""
    links: list[Link] = []
    for gpu in record.gpus:
        key = keys[gpu.index]
        for link in gpu.links:
            far = _far_end(link)
            if far == HIDDEN_SWITCH or (link.remote_kind == "switch" and far not in devices):
                _add_switch(devices, far or HIDDEN_SWITCH)
            links.append(_nvlink(key, link, far))
        links += _c2c_links(gpu, devices[key])
    return links


def _far_end(link: NvmlLink) -> str | None:
    """Return the key of the far end; None where it is not known or nothing is wired."""
    if link.remote is not None:
        return link.remote
    # Boards whose NVSwitches are no PCI devices of the node answer with a sentinel address.
    hidden = link.remote_hidden and link.remote_kind in ("switch", "unknown", None)
    return HIDDEN_SWITCH if hidden else None


def _add_switch(devices: dict[str, Device], key: str) -> None:
    unknown = {
        "parent": "the driver hides it" if key == HIDDEN_SWITCH else "/sys does not show it"
    }
    devices.setdefault(
        key, Device(key=key, kind="nvswitch", unknown=unknown, sources={"*": _SOURCE})
    )


def _nvlink(gpu: str, link: NvmlLink, far: str | None) -> Link:
    version = _VERSIONS.get(link.version) if link.version is not None else None
    unknown = dict(link.unknown)
    if "speed_mbps" in unknown:
        unknown["signal_GBps"] = unknown.pop("speed_mbps")
    if link.version is not None and version is None:
        unknown["version"] = f"NVML says version {link.version}, newer than this program"
    if far is None and link.state == "up":
        unknown["b"] = unknown.pop("remote", "the driver does not tell the far end")
    generation = int(version[0]) if version else None
    return Link(
        key=f"nvlink:{gpu}:{link.index}",
        kind="nvlink",
        a=gpu,
        b=far,
        index=link.index,
        state=link.state,
        current=LinkSpeed(generation if link.state == "up" else None, None),
        maximum=LinkSpeed(generation, None),
        version=version,
        signal_GBps=link.speed_mbps / 1000 if link.speed_mbps else None,
        errors=link.errors,
        unknown=unknown,
        sources={"*": _SOURCE},
    )


def _c2c_links(gpu: NvmlGpu, device: Device) -> list[Link]:
    c2c = gpu.facts.c2c
    if c2c is None:
        return []
    cpu = f"numa:{device.numa}" if device.numa is not None else None
    unknown = {} if cpu else {"b": "the NUMA node of the GPU is unknown"}
    if c2c.speed_mbps is None:
        unknown["signal_GBps"] = c2c.unknown.get("speed_mbps", "not told")
    return [
        Link(
            key=f"c2c:{device.key}:{number}",
            kind="c2c",
            a=device.key,
            b=cpu,
            index=number,
            state="unknown" if c2c.up is None else "up" if c2c.up else "down",
            signal_GBps=c2c.speed_mbps / 1000 if c2c.speed_mbps else None,
            unknown=dict(unknown),
            sources={"*": _SOURCE},
        )
        for number in range(c2c.links or 0)
    ]


def active_links(links: Iterable[Link]) -> dict[str, list[Link]]:
    """Return GPU → its NVLinks that are up."""
    found: dict[str, list[Link]] = defaultdict(list)
    for link in links:
        if link.kind == "nvlink" and link.state == "up" and link.a:
            found[link.a].append(link)
    return found


def joined(a: str, b: str, active: Mapping[str, list[Link]], switches: set[str]) -> list[Link]:
    """Return the links of `a` on its way to `b`: direct ones, else those to switches.

    All switches of a node are one network, so both ends need only reach any of them.
    """
    direct = [link for link in active.get(a, ()) if link.b == b]
    if direct:
        return direct
    mine = [link for link in active.get(a, ()) if link.b in switches]
    return mine if any(link.b in switches for link in active.get(b, ())) else []


def islands(
    gpus: Iterable[str], active: Mapping[str, list[Link]], switches: set[str]
) -> list[tuple[str, ...]]:
    """Return the sets of GPUs that NVLink joins, the largest first; single GPUs are left out."""
    group = {gpu: gpu for gpu in gpus}

    def find(gpu: str) -> str:
        while group[gpu] != gpu:
            gpu = group[gpu]
        return gpu

    at_switch = [gpu for gpu in group if any(link.b in switches for link in active.get(gpu, ()))]
    pairs = [(at_switch[0], gpu) for gpu in at_switch[1:]]
    pairs += [(gpu, link.b) for gpu in group for link in active.get(gpu, ()) if link.b in group]
    for a, b in pairs:
        group[find(b)] = find(a)
    sets: dict[str, list[str]] = defaultdict(list)
    for gpu in group:
        sets[find(gpu)].append(gpu)
    joined_sets = [tuple(members) for members in sets.values() if len(members) > 1]
    return sorted(joined_sets, key=lambda members: (-len(members), members))


def planes(active: Mapping[str, list[Link]], switches: Iterable[str]) -> list[Plane]:
    """Return what hangs on each NVSwitch: GPU → number of active links to it."""
    found = []
    for switch in switches:
        counts = {
            gpu: count
            for gpu, links in active.items()
            if (count := sum(link.b == switch for link in links))
        }
        if counts:
            found.append(Plane(switch, counts))
    return found


def end_conflicts(active: Mapping[str, list[Link]], gpus: Iterable[str]) -> list[Conflict]:
    """Return pairs of GPUs whose drivers disagree on how many links join them."""
    known = list(gpus)
    counts = {gpu: Counter(link.b for link in active.get(gpu, ())) for gpu in known}
    return [
        Conflict(
            subject=f"{a}|{b}", field="nvlinks",
            values={f"nvml, {a}": str(counts[a][b]), f"nvml, {b}": str(counts[b][a])},
            used=f"nvml, {a if counts[a][b] < counts[b][a] else b}",
            why="a link needs both its ends",
        )
        for number, a in enumerate(known)
        for b in known[number + 1 :]
        if counts[a][b] != counts[b][a]
    ]  # fmt: skip


def with_node_of_memory(
    devices: dict[str, Device], record: NvmlRecord, keys: Mapping[int, str]
) -> None:
    """Hang the NUMA nodes that are the memory of a GPU below that GPU (GH200, GB200)."""
    for gpu in record.gpus:
        node = devices.get(f"numa:{gpu.facts.memory_node}")
        if node is not None and not node.cpus:
            devices[node.key] = msgspec.structs.replace(
                node, parent=keys[gpu.index], sources={**node.sources, "parent": _SOURCE}
            )
