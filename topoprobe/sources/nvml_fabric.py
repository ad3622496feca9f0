"""The NVLink fabric registration of one GPU, in whichever version the driver has it."""

from typing import Any

from topoprobe.model.gpu import Fabric
from topoprobe.sources.nvml_ask import Lost, Part, Unanswered

_FABRIC_STATES = ("not-supported", "not-started", "in-progress", "completed")
# nvmlGpuFabricInfo_v2_t.healthMask: two bits each, 1 is "true" and 2 is "false".
_HEALTH = {"degraded_bandwidth": 0, "route_recovery": 2, "route_unhealthy": 4,
           "access_timeout_recovery": 6}  # fmt: skip
_WRONG_CONFIGURATION = {
    1: "none", 2: "wrong system GUID", 3: "wrong chassis serial", 4: "no partition",
    5: "not enough NVLinks", 6: "incompatible GPU firmware", 7: "invalid location",
    8: "GPU state invalid",
}  # fmt: skip
_SUMMARIES = {1: "healthy", 2: "unhealthy", 3: "limited-capacity"}


def read_fabric(part: Part) -> Fabric | None:
    """Ask for the fabric registration, in the newest version that driver and binding share."""
    nvml = part.asker.nvml
    reason: Unanswered | None = None
    for struct, function in (
        ("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
        ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
    ):
        if not hasattr(nvml, struct):
            continue
        info = getattr(nvml, struct)()
        try:
            part.asker.call(function, part.handle, nvml.byref(info))
        except Lost:
            raise
        except Unanswered as error:
            reason = error
            # 25: the driver knows only an older version; 13: not even the function.
            if error.code in (13, 25):
                continue
            break
        return _fabric(info)
    if reason is not None and reason.code != 13:
        part.fail("fabric", reason)
    return None


def _fabric(info: Any) -> Fabric | None:
    state = int(info.state)
    if state == 0:
        return None
    cluster = bytes(info.clusterUuid).hex()
    uuid = "-".join(cluster[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    mask = int(info.healthMask) if hasattr(info, "healthMask") else None
    summary = int(info.healthSummary) if hasattr(info, "healthSummary") else 0
    return Fabric(
        state=_FABRIC_STATES[state] if state < len(_FABRIC_STATES) else f"state {state}",
        status=int(info.status),
        clique=int(info.cliqueId),
        # Single nodes complete with a cluster of zeros: they belong to none.
        cluster=uuid if cluster.strip("0") else None,
        health_mask=mask,
        health=_health(mask or 0),
        summary=_SUMMARIES.get(summary),
    )


def _health(mask: int) -> dict[str, str]:
    words = {1: "true", 2: "false"}
    found = {
        name: words[mask >> shift & 3]
        for name, shift in _HEALTH.items()
        if mask >> shift & 3 in words
    }
    wrong = mask >> 8 & 0xF
    if wrong:
        found["incorrect_configuration"] = _WRONG_CONFIGURATION.get(wrong, f"code {wrong}")
    return found
