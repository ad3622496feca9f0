"""The part of the map that a ``nvidia-smi nvlink`` text gives: GPUs by label, and their links.

The text numbers GPUs and does not give their addresses; far ends it gives as addresses. Which
GPU an address is can be told only where every link ends at a link that leads back.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from topoprobe.model.snapshot import TopoMatrix
from topoprobe.model.texts import NvlinkText, NvlinkTextGpu, NvlinkTextLink
from topoprobe.model.topology import Conflict, Device, Link

SOURCE = "nvidia-smi nvlink"
_NO_VERSION = "nvidia-smi nvlink does not print the version of a link"
_LOST = "the line that names its GPU is not in the text"


def add_nvlinks(text: NvlinkText, devices: dict[str, Device]) -> list[Link]:
    """Put the GPUs of `text` into `devices`, by their printed labels; return their links."""
    remotes = labels_of_remotes(text)
    times = Counter(gpu.index for gpu in text.gpus)
    seen: Counter[int] = Counter()
    links: list[Link] = []
    lost = 0
    for gpu in text.gpus:
        if gpu.index is None:
            lost += 1
            links += [_link(f"unnamed-{lost}", None, link, remotes) for link in gpu.links]
            continue
        # A number that stands for two GPUs of the text names neither.
        label = key = f"GPU{gpu.index}"
        if times[gpu.index] > 1:
            key = f"{label}#{seen[gpu.index]}"
            seen[gpu.index] += 1
        devices[key] = _gpu(devices.get(key), key, label, gpu)
        links += [_link(key, key, link, remotes) for link in gpu.links]
    return links


def _gpu(before: Device | None, key: str, label: str, gpu: NvlinkTextGpu) -> Device:
    unknown = dict(gpu.unknown)
    unknown.pop("links", None)
    if gpu.name is None:
        unknown["name"] = "the text does not name it"
    if before is None:
        why = "nvidia-smi nvlink does not tell it"
        unknown |= dict.fromkeys(("parent", "numa", "cpus", "memory_bytes", "gpu"), why)
        return Device(
            key=key, kind="gpu", alias=label, name=gpu.name, uuid=gpu.uuid,
            unknown=unknown, sources={"*": SOURCE},
        )  # fmt: skip
    told = {name: SOURCE for name in ("name", "uuid") if getattr(gpu, name) is not None}
    kept = {name: why for name, why in before.unknown.items() if name not in told}
    return msgspec.structs.replace(
        before,
        name=gpu.name or before.name,
        uuid=gpu.uuid or before.uuid,
        unknown={**unknown, **kept},
        sources={**before.sources, **told},
    )


def _link(owner: str, gpu: str | None, link: NvlinkTextLink, remotes: Mapping[str, str]) -> Link:
    unknown = {
        name: why
        for name, why in link.unknown.items()
        if name not in ("speed_GBps", "printed", "remote", "remote_link")
    }
    for name in ("version", "current.generation", "maximum.generation"):
        unknown[name] = _NO_VERSION
    if link.speed_GBps is None and link.state in ("up", "unknown"):
        unknown["signal_GBps"] = (
            link.unknown.get("speed_GBps") or link.unknown.get("state") or "not in the text"
        )
    far = remotes.get(link.remote, link.remote) if link.remote else None
    if far is None and link.state != "down":
        unknown["b"] = (
            link.unknown.get("remote") or "the text has no far ends; `nvidia-smi nvlink -R` has"
        )
    if gpu is None:
        unknown["a"] = _LOST
    sources = {"*": SOURCE}
    if link.remote in remotes:
        sources["b"] = "computed: nvidia-smi numbers GPUs in the order of their addresses"
    return Link(
        key=f"nvlink:{owner}:{link.index}", kind="nvlink", a=gpu, b=far, index=link.index,
        state=link.state, signal_GBps=link.speed_GBps,
        errors={_counter(name): count for name, count in link.errors.items()},
        unknown=unknown, sources=sources,
    )  # fmt: skip


def _counter(printed: str) -> str:
    """Return the name that counters have in a report: ``Replay Errors`` is ``replay``."""
    return printed.removesuffix(" Errors").lower().replace(" ", "_")


def labels_of_remotes(text: NvlinkText) -> dict[str, str]:
    """Return address → label of the GPU that has it, where the far ends prove it; else nothing.

    nvidia-smi numbers GPUs in the order of their addresses. If that gives each address a GPU
    whose link leads back to where the link came from, for all links, then it holds here.
    """
    if any(gpu.index is None for gpu in text.gpus):
        return {}
    ends: dict[tuple[int | None, int | None], tuple[str | None, int | None]] = {
        (gpu.index, link.index): (link.remote, link.remote_link)
        for gpu in text.gpus
        for link in gpu.links
        if link.remote is not None
    }
    indices = sorted({gpu.index for gpu in text.gpus if gpu.index is not None})
    remotes = sorted({remote for remote, _ in ends.values() if remote})
    if not ends or len(remotes) != len(indices) or len(indices) != len(text.gpus):
        return {}
    address = dict(zip(indices, remotes, strict=True))
    number = {remote: index for index, remote in address.items()}
    for (index, link), (remote, remote_link) in ends.items():
        back = ends.get((number[remote or ""], remote_link))
        if index is None or back != (address[index], link):
            return {}
    return {remote: f"GPU{index}" for index, remote in address.items()}


def active_counts(text: NvlinkText) -> dict[str, int]:
    """Return label → number of active links, of GPUs whose list of links is whole."""
    times = Counter(gpu.index for gpu in text.gpus)
    found = {}
    for gpu in text.gpus:
        states = [link.state for link in gpu.links]
        whole = "status" not in gpu.incomplete and "unknown" not in states
        told = gpu.all_inactive or bool(states)
        if gpu.index is not None and times[gpu.index] == 1 and whole and told:
            found[f"GPU{gpu.index}"] = states.count("up")
    return found


def compare_counts(text: NvlinkText, matrix: TopoMatrix) -> list[Conflict]:
    """Return the GPUs whose row of a ``topo -m`` does not fit their list of links.

    Through switches every cell counts all active links of the row's GPU; direct links of a GPU
    share them out, so that the cells add up to no more than are active.
    """
    conflicts = []
    for label, active in active_counts(text).items():
        row = matrix.cells.get(label, {})
        cells = [cell for key, cell in row.items() if _links_in(cell) and key.startswith("GPU")]
        counts = [_links_in(cell) for cell in cells]
        if not counts or set(counts) == {active} or sum(counts) <= active:
            continue
        more = max(counts) > active
        worst = max(counts) if more else min(counts)
        conflicts.append(
            Conflict(
                subject=label, field="nvlinks",
                values={"nvidia-smi": f"NV{worst}", SOURCE: f"{active} active"},
                used=SOURCE if more else "nvidia-smi",
                why="it lists the links one by one" if more else
                "which links lead to which GPU is not in the list",
            )
        )  # fmt: skip
    return conflicts


def _links_in(cell: str) -> int:
    return int(cell[2:]) if cell.startswith("NV") and cell[2:].isdigit() else 0
