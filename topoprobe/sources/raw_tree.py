"""The raw part of a capture: copies of the files of /sys and /proc that the readers read.

A copy holds regular files and relative links, each at its real place, so that a `Root` on the
unpacked copy gives what the readers gave on the machine. Files are taken by the rules of the
readers (config space of a sleeping device is left alone, a driver that refuses its counters is
not asked for all of them), in the same kind of child, since the same devices are sick.
"""

import os
import time
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from topoprobe.model.errors import SourceAbsent, SourceError
from topoprobe.sources.deadline import Reading
from topoprobe.sources.pci import PCI_DEVICES, is_address
from topoprobe.sources.rdma import NET, RDMA
from topoprobe.sources.rootfs import DEFAULT_LIMIT, Root

_NODES = "/sys/devices/system/node"
_CPUS = "/sys/devices/system/cpu"
_NVME = "/sys/class/nvme"
_SLOTS = "/sys/bus/pci/slots"
_NVIDIA = "/proc/driver/nvidia"

_MAX_LINKS, _MAX_FILES, _MAX_BYTES = 40, 60_000, 64 << 20
# What our readers ask of config space; the serial number of a device stands behind it.
_CONFIG_LIMIT = 256
_VPD_LIMIT, _CPUINFO_LIMIT = 4096, 4 << 20
_PROBES = 2

# Files that only need to be there; what podman writes into its own names images and people.
_MARKS = ("/.dockerenv", "/run/.containerenv")
_HOST = (
    "/proc/meminfo", "/proc/version", "/proc/cmdline", "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/hostname", "/proc/net/route", "/proc/net/ipv6_route", "/etc/os-release",
    "/usr/lib/os-release", "/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name",
    f"{_NVIDIA}/version", f"{_NVIDIA}/params", "/sys/module/nvidia/version",
    "/sys/module/nvidia_peermem/version", "/sys/module/mlx5_core/version",
    # A made tree stays known for one, and a container.
    "/.topoprobe-synthetic", *_MARKS,
)  # fmt: skip
_PCI = (
    "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "revision",
    "current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
    "numa_node", "local_cpulist", "power_state", "sriov_numvfs",
)  # fmt: skip
_NET = (
    "speed", "operstate", "mtu", "address", "type", "carrier", "carrier_changes", "dev_port",
    "phys_port_name", "bonding/slaves", "device/sriov_numvfs",
)  # fmt: skip
_RDMA = (
    "fw_ver", "hca_type", "board_id", "node_guid", "sys_image_guid", "node_type",
    "device/sriov_numvfs",
)  # fmt: skip
_PORT = ("state", "phys_state", "rate", "link_layer", "gid_attrs/ndevs/0")


class RawEntry(Struct, frozen=True):
    """One entry of a copy: a file with its `data`, or a link with its relative `target`."""

    data: bytes | None = None
    target: str | None = None


class RawTree(Struct, frozen=True):
    """Entries by their absolute path, and why others could not be copied."""

    entries: dict[str, RawEntry] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


class RawReading:
    """The copying: give `reading` to `run_readings`, then take `result`."""

    def __init__(self, root: Root, deadline_s: float) -> None:
        copier = _Copier(root)
        items = _list_items(root)
        self.reading = Reading(
            items,
            copier.item,
            {item.split("/", 1)[0]: RawTree for item in items},
            until=time.monotonic() + deadline_s,
            stall_s=min(2.5, max(0.25, deadline_s / 4)),
        )

    def result(self) -> RawTree:
        """Return what was copied; items that stuck are among `unread`."""
        entries: dict[str, RawEntry] = {}
        unread = dict(self.reading.answers.failed)
        for part in self.reading.answers.records.values():
            entries.update(part.entries)
            unread.update(part.unread)
        return RawTree(entries, unread)


def _list_items(root: Root) -> list[str]:
    items = ["host/", "cpuinfo/", "cpus/", "slots/"]
    listed: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
        ("numa", _NODES, lambda name: name[:4] == "node" and name[4:].isdigit()),
        ("pci", PCI_DEVICES, is_address),
        ("net", NET, lambda name: name not in ("lo", "bonding_masters")),
        ("rdma", RDMA, lambda name: True),
        ("nvme", _NVME, lambda name: True),
    )
    for kind, path, wanted in listed:
        try:
            items += [f"{kind}/{name}" for name in root.names(path) if wanted(name)]
        except SourceError:
            continue
    return items


class _Copier:
    """Copies item by item. The totals go over all items, so that a copy is bounded whole."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._links: dict[str, str | None] = {}
        self._count = self._bytes = 0
        self._entries: dict[str, RawEntry] = {}
        self._unread: dict[str, str] = {}

    def item(self, item: str) -> RawTree:
        """Return the entries of one item; raises SourceError where the copy is full."""
        self._entries, self._unread = {}, {}
        kind, _, name = item.partition("/")
        if kind == "host":
            self._files("", _HOST)
        elif kind == "cpuinfo":
            self._file("/proc/cpuinfo", _CPUINFO_LIMIT)
        else:
            try:
                self._device(kind, name)
            except SourceError as error:
                self._gap(item, error)
        self._count += len(self._entries)
        self._bytes += sum(len(entry.data or b"") for entry in self._entries.values())
        if self._count > _MAX_FILES or self._bytes > _MAX_BYTES:
            raise SourceError("not copied: the copy has reached its limit")
        return RawTree(self._entries, self._unread)

    def _device(self, kind: str, name: str) -> None:
        if kind == "pci":
            self._pci(name)
        elif kind == "numa":
            self._files(f"{_NODES}/{name}", ("cpulist", "distance", "meminfo"))
        elif kind == "net":
            self._net(f"{NET}/{name}")
        elif kind == "rdma":
            self._rdma(f"{RDMA}/{name}")
        elif kind == "nvme":
            self._link(f"{_NVME}/{name}/device")
            self._files(f"{_NVME}/{name}", ("model",))
        elif kind == "slots":
            for slot in self._root.names(_SLOTS):
                self._file(f"{_SLOTS}/{slot}/address")
        elif kind == "cpus":
            for cpu in self._root.names(_CPUS):
                if cpu[:3] == "cpu" and cpu[3:].isdigit():
                    self._files(f"{_CPUS}/{cpu}/topology", ("physical_package_id", "core_id"))

    def _pci(self, address: str) -> None:
        path = f"{PCI_DEVICES}/{address}"
        self._files(path, _PCI)
        for name in ("driver", "physfn"):
            self._link(f"{path}/{name}")
        # As the reader does: reading config space would wake a device that sleeps.
        if self._text(f"{path}/power_state") != "D3cold":
            self._file(f"{path}/config", _CONFIG_LIMIT)
        self._files(f"{_NVIDIA}/gpus/{address}", ("information", "numa_status"))

    def _net(self, path: str) -> None:
        self._link(f"{path}/device")
        self._files(path, _NET)
        for name in self._root.names(path):
            if name.startswith("lower_"):
                self._link(f"{path}/{name}")

    def _rdma(self, path: str) -> None:
        self._link(f"{path}/device")
        self._files(path, _RDMA)
        layers = []
        for port in filter(str.isdigit, self._names(f"{path}/ports")):
            self._files(f"{path}/ports/{port}", _PORT)
            layers.append(self._text(f"{path}/ports/{port}/link_layer"))
            for folder in ("hw_counters", "counters"):
                self._counters(f"{path}/ports/{port}/{folder}")
        for name in self._names(f"{path}/device/net"):
            self._file(f"{path}/device/net/{name}/type")
        self._file(f"{path}/device/vendor")
        self._link(f"{path}/device/physfn")
        physical = not self._root.exists(f"{path}/device/physfn")
        if "InfiniBand" in layers and physical and self._text(f"{path}/device/vendor") == "0x15b3":
            self._file(f"{path}/device/vpd", _VPD_LIMIT)

    def _counters(self, path: str) -> None:
        """Copy counters; of a driver that refuses the first ones, no more are asked."""
        read = refused = 0
        for name in self._names(path):
            copied = self._file(f"{path}/{name}")
            read, refused = read + copied, refused + (not copied)
            if refused == _PROBES and not read:
                return

    def _names(self, path: str) -> list[str]:
        try:
            return self._root.names(path)
        except SourceError:
            return []

    def _text(self, path: str) -> str:
        """Return the text of a file that was copied for this item, "" where it was not."""
        folder, name = os.path.split(path)
        entry = self._entries.get(f"{self._real(folder)}/{name}")
        return entry.data.decode("utf-8", "replace").strip() if entry and entry.data else ""

    def _files(self, folder: str, names: Iterable[str]) -> None:
        for name in names:
            self._file(f"{folder}/{name}" if folder else name)

    def _file(self, path: str, limit: int = DEFAULT_LIMIT) -> bool:
        """Copy one file to its real place; tell whether it could be read."""
        folder, name = os.path.split(path)
        try:
            # /proc/net leads through /proc/self to a process that will be gone.
            real = folder if folder.startswith("/proc/") else self._real(folder)
            with self._root.open(real) as directory:
                # /etc/os-release and the like are links.
                if directory.link(name) is not None:
                    real, name = os.path.split(self._real(path))
                    with self._root.open(real or "/") as other:
                        data = other.read_bytes(name, limit)
                else:
                    data = directory.read_bytes(name, limit)
        except SourceError as error:
            self._gap(path, error)
            return False
        self._entries[f"{real.rstrip('/')}/{name}"] = RawEntry(
            data=b"" if path in _MARKS else data
        )
        return True

    def _link(self, path: str) -> None:
        """Copy the link `path` itself, if it is one; what it leads to is copied by others."""
        folder, name = os.path.split(path)
        try:
            self._target(self._real(folder), name)
        except SourceError as error:
            self._gap(path, error)

    def _gap(self, path: str, error: SourceError) -> None:
        # What is not there is no gap: hardly any device has all files.
        if not isinstance(error, SourceAbsent):
            self._unread[path] = str(error)

    def _real(self, path: str) -> str:
        """Return `path` without links, as inside the root; the links met are copied."""
        done: list[str] = []
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    raise SourceError(f"{path}: a link points outside the root; not followed")
                done.pop()
                continue
            target = self._target("/" + "/".join(done), part)
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise SourceError(f"{path}: too many links")
            todo.extend(target.split("/")[::-1])
        return "/" + "/".join(done)

    def _target(self, folder: str, name: str) -> str | None:
        """Return the target of a link, relative, and copy it; None for what is no link."""
        path = f"{folder.rstrip('/')}/{name}"
        if path not in self._links:
            with self._root.open(folder) as directory:
                target = directory.link(name)
            if target is not None and target.startswith("/"):
                target = os.path.relpath(os.path.normpath(target), folder)
            self._links[path] = target
        target = self._links[path]
        if target is not None and _stays_inside(folder, target):
            self._entries[path] = RawEntry(target=target)
        return target


def _stays_inside(folder: str, target: str) -> bool:
    """Tell whether a link in `folder` never climbs above the root; others are not copied."""
    depth = len([part for part in folder.split("/") if part])
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return False
    return True
