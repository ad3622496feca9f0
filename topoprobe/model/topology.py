"""Devices, the links between them and the paths over those links: the map of one node.

Every struct here carries `unknown`: dotted field path → why the value could not be told.
A field that is None without an entry there does not apply to the thing. There is no 0, -1
or "N/A" that means unknown. `sources` says for a field which source it came from; a field
not named in it came from the first source in `sources` under the key ``*``.
"""

from typing import Literal

from msgspec import Struct, field

from topoprobe.model.gpu import GpuFacts
from topoprobe.model.nic import NicFacts
from topoprobe.model.speed import LinkSpeed, LinkState

DeviceKind = Literal[
    "gpu", "mig", "nvswitch", "pcie-switch", "pcie-port", "root-port", "host-bridge",
    "numa-node", "nic", "nvme", "memory", "network", "other",
]  # fmt: skip
LinkKind = Literal["nvlink", "c2c", "pcie", "smp", "memory", "network"]


class PciIds(Struct, frozen=True):
    """Numbers that name the function of a PCI device, as config space holds them."""

    class_code: int | None = None
    vendor: int | None = None
    device: int | None = None
    subsystem_vendor: int | None = None
    subsystem_device: int | None = None
    revision: int | None = None


class Device(Struct, frozen=True, kw_only=True):
    """One device; `key` is its identity, `alias` what nvidia-smi would call it.

    `chip` is set on a PCIe switch that is a part of another one's chip: the key of the upper
    switch that NCCL merges it into. `gpu` and `nic` hold what only those kinds have.
    """

    key: str
    kind: DeviceKind
    alias: str | None = None
    name: str | None = None
    parent: str | None = None
    numa: int | None = None
    pci: PciIds | None = None
    uuid: str | None = None
    driver: str | None = None
    slot: str | None = None
    rdma: tuple[str, ...] = ()
    netdevs: tuple[str, ...] = ()
    blockdevs: tuple[str, ...] = ()
    cpus: str | None = None
    numa_distances: dict[str, int] | None = None
    memory_bytes: int | None = None
    chip: str | None = None
    gpu: GpuFacts | None = None
    nic: NicFacts | None = None
    unknown: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


class LimitGBps(Struct, frozen=True):
    """Three ceilings in GB/s, one direction (``topoprobe explain line``, payload, expected)."""

    line: float | None = None
    payload: float | None = None
    expected: float | None = None


class Link(Struct, frozen=True, kw_only=True):
    """One physical connection. For pcie `a` is the upper end and `b` the lower one.

    `maximum` is the most that both ends can do together; `maximum_a` and `maximum_b` are
    what each end could do alone. `limited_by` is the key of the end that can do less, or
    ``training`` where the link runs on fewer lanes than both ends have, else None. For nvlink
    `version` is the link's (``3.1``), its generation the first number of it, and `signal_GBps`
    the rate that the driver reports; `errors` are counters of the end at `a`.
    """

    key: str
    kind: LinkKind
    a: str | None
    b: str | None
    index: int | None = None
    state: LinkState = "unknown"
    current: LinkSpeed = LinkSpeed()
    maximum: LinkSpeed = LinkSpeed()
    maximum_a: LinkSpeed = LinkSpeed()
    maximum_b: LinkSpeed = LinkSpeed()
    limited_by: str | None = None
    mps_bytes: int | None = None
    version: str | None = None
    signal_GBps: float | None = None  # noqa: N815
    errors: dict[str, int] = field(default_factory=dict)
    limit_GBps: LimitGBps = LimitGBps()  # noqa: N815  (the contract's name)
    unknown: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


class PathLabels(Struct, frozen=True):
    """What other tools call a path: nvidia-smi's cell as printed, NCCL's name."""

    nvidia_smi: str | None = None
    nccl: str | None = None


class Path(Struct, frozen=True, kw_only=True):
    """The way between two devices. `links` are link keys from `a` to `b`.

    `pcie_class` is the class that the PCI tree alone gives, also where NVLink is the way.
    For two GPUs, `p2p` says what the driver allows (``read`` → ``OK``, ``CNS``, …).
    """

    a: str
    b: str
    class_: str | None = field(name="class", default=None)
    pcie_class: str | None = None
    labels: PathLabels = PathLabels()
    links: tuple[str, ...] = ()
    bottleneck: str | None = None
    p2p: dict[str, str] = field(default_factory=dict)
    limit_GBps: LimitGBps = LimitGBps()  # noqa: N815
    unknown: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


class Conflict(Struct, frozen=True, kw_only=True):
    """Sources that disagree about one field of one device, link or path (``a|b``).

    `values` is source → value as text; `used` names the source that was believed, `why` the rule.
    """

    subject: str
    field: str
    values: dict[str, str]
    used: str
    why: str


class Plane(Struct, frozen=True):
    """One NVSwitch and what hangs on it: GPU → number of its active links to this switch."""

    switch: str
    gpus: dict[str, int]


class Topology(Struct, frozen=True):
    """The map: devices in tree order, links and paths.

    `islands` are the sets of GPUs (keys) that NVLink joins, directly or through switches.
    `doubts` are sentences on why the map may be wrong: what hides or flattens the hardware here.
    """

    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    paths: tuple[Path, ...] = ()
    islands: tuple[tuple[str, ...], ...] = ()
    planes: tuple[Plane, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    doubts: tuple[str, ...] = ()
