"""Why the map of this node may be wrong: what hides, flattens or cuts the hardware here."""

from collections.abc import Iterator, Sequence

from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import Device
from topoprobe.topology.gpus import is_nvidia
from topoprobe.topology.nvlinks import HIDDEN_SWITCH


def doubts_of(snapshot: Snapshot, devices: Sequence[Device]) -> tuple[str, ...]:
    """Return a sentence for everything about this node that makes the map less certain."""
    return (*_of_the_system(snapshot, devices), *_of_devices(snapshot, devices))


def _of_the_system(snapshot: Snapshot, devices: Sequence[Device]) -> Iterator[str]:
    host = snapshot.host
    gpus = [device for device in devices if device.kind == "gpu"]
    if "microsoft" in (host.kernel or "").lower() and "wsl" in (host.kernel or "").lower():
        yield "WSL: Linux sees no PCI tree of the GPUs; their places are what the driver says"
    elif host.virtualisation:
        # "yes": the processor says so, and nobody says whose.
        of = "" if host.virtualisation == "yes" else f" ({host.virtualisation})"
        yield (
            f"virtual machine{of}: PCI tree and NUMA nodes are what the "
            "hypervisor shows, which need not be the hardware's"
        )
    if host.container and host.container not in ("", "no"):
        yield f"container ({host.container}): devices outside of it may be hidden"
    hidden = [d for d in gpus if is_nvidia(d) and d.alias is None]
    shown = [d for d in gpus if d.alias is not None]
    if snapshot.nvml is not None and hidden and shown:
        yield (
            f"the bus holds {len(hidden)} NVIDIA GPU{'s' if len(hidden) > 1 else ''} that NVML "
            "does not show: given to others, or not started by the driver"
        )
    if snapshot.nvml is not None and snapshot.nvml.excluded:
        listed = ", ".join(snapshot.nvml.excluded)
        yield f"the driver was told to leave out {listed} (NVreg_ExcludedGpus)"
    if snapshot.nvml is None and any(is_nvidia(gpu) for gpu in gpus):
        why = next((s.detail for s in snapshot.sources if s.name == "nvml" and s.detail), None)
        yield f"NVML was not read ({why or 'not asked'}): NVLinks are not in this map"


def _of_devices(snapshot: Snapshot, devices: Sequence[Device]) -> Iterator[str]:
    gpus = [device for device in devices if device.kind == "gpu"]
    bridges = any(device.kind in ("root-port", "pcie-port") for device in devices)
    if gpus and not bridges and any(d.kind == "host-bridge" for d in devices):
        yield "flat PCI tree: no bridge above any device, so switches cannot be seen"
    without = [d for d in devices if d.kind in ("gpu", "nic") and d.pci and d.numa is None]
    nodes = [device for device in devices if device.kind == "numa-node"]
    if without and len(nodes) > 1:
        yield f"no NUMA node is known for {len(without)} GPUs and NICs (numa_node is -1)"
    elif any(d.sources.get("numa", "").startswith("nvml") for d in gpus) and len(nodes) > 1:
        yield "firmware gives the GPUs no NUMA node; the driver's memory affinity stands for it"
    if any(device.kind == "mig" for device in devices):
        yield (
            "MIG: links and places are those of the whole GPU; MIG devices have no peer access "
            "among themselves"
        )
    if any(device.key == HIDDEN_SWITCH for device in devices):
        yield "the NVSwitches are no devices of this node: how links spread over them is hidden"
    if any("needs root" in why for device in devices for why in device.unknown.values()):
        yield "read without root: port types and payload sizes in config space are not known"
    lost = [d.alias or d.key for d in gpus if "gpu" in d.unknown and d.alias]
    if lost and snapshot.nvml is not None:
        yield f"{', '.join(lost)}: NVML answered only in part; what is missing there is unknown"
