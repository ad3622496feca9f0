"""What the lines of a ``nvidia-smi nvlink`` text said of one GPU, and the record of it."""

from dataclasses import dataclass, field

from topoprobe.model.speed import LinkState
from topoprobe.model.texts import NvlinkTextGpu, NvlinkTextLink
from topoprobe.sources._nvlink_lines import LinkLine, is_whole_uuid

KINDS = ("status", "capabilities", "errors", "remote")
_ELIDED = "lines of it were left out of the text"


@dataclass
class LinkDraft:
    """What the lines about one link said so far: (kind, name) → its line."""

    lines: dict[tuple[str, str], LinkLine] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass
class GpuDraft:
    """One GPU; `elided`: kind → how many GPUs are left out with its lines, 0 if none can be."""

    index: int | None
    name: str | None = None
    uuid: str | None = None
    links: dict[int, LinkDraft] = field(default_factory=dict)
    elided: dict[str, int] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    all_inactive: bool = False

    @property
    def told(self) -> bool:
        """Whether anything is known of it but its name."""
        return bool(self.links or self.info or self.all_inactive)

    def indices(self, kind: str) -> set[int]:
        """Return the numbers of the links that lines of this kind are there of."""
        return {at for at, link in self.links.items() if any(key[0] == kind for key in link.lines)}


def put(link: LinkDraft, line: LinkLine) -> None:
    """Keep a line; what is printed twice and differs is unknown."""
    key = (line.kind, line.name)
    before = link.lines.setdefault(key, line)
    if before.printed != line.printed:
        where = _field(line)
        link.unknown[where] = f"it is printed as {before.printed!r} and as {line.printed!r}"


def _field(line: LinkLine) -> str:
    if line.kind == "status":
        return "state"
    return f"{line.kind}.{line.name}" if line.name else line.kind


class Peers:
    """What GPUs of one name list, so that a GPU can be compared with the others."""

    def __init__(self, gpus: list[GpuDraft]) -> None:
        self._most: dict[str, int] = {}
        self._whole: set[tuple[str, str, frozenset[int]]] = set()
        for gpu in gpus:
            if gpu.name is None:
                continue
            self._most[gpu.name] = max(self._most.get(gpu.name, 0), len(gpu.links))
            for kind in KINDS:
                if kind not in gpu.elided:
                    self._whole.add((gpu.name, kind, frozenset(gpu.indices(kind))))

    def most(self, gpu: GpuDraft) -> int:
        """Return how many links the GPU of this name with the most has."""
        return self._most.get(gpu.name or "", 0)

    def has_whole(self, gpu: GpuDraft, kind: str) -> bool:
        """Tell whether a GPU of this name, with no lines left out, lists the same links."""
        return (gpu.name or "", kind, frozenset(gpu.indices(kind))) in self._whole


def build_gpu(gpu: GpuDraft, peers: Peers) -> NvlinkTextGpu:
    """Return the record of one GPU."""
    unknown = {}
    if gpu.index is None:
        unknown["index"] = "the line that names the GPU is not in the text"
    elif gpu.uuid is None:
        unknown["uuid"] = "the text does not say it"
    elif not is_whole_uuid(gpu.uuid):
        unknown["uuid"] = "it is shortened, redacted or cut"
    if not gpu.links:
        unknown["links"] = (
            "nvidia-smi says that all links are inactive, and lists none"
            if gpu.all_inactive
            else "no link of it is in the text"
        )
    return NvlinkTextGpu(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        links=tuple(_link(index, gpu.links[index]) for index in sorted(gpu.links)),
        all_inactive=gpu.all_inactive,
        incomplete=_incomplete(gpu, peers),
        info=gpu.info,
        unknown=unknown,
    )


def _incomplete(gpu: GpuDraft, peers: Peers) -> dict[str, str]:
    found = {}
    for kind in KINDS:
        listed = gpu.indices(kind)
        if kind in gpu.elided and not (gpu.elided[kind] > 0 and peers.has_whole(gpu, kind)):
            found[kind] = _ELIDED
        elif listed and len(listed) <= max(listed):
            gap = next(at for at in range(max(listed)) if at not in listed)
            found[kind] = f"link {gap} is not in the text, and a later one is"
        elif listed and kind != "status" and len(listed) < (most := peers.most(gpu)):
            # Of a status it would be a fault to tell, not a damage: a GPU can have fewer links.
            found[kind] = f"it names {len(listed)} links, and elsewhere {most} are listed"
    return found


def _link(index: int, draft: LinkDraft) -> NvlinkTextLink:
    unknown = {_field(line): line.why for line in draft.lines.values() if line.why}
    unknown |= draft.unknown
    capabilities: dict[str, bool] = {}
    errors: dict[str, int] = {}
    rates: dict[str, str] = {}
    for (kind, name), line in draft.lines.items():
        if _field(line) in unknown:
            continue
        if kind == "capabilities" and isinstance(line.value, bool):
            capabilities[name] = line.value
        elif kind == "errors" and isinstance(line.value, int):
            errors[name] = line.value
        elif kind == "errors" and isinstance(line.value, str):
            rates[name] = line.value
    state, printed, speed = _state(draft, unknown)
    remote = draft.lines.get(("remote", ""))
    end = remote.value if remote and "remote" not in unknown else None
    address, remote_link = end if isinstance(end, tuple) else (None, None)
    return NvlinkTextLink(
        index=index,
        state=state,
        printed=printed,
        speed_GBps=speed,
        capabilities=capabilities,
        errors=errors,
        rates=rates,
        remote=address,
        remote_link=remote_link,
        unknown=unknown,
    )


def _state(
    draft: LinkDraft, unknown: dict[str, str]
) -> tuple[LinkState, str | None, float | None]:
    line = draft.lines.get(("status", ""))
    if line is None:
        unknown["state"] = "the text has no line of `nvidia-smi nvlink -s` about it"
        return "unknown", None, None
    if "state" in unknown:
        return "unknown", line.printed, None
    if isinstance(line.value, float):
        return "up", line.printed, line.value
    return ("sleep" if line.value == "sleep" else "down"), line.printed, None
