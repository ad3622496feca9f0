"""The elements of an NCCL topology file as devices."""

import msgspec

from topoprobe.model.gpu import C2c, GpuFacts
from topoprobe.model.nccl import NcclCpu, NcclGpu, NcclNet, NcclPci
from topoprobe.model.nic import NicFacts, NicPort
from topoprobe.model.snapshot import PciRecord
from topoprobe.model.topology import Device, DeviceKind, PciIds
from topoprobe.topology.kinds import kind_of

SOURCE = "NCCL XML"
_NOT_TOLD = "an NCCL topology file does not tell it"
_BRIDGE, _DATA_DIRECT, _GPU_BASE = 0x0604, 0x0801, 0x03
_NO_CLASS = "the file has no class of it; NCCL reads that from /sys of the node"


def numa_device(cpu: NcclCpu) -> Device | None:
    """Return the NUMA node of a ``cpu`` element, None where its number is not known."""
    if cpu.numa is None:
        return None
    unknown = dict.fromkeys(("numa_distances", "memory_bytes"), _NOT_TOLD)
    if cpu.cpus is None:
        unknown["cpus"] = cpu.unknown.get("cpus", _NOT_TOLD)
    return Device(
        key=f"numa:{cpu.numa}", kind="numa-node", numa=cpu.numa, cpus=cpu.cpus,
        unknown=unknown, sources={"*": SOURCE},
    )  # fmt: skip


def pci_device(key: str, pci: NcclPci, above: str | None, cpu: NcclCpu) -> Device:
    """Return the device of one ``pci`` element; `above` is the switch that it hangs below."""
    kind = _kind(key, pci)
    unknown = dict.fromkeys(("name", "driver", "slot"), _NOT_TOLD)
    numbers = (
        ("class_code", pci.class_code), ("vendor", pci.vendor), ("device", pci.device),
        ("subsystem_vendor", pci.subsystem_vendor), ("subsystem_device", pci.subsystem_device),
    )  # fmt: skip
    for name, number in numbers:
        if number is None:
            unknown[f"pci.{name}"] = pci.unknown.get(name, _NOT_TOLD)
    unknown["pci.revision"] = _NOT_TOLD
    if kind == "other" and pci.class_code is None:
        unknown["kind"] = _NO_CLASS
    if cpu.numa is None:
        unknown["numa"] = cpu.unknown.get("numa", _NOT_TOLD)
    if above is None and cpu.numa is None:
        unknown["parent"] = unknown["numa"]
    device = Device(
        key=key,
        kind=kind,
        parent=above or (f"numa:{cpu.numa}" if cpu.numa is not None else None),
        numa=cpu.numa,
        pci=PciIds(
            pci.class_code, pci.vendor, pci.device, pci.subsystem_vendor, pci.subsystem_device
        ),
        unknown=unknown,
        sources={"*": SOURCE},
    )
    if kind == "gpu":
        return _with_gpu(device, pci.gpus[0] if pci.gpus else None)
    return _with_nets(device, pci.nets) if kind == "nic" else device


def _kind(key: str, pci: NcclPci) -> DeviceKind:
    if pci.gpus:
        return "gpu"
    code = pci.class_code
    if code is None:
        return "nic" if pci.has_nic else "pcie-switch" if pci.children else "other"
    if code >> 8 == _BRIDGE or (code >> 8 == _DATA_DIRECT and pci.children):
        return "pcie-switch"
    if code >> 16 == _GPU_BASE and pci.vendor in (None, 0, 0xFFFF):
        # NCCL itself takes every display controller of its files for a GPU.
        return "gpu"
    record = PciRecord(address=key, class_code=code, vendor=pci.vendor)
    return kind_of(record, {}, {})


def _with_gpu(device: Device, gpu: NcclGpu | None) -> Device:
    unknown = {**device.unknown, "uuid": _NOT_TOLD, "memory_bytes": _NOT_TOLD}
    if gpu is None:
        unknown["gpu"] = unknown["alias"] = "the file has no <gpu> in it"
        return msgspec.structs.replace(device, unknown=unknown)
    gaps = dict.fromkeys(GpuFacts.__struct_fields__, _NOT_TOLD)
    told: dict[str, object] = {}
    # RCCL writes sm="90" for all its GPUs.
    if gpu.sm is not None and gpu.gcn is None:
        told["compute_capability"] = f"{gpu.sm // 10}.{gpu.sm % 10}"
    if gpu.gcn is not None:
        told["architecture"] = gpu.gcn
    if gpu.c2c is not None:
        told["c2c"] = C2c(
            links=gpu.c2c.count, up=True, speed_mbps=gpu.c2c.speed_mbps,
            unknown={"links" if k == "count" else k: why for k, why in gpu.c2c.unknown.items()},
        )  # fmt: skip
    gaps = {name: why for name, why in gaps.items() if name not in told and name != "unknown"}
    if gpu.dev is None:
        unknown["alias"] = gpu.unknown.get("dev", _NOT_TOLD)
    return msgspec.structs.replace(
        device,
        alias=f"GPU{gpu.dev}" if gpu.dev is not None else None,
        gpu=msgspec.convert({**told, "unknown": gaps}, GpuFacts, from_attributes=True),
        unknown=unknown,
    )


def _with_nets(device: Device, nets: tuple[NcclNet, ...]) -> Device:
    unknown = dict(device.unknown)
    unknown["alias"] = "NCCL numbers NICs in another way than nvidia-smi"
    # RDMA ports count from 1, NCCL's sockets are port 0: without it, either may be meant.
    rdma = tuple(net.name for net in nets if net.name and net.port)
    netdevs = tuple(net.name for net in nets if net.name and net.port == 0)
    if not rdma:
        unknown["rdma"] = _NOT_TOLD
    if not netdevs:
        unknown["netdevs"] = _NOT_TOLD
    doubtful = [net.name for net in nets if net.name and net.port is None]
    if doubtful:
        unknown.pop("name")
    gaps = dict.fromkeys(NicFacts.__struct_fields__, _NOT_TOLD)
    for name in ("role", "role_reason", "ports", "unknown"):
        gaps.pop(name)
    return msgspec.structs.replace(
        device,
        name=doubtful[0] if doubtful else None,
        rdma=tuple(dict.fromkeys(rdma)),
        netdevs=netdevs,
        nic=NicFacts(
            role_reason="an NCCL topology file does not tell what a NIC is for",
            ports=tuple(_port(net) for net in nets if net.port),
            unknown=gaps,
        ),
        unknown=unknown,
    )


def _port(net: NcclNet) -> NicPort:
    unknown = dict.fromkeys(("state", "physical_state", "rate_label", "link_layer"), _NOT_TOLD)
    if net.speed_mbps is None:
        unknown["rate_gbps"] = net.unknown.get("speed_mbps", _NOT_TOLD)
    return NicPort(
        port=net.port or 0,
        rate_gbps=net.speed_mbps / 1000 if net.speed_mbps is not None else None,
        unknown=unknown,
    )
