"""The Snapshot: what each source said, before anything is concluded from it.

Records are flat and name their own gaps: `unknown` maps a field to the reason why it could
not be read. A field that is None without an entry there does not exist for that thing.
"""

from typing import Literal

from msgspec import Struct, field

from topoprobe.model.gpu import NvmlRecord, SmiGpu
from topoprobe.model.nccl import NcclSystem
from topoprobe.model.speed import LinkSpeed
from topoprobe.model.texts import LspciText, LspciTree, NvlinkText, P2pMatrix

SCHEMA = "topoprobe/snapshot/1"

SourceStatus = Literal["ok", "partial", "absent", "denied", "timeout", "error"]


class SourceResult(Struct, frozen=True):
    """How reading one source went; `detail` is one line for a person, `seconds` its wall time."""

    name: str
    status: SourceStatus
    detail: str | None = None
    seconds: float | None = None


class CgroupLimits(Struct, frozen=True, kw_only=True):
    """What the control group allows this process; None means no limit is set."""

    cpus: float | None = None
    cpuset: str | None = None
    memory_bytes: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class HostRecord(Struct, frozen=True, kw_only=True):
    """The machine and its operating system."""

    name: str | None = None
    os: str | None = None
    kernel: str | None = None
    machine: str | None = None
    vendor: str | None = None
    product: str | None = None
    cpu_model: str | None = None
    sockets: int | None = None
    cores: int | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    page_size: int | None = None
    virtualisation: str | None = None
    container: str | None = None
    cgroup: CgroupLimits | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class PciRecord(Struct, frozen=True, kw_only=True):
    """One PCI function. `above` holds the names on its sysfs path, root first, itself excluded.

    `model` and `uuid` are what the NVIDIA driver's files say, `ids_name` is from pci.ids.
    """

    address: str
    above: tuple[str, ...] = ()
    class_code: int | None = None
    vendor: int | None = None
    device: int | None = None
    subsystem_vendor: int | None = None
    subsystem_device: int | None = None
    revision: int | None = None
    header_type: int | None = None
    port_type: int | None = None
    secondary_bus: int | None = None
    subordinate_bus: int | None = None
    mps_bytes: int | None = None
    numa_node: int | None = None
    cpus: str | None = None
    current: LinkSpeed = LinkSpeed()
    maximum: LinkSpeed = LinkSpeed()
    driver: str | None = None
    physfn: str | None = None
    model: str | None = None
    ids_name: str | None = None
    uuid: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class NumaRecord(Struct, frozen=True, kw_only=True):
    """One NUMA node; `cpus` is "" for a node without CPUs, `memory_bytes` 0 without memory."""

    node: int
    cpus: str | None = None
    distances: tuple[int, ...] = ()
    memory_bytes: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class NetRecord(Struct, frozen=True, kw_only=True):
    """One network interface; `pci` is the function it sits on, None for a virtual one.

    `hardware` is the kernel's number of the link type: 1 Ethernet, 32 InfiniBand. `lower` are the
    interfaces that this one stands on (members of a bond or bridge, what a VLAN is cut from).
    `port_name` is the port's name on the card or, for a port of its switch, ``pf0vf3``.
    `sriov_vfs` counts the virtual functions that are on; None for what cannot have any.
    """

    name: str
    pci: str | None = None
    speed_mbps: int | None = None
    state: str | None = None
    mtu: int | None = None
    mac: str | None = None
    hardware: int | None = None
    carrier: bool | None = None
    carrier_changes: int | None = None
    dev_port: int | None = None
    port_name: str | None = None
    bond_members: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    default_route: bool | None = None
    sriov_vfs: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class RdmaPort(Struct, frozen=True, kw_only=True):
    """One port of an RDMA device; `rate_gbps` is the data rate in Gbit/s that sysfs prints.

    `net` is the interface that the port's first address belongs to. `counters` go by the kernel's
    names, as the driver gives them: old ones are 16 or 32 bits wide and stay at their end.
    """

    port: int
    state: str | None = None
    physical_state: str | None = None
    rate_gbps: float | None = None
    rate_label: str | None = None
    link_layer: str | None = None
    net: str | None = None
    counters: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class RdmaRecord(Struct, frozen=True, kw_only=True):
    """One RDMA device (``/sys/class/infiniband``).

    `board` is what the vendor calls its board (PSID), `guid` the device's own number and
    `system_guid` that of the whole card. `vpd_model` is the sub-model in the vital product
    data, asked only of physical InfiniBand functions of Mellanox: ``SW_MNG`` marks those that
    lead to NVSwitches.
    """

    name: str
    pci: str | None = None
    ports: tuple[RdmaPort, ...] = ()
    firmware: str | None = None
    hca: str | None = None
    board: str | None = None
    guid: str | None = None
    system_guid: str | None = None
    node_type: str | None = None
    netdevs: tuple[str, ...] = ()
    vpd_model: str | None = None
    sriov_vfs: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class BlockRecord(Struct, frozen=True, kw_only=True):
    """One NVMe controller (``/sys/class/nvme``)."""

    name: str
    pci: str | None = None
    model: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class SysfsRecord(Struct, frozen=True, kw_only=True):
    """What /sys said about buses, NUMA nodes and classes."""

    pci: tuple[PciRecord, ...] = ()
    numa: tuple[NumaRecord, ...] = ()
    net: tuple[NetRecord, ...] = ()
    rdma: tuple[RdmaRecord, ...] = ()
    nvme: tuple[BlockRecord, ...] = ()
    slots: dict[str, str] = field(default_factory=dict)


class TopoMatrix(Struct, frozen=True, kw_only=True):
    """A ``nvidia-smi topo -m`` or ``-mp`` text, parsed; nothing in it is interpreted yet.

    columns
        One unique key per matrix column, in order. It is the printed label, except where the
        text has none (``col8``: 0-based column) or repeats one (``mlx5_ib#0``).
    printed
        The labels as printed, one per column ("" where the text has none).
    rows
        Keys of the rows that are there and could be told apart, in order (a subset of columns).
    cells
        row key → column key → the cell as printed (``X``, ``NV12``, ``SOC``): only cells
        that can be read with certainty.
    unreadable
        ``row`` or ``row/column`` → why that row or cell could not be read.
    cpu_affinity, numa_affinity, gpu_numa_id
        row key → the cell as printed, "" where it is empty, ``N/A`` where it says so; a key
        is missing where the text has no such column or the cell cannot be told.
    affinity_columns
        Headings of the columns after the matrix, as nvidia-smi spells them.
    nic_legend
        ``NIC0`` → rdma device name, from the legend below the matrix.
    pcie_only
        True if this is ``topo -mp`` (NVLink hidden), False if NVLink shows, None if unsure.

    Warnings:
        One line each on what is missing or damaged; empty for a whole text.
    """

    columns: tuple[str, ...]
    printed: tuple[str, ...]
    rows: tuple[str, ...]
    cells: dict[str, dict[str, str]]
    unreadable: dict[str, str] = field(default_factory=dict)
    cpu_affinity: dict[str, str] = field(default_factory=dict)
    numa_affinity: dict[str, str] = field(default_factory=dict)
    gpu_numa_id: dict[str, str] = field(default_factory=dict)
    affinity_columns: tuple[str, ...] = ()
    nic_legend: dict[str, str] = field(default_factory=dict)
    pcie_only: bool | None = None
    warnings: tuple[str, ...] = ()


class Snapshot(Struct, frozen=True, kw_only=True):
    """All that the sources said at one time; the only input of everything behind them.

    `p2p` are tables of ``nvidia-smi topo -p2p`` by capability (``unnamed``: a pasted one that does
    not say), `texts` all that nvidia-smi printed by its arguments. `nvlink_text`, `lspci`,
    `lspci_tree` and `nccl` are texts that were given to us; no reader of a node fills them.
    `kernel_log` holds the lines of the kernel about GPUs, links and NICs, and `environment` the
    variables that steer communication libraries; both are read for a capture only, and None where
    they were not.
    """

    schema: str = SCHEMA
    created: str
    host: HostRecord = field(default_factory=HostRecord)
    sysfs: SysfsRecord | None = None
    nvml: NvmlRecord | None = None
    smi_gpus: tuple[SmiGpu, ...] = ()
    topo_matrix: TopoMatrix | None = None
    p2p: dict[str, P2pMatrix] = field(default_factory=dict)
    nvlink_text: NvlinkText | None = None
    lspci: LspciText | None = None
    lspci_tree: LspciTree | None = None
    nccl: NcclSystem | None = None
    texts: dict[str, str] = field(default_factory=dict)
    kernel_log: tuple[str, ...] | None = None
    environment: dict[str, str] | None = None
    sources: tuple[SourceResult, ...] = ()
    foreign_pynvml: str | None = None
    synthetic: bool = False
