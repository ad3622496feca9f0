"""What NVML says of GPUs: the records of the Snapshot, and what a Device keeps of them.

`unknown` maps a field to the reason. A field that is None without an entry there does not exist
for that GPU: the driver answered "not supported" to a question that not every GPU has.
"""

from typing import Literal

from msgspec import Struct, field

from topoprobe.model.speed import LinkSpeed, LinkState

NvlinkRemote = Literal["gpu", "npu", "switch", "unknown"]
P2pWord = Literal["OK", "CNS", "GNS", "TNS", "DR", "NS", "U"]


class NvmlLink(Struct, frozen=True, kw_only=True):
    """One NVLink of a GPU, as its own driver sees it.

    version
        NVML's enum, one step a version that exists: 2 is NVLink 2.0, 4 is 3.0, 6 is 4.0.
    speed_mbps
        The signalling rate of one direction in MB/s (26562 is 26.562 GB/s); None where it is down.
    remote
        PCI address of the far end; None where the driver hides it (then `remote_hidden` is True).
    errors
        Counters by name: replay, recovery, crc_flit, crc_data, and the NVLink 5 ones.
    """

    index: int
    state: LinkState = "unknown"
    version: int | None = None
    speed_mbps: int | None = None
    remote: str | None = None
    remote_hidden: bool = False
    remote_kind: NvlinkRemote | None = None
    errors: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class C2c(Struct, frozen=True, kw_only=True):
    """NVLink chip-to-chip between a GPU and its CPU: links, their state, MB/s of each."""

    links: int | None = None
    up: bool | None = None
    speed_mbps: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class Fabric(Struct, frozen=True, kw_only=True):
    """The registration of a GPU with the NVLink fabric.

    `status` is an nvmlReturn_t and counts only where `state` is completed. `health` holds the
    parts of the mask that the driver fills in, as words: ``degraded_bandwidth`` → "false".
    """

    state: str | None = None
    status: int | None = None
    clique: int | None = None
    cluster: str | None = None
    health_mask: int | None = None
    health: dict[str, str] = field(default_factory=dict)
    summary: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class Ecc(Struct, frozen=True, kw_only=True):
    """Memory errors, and what the board did about them. Volatile counts are since driver load."""

    enabled: bool | None = None
    corrected_volatile: int | None = None
    uncorrected_volatile: int | None = None
    corrected_total: int | None = None
    uncorrected_total: int | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_corrected: int | None = None
    retired_uncorrected: int | None = None
    retired_pending: bool | None = None


class MigDevice(Struct, frozen=True, kw_only=True):
    """One MIG device. Its links, place and peers are those of its GPU."""

    uuid: str
    name: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_bytes: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class GpuProcess(Struct, frozen=True, kw_only=True):
    """One process that holds a context on a GPU; its memory where the driver tells."""

    pid: int
    kind: Literal["compute", "graphics"]
    memory_bytes: int | None = None


class GpuFacts(Struct, frozen=True, kw_only=True):
    """What a GPU says about itself beyond its place: the device's `gpu` in the report.

    Clocks in MHz. `throttle_reasons` are the names of the set bits of NVML's clocks event
    reasons, idle included. `nvlink_switched` counts the links that end at a switch (field 147).
    """

    architecture: str | None = None
    compute_capability: str | None = None
    serial: str | None = None
    brand: str | None = None
    vbios: str | None = None
    minor: int | None = None
    module_id: int | None = None
    cores: int | None = None
    memory_bus_bits: int | None = None
    max_clock_mhz: dict[str, int] = field(default_factory=dict)
    clock_mhz: dict[str, int] = field(default_factory=dict)
    performance_state: int | None = None
    persistence: bool | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    pcie_replays: int | None = None
    pcie_errors: dict[str, int] = field(default_factory=dict)
    recovery_action: str | None = None
    ecc: Ecc | None = None
    memory_node: int | None = None
    nvlink_count: int | None = None
    nvlink_switched: int | None = None
    nvlink_bandwidth_mode: str | None = None
    c2c: C2c | None = None
    fabric: Fabric | None = None
    mig_enabled: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class NvmlGpu(Struct, frozen=True, kw_only=True):
    """One GPU of NVML. `address` is its PCI address as sysfs writes it, None if not told.

    `unanswered` names the NVML function at which the driver stuck, died or lost the GPU, and
    what happened; whatever was read before it is here.
    """

    index: int
    address: str | None = None
    uuid: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    pci_ids: tuple[int, int] | None = None
    current: LinkSpeed = LinkSpeed()
    maximum: LinkSpeed = LinkSpeed()
    device_maximum: LinkSpeed = LinkSpeed()
    cpus: str | None = None
    memory_nodes: tuple[int, ...] | None = None
    links: tuple[NvmlLink, ...] = ()
    mig: tuple[MigDevice, ...] = ()
    facts: GpuFacts = field(default_factory=GpuFacts)
    unanswered: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class SmiGpu(Struct, frozen=True, kw_only=True):
    """One GPU as ``nvidia-smi --query-gpu`` lists it, where NVML itself could not be asked."""

    index: int
    address: str
    uuid: str | None = None
    name: str | None = None
    memory_bytes: int | None = None


class NvmlPair(Struct, frozen=True, kw_only=True):
    """An ordered pair of GPUs, by index: what `a` may do to `b`.

    `ancestor` is the nearest common ancestor in nvidia-smi's words (PIX, PXB, PHB, NODE, SYS, or
    X for one board), asked once for both directions.
    """

    a: int
    b: int
    ancestor: str | None = None
    p2p: dict[str, P2pWord] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NvmlRecord(Struct, frozen=True, kw_only=True):
    """All that NVML said. `excluded` are GPUs that a module option takes away: address → UUID."""

    driver: str | None = None
    nvml: str | None = None
    cuda: str | None = None
    count: int | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    pairs: tuple[NvmlPair, ...] = ()
    excluded: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
