"""One GPU as NVML has it: who it is and where it sits."""

from typing import Any

from topoprobe.model.gpu import NvmlGpu
from topoprobe.model.speed import LinkSpeed
from topoprobe.sources.nvml_ask import Lost, Part, bits, ranges, text
from topoprobe.sources.nvml_links import address_of

# Enough for 4096 CPUs and 1024 NUMA nodes; NVML fills the rest with zeros.
_CPU_WORDS, _NODE_WORDS = 64, 16
_SCOPE_NODE = 0


def read_identity(part: Part, index: int) -> NvmlGpu:
    """Ask a GPU who it is and where it sits; never raises for what NVML answers."""
    unanswered = None
    try:
        pci = part.ask("pci", "nvmlDeviceGetPciInfo", optional=False)
        part.ask("uuid", "nvmlDeviceGetUUID", convert=text, optional=False)
        part.ask("name", "nvmlDeviceGetName", convert=text, optional=False)
        part.ask("memory_bytes", "nvmlDeviceGetMemoryInfo", convert=lambda m: int(m.total))
        for name, what in (
            ("current.generation", "CurrPcieLinkGeneration"),
            ("current.width", "CurrPcieLinkWidth"),
            ("maximum.generation", "MaxPcieLinkGeneration"),
            ("maximum.width", "MaxPcieLinkWidth"),
            ("device_maximum.generation", "GpuMaxPcieLinkGeneration"),
        ):
            # 0 where no PCIe link is to be seen (virtual GPUs, some C2C boards).
            part.ask(name, f"nvmlDeviceGet{what}", convert=_positive)
        part.ask("cpus", "nvmlDeviceGetCpuAffinity", _CPU_WORDS, convert=_cpu_list)
        part.ask("memory_nodes", "nvmlDeviceGetMemoryAffinity", _NODE_WORDS, _SCOPE_NODE,
                 convert=lambda words: tuple(bits(words)))  # fmt: skip
    except Lost as error:
        unanswered = error.reason
    values, pci = part.values, part.values.pop("pci", None)
    if pci is not None:
        vendor_device = int(pci.pciDeviceId)
        values["address"] = address_of(pci)
        values["pci_ids"] = (vendor_device & 0xFFFF, vendor_device >> 16)
    elif "pci" in part.unknown:
        part.unknown["address"] = part.unknown.pop("pci")
    for name in ("current", "maximum", "device_maximum"):
        speed = values.pop(f"{name}.generation", None), values.pop(f"{name}.width", None)
        values[name] = LinkSpeed(*speed)
    return NvmlGpu(index=index, unanswered=unanswered, unknown=part.unknown, **values)


def _positive(value: int) -> int:
    if value <= 0 or value >= 1 << 16:
        raise ValueError
    return value


def _cpu_list(words: Any) -> str:
    return ranges(bits(words))
