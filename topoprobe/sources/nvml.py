"""NVML through pynvml, in a child under a deadline: one sick GPU never hides the others.

The child answers in parts, those of all GPUs before the next kind of part: who and where they are,
their links, their state, what they may do to each other. A GPU at which it sticks or dies is left
alone from then on, and what was read of it before stays.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from topoprobe.model.errors import SourceError
from topoprobe.model.gpu import GpuFacts, MigDevice, NvmlGpu, NvmlPair, NvmlRecord, P2pWord
from topoprobe.model.snapshot import SourceResult, SourceStatus
from topoprobe.sources.deadline import Reading, read_each
from topoprobe.sources.nvml_ask import (
    NO_LIBRARY,
    NO_PERMISSION,
    NOT_HERE,
    Asker,
    Lost,
    Note,
    Part,
    Unanswered,
    text,
)
from topoprobe.sources.nvml_gpu import read_identity
from topoprobe.sources.nvml_health import read_health
from topoprobe.sources.nvml_links import Links, read_links

_PARTS = ("identity", "links", "health", "pairs")
_ANCESTORS = {0: "X", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P: tuple[P2pWord, ...] = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
_CAPABILITIES = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}
# The calls with which NVML starts; a driver without persistence mode loads its GPUs in them.
_INIT = "nvmlInit"
_NOT_LOADED = 9
# What the driver may take to say whether it has started its GPUs.
_COLD_S = 0.3
# Ours: no code of NVML's, since it could not be asked at all.
_BROKEN = -1


class System(Struct, frozen=True, kw_only=True):
    """The driver itself; `failed` is the return code with which NVML would not start."""

    driver: str | None = None
    nvml: str | None = None
    cuda: str | None = None
    count: int = 0
    excluded: dict[str, str] = field(default_factory=dict)
    failed: int | None = None
    reason: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class Health(Struct, frozen=True):
    """The state of one GPU, its MIG devices, and why it stopped answering, if it did."""

    facts: GpuFacts
    mig: tuple[MigDevice, ...]
    unanswered: str | None


class NvmlReading:
    """The reading of NVML: give `reading` to `run_readings`, then take `result`."""

    def __init__(
        self, until: float, deadline_s: float, *, cold: Callable[[], bool] = lambda: False
    ) -> None:
        self._note = Note()
        self._asker: Asker | None = None
        self._sick: set[int] = set()
        self._at: dict[str, str] = {}
        self._count = 0
        self._cold = cold
        # One GPU may hold up the rest for a quarter of the time. The start of NVML may take
        # longer: it attaches every GPU.
        stall = min(2.5, max(0.25, deadline_s / 4))
        self.reading = Reading(
            ["system/"],
            self._read,
            {"system": System, "identity": NvmlGpu, "links": Links, "health": Health,
             "pairs": list[NvmlPair]},
            until=until,
            stall_s=lambda item: deadline_s * 0.8 if item == "system/" else stall,
            expand=self._follow,
            lost=self._drop,
        )  # fmt: skip

    def _read(self, item: str) -> Any:
        """Answer one item, in the child."""
        part, _, number = item.partition("/")
        try:
            if self._asker is None:
                self._note.write("import of pynvml")
                self._asker = Asker(self._note)
                self._asker.call(_INIT)
            if part == "system":
                return _read_system(self._asker)
            asker, index = self._asker, int(number)
            handle = asker.handle(index)
        except ImportError as error:
            return System(failed=_BROKEN, reason=f"NVML cannot be loaded: {error}")
        except Unanswered as error:
            if part == "system":
                return System(failed=error.code, reason=error.reason)
            raise SourceError(error.reason) from None
        if part == "pairs":
            return _read_pairs(asker, index, self._count, self._sick)
        some = Part(asker, handle)
        if part == "identity":
            return read_identity(some, index)
        return read_links(some) if part == "links" else Health(*read_health(some))

    def _follow(self, item: str, record: Any) -> Sequence[str]:
        """Name what follows from the number of GPUs."""
        if item != "system/":
            return ()
        self._count = record.count
        return [f"{part}/{index}" for part in _PARTS for index in range(record.count)]

    def _drop(self, item: str, todo: Sequence[str]) -> Mapping[str, str]:
        """Leave a GPU alone at which the reader stuck or died, and keep where that was."""
        self._at[item] = self._note.read()
        if item == "system/":
            return {}
        index = item.partition("/")[2]
        self._sick.add(int(index))
        return {other: "not asked: see above" for other in todo if other.endswith(f"/{index}")}

    def result(self) -> tuple[NvmlRecord | None, SourceResult]:
        """Return the record, None where NVML told nothing, and how reading it went."""
        answers, seconds = self.reading.answers, self.reading.seconds
        system = answers.records.get("system/")
        if system is None:
            return None, self._no_start(answers.failed.get("system/", "not read"), seconds)
        if system.failed is not None:
            status: SourceStatus = "error"
            if system.failed in (NO_LIBRARY, _NOT_LOADED):
                status = "absent"
            elif system.failed == NO_PERMISSION:
                status = "denied"
            return None, SourceResult("nvml", status, system.reason, seconds)
        failed = {item: self._words(item, why) for item, why in answers.failed.items()}
        gpus = tuple(_gpu(index, answers.records, failed) for index in range(system.count))
        pairs = [p for i in range(system.count) for p in answers.records.get(f"pairs/{i}", ())]
        record = NvmlRecord(
            driver=system.driver, nvml=system.nvml, cuda=system.cuda, count=system.count,
            gpus=gpus, pairs=tuple(pairs), excluded=system.excluded, unknown=system.unknown,
        )  # fmt: skip
        bad = [f"GPU{gpu.index}: {gpu.unanswered}" for gpu in gpus if gpu.unanswered]
        if not bad:
            return record, SourceResult("nvml", "ok", f"driver {system.driver}", seconds)
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return record, SourceResult("nvml", "partial", bad[0] + more, seconds)

    def _words(self, item: str, why: str) -> str:
        return f"NVML did not answer ({self._at[item]}): {why}" if item in self._at else why

    def _no_start(self, why: str, seconds: float) -> SourceResult:
        why = self._words("system/", why)
        if not self.reading.answers.hung:
            return SourceResult("nvml", "error", why, seconds)
        # Asked in a child too: these files are the driver's.
        asked = read_each(
            ["cold/"], lambda _: self._cold(), {"cold": bool},
            until=time.monotonic() + _COLD_S, stall_s=_COLD_S,
        )  # fmt: skip
        if asked.records.get("cold/"):
            # Until its first client the driver does not know the UUID of a GPU.
            why = (
                "the driver is cold: without persistence mode it starts the GPUs at the first "
                f"call, which takes 25 to 60 s; {why}; try --deadline 90"
            )
        return SourceResult("nvml", "timeout", why, seconds)


def _read_system(asker: Asker) -> System:
    unknown: dict[str, str] = {}

    def ask(name: str, function: str) -> Any:
        try:
            return asker.call(function)
        except Unanswered as error:
            unknown[name] = error.reason
            return None

    driver = ask("driver", "nvmlSystemGetDriverVersion")
    nvml = ask("nvml", "nvmlSystemGetNVMLVersion")
    cuda = ask("cuda", "nvmlSystemGetCudaDriverVersion_v2")
    count = ask("count", "nvmlDeviceGetCount") or 0
    excluded = {}
    for index in range(min(ask("excluded", "nvmlGetExcludedDeviceCount") or 0, 64)):
        try:
            info = asker.call("nvmlGetExcludedDeviceInfoByIndex", index)
        except Unanswered as error:
            unknown["excluded"] = error.reason
            break
        pci = info.pciInfo
        address = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
        excluded[address] = text(info.uuid)
    if NOT_HERE in unknown.get("excluded", ""):
        del unknown["excluded"]
    return System(
        driver=None if driver is None else text(driver),
        nvml=None if nvml is None else text(nvml),
        cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        count=count,
        excluded=excluded,
        unknown=unknown,
    )


def _read_pairs(asker: Asker, index: int, count: int, sick: set[int]) -> list[NvmlPair]:
    """Ask what one GPU may do to every other, and once a pair for their common ancestor."""
    mine = asker.handle(index)
    pairs = []
    for other in range(count):
        if other == index:
            continue
        if other in sick:
            why = f"not asked: GPU{other} does not answer"
            pairs.append(NvmlPair(a=index, b=other, unknown={"*": why}))
            continue
        unknown: dict[str, str] = {}
        p2p: dict[str, P2pWord] = {}
        ancestor = None
        try:
            theirs = asker.handle(other)
            if index < other:
                level = _answer(asker, unknown, "ancestor", "TopologyCommonAncestor", mine, theirs)
                ancestor = None if level is None else _ANCESTORS.get(level, f"level {level}")
            for name, number in _CAPABILITIES.items():
                status = _answer(asker, unknown, f"p2p.{name}", "P2PStatus", mine, theirs, number)
                if status is not None:
                    p2p[name] = _P2P[status] if status < len(_P2P) else "U"
        except Unanswered as error:
            unknown["*"] = error.reason
        pairs.append(NvmlPair(a=index, b=other, ancestor=ancestor, p2p=p2p, unknown=unknown))
    return pairs


def _answer(
    asker: Asker, unknown: dict[str, str], name: str, function: str, *arguments: Any
) -> int | None:
    try:
        return int(asker.call(f"nvmlDeviceGet{function}", *arguments))
    except Lost:
        raise
    except Unanswered as error:
        unknown[name] = error.reason
        return None


def _gpu(index: int, records: Mapping[str, Any], failed: Mapping[str, str]) -> NvmlGpu:
    """Put the parts of one GPU together."""
    gpu = records.get(f"identity/{index}") or NvmlGpu(index=index)
    links: Links | None = records.get(f"links/{index}")
    health: Health | None = records.get(f"health/{index}")
    unanswered = gpu.unanswered
    unknown = dict(gpu.unknown)
    for part in _PARTS:
        why = failed.get(f"{part}/{index}")
        if why is not None:
            unanswered = unanswered or why
            unknown["*" if part == "identity" else part] = unanswered
    facts = health.facts if health else GpuFacts()
    for some in (links, health):
        unanswered = unanswered or (some.unanswered if some else None)
    if links:
        gaps = {**facts.unknown, **links.unknown}
        if links.c2c is None:
            # Only memory that is joined by C2C is a NUMA node: no gap anywhere else.
            gaps.pop("memory_node", None)
        facts = msgspec.structs.replace(
            facts,
            nvlink_count=links.count,
            nvlink_switched=links.switched,
            nvlink_bandwidth_mode=links.bandwidth_mode,
            c2c=links.c2c,
            unknown=gaps,
        )
    return msgspec.structs.replace(
        gpu,
        links=links.links if links else (),
        mig=health.mig if health else (),
        facts=facts,
        unanswered=unanswered,
        unknown=unknown,
    )
