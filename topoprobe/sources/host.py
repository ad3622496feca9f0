"""The machine itself: CPU, memory, kernel, page size, virtualisation, container, cgroup.

All of it from /proc and /sys below the root, so that a captured tree answers for its own
machine. (psutil would answer for the one we run on.)
"""

import os
import re

from topoprobe.model.errors import SourceError
from topoprobe.model.snapshot import CgroupLimits, HostRecord
from topoprobe.sources.rootfs import Root

_CPUINFO_LIMIT = 8 << 20
# What hypervisors write into DMI as the vendor or product of their machines.
_HYPERVISORS = (
    ("kvm", "KVM"), ("qemu", "QEMU"), ("vmware", "VMware"), ("virtualbox", "VirtualBox"),
    ("xen", "Xen"), ("microsoft corporation virtual machine", "Hyper-V"),
    ("amazon ec2", "Amazon EC2"), ("google compute engine", "Google Compute Engine"),
    ("openstack", "OpenStack"), ("bochs", "Bochs"), ("firecracker", "Firecracker"),
)  # fmt: skip


def read_host(root: Root) -> HostRecord:
    """Read the host record below `root`; what cannot be read is in its `unknown`."""
    unknown: dict[str, str] = {}
    cpuinfo = _text(root, "/proc/cpuinfo", unknown, "cpu_model", _CPUINFO_LIMIT) or ""
    meminfo = _text(root, "/proc/meminfo", unknown, "memory_bytes") or ""
    kernel = _text(root, "/proc/sys/kernel/osrelease", unknown, "kernel")
    name = _text(root, "/proc/sys/kernel/hostname", unknown, "name")
    memory = re.search(r"^MemTotal:\s+(\d{1,15}) kB", meminfo, re.M)
    sockets, cores, cpus = count_cpus(cpuinfo)
    if cpus == 0:
        unknown.setdefault("cpus", "no processors in /proc/cpuinfo")
    if sockets is None:
        # aarch64 lists no "physical id"; the kernel's topology files know.
        sockets, cores = _count_by_topology(root, cpus)
    for field, value in (("sockets", sockets), ("cores", cores)):
        if value is None:
            unknown.setdefault(field, "neither /proc/cpuinfo nor CPU topology files tell")
    vendor, product = _dmi(root, "sys_vendor"), _dmi(root, "product_name")
    return HostRecord(
        name=name,
        os=_os_name(root),
        kernel=kernel,
        machine=os.uname().machine if root.live else _arch(cpuinfo, unknown),
        vendor=vendor,
        product=product,
        cpu_model=_cpu_model(cpuinfo),
        sockets=sockets,
        cores=cores,
        cpus=cpus or None,
        memory_bytes=int(memory[1]) * 1024 if memory else None,
        page_size=_page_size(root, unknown),
        virtualisation=_virtualisation(root, cpuinfo, vendor, product),
        container=_container(root),
        cgroup=read_cgroup(root) if root.live else None,
        unknown=unknown,
    )


def count_cpus(cpuinfo: str) -> tuple[int | None, int | None, int]:
    """Return sockets, cores and logical CPUs in /proc/cpuinfo; None where it has no ids."""
    cpus = len(re.findall(r"^processor\s*:", cpuinfo, re.M))
    packages = re.findall(r"^physical id\s*:\s*(\d+)", cpuinfo, re.M)
    cores = re.findall(r"^core id\s*:\s*(\d+)", cpuinfo, re.M)
    if not packages or len(packages) != len(cores):
        return None, None, cpus
    return len(set(packages)), len(set(zip(packages, cores, strict=True))), cpus


def _count_by_topology(root: Root, cpus: int) -> tuple[int | None, int | None]:
    seen: set[tuple[str, str]] = set()
    for cpu in range(cpus):
        base = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        try:
            seen.add((root.read(f"{base}/physical_package_id"), root.read(f"{base}/core_id")))
        except SourceError:
            return None, None
    return (len({package for package, _ in seen}), len(seen)) if seen else (None, None)


def _cpu_model(cpuinfo: str) -> str | None:
    found = re.search(r"^(?:model name|Processor|cpu)\s*:\s*(.+)$", cpuinfo, re.M)
    return found[1].strip() if found else None


def _arch(cpuinfo: str, unknown: dict[str, str]) -> str | None:
    if "vendor_id" in cpuinfo:
        return "x86_64"
    if "CPU implementer" in cpuinfo:
        return "aarch64"
    unknown["machine"] = "/proc/cpuinfo does not tell"
    return None


def _page_size(root: Root, unknown: dict[str, str]) -> int | None:
    if root.live:
        return os.sysconf("SC_PAGE_SIZE")
    try:
        found = re.search(r"^KernelPageSize:\s+(\d{1,6}) kB", root.read("/proc/self/smaps"), re.M)
    except SourceError:
        found = None
    if found is None:
        unknown["page_size"] = "not recorded in this tree"
    return int(found[1]) * 1024 if found else None


def _os_name(root: Root) -> str | None:
    for place in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            found = re.search(r'^PRETTY_NAME="?([^"\n]+)', root.read(place), re.M)
        except SourceError:
            continue
        if found:
            return found[1]
    return None


def _virtualisation(
    root: Root, cpuinfo: str, vendor: str | None, product: str | None
) -> str | None:
    """Name the hypervisor, "yes" if there is one without a name, None on bare metal."""
    label = f"{vendor or ''} {product or ''}".lower()
    for word, name in _HYPERVISORS:
        if word in label:
            return name
    version = _quiet(root, "/proc/version") or ""
    if "microsoft" in version.lower():
        return "WSL"
    # CPUID leaf 1 ECX bit 31: set by every hypervisor, never by hardware.
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo, re.M)
    return "yes" if flags and " hypervisor" in flags[1] else None


def _container(root: Root) -> str | None:
    if root.is_file("/.dockerenv"):
        return "docker"
    if root.is_file("/run/.containerenv"):
        return "podman"
    if root.live:
        for variable, name in (
            ("KUBERNETES_SERVICE_HOST", "kubernetes"),
            ("APPTAINER_CONTAINER", "apptainer"),
            ("SINGULARITY_CONTAINER", "apptainer"),
            ("container", os.environ.get("container") or "container"),  # noqa: SIM112  (systemd's)
        ):
            if os.environ.get(variable):
                return name
    return None


def read_cgroup(root: Root) -> CgroupLimits | None:
    """Return what the control group (v2, else v1) of this process allows; None if it has none."""
    lines = (_quiet(root, "/proc/self/cgroup") or "").splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None:
        return None
    base = "/sys/fs/cgroup"
    cpus: float | None = None
    memory: int | None = None
    # A limit of any group above binds too: take the tightest on the way up.
    parts = [part for part in own.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        folder = "/".join([base, *parts[:depth]])
        quota = (_quiet(root, f"{folder}/cpu.max") or "max").split()
        if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]):
            limit = int(quota[0]) / int(quota[1])
            cpus = limit if cpus is None else min(cpus, limit)
        text = _quiet(root, f"{folder}/memory.max") or "max"
        if text.isdigit():
            memory = int(text) if memory is None else min(memory, int(text))
    cpuset = _quiet(root, "/".join([base, *parts, "cpuset.cpus.effective"]))
    return CgroupLimits(cpus=cpus, cpuset=cpuset or None, memory_bytes=memory)


def _dmi(root: Root, name: str) -> str | None:
    return _quiet(root, f"/sys/class/dmi/id/{name}") or None


def _quiet(root: Root, path: str) -> str | None:
    try:
        return root.read(path)
    except SourceError:
        return None


def _text(
    root: Root, path: str, unknown: dict[str, str], field: str, limit: int = 1 << 16
) -> str | None:
    try:
        return root.read(path, limit)
    except SourceError as error:
        unknown[field] = str(error)
        return None
