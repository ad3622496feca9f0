"""How one GPU fares: clocks, throttling, memory errors, fabric, MIG devices, processes."""

from collections.abc import Callable
from typing import Any, Literal

from topoprobe.model.gpu import Ecc, GpuFacts, GpuProcess, MigDevice
from topoprobe.sources.nvml_ask import NOT_HERE, Lost, Part, Unanswered, text
from topoprobe.sources.nvml_fabric import read_fabric
from topoprobe.sources.nvml_links import fields, take_number

_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada",
    9: "Hopper", 10: "Blackwell", 13: "Rubin",
}  # fmt: skip
_BRANDS = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "GRID", 5: "GeForce", 6: "Titan", 12: "Quadro RTX",
    13: "NVIDIA RTX", 14: "NVIDIA", 15: "GeForce RTX", 16: "Titan RTX",
}  # fmt: skip
# nvmlClocksEventReasons, bit by bit.
_REASONS = (
    "idle", "applications-clocks", "sw-power-cap", "hw-slowdown", "sync-boost",
    "sw-thermal-slowdown", "hw-thermal-slowdown", "hw-power-brake", "display-clocks",
)  # fmt: skip
_RECOVERY = ("none", "gpu-reset", "node-reboot", "drain-p2p", "drain-and-reset",
             "recover-imex-domain", "bus-reset", "system-reboot")  # fmt: skip
_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2}
# Field ids: retired pages, PCIe replay and error counters, remapped rows, recovery action.
_RETIRED = {"retired_corrected": 29, "retired_uncorrected": 30, "retired_pending": 31}
_PCIE_ERRORS = {
    "replay_rollover": 95, "l0_to_recovery": 169, "correctable": 173, "naks_received": 174,
    "receiver": 175, "bad_tlp": 176, "naks_sent": 177, "bad_dllp": 178, "non_fatal": 179,
    "fatal": 180, "unsupported_request": 181, "lcrc": 182, "lane": 183,
}  # fmt: skip
_REPLAY, _RECOVERY_FIELD = 94, 230


def read_health(part: Part) -> tuple[GpuFacts, tuple[MigDevice, ...], str | None]:
    """Ask a GPU for its state; also its MIG devices, and the reason where it got lost."""
    mig: list[MigDevice] = []
    unanswered = None
    values = part.values
    try:
        _read_constants(part)
        _read_state(part)
        _read_fields(part)
        _read_ecc(part)
        values["fabric"] = read_fabric(part)
        part.ask("mig_enabled", "nvmlDeviceGetMigMode", convert=lambda modes: bool(modes[0]))
        if values.get("mig_enabled"):
            mig = _read_mig(part)
        _read_processes(part)
    except Lost as error:
        unanswered = error.reason
    return GpuFacts(unknown=part.unknown, **values), tuple(mig), unanswered


def _read_constants(part: Part) -> None:
    part.ask("architecture", "nvmlDeviceGetArchitecture",
             convert=lambda value: _ARCHITECTURES.get(value, f"unknown ({value})"))  # fmt: skip
    part.ask("compute_capability", "nvmlDeviceGetCudaComputeCapability",
             convert=lambda pair: f"{pair[0]}.{pair[1]}")  # fmt: skip
    part.ask("brand", "nvmlDeviceGetBrand", convert=lambda value: _BRANDS.get(value, str(value)))
    part.ask("serial", "nvmlDeviceGetSerial", convert=text)
    part.ask("vbios", "nvmlDeviceGetVbiosVersion", convert=text)
    part.ask("minor", "nvmlDeviceGetMinorNumber")
    part.ask("module_id", "nvmlDeviceGetModuleId")
    part.ask("cores", "nvmlDeviceGetNumGpuCores")
    part.ask("memory_bus_bits", "nvmlDeviceGetMemoryBusWidth")
    part.ask("memory_node", "nvmlDeviceGetNumaNodeId", convert=_node)


def _node(value: int) -> int:
    if value < 0:
        raise ValueError
    return value


def _read_state(part: Part) -> None:
    for name, function in (("max_clock_mhz", "MaxClockInfo"), ("clock_mhz", "ClockInfo")):
        clocks = {}
        for clock, number in _CLOCKS.items():
            value = part.ask(f"{name}.{clock}", f"nvmlDeviceGet{function}", number)
            part.values.pop(f"{name}.{clock}", None)
            if value is not None:
                clocks[clock] = int(value)
        part.values[name] = clocks
    part.ask("performance_state", "nvmlDeviceGetPerformanceState",
             convert=lambda value: _node(value if value < 16 else -1))  # fmt: skip
    part.ask("persistence", "nvmlDeviceGetPersistenceMode", convert=bool)
    part.ask("temperature_c", "nvmlDeviceGetTemperature", 0)
    part.ask("power_w", "nvmlDeviceGetPowerUsage", convert=_watts)
    part.ask("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", convert=_watts)
    _read_throttle(part)


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _read_throttle(part: Part) -> None:
    """Ask for the clocks event reasons; drivers before 535 call them throttle reasons."""
    convert: Callable[[int], tuple[str, ...]] = lambda mask: tuple(  # noqa: E731
        name for bit, name in enumerate(_REASONS) if mask >> bit & 1
    )
    name = "throttle_reasons"
    part.ask(name, "nvmlDeviceGetCurrentClocksEventReasons", convert=convert)
    if NOT_HERE in part.unknown.get(name, ""):
        del part.unknown[name]
        part.ask(name, "nvmlDeviceGetCurrentClocksThrottleReasons", convert=convert)


def _read_fields(part: Part) -> None:
    ids = [_REPLAY, _RECOVERY_FIELD, *_PCIE_ERRORS.values(), *_RETIRED.values()]
    items = fields(part, [(number, 0) for number in ids])
    numbers = [
        take_number(part, name, item)
        for name, item in zip(
            ["pcie_replays", "recovery_action", *(f"pcie_errors.{n}" for n in _PCIE_ERRORS),
             *(f"ecc.{n}" for n in _RETIRED)],
            items, strict=True,
        )
    ]  # fmt: skip
    replays, action, *rest = numbers
    part.values["pcie_replays"] = replays
    if action is not None:
        known = action < len(_RECOVERY)
        part.values["recovery_action"] = _RECOVERY[action] if known else f"action {action}"
    errors = zip(_PCIE_ERRORS, rest, strict=False)
    part.values["pcie_errors"] = {name: count for name, count in errors if count is not None}
    part.values["retired"] = dict(zip(_RETIRED, rest[len(_PCIE_ERRORS) :], strict=True))


def _read_ecc(part: Part) -> None:
    retired = part.values.pop("retired")
    mode = part.ask("ecc_mode", "nvmlDeviceGetEccMode", convert=lambda modes: bool(modes[0]))
    part.values.pop("ecc_mode", None)
    _rename(part, "ecc_mode", "ecc.enabled")
    counts: dict[str, Any] = {}
    if mode:
        for kind, error in (("corrected", 0), ("uncorrected", 1)):
            for scope, counter in (("volatile", 0), ("total", 1)):
                name = f"{kind}_{scope}"
                counts[name] = part.ask(
                    f"ecc.{name}", "nvmlDeviceGetTotalEccErrors", error, counter
                )
                part.values.pop(f"ecc.{name}", None)
    rows = part.ask("remap", "nvmlDeviceGetRemappedRows")
    part.values.pop("remap", None)
    _rename(part, "remap", "ecc.remapped_uncorrected")
    if mode is None and rows is None and "ecc.enabled" not in part.unknown:
        return  # a board without ECC memory
    remap: dict[str, Any] = {}
    if rows is not None:
        corrected, uncorrected, pending, failed = rows
        remap = {
            "remapped_corrected": corrected, "remapped_uncorrected": uncorrected,
            "remap_pending": bool(pending), "remap_failed": bool(failed),
        }  # fmt: skip
    waiting = retired.pop("retired_pending")
    pending = None if waiting is None else bool(waiting)
    part.values["ecc"] = Ecc(enabled=mode, retired_pending=pending, **counts, **retired, **remap)


def _rename(part: Part, old: str, new: str) -> None:
    if old in part.unknown:
        part.unknown[new] = part.unknown.pop(old)


def _read_mig(part: Part) -> list[MigDevice]:
    """Return the MIG devices of a GPU; their numbers have holes."""
    devices = []
    try:
        most = int(part.asker.call("nvmlDeviceGetMaxMigDeviceCount", part.handle))
    except Lost:
        raise
    except Unanswered as error:
        part.fail("mig", error)
        return []
    for index in range(min(most, 64)):
        try:
            handle = part.asker.call("nvmlDeviceGetMigDeviceHandleByIndex", part.handle, index)
        except Lost:
            raise
        except Unanswered:
            continue
        device = Part(part.asker, handle)
        device.ask("uuid", "nvmlDeviceGetUUID", convert=text, optional=False)
        if "uuid" not in device.values:
            part.unknown["mig"] = device.unknown["uuid"]
            continue
        device.ask("name", "nvmlDeviceGetName", convert=text)
        device.ask("gpu_instance", "nvmlDeviceGetGpuInstanceId")
        device.ask("compute_instance", "nvmlDeviceGetComputeInstanceId")
        device.ask("memory_bytes", "nvmlDeviceGetMemoryInfo", convert=lambda m: int(m.total))
        devices.append(MigDevice(unknown=device.unknown, **device.values))
    return devices


def _read_processes(part: Part) -> None:
    """Ask who uses the GPU. Without its version, pynvml refuses the question on old drivers."""
    found: list[GpuProcess] = []
    kinds: tuple[Literal["compute", "graphics"], ...] = ("compute", "graphics")
    for kind in kinds:
        function = f"nvmlDeviceGet{kind.capitalize()}RunningProcesses"
        for version in ("_v3", "_v2"):
            part.unknown.pop("processes", None)
            running = part.ask("processes", function + version)
            if NOT_HERE not in part.unknown.get("processes", ""):
                break
        for process in running or ():
            memory = process.usedGpuMemory
            found.append(GpuProcess(pid=int(process.pid), kind=kind, memory_bytes=memory))
        if "processes" in part.unknown:
            part.values.pop("processes", None)
            return
    part.values["processes"] = tuple(found)
