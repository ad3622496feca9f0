"""Checks on the GPUs themselves: shown by bus and driver alike, and answering."""

from collections.abc import Iterator

from topoprobe.model.report import Evidence, Finding
from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import Device, Topology

_NVIDIA = 0x10DE


def nvidia_gpus(topology: Topology) -> list[Device]:
    """Return the NVIDIA GPUs of the map, whichever source shows them."""
    return [
        device
        for device in topology.devices
        if device.kind == "gpu"
        and (device.gpu is not None or (device.pci is not None and device.pci.vendor == _NVIDIA))
    ]


def check_present(snapshot: Snapshot, topology: Topology) -> Iterator[Finding]:
    """Compare the GPUs of the bus with those of NVML."""
    if snapshot.nvml is None or snapshot.sysfs is None:
        return
    gpus = nvidia_gpus(topology)
    only_bus = [gpu for gpu in gpus if gpu.gpu is None and gpu.key not in snapshot.nvml.excluded]
    only_nvml = [gpu for gpu in gpus if gpu.pci is None]
    # A container is given some of the GPUs and sees the bus of the host.
    given = bool(snapshot.host.container)
    for gpu in only_bus:
        yield Finding(
            id="gpu-present",
            status="unknown" if given else "fail",
            severity="warning" if given else "error",
            subject=(gpu.key,),
            message=f"GPU at {gpu.key} is on the bus, and NVML does not show it",
            evidence=(Evidence("driver", gpu.driver, "sysfs"), Evidence("nvml", False, "nvml")),
            meaning="the container was not given it, or the driver could not start it"
            if given
            else "the driver could not start it: jobs get fewer GPUs than the node has",
            remedy="look for NVRM and RmInitAdapter lines in the kernel log; reset or reboot",
        )
    for gpu in only_nvml:
        yield Finding(
            id="gpu-present",
            status="warn",
            severity="warning",
            subject=(gpu.key,),
            message=f"{gpu.alias or gpu.key} is in NVML, and /sys does not show it",
            evidence=(Evidence("nvml", True, "nvml"), Evidence("sysfs", False, "sysfs")),
            meaning="its place in the PCI tree is unknown; containers and WSL hide it",
        )
    if gpus and not only_bus and not only_nvml:
        yield Finding(
            id="gpu-present",
            status="pass",
            severity="info",
            subject=tuple(gpu.key for gpu in gpus),
            message=f"bus and NVML show the same {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}",
        )


def check_answers(snapshot: Snapshot, topology: Topology) -> Iterator[Finding]:
    """Say of each GPU whether NVML answered for it to the end."""
    if snapshot.nvml is None:
        return
    by_alias = {device.alias: device for device in topology.devices if device.kind == "gpu"}
    for gpu in snapshot.nvml.gpus:
        device = by_alias.get(f"GPU{gpu.index}")
        label = f"GPU{gpu.index}" + (f" ({device.key})" if device else "")
        subject = (device.key,) if device else ()
        if gpu.unanswered is None:
            yield Finding(
                id="gpu-answers", status="pass", severity="info", subject=subject,
                message=f"{label}: NVML answered for it",
            )  # fmt: skip
            continue
        yield Finding(
            id="gpu-answers",
            status="fail",
            severity="error",
            subject=subject,
            message=f"{label}: {gpu.unanswered}",
            evidence=(Evidence("nvml", gpu.unanswered, "nvml"),),
            meaning="a job that touches this GPU hangs or fails; other facts of it are unknown",
            remedy="look for Xid lines in the kernel log; drain the node; reset the GPU or reboot",
        )
