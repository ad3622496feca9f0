"""Records of texts that people paste: ``nvidia-smi nvlink``, ``topo -p2p`` and ``lspci``.

As everywhere, `unknown` maps a field to the reason why it could not be read, and a field that
is None without an entry there is not in the text. Nothing in these is interpreted yet: a
state or a width is what was printed, not a verdict.
"""

from typing import Literal

from msgspec import Struct, field

from topoprobe.model.speed import LinkState

P2pCapability = Literal["read", "write", "nvlink", "atomics", "pcie"]


class NvlinkTextLink(Struct, frozen=True, kw_only=True):
    """One NVLink of one GPU, as ``nvidia-smi nvlink`` prints it.

    printed
        The cell of ``-s`` as printed: ``26.562 GB/s``, ``<inactive>``.
    capabilities
        ``-c``: the sentence as printed (``P2P is supported``) → its answer.
    errors
        ``-e``: the counter as printed (``Replay Errors``) → its count.
    rates
        ``-e`` of Blackwell: the error rate as printed (``Symbol BER``) → its text, ``15e-255``.
    remote, remote_link
        ``-R`` and ``-p``: the PCI address of the other end, and the number of its link.
    """

    index: int
    state: LinkState = "unknown"
    printed: str | None = None
    speed_GBps: float | None = None  # noqa: N815  (the contract's name)
    capabilities: dict[str, bool] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    rates: dict[str, str] = field(default_factory=dict)
    remote: str | None = None
    remote_link: int | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class NvlinkTextGpu(Struct, frozen=True, kw_only=True):
    """One GPU of a ``nvidia-smi nvlink`` text; `index` is None where the text lost its GPU line.

    uuid
        As printed, redacted or shortened as it may be.
    all_inactive
        nvidia-smi says that all links are inactive, and lists none.
    incomplete
        ``status``, ``capabilities``, ``errors`` or ``remote`` → why some links of it are not
        in the text; a missing link is then no link that is down.
    info
        ``-info``: ``NVLE``, ``Firmware Version/MSE`` → the value as printed.
    """

    index: int | None
    name: str | None = None
    uuid: str | None = None
    links: tuple[NvlinkTextLink, ...] = ()
    all_inactive: bool = False
    incomplete: dict[str, str] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NvlinkText(Struct, frozen=True, kw_only=True):
    """A ``nvidia-smi nvlink`` text. No GPUs: it says nothing, which is not "no links"."""

    gpus: tuple[NvlinkTextGpu, ...] = ()
    warnings: tuple[str, ...] = ()


class P2pMatrix(Struct, frozen=True, kw_only=True):
    """One matrix of ``nvidia-smi topo -p2p``.

    capability
        What it is about, told by the command line above it; None where that is not there.
    columns, rows
        Labels, in order; `rows` are those that could be read.
    cells
        row → column → the cell as printed (``OK``, ``CNS``), only those that are certain.
    unreadable
        ``row`` or ``row/column`` → why it could not be read.
    legend
        Code → its words, as the legend below spells them.
    """

    capability: P2pCapability | None = None
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: dict[str, dict[str, str]]
    unreadable: dict[str, str] = field(default_factory=dict)
    legend: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class P2pText(Struct, frozen=True, kw_only=True):
    """All matrices of ``nvidia-smi topo -p2p`` in a text, in order."""

    matrices: tuple[P2pMatrix, ...]
    warnings: tuple[str, ...] = ()


class LspciLink(Struct, frozen=True, kw_only=True):
    """What ``LnkCap`` and ``LnkSta`` say; a width of 0 is printed where no link is up.

    speed_word, width_word
        The word in parentheses: ``ok``, ``downgraded``, ``strange``; older lspci prints none.
    """

    cap_speed_GTps: float | None = None  # noqa: N815
    cap_width: int | None = None
    speed_GTps: float | None = None  # noqa: N815
    width: int | None = None
    speed_word: str | None = None
    width_word: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class LspciDevice(Struct, frozen=True, kw_only=True):
    """One PCI function of an lspci list.

    address
        Lower case with domain. Where the text has none, lspci means 0000 and
        `domain_assumed` is True.
    title
        The line as printed, without the address.
    class_code
        Class and subclass, 16 bits as lspci prints them (``0x0302``), not the 24 of sysfs.
    above
        ``-PP``: addresses of the bridges above, root first.
    port_type
        As printed: ``Root Port``, ``Endpoint``.
    acs_capability, acs_control
        ``SrcValid`` → True for ``+``.
    """

    address: str
    domain_assumed: bool = False
    title: str
    class_name: str | None = None
    class_code: int | None = None
    name: str | None = None
    vendor: int | None = None
    device: int | None = None
    revision: int | None = None
    above: tuple[str, ...] = ()
    slot: str | None = None
    numa_node: int | None = None
    iommu_group: int | None = None
    primary_bus: int | None = None
    secondary_bus: int | None = None
    subordinate_bus: int | None = None
    port_type: str | None = None
    mps_bytes: int | None = None
    link: LspciLink | None = None
    acs_capability: dict[str, bool] | None = None
    acs_control: dict[str, bool] | None = None
    driver: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


class LspciText(Struct, frozen=True, kw_only=True):
    """Lists of lspci in a text; `loose_links` are link lines without the line of a device."""

    devices: tuple[LspciDevice, ...] = ()
    loose_links: tuple[LspciLink, ...] = ()
    warnings: tuple[str, ...] = ()


class LspciTreeNode(Struct, frozen=True, kw_only=True):
    """One function in a drawing of ``lspci -t``; `parent` is the bridge above, if there is one.

    `name` is printed by ``-tv`` and only behind functions that are no bridge.
    """

    address: str
    domain_assumed: bool = False
    parent: str | None = None
    secondary_bus: int | None = None
    subordinate_bus: int | None = None
    name: str | None = None


class LspciTree(Struct, frozen=True, kw_only=True):
    """A drawing of ``lspci -t``: root buses as ``dddd:bb``, then all functions in its order."""

    roots: tuple[str, ...]
    nodes: tuple[LspciTreeNode, ...] = ()
    warnings: tuple[str, ...] = ()
