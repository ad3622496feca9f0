"""An NCCL topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE) as it was written.

Every record keeps the line of its element and the attributes as printed. Fields hold what they
mean; a field that is missing, empty or -1 is None, with the reason in `unknown`.
"""

from msgspec import Struct, field

from topoprobe.model.speed import LinkSpeed

# The bus id that NCCL writes where the driver hides the far end of an NVLink begins like this.
HIDDEN_TARGET = "fffffff"


class NcclLink(Struct, frozen=True, kw_only=True):
    """Links of one kind to one target: ``nvlink``, ``xgmi`` (RCCL) or ``pcilink`` (no count).

    `target` is the far end's bus id as printed, `address` the same as sysfs writes it; both
    None or only `address` None where the driver hides it. `target_class` is its PCI class.
    """

    element: str
    line: int
    target: str | None = None
    address: str | None = None
    count: int | None = None
    target_class: int | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NcclC2c(Struct, frozen=True, kw_only=True):
    """NVLink-C2C of a GPU: number of links that are up, MB/s of each."""

    line: int
    count: int | None = None
    speed_mbps: int | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NcclGpu(Struct, frozen=True, kw_only=True):
    """One ``gpu`` element (``apu`` in FlagCX). `gcn` is RCCL's name of the architecture."""

    element: str
    line: int
    dev: int | None = None
    sm: int | None = None
    rank: int | None = None
    gcn: str | None = None
    links: tuple[NcclLink, ...] = ()
    c2c: NcclC2c | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NcclNet(Struct, frozen=True, kw_only=True):
    """One ``net`` element: a port of a NIC. RDMA ports count from 1; sockets have port 0."""

    line: int
    name: str | None = None
    dev: int | None = None
    speed_mbps: int | None = None
    port: int | None = None
    guid: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NcclPci(Struct, frozen=True, kw_only=True):
    """One ``pci`` element. Switches are there by their upper port, ports and root ports are not.

    `busid` is as printed, `address` as sysfs writes it. `has_nic` tells that there is a ``nic``.
    """

    line: int
    busid: str | None = None
    address: str | None = None
    class_code: int | None = None
    vendor: int | None = None
    device: int | None = None
    subsystem_vendor: int | None = None
    subsystem_device: int | None = None
    link: LinkSpeed = LinkSpeed()
    gpus: tuple[NcclGpu, ...] = ()
    nets: tuple[NcclNet, ...] = ()
    has_nic: bool = False
    pcilinks: tuple[NcclLink, ...] = ()
    children: tuple["NcclPci", ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NcclCpu(Struct, frozen=True, kw_only=True):
    """One ``cpu`` element: a NUMA node. `cpus` is its affinity mask as a list (``0-23,48``).

    `nets` are those of no PCI device (virtual interfaces), which NCCL puts here.
    """

    line: int
    numa: int | None = None
    cpus: str | None = None
    arch: str | None = None
    vendor: str | None = None
    family: int | None = None
    model: int | None = None
    host_hash: str | None = None
    pci: tuple[NcclPci, ...] = ()
    nets: tuple[NcclNet, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NcclQuirk(Struct, frozen=True):
    """Something in the text that NCCL's own reader trips over, though it may be good XML.

    `fatal` tells that NCCL gives up on the file; else it ignores or misreads that part.
    """

    line: int
    message: str
    remedy: str
    fatal: bool = True


class NcclSystem(Struct, frozen=True, kw_only=True):
    """A whole file. `warnings` say what is damaged, `unread` which elements are not NCCL's."""

    line: int
    version: str | None = None
    name: str | None = None
    cpus: tuple[NcclCpu, ...] = ()
    quirks: tuple[NcclQuirk, ...] = ()
    unread: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
