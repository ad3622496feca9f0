"""The Report, version ``topoprobe/report/1``: the one thing that every face shows.

Scripts rely on it: every key of every object is always there, names never change, and
``/1`` only grows. docs/report.md explains it; docs/schema/ holds the JSON Schema.
"""

from typing import Any, Literal

from msgspec import Struct, field

from topoprobe.model.snapshot import HostRecord, SourceResult
from topoprobe.model.topology import LimitGBps, Topology

SCHEMA = "topoprobe/report/1"

FindingStatus = Literal["pass", "warn", "fail", "skip", "unknown"]
Severity = Literal["info", "warning", "error"]
CollectivePlacement = Literal["node", "island", "subset", "pair", "flat", "one-nic", "rail"]
MeasurementKind = Literal["memory", "p2p", "collective", "workload", "latency"]


class Tool(Struct, frozen=True):
    """The program that made the report."""

    name: str
    version: str


class Evidence(Struct, frozen=True):
    """One value that a finding rests on, and the source it came from."""

    name: str
    value: str | int | float | bool | None
    source: str


class Finding(Struct, frozen=True, kw_only=True):
    """One verdict. `id` names what is checked, `subject` the devices or links it is about."""

    id: str
    status: FindingStatus
    severity: Severity
    message: str
    subject: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    meaning: str | None = None
    remedy: str | None = None


class TimeStats(Struct, frozen=True):
    """Times of one operation in seconds: over iterations, each the maximum over the ranks."""

    median: float
    p5: float
    p95: float
    max: float


class Measurement(Struct, frozen=True, kw_only=True):
    """One measured cell. Sizes, algbw and busbw as nccl-tests defines them.

    A cell that failed keeps its identity, has n = 0 and None for its figures, and `unknown`
    says why. `cv` is the standard deviation over the mean of the iterations' times.
    """

    op: str
    kind: MeasurementKind
    backend: str
    world_size: int
    ranks: tuple[int, ...]
    devices: tuple[str, ...]
    bytes_total: int
    bytes_per_rank: int
    n: int
    time_s: TimeStats | None = None
    cv: float | None = None
    algbw_GBps: float | None = None  # noqa: N815
    busbw_GBps: float | None = None  # noqa: N815
    limit_GBps: LimitGBps = LimitGBps()  # noqa: N815
    verified: bool | None = None
    stable: bool | None = None
    path_used: str | None = None
    memory_kind: str | None = None
    warmup: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    synthetic: bool = False
    unknown: dict[str, str] = field(default_factory=dict)


class Level(Struct, frozen=True, kw_only=True):
    """One step of the memory and link hierarchy, small and fast to large and slow.

    `each` says what one of them connects; `count` how many there are; `measured_GBps` is
    the lowest figure measured on any of them, `measured_by` the operation that gave it.
    """

    name: str
    each: str
    count: int
    subject: tuple[str, ...] = ()
    limit_GBps: LimitGBps = LimitGBps()  # noqa: N815
    measured_GBps: float | None = None  # noqa: N815
    measured_by: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class CollectiveLimit(Struct, frozen=True, kw_only=True):
    """The most that one collective can reach on these GPUs, and the sentence that says why.

    `ranks` are the GPUs of one node; with `nodes` above one, as many of each further node of the
    same kind take part. `placement` says how they were chosen: the whole ``node``, an NVLink
    ``island``, its first GPUs (``subset``) or a ``pair`` on one node; over several nodes ``flat``
    (one ring through the NICs), ``one-nic`` or ``rail`` (each GPU with its own NIC). `nvls`
    tells whether in-switch reduction is in the bound. `nccl_planning_GBps` is the bus bandwidth
    that NCCL's own constants give, `expected_GBps` what healthy machines of this kind show.
    """

    op: str
    ranks: tuple[str, ...]
    world_size: int
    nodes: int
    placement: CollectivePlacement
    busbw_GBps: float | None = None  # noqa: N815
    algbw_GBps: float | None = None  # noqa: N815
    bottleneck: str | None = None
    reason: str
    nvls: bool | None = None
    nccl_planning_GBps: float | None = None  # noqa: N815
    expected_GBps: float | None = None  # noqa: N815
    expected_source: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class Verdict(Struct, frozen=True):
    """How many findings have each status, and the worst of them."""

    status: FindingStatus
    counts: dict[str, int] = field(default_factory=dict)


class Report(Struct, frozen=True, kw_only=True):
    """Everything topoprobe says about one node, or about one text that describes it."""

    schema: str = SCHEMA
    tool: Tool
    created: str
    host: HostRecord = field(default_factory=HostRecord)
    sources: tuple[SourceResult, ...] = ()
    topology: Topology = field(default_factory=Topology)
    measurements: tuple[Measurement, ...] = ()
    findings: tuple[Finding, ...] = ()
    synthetic: bool = False
    profile: dict[str, Any] | None = None
    levels: tuple[Level, ...] | None = None
    collective_limits: tuple[CollectiveLimit, ...] | None = None
    verdict: Verdict | None = None
    unknown: dict[str, str] = field(default_factory=dict)
