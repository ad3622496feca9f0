"""GPUs: what /sys and NVML say of each, fused under its PCI address."""

from collections.abc import Mapping, Sequence

import msgspec

from topoprobe.model.gpu import NvmlGpu, NvmlRecord, SmiGpu
from topoprobe.model.topology import Conflict, Device, Link

_NVIDIA = 0x10DE
_NO_NVML = "NVML was not read"


def key_of_gpus(devices: Mapping[str, Device], record: NvmlRecord) -> dict[int, str]:
    """Return NVML index → key of the device.

    A GPU that is lost does not tell its address. Where just as many NVIDIA GPUs of the bus are
    left over as NVML has without an address, they are the same ones, in the order of the bus.
    """
    keys = {gpu.index: gpu.address for gpu in record.gpus if gpu.address}
    nameless = [gpu.index for gpu in record.gpus if gpu.address is None]
    left = sorted(
        device.key
        for device in devices.values()
        if device.kind == "gpu" and is_nvidia(device) and device.key not in keys.values()
    )
    if len(nameless) == len(left):
        keys.update(zip(nameless, left, strict=True))
    for index in nameless:
        keys.setdefault(index, f"gpu:{index}")
    return keys


def is_nvidia(device: Device) -> bool:
    """Tell whether a device is NVIDIA's."""
    return device.pci is not None and device.pci.vendor == _NVIDIA


def fuse_gpus(
    devices: dict[str, Device], record: NvmlRecord, keys: Mapping[int, str]
) -> list[Conflict]:
    """Lay what NVML says over `devices`; return where the two disagree."""
    conflicts: list[Conflict] = []
    for gpu in record.gpus:
        key = keys[gpu.index]
        found = devices.get(key)
        if found is None:
            devices[key] = _only_in_nvml(key, gpu)
        else:
            devices[key] = _fused(found, gpu)
            conflicts += _disagreements(found, gpu)
        for mig in gpu.mig:
            devices[f"mig:{mig.uuid}"] = Device(
                key=f"mig:{mig.uuid}", kind="mig", name=mig.name, parent=key,
                numa=devices[key].numa, uuid=mig.uuid, memory_bytes=mig.memory_bytes,
                unknown=dict(mig.unknown), sources={"*": "nvml"},
            )  # fmt: skip
    return conflicts


def fuse_listed(devices: dict[str, Device], gpus: Sequence[SmiGpu]) -> None:
    """Give the GPUs that nvidia-smi lists their number and name, where NVML could not be asked."""
    for gpu in gpus:
        values = {
            "alias": f"GPU{gpu.index}", "name": gpu.name, "uuid": gpu.uuid,
            "memory_bytes": gpu.memory_bytes,
        }  # fmt: skip
        values = {name: value for name, value in values.items() if value is not None}
        found = devices.get(gpu.address)
        if found is None:
            found = Device(
                key=gpu.address, kind="gpu", sources={"*": "nvidia-smi"},
                unknown={"parent": "/sys does not show this GPU", "numa": "NVML was not read"},
            )  # fmt: skip
        devices[gpu.address] = msgspec.structs.replace(
            found,
            unknown={name: why for name, why in found.unknown.items() if name not in values},
            sources={**found.sources, **dict.fromkeys(values, "nvidia-smi")},
            **values,
        )


def _values(gpu: NvmlGpu) -> dict[str, object]:
    """Return the fields of a Device that NVML knows better than /sys."""
    values = {
        "alias": f"GPU{gpu.index}", "name": gpu.name, "uuid": gpu.uuid,
        "memory_bytes": gpu.memory_bytes, "gpu": gpu.facts,
    }  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}


def _fused(device: Device, gpu: NvmlGpu) -> Device:
    values = _values(gpu)
    unknown = {name: why for name, why in device.unknown.items() if name not in values}
    unknown.update(_gaps(gpu))
    sources = {**device.sources, **dict.fromkeys(values, "nvml")}
    numa = nearest_node(gpu)
    if device.numa is None and numa is not None:
        # A VM's firmware often gives no NUMA node, while the driver knows the near memory.
        values["numa"] = numa
        sources["numa"] = "nvml (memory affinity)"
        unknown.pop("numa", None)
    if not device.cpus and gpu.cpus:
        values["cpus"] = gpu.cpus
        sources["cpus"] = "nvml"
        unknown.pop("cpus", None)
    return msgspec.structs.replace(device, unknown=unknown, sources=sources, **values)


def _only_in_nvml(key: str, gpu: NvmlGpu) -> Device:
    unknown = {"parent": "/sys does not show this GPU", **_gaps(gpu)}
    numa = nearest_node(gpu)
    if numa is None:
        unknown["numa"] = "NVML names no single NUMA node near it"
    return Device(
        key=key, kind="gpu", numa=numa, cpus=gpu.cpus, unknown=unknown,
        sources={"*": "nvml"}, **_values(gpu),  # type: ignore[arg-type]
    )  # fmt: skip


def _gaps(gpu: NvmlGpu) -> dict[str, str]:
    """Return what NVML could not tell of fields that every GPU has."""
    gaps = {
        name: why for name, why in gpu.unknown.items() if name in ("name", "uuid", "memory_bytes")
    }
    for name, why in gpu.facts.unknown.items():
        gaps[f"gpu.{name}"] = why
    if gpu.unanswered:
        gaps["gpu"] = gpu.unanswered
        for name in ("name", "uuid", "memory_bytes"):
            if getattr(gpu, name) is None:
                gaps[name] = gpu.unanswered
    return gaps


def nearest_node(gpu: NvmlGpu) -> int | None:
    """Return the one NUMA node that NVML calls near, its own memory left out."""
    nodes = [node for node in gpu.memory_nodes or () if node != gpu.facts.memory_node]
    return nodes[0] if len(nodes) == 1 else None


def _disagreements(device: Device, gpu: NvmlGpu) -> list[Conflict]:
    found = []
    near = nearest_node(gpu)
    if device.numa is not None and near is not None and device.numa != near:
        found.append(
            Conflict(
                subject=device.key, field="numa",
                values={"sysfs": str(device.numa), "nvml": str(near)}, used="sysfs",
                why="the kernel places memory by its own node numbers",
            )
        )  # fmt: skip
    if device.uuid and gpu.uuid and device.uuid != gpu.uuid:
        found.append(
            Conflict(
                subject=device.key, field="uuid",
                values={"sysfs": device.uuid, "nvml": gpu.uuid}, used="nvml",
                why="/proc/driver/nvidia may be of another driver load",
            )
        )  # fmt: skip
    return found


def add_links(links: dict[str, Link], record: NvmlRecord, keys: Mapping[int, str]) -> None:
    """Add the PCIe link of each GPU that /sys does not show (WSL, containers), as NVML has it."""
    why = "/sys does not show this GPU"
    for gpu in record.gpus:
        key = f"pcie:{keys[gpu.index]}"
        if key in links or gpu.current.width is None:
            continue
        unknown = dict.fromkeys(
            ("a", "maximum_a.generation", "maximum_a.width", "limited_by", "mps_bytes"), why
        )
        links[key] = Link(
            key=key, kind="pcie", a=None, b=keys[gpu.index], state="up", current=gpu.current,
            maximum=gpu.maximum, maximum_b=gpu.device_maximum, unknown=unknown,
            sources={"*": "nvml"},
        )  # fmt: skip


def compare_links(
    links: Mapping[str, Link], record: NvmlRecord, keys: Mapping[int, str]
) -> list[Conflict]:
    """Return where NVML and /sys disagree about the lanes of a GPU's PCIe link.

    Generations are left out: a GPU that wakes between two reads changes its own.
    """
    found = []
    for gpu in record.gpus:
        link = links.get(f"pcie:{keys[gpu.index]}")
        if link is None:
            continue
        for field, ours, theirs in (
            ("current.width", link.current.width, gpu.current.width),
            ("maximum.width", link.maximum.width, gpu.maximum.width),
        ):
            if ours and theirs and ours != theirs and link.a is not None:
                found.append(
                    Conflict(
                        subject=link.key, field=field,
                        values={"sysfs": str(ours), "nvml": str(theirs)}, used="sysfs",
                        why="the registers of both ends of the link are in /sys",
                    )
                )  # fmt: skip
    return found


def number_nics(
    devices: dict[str, Device], legend: Mapping[str, str], order: Sequence[str]
) -> None:
    """Give NICs the alias that nvidia-smi has for them.

    `legend` is NIC0 → RDMA name from its text. Without one, nvidia-smi's own order is taken: RDMA
    devices of mlx5_core as `order` lists them; it shows no others (EFA for one).
    """
    names = {name: alias for alias, name in legend.items()}
    source = "nvidia-smi"
    if not names:
        source = "computed: the order of nvidia-smi"
        drivers = {name: d.driver for d in devices.values() for name in d.rdma}
        mlx = [name for name in order if drivers.get(name) == "mlx5_core"]
        names = {name: f"NIC{number}" for number, name in enumerate(mlx)}
    for key, device in devices.items():
        alias = next((names[name] for name in device.rdma if name in names), None)
        if device.kind != "nic":
            continue
        unknown = {name: why for name, why in device.unknown.items() if name != "alias"}
        sources = {**device.sources, **({"alias": source} if alias else {})}
        devices[key] = msgspec.structs.replace(
            device, alias=alias, unknown=unknown, sources=sources
        )


def without_nvml(devices: dict[str, Device], why: str | None) -> None:
    """Say at each NVIDIA GPU that NVML does not show why its driver's facts are missing."""
    for key, device in devices.items():
        if device.kind == "gpu" and device.gpu is None and is_nvidia(device):
            unknown = {**device.unknown, "gpu": why or _NO_NVML}
            if device.alias is None:
                unknown["alias"] = why or _NO_NVML
            devices[key] = msgspec.structs.replace(device, unknown=unknown)
