"""The real pynvml reads from the fake exactly what the data file says, function by function."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

from fakenvml.build import MissingError, build
from fakenvml.trial import Trial

# Words of 64 CPUs: 0-55 and 112-167.
NODE_CPUS = [(1 << 56) - 1, 0xFFFF << 48, (1 << 40) - 1, 0]
CLUSTER = list(bytes.fromhex("0f3ab1c27d5e4b0a9c11a5b6c7d8e9f0"))
NO_FABRIC_V2 = 0x02000024

# Expression, and the answer that example.data stands for. h[0] is a Hopper, h[1] an Ampere in MIG
# mode, h[2] a Blackwell; "!3" is NOT_SUPPORTED, "!2" INVALID_ARGUMENT, "!6" NOT_FOUND.
SYSTEM = [
    ("n.nvmlSystemGetDriverVersion()", "550.163.01"),
    ("n.nvmlSystemGetNVMLVersion()", "12.550.163.01"),
    ("n.nvmlSystemGetCudaDriverVersion()", 12040),
    ("n.nvmlSystemGetCudaDriverVersion_v2()", 12040),
    ("n.nvmlSystemGetDriverBranch().branch", "r550_00"),
    ("n.nvmlDeviceGetCount()", 3),
    ("n.nvmlDeviceGetHandleByIndex(3)", "!2"),
    ("index(n.nvmlDeviceGetHandleByUUID('GPU-22222222-1111-2222-3333-444444444444'))", 2),
    ("n.nvmlDeviceGetHandleByUUID('GPU-none')", "!6"),
    ("index(n.nvmlDeviceGetHandleBySerial('1654323000001'))", 0),
    ("index(n.nvmlDeviceGetHandleByPciBusId('00000008:01:00.0'))", 2),
    ("index(n.nvmlDeviceGetHandleByPciBusId('0000:1B:00.0'))", 0),
    ("n.nvmlDeviceGetHandleByPciBusId('0000:77:00.0')", "!6"),
    ("n.nvmlDeviceGetHandleByPciBusId('rubbish')", "!2"),
    ("n.nvmlGetExcludedDeviceCount()", 1),
    ("n.nvmlGetExcludedDeviceInfoByIndex(0).pci.busId", "00000000:D1:00.0"),
    ("n.nvmlGetExcludedDeviceInfoByIndex(0).uuid", "GPU-ffffffff-0000-1111-2222-333333333333"),
    ("n.nvmlGetExcludedDeviceInfoByIndex(1)", "!2"),
    ("n.nvmlEventSetFree(n.nvmlEventSetCreate())", None),
    ("n.nvmlSystemGetProcessName(4242)", "python train.py"),
    ("n.nvmlSystemGetProcessName(1)", "!6"),
    ("n.nvmlSystemGetConfComputeState()", "!3"),
]
IDENTITY = [
    ("n.nvmlDeviceGetName(h[0])", "NVIDIA H100 80GB HBM3"),
    ("n.nvmlDeviceGetUUID(h[0])", "GPU-00000000-1111-2222-3333-444444444444"),
    ("n.nvmlDeviceGetSerial(h[0])", "1654323000001"),
    ("n.nvmlDeviceGetSerial(h[1])", "!3"),
    ("n.nvmlDeviceGetBoardPartNumber(h[0])", "692-2G520-0200-000"),
    ("n.nvmlDeviceGetVbiosVersion(h[0])", "96.00.5E.00.01"),
    ("n.nvmlDeviceGetInforomImageVersion(h[0])", "G520.0200.00.05"),
    ("n.nvmlDeviceGetInforomVersion(h[0], 1)", "7.16"),
    ("n.nvmlDeviceGetInforomVersion(h[0], 2)", "!3"),
    ("n.nvmlDeviceGetGspFirmwareVersion(h[0])", "550.163.01"),
    ("n.nvmlDeviceGetMinorNumber(h[0])", 3),
    ("n.nvmlDeviceGetMinorNumber(h[1])", 1),
    ("n.nvmlDeviceGetModuleId(h[0])", 2),
    ("n.nvmlDeviceGetBoardId(h[0])", 0x1B00),
    ("n.nvmlDeviceGetMultiGpuBoard(h[0])", 0),
    ("n.nvmlDeviceGetBrand(h[0])", 14),
    ("n.nvmlDeviceGetArchitecture(h[0])", 9),
    ("n.nvmlDeviceGetCudaComputeCapability(h[2])", [10, 0]),
    ("n.nvmlDeviceGetNumGpuCores(h[0])", 16896),
    ("n.nvmlDeviceGetMemoryBusWidth(h[0])", 5120),
    ("n.nvmlDeviceGetIrqNum(h[0])", 97),
    ("n.nvmlDeviceGetBusType(h[0])", 2),
    ("n.nvmlDeviceGetAddressingMode(h[0])", 1),
    ("n.nvmlDeviceGetVirtualizationMode(h[0])", 0),
    ("n.nvmlDeviceGetPersistenceMode(h[1])", 1),
    ("n.nvmlDeviceGetComputeMode(h[0])", 0),
    ("n.nvmlDeviceGetAccountingMode(h[0])", 0),
]
PCI = [
    (
        "n.nvmlDeviceGetPciInfo(h[0])",
        {
            "busIdLegacy": "0000:1B:00.0", "domain": 0, "bus": 0x1B, "device": 0,
            "pciDeviceId": 0x233010DE, "pciSubSystemId": 0x16C110DE, "busId": "00000000:1B:00.0",
        },
    ),
    ("n.nvmlDeviceGetPciInfo_v3(h[2]).busId", "00000008:01:00.0"),
    (
        "fill(n.nvmlDeviceGetPciInfoExt, n.nvmlPciInfoExt_v1_t, h[0], n.nvmlPciInfoExt_v1)",
        {
            "version": 0x1000040, "domain": 0, "bus": 0x1B, "device": 0,
            "pciDeviceId": 0x233010DE, "pciSubSystemId": 0x16C110DE, "baseClass": 3,
            "subClass": 2, "busId": "00000000:1B:00.0",
        },
    ),
    ("fill(n.nvmlDeviceGetPciInfoExt, n.nvmlPciInfoExt_v1_t, h[0], 0)", "!25"),
    ("n.nvmlDeviceGetCurrPcieLinkGeneration(h[0])", 1),
    ("n.nvmlDeviceGetMaxPcieLinkGeneration(h[0])", 4),
    ("n.nvmlDeviceGetGpuMaxPcieLinkGeneration(h[0])", 5),
    ("n.nvmlDeviceGetGpuMaxPcieLinkGeneration(h[1])", 4),
    ("n.nvmlDeviceGetCurrPcieLinkWidth(h[0])", 8),
    ("n.nvmlDeviceGetMaxPcieLinkWidth(h[0])", 16),
    ("n.nvmlDeviceGetPcieSpeed(h[0])", 2500),
    ("n.nvmlDeviceGetPcieSpeed(h[2])", 64000),
    ("n.nvmlDeviceGetPcieLinkMaxSpeed(h[0])", 5),
    ("n.nvmlDeviceGetPcieThroughput(h[0], 0)", 1200),
    ("n.nvmlDeviceGetPcieThroughput(h[0], 1)", 3400),
    ("n.nvmlDeviceGetPcieThroughput(h[1], 1)", "!3"),
    ("n.nvmlDeviceGetPcieReplayCounter(h[0])", 5),
]  # fmt: skip
STATE = [
    (
        "n.nvmlDeviceGetMemoryInfo(h[0])",
        {"total": 85520809984, "free": 83910197248, "used": 1610612736},
    ),
    (
        "n.nvmlDeviceGetMemoryInfo(h[0], n.nvmlMemory_v2)",
        {
            "version": 0x2000028, "total": 85520809984, "reserved": 536870912,
            "free": 83910197248, "used": 1073741824,
        },
    ),
    ("n.nvmlDeviceGetMemoryInfo(h[0], 7)", "!25"),
    ("n.nvmlDeviceGetBAR1MemoryInfo(h[0]).bar1Free", 137437904896),
    ("[n.nvmlDeviceGetClockInfo(h[0], k) for k in range(4)]", [345, 346, 2619, 765]),
    ("[n.nvmlDeviceGetMaxClockInfo(h[0], k) for k in range(4)]", [1980, 1981, 2619, 1545]),
    ("n.nvmlDeviceGetClockInfo(h[0], 4)", "!2"),
    ("n.nvmlDeviceGetClockInfo(h[1], 0)", "!3"),
    ("n.nvmlDeviceGetApplicationsClock(h[0], 2)", 2619),
    ("n.nvmlDeviceGetDefaultApplicationsClock(h[0], 0)", 1980),
    ("n.nvmlDeviceGetMaxCustomerBoostClock(h[0], 0)", 1980),
    ("n.nvmlDeviceGetClock(h[0], 0, n.NVML_CLOCK_ID_CURRENT)", 345),
    ("n.nvmlDeviceGetSupportedMemoryClocks(h[0])", [2619, 1593]),
    ("n.nvmlDeviceGetSupportedGraphicsClocks(h[0], 2619)", [1980, 1965, 345]),
    ("n.nvmlDeviceGetPowerUsage(h[0])", 70123),
    ("n.nvmlDeviceGetPowerManagementLimit(h[0])", 700000),
    ("n.nvmlDeviceGetEnforcedPowerLimit(h[0])", 650000),
    ("n.nvmlDeviceGetPowerManagementLimitConstraints(h[0])", [200000, 700000]),
    ("n.nvmlDeviceGetPowerManagementDefaultLimit(h[0])", 700000),
    ("n.nvmlDeviceGetTotalEnergyConsumption(h[0])", 123456789012),
    ("n.nvmlDeviceGetTemperature(h[0], 0)", 31),
    ("n.nvmlDeviceGetTemperature(h[0], 1)", "!2"),
    ("n.nvmlDeviceGetTemperatureV(h[0], 0)", 31),
    ("n.nvmlDeviceGetTemperature(h[2], 0)", "!15"),
    ("n.nvmlDeviceGetMarginTemperature(h[0])", 55),
    ("[n.nvmlDeviceGetTemperatureThreshold(h[0], k) for k in range(4)]", [95, 92, 95, 87]),
    ("n.nvmlDeviceGetFanSpeed(h[0])", "!3"),
    ("n.nvmlDeviceGetPerformanceState(h[0])", 0),
    ("n.nvmlDeviceGetCurrentClocksThrottleReasons(h[0])", 0x48),
    ("n.nvmlDeviceGetCurrentClocksEventReasons(h[0])", 0x48),
    ("n.nvmlDeviceGetSupportedClocksThrottleReasons(h[0])", 0x1FF),
    ("n.nvmlDeviceGetUtilizationRates(h[2])", {"gpu": 7, "memory": 3}),
    ("n.nvmlDeviceGetEncoderUtilization(h[0])", [1, 0]),
]  # fmt: skip
HEALTH = [
    ("n.nvmlDeviceGetEccMode(h[0])", [1, 0]),
    ("n.nvmlDeviceGetEccMode(h[1])", [1, 1]),
    ("n.nvmlDeviceGetEccMode(h[2])", "!3"),
    ("n.nvmlDeviceGetTotalEccErrors(h[0], 0, 0)", 4),
    ("n.nvmlDeviceGetTotalEccErrors(h[0], 1, 0)", 3),
    ("n.nvmlDeviceGetTotalEccErrors(h[0], 1, 1)", 3),
    ("n.nvmlDeviceGetTotalEccErrors(h[1], 1, 0)", 0),
    ("n.nvmlDeviceGetTotalEccErrors(h[2], 1, 0)", "!3"),
    ("n.nvmlDeviceGetMemoryErrorCounter(h[0], 1, 0, 2)", 2),
    ("n.nvmlDeviceGetMemoryErrorCounter(h[0], 1, 0, 7)", 1),
    ("n.nvmlDeviceGetMemoryErrorCounter(h[0], 1, 0, 0)", "!3"),
    ("n.nvmlDeviceGetRemappedRows(h[0])", [1, 2, 1, 0]),
    ("n.nvmlDeviceGetRemappedRows(h[1])", "!3"),
    (
        "fill(n.nvmlDeviceGetRemappedRows_v2, n.c_nvmlRemappedRowsInfo_v2_t, h[0])",
        {
            "corrActiveRemaps": 1, "corrInactiveRemaps": 0, "uncActiveRemaps": 2,
            "uncInactiveRemaps": 0, "bPending": 1, "bfailureOccurred": 0,
        },
    ),
    (
        "n.nvmlDeviceGetRowRemapperHistogram(h[0])",
        {"max": 2000, "high": 10, "partial": 5, "low": 1, "none": 0},
    ),
    ("len(n.nvmlDeviceGetRetiredPages(h[1], 1))", 2),
    ("n.nvmlDeviceGetRetiredPages(h[0], 1)", "!3"),
    ("n.nvmlDeviceGetRetiredPagesPendingStatus(h[1])", 1),
    ("n.nvmlDeviceGetRepairStatus(h[0])", [1, 0]),
    ("n.nvmlDeviceGetUnrepairableMemoryFlag_v1(h[0])", 0),
    ("fields(h[0], 230)", [1]),
    ("fields(h[1], 230)", ["!3"]),
    ("n.nvmlDeviceGetPowerSource(h[0])", 0),
    ("[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h[0])]", [4242]),
    ("[p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses_v2(h[0])]", [1048576]),
    ("[p.pid for p in n.nvmlDeviceGetGraphicsRunningProcesses_v3(h[0])]", [4243]),
    ("[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h[2])]", []),
]  # fmt: skip
TOPOLOGY = [
    ("[n.nvmlDeviceGetTopologyCommonAncestor(h[0], k) for k in h]", [0, 10, 30]),
    ("[n.nvmlDeviceGetTopologyCommonAncestor(h[2], k) for k in h]", [30, 40, 0]),
    ("[index(k) for k in n.nvmlDeviceGetTopologyNearestGpus(h[0], 30)]", [2]),
    ("[index(k) for k in n.nvmlSystemGetTopologyGpuSet(100)]", [1, 2]),
    ("n.nvmlDeviceOnSameBoard(h[0], h[1])", 0),
    ("[n.nvmlDeviceGetP2PStatus(h[0], h[1], k) for k in range(5)]", [1, 0, 0, 0, 0]),
    ("[n.nvmlDeviceGetP2PStatus(h[1], h[0], k) for k in range(5)]", [1, 0, 0, 0, 0]),
    ("[n.nvmlDeviceGetP2PStatus(h[1], h[2], k) for k in range(5)]", [0, 0, 5, 0, 0]),
    ("[n.nvmlDeviceGetP2PStatus(h[2], h[1], k) for k in range(5)]", [0, 0, 0, 0, 0]),
    ("n.nvmlDeviceGetP2PStatus(h[0], h[1], 5)", "!2"),
    ("n.nvmlDeviceGetCpuAffinity(h[0], 4)", NODE_CPUS),
    ("n.nvmlDeviceGetCpuAffinity(h[0], 1)", NODE_CPUS[:1]),
    ("n.nvmlDeviceGetCpuAffinityWithinScope(h[0], 4, 0)", NODE_CPUS),
    ("n.nvmlDeviceGetCpuAffinityWithinScope(h[0], 2, 1)", [(1 << 64) - 1, (1 << 48) - 1]),
    ("n.nvmlDeviceGetMemoryAffinity(h[0], 1, 0)", [0b11]),
    ("n.nvmlDeviceGetMemoryAffinity(h[1], 1, 0)", [0]),
    ("n.nvmlDeviceGetMemoryAffinity(h[2], 1, 0)", [0b10]),
    ("n.nvmlDeviceGetNumaNodeId(h[2])", 10),
    ("n.nvmlDeviceGetNumaNodeId(h[0])", "!3"),
]
NVLINK = [
    ("[attempt(lambda: n.nvmlDeviceGetNvLinkState(h[0], k)) for k in range(6)]",
     [1, 1, 0, "!3", 1, "!3"]),
    ("n.nvmlDeviceGetNvLinkState(h[0], 36)", "!2"),
    ("n.nvmlDeviceGetNvLinkVersion(h[0], 1)", 6),
    ("n.nvmlDeviceGetNvLinkRemotePciInfo(h[0], 0).busId", "00000000:07:00.0"),
    ("n.nvmlDeviceGetNvLinkRemotePciInfo(h[0], 1).pciDeviceId", 0x22A310DE),
    ("n.nvmlDeviceGetNvLinkRemotePciInfo(h[0], 4).busId", "FFFFFFFF:FF:FF.0"),
    ("n.nvmlDeviceGetNvLinkRemotePciInfo(h[0], 2)", "!3"),
    ("[n.nvmlDeviceGetNvLinkRemoteDeviceType(h[0], k) for k in (0, 1, 4)]", [2, 0, 255]),
    ("n.nvmlDeviceGetNvLinkRemoteDeviceType(h[0], 2)", "!3"),
    ("[n.nvmlDeviceGetNvLinkErrorCounter(h[0], 1, k) for k in (0, 1, 2, 4)]", [11, 12, 13, 0]),
    ("n.nvmlDeviceGetNvLinkErrorCounter(h[0], 1, 3)", "!15"),
    ("n.nvmlDeviceGetNvLinkErrorCounter(h[0], 1, 5)", "!2"),
    ("n.nvmlDeviceGetNvLinkErrorCounter(h[2], 1, 0)", "!3"),
    ("[n.nvmlDeviceGetNvLinkCapability(h[0], 1, k) for k in range(6)]", [1, 1, 0, 0, 0, 0]),
    ("n.nvmlDeviceGetNvLinkCapability(h[0], 0, 5)", 1),
    ("n.nvmlDeviceGetNvLinkCapability(h[0], 3, 5)", "!3"),
    # Blackwell: every capability of a link that is not there, whose state is no valid question.
    ("n.nvmlDeviceGetNvLinkCapability(h[2], 35, 5)", 1),
    ("n.nvmlDeviceGetNvLinkState(h[2], 35)", "!2"),
    ("n.nvmlDeviceGetNvLinkRemotePciInfo(h[2], 35)", "!3"),
    ("fill(n.nvmlDeviceGetNvlinkBwMode, n.c_nvmlNvlinkGetBwMode_v1_t, h[0]).bwMode", 1),
    ("fill(n.nvmlDeviceGetNvlinkBwMode, n.c_nvmlNvlinkGetBwMode_v1_t, h[0]).bIsBest", 1),
    ("fill(n.nvmlDeviceGetNvlinkBwMode, n.c_nvmlNvlinkGetBwMode_v1_t, h[1])", "!3"),
    ("fill(n.nvmlDeviceGetNvlinkBwMode, n.c_nvmlNvlinkGetBwMode_v1_t, h[0], 1)", "!25"),
    ("fill(n.nvmlDeviceGetNvlinkSupportedBwModes, n.c_nvmlNvlinkSupportedBwModes_v1_t, h[0])"
     ".bwModes[:4]", [0, 1, 2, 0]),
    ("fill(n.nvmlDeviceGetNvLinkInfo, n.c_nvmlNvLinkInfo_v1_t, h[0]).isNvleEnabled", 0),
    ("n.nvmlDeviceGetC2cModeInfoV(h[2]).isC2cEnabled", 1),
    ("n.nvmlDeviceGetC2cModeInfoV(h[1])", "!3"),
]  # fmt: skip
FABRIC = [
    (
        "fill(n.nvmlDeviceGetGpuFabricInfo, n.c_nvmlGpuFabricInfo_t, h[0])",
        {"clusterUuid": CLUSTER, "status": 999, "cliqueId": 32766, "state": 3},
    ),
    (
        "fill(n.nvmlDeviceGetGpuFabricInfoV, n.c_nvmlGpuFabricInfo_v2_t, h[0])",
        {
            "version": NO_FABRIC_V2, "clusterUuid": CLUSTER, "status": 999, "cliqueId": 32766,
            "state": 3, "healthMask": 0xAA,
        },
    ),
    (
        "fill(n.nvmlDeviceGetGpuFabricInfoV, n.c_nvmlGpuFabricInfo_v3_t, h[0])",
        {
            "version": 0x03000028, "clusterUuid": CLUSTER, "status": 999, "cliqueId": 32766,
            "state": 3, "healthMask": 0xAA, "healthSummary": 2,
        },
    ),
    ("fill(n.nvmlDeviceGetGpuFabricInfoV, n.c_nvmlGpuFabricInfo_v2_t, h[0], 0x04000028)", "!25"),
    ("fill(n.nvmlDeviceGetGpuFabricInfoV, n.c_nvmlGpuFabricInfo_v2_t, h[1])", "!3"),
    ("fill(n.nvmlDeviceGetGpuFabricInfo_v4, n.c_nvmlGpuFabricInfo_v4_t, h[0]).numCliques", 1),
    ("fill(n.nvmlDeviceGetGpuFabricInfo_v4, n.c_nvmlGpuFabricInfo_v4_t, h[0]).cliques[0]",
     {"type": 0, "id": 32766}),
    ("fill(n.nvmlDeviceGetGpuFabricInfo_v4, n.c_nvmlGpuFabricInfo_v4_t, h[0]).healthMask", 0xAA),
    ("fill(n.nvmlDeviceGetPlatformInfo, n.c_nvmlPlatformInfo_v2_t, h[0]).slotNumber", "\x03"),
    ("fill(n.nvmlDeviceGetPlatformInfo, n.c_nvmlPlatformInfo_v2_t, h[0]).chassisSerialNumber",
     "1820224110159"),
    ("fill(n.nvmlDeviceGetPlatformInfo, n.c_nvmlPlatformInfo_v2_t, h[1])", "!3"),
]  # fmt: skip
FIELDS = [
    ("fields(h[0], 91, 90, 84, 85, 86, 87, 88)", [5, 26562, 26562, 26562, 0, "!3", 26562]),
    ("fields(h[0], (164, 1), (164, 2), (164, 3))", [26562, 0, "!3"]),
    ("fields(h[0], (165, 1), (165, 2), (165, 3))", [1, 0, "!3"]),
    ("fields(h[2], (165, 1), (165, 2))", [1, "!2"]),
    ("fields(h[0], (166, 0), (167, 1), (167, 0), (146, 1))", [6, 1, "!3", 7]),
    ("fields(h[0], 147)", [1]),
    ("fields(h[0], (138, 1), (138, 0), (138, 0xffffffff), (139, 1))", [900, 100, 1200, "!3"]),
    ("fields(h[0], 46, 47, 52, 59, 38, 33, 148, 160)", [0, 11, 11, 12, 13, 13, 0, 0]),
    ("fields(h[0], 39, 40)", [0, "!15"]),
    ("fields(h[0], 1, 2, 3, 4, 6)", [1, 0, 4, 3, 3]),
    ("fields(h[1], 29, 30, 31)", [1, 2, 1]),
    ("fields(h[0], 142, 143, 144, 145, 301)", [1, 2, 1, 0, 0]),
    ("fields(h[0], 82, 83, 94, 95)", [40, 123456789012, 5, 77]),
    ("fields(h[1], 94, 95, 173)", ["!15", "!3", 9]),
    ("fields(h[0], 173)", [8]),
    ("fields(h[2], 170, (171, 9), (171, 10), 172)", [10, 1, "!2", 44712]),
    ("fields(h[0], 170)", ["!3"]),
    ("fields(h[2], (205, 1), (205, 0), (220, 1), (220, 0))", [6, "!4", 0x20F, "!3"]),
    ("fields(h[0], 185, 196)", [1.5, -7]),
    ("fields(h[0], 186, 187, 188, 190)", [70123, 200000, 700000, 650000]),
    ("fields(h[0], 9999)", ["!3"]),
]
MIG = [
    ("n.nvmlDeviceGetMigMode(h[0])", [0, 0]),
    ("n.nvmlDeviceGetMigMode(h[1])", [1, 1]),
    ("n.nvmlDeviceGetMigMode(h[2])", "!3"),
    ("n.nvmlDeviceGetMaxMigDeviceCount(h[1])", 7),
    ("n.nvmlDeviceGetMigDeviceHandleByIndex(h[1], 1)", "!6"),
    ("n.nvmlDeviceIsMigDeviceHandle(h[1])", 0),
    ("n.nvmlDeviceIsMigDeviceHandle(m(1, 2))", 1),
    ("n.nvmlDeviceGetName(m(1, 0))", "NVIDIA A100-SXM4-80GB MIG 3g.40gb"),
    ("n.nvmlDeviceGetUUID(m(1, 2))", "MIG-bbbbbbbb-1111-2222-3333-444444444444"),
    ("index(m(1, 2))", 2),
    ("index(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(m(1, 2)))", 1),
    ("n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(h[1])", "!2"),
    ("n.nvmlDeviceGetGpuInstanceId(m(1, 2))", 9),
    ("n.nvmlDeviceGetComputeInstanceId(m(1, 2))", 1),
    ("n.nvmlDeviceGetGpuInstanceId(h[1])", "!2"),
    ("n.nvmlDeviceGetMemoryInfo(m(1, 0)).total", 42949672960),
    ("n.nvmlDeviceGetAttributes_v2(m(1, 0)).multiprocessorCount", 42),
    ("n.nvmlDeviceGetAttributes_v2(m(1, 0)).memorySizeMB", 40960),
    ("n.nvmlDeviceGetPciInfo(m(1, 0)).bus", 0x43),
    ("index(n.nvmlDeviceGetHandleByUUID('MIG-bbbbbbbb-1111-2222-3333-444444444444'))", 2),
    # No MIG device has links, peers or a place of its own: ask its parent.
    ("n.nvmlDeviceGetNvLinkState(m(1, 0), 0)", "!3"),
    ("fields(m(1, 0), 91)", "!3"),
    ("n.nvmlDeviceGetP2PStatus(m(1, 0), h[0], 0)", "!3"),
    ("n.nvmlDeviceGetTopologyCommonAncestor(h[0], m(1, 0))", "!2"),
    ("n.nvmlDeviceGetCpuAffinity(m(1, 0), 1)", "!3"),
    ("[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(m(1, 2))]", [777]),
    ("[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(m(1, 0))]", []),
    ("[p.gpuInstanceId for p in n.nvmlDeviceGetComputeRunningProcesses(h[1])]", [9]),
]
CASES = [*SYSTEM, *IDENTITY, *PCI, *STATE, *HEALTH, *TOPOLOGY, *NVLINK, *FABRIC, *FIELDS, *MIG]


@pytest.fixture(scope="module")
def answers() -> dict[str, object]:
    """Ask everything in one process."""
    try:
        trial = Trial(build())
    except MissingError as error:
        pytest.skip(str(error))
    questions = [question for question, _ in CASES]
    return dict(zip(questions, trial.ask(*questions), strict=True))


@pytest.mark.parametrize(("question", "answer"), CASES, ids=[question for question, _ in CASES])
def test_pynvml_reads_what_the_file_says(
    question: str, answer: object, answers: dict[str, object]
) -> None:
    assert answers[question] == answer
