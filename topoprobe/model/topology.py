"""Devices, the links between them and the paths over those links: the map of one node.

Every struct here carries `unknown`: dotted field path → why the value could not be told.
A field that is None without an entry there does not apply to the thing. There is no 0, -1
or "N/A" that means unknown. `sources` says for a field which source it came from; a field
not named in it came from the first source in `sources` under the key ``*``.
"""

from typing import Literal

from msgspec import Struct, field

DeviceKind = Literal[
    "gpu", "mig", "nvswitch", "pcie-switch", "pcie-port", "root-port", "host-bridge",
    "numa-node", "nic", "nvme", "memory", "network", "other",
]  # fmt: skip
LinkKind = Literal["nvlink", "c2c", "pcie", "smp", "memory", "network"]
LinkState = Literal["up", "down", "sleep", "unknown"]


class PciIds(Struct, frozen=True):
    """Numbers that name the function of a PCI device, as config space holds them."""

    class_code: int | None = None
    vendor: int | None = None
    device: int | None = None
    subsystem_vendor: int | None = None
    subsystem_device: int | None = None
    revision: int | None = None


class Device(Struct, frozen=True, kw_only=True):
    """One device; `key` is its identity, `alias` what nvidia-smi would call it."""

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
    unknown: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


class LinkSpeed(Struct, frozen=True):
    """Generation and width (lanes) of a link or of one of its ends; None where unknown."""

    generation: int | None = None
    width: int | None = None


class LimitGBps(Struct, frozen=True):
    """Three ceilings in GB/s, one direction (``topoprobe explain line``, payload, expected)."""

    line: float | None = None
    payload: float | None = None
    expected: float | None = None


class Link(Struct, frozen=True, kw_only=True):
    """One physical connection. For pcie `a` is the upper end and `b` the lower one.

    `maximum` is the most that both ends can do together; `maximum_a` and `maximum_b` are
    what each end could do alone. `limited_by` is the key of the end that can do less, or
    ``training`` where the link runs on fewer lanes than both ends have, else None.
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
    limit_GBps: LimitGBps = LimitGBps()  # noqa: N815  (the contract's name)
    unknown: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


class PathLabels(Struct, frozen=True):
    """What other tools call a path: nvidia-smi's cell as printed, NCCL's name."""

    nvidia_smi: str | None = None
    nccl: str | None = None


class Path(Struct, frozen=True, kw_only=True):
    """The way between two devices. `links` are link keys from `a` to `b`."""

    a: str
    b: str
    class_: str | None = field(name="class", default=None)
    labels: PathLabels = PathLabels()
    links: tuple[str, ...] = ()
    bottleneck: str | None = None
    limit_GBps: LimitGBps = LimitGBps()  # noqa: N815
    unknown: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


class Topology(Struct, frozen=True):
    """The map: devices in tree order, links and paths."""

    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    paths: tuple[Path, ...] = ()
