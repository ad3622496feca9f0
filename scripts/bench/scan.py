"""A bare pynvml scan that makes the calls of `topoprobe report`, and nothing else with them."""

import pynvml as n

LINK = ("NvLinkState", "NvLinkVersion", "NvLinkRemoteDeviceType", "NvLinkRemotePciInfo")
GPU = (
    "PciInfo", "UUID", "Name", "MemoryInfo", "CurrPcieLinkGeneration", "CurrPcieLinkWidth",
    "MaxPcieLinkGeneration", "MaxPcieLinkWidth", "GpuMaxPcieLinkGeneration", "Architecture",
    "CudaComputeCapability", "Brand", "Serial", "VbiosVersion", "MinorNumber", "ModuleId",
    "NumGpuCores", "MemoryBusWidth", "NumaNodeId", "PerformanceState", "PersistenceMode",
    "PowerUsage", "EnforcedPowerLimit",
    "CurrentClocksEventReasons", "EccMode", "RemappedRows", "MigMode",
    "ComputeRunningProcesses_v3", "GraphicsRunningProcesses_v3",
)  # fmt: skip


def ask(function: str, *arguments: object) -> object:
    """Call a function of pynvml and swallow its error."""
    try:
        return getattr(n, f"nvmlDeviceGet{function}")(*arguments)
    except n.NVMLError:
        return None


def main() -> None:
    """Scan all GPUs once."""
    n.nvmlInit()
    handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
    for handle in handles:
        for function in GPU:
            ask(function, handle)
        ask("CpuAffinity", handle, 64)
        ask("MemoryAffinity", handle, 16, 0)
        ask("Temperature", handle, 0)
        for clock in range(3):
            ask("ClockInfo", handle, clock)
            ask("MaxClockInfo", handle, clock)
        for kind in range(2):
            for counter in range(2):
                ask("TotalEccErrors", handle, kind, counter)
        fabric = n.c_nvmlGpuFabricInfo_v3_t()
        ask("GpuFabricInfoV", handle, n.byref(fabric))
        for ids in ([91, 147], [170, 171, 172], [94, 230, *range(173, 184), 29, 30, 31]):
            ask("FieldValues", handle, ids)
        count = n.nvmlDeviceGetFieldValues(handle, [91])[0].value.uiVal
        ask("FieldValues", handle, [(164, link) for link in range(count)] or [164])
        for link in range(count):
            for function in LINK:
                ask(function, handle, link)
            for counter in range(4):
                ask("NvLinkErrorCounter", handle, link, counter)
    for number, a in enumerate(handles):
        for other, b in enumerate(handles):
            if number < other:
                ask("TopologyCommonAncestor", a, b)
            for capability in range(4):
                if a is not b:
                    ask("P2PStatus", a, b, capability)


main()
