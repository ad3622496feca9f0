"""The NVLinks of one GPU, and its chip-to-chip links, as NVML has them.

The number of links comes from field 91. Probing up to NVML_NVLINK_MAX_LINKS is a trap: on B200
the capability query answers TRUE for links that do not exist (TensorRT-LLM pull request 17060).
"""

from typing import Any

from msgspec import Struct, field

from topoprobe.model.gpu import C2c, NvlinkRemote, NvmlLink
from topoprobe.model.speed import LinkState
from topoprobe.sources.nvml_ask import GPU_IS_LOST, NOT_SUPPORTED, Lost, Part, Unanswered

# Field ids (nvml.h). Speed by link number is what drivers before 525 have.
_LINK_COUNT, _SWITCH_CONNECTED = 91, 147
_SPEED, _SPEED_COMMON = 164, 90
_SPEED_OF_LINK = (84, 85, 86, 87, 88, 89, 132, 133, 134, 135, 136, 137)
_C2C_COUNT, _C2C_STATUS, _C2C_SPEED = 170, 171, 172
# nvmlNvLinkErrorCounter_t, up to Hopper.
_COUNTERS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}
# Blackwell counts in fields, the link as their scope.
_FIELD_COUNTERS = {
    "malformed_packets": 206, "buffer_overruns": 207, "receive_errors": 208,
    "receive_remote_errors": 209, "receive_general_errors": 210, "link_integrity_errors": 211,
    "transmit_discards": 212, "recoveries_succeeded": 213, "recoveries_failed": 214,
    "recoveries": 215, "effective_errors": 219,
}  # fmt: skip
_REMOTE: dict[int, NvlinkRemote] = {0: "gpu", 1: "npu", 2: "switch"}
_STATES: dict[int, LinkState] = {0: "down", 1: "up", 2: "sleep"}
_MODES = {0: "full", 1: "off", 2: "min", 3: "half", 4: "3/4"}
# The driver takes no more values in one call than this, by its header's advice.
_FIELDS_A_CALL = 100
_MOST_LINKS = 64


class Links(Struct, frozen=True, kw_only=True):
    """What one GPU says of its links; `unanswered` where it was lost meanwhile."""

    links: tuple[NvmlLink, ...] = ()
    count: int | None = None
    switched: int | None = None
    bandwidth_mode: str | None = None
    c2c: C2c | None = None
    unanswered: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


def read_links(part: Part) -> Links:
    """Ask one GPU for its links; never raises for what NVML answers."""
    links: list[NvmlLink] = []
    values: dict[str, Any] = {}
    try:
        general = fields(part, [(n, 0) for n in (_LINK_COUNT, _SWITCH_CONNECTED)])
        count, switched = (_number(value) for value in general)
        values["count"] = _take(part, "nvlink_count", count)
        values["switched"] = _take(part, "nvlink_switched", switched)
        values["c2c"] = _read_c2c(part)
        if values["count"]:
            values["bandwidth_mode"] = _bandwidth_mode(part)
            _read_each_link(part, min(values["count"], _MOST_LINKS), links)
    except Lost as error:
        values["unanswered"] = error.reason
    return Links(links=tuple(links), unknown=part.unknown, **values)


def fields(part: Part, wanted: list[tuple[int, int]]) -> list[Any]:
    """Return the items of nvmlDeviceGetFieldValues for (field id, scope); raises Lost.

    The whole call succeeds even where single values fail, so each carries its own code. A call
    that fails as a whole gives its Unanswered for every item.
    """
    items: list[Any] = []
    for start in range(0, len(wanted), _FIELDS_A_CALL):
        some = wanted[start : start + _FIELDS_A_CALL]
        try:
            items += list(part.asker.call("nvmlDeviceGetFieldValues", part.handle, some))
        except Lost:
            raise
        except Unanswered as error:
            items += [error] * len(some)
    return items


def _number(item: Any) -> int | Unanswered:
    """Return the value of an item by its type (nvmlValueType_t), or why there is none."""
    if isinstance(item, Unanswered):
        return item
    code = int(item.nvmlReturn)
    if code:
        if code == GPU_IS_LOST:
            raise Lost(code, f"nvmlDeviceGetFieldValues, field {int(item.fieldId)}")
        return Unanswered(code, f"nvmlDeviceGetFieldValues, field {int(item.fieldId)}")
    value = item.value
    by_type = {
        0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"
    }  # fmt: skip
    return int(getattr(value, by_type.get(int(item.valueType), "uiVal")))


def take_number(part: Part, name: str, item: Any) -> int | None:
    """Return the number in an item of `fields`; None leaves its reason in `part`."""
    return _take(part, name, _number(item))


def _take(part: Part, name: str, value: int | Unanswered) -> int | None:
    if isinstance(value, Unanswered):
        part.fail(name, value)
        return None
    return value


def _read_c2c(part: Part) -> C2c | None:
    ids = (_C2C_COUNT, _C2C_STATUS, _C2C_SPEED)
    count, status, speed = map(_number, fields(part, [(number, 0) for number in ids]))
    if isinstance(count, Unanswered):
        part.fail("c2c", count)
        return None
    if not count:
        return None
    unknown: dict[str, str] = {}
    values: dict[str, int | None] = {}
    for name, value in (("up", status), ("speed_mbps", speed)):
        values[name] = None
        if isinstance(value, Unanswered):
            unknown[name] = value.reason
        else:
            values[name] = value
    up = None if values["up"] is None else bool(values["up"])
    return C2c(links=count, up=up, speed_mbps=values["speed_mbps"], unknown=unknown)


def _bandwidth_mode(part: Part) -> str | None:
    try:
        struct = part.asker.nvml.c_nvmlNvlinkGetBwMode_v1_t()
    except AttributeError:
        return None  # an nvidia-ml-py from before the function
    try:
        part.asker.call("nvmlDeviceGetNvlinkBwMode", part.handle, part.asker.nvml.byref(struct))
    except Lost:
        raise
    except Unanswered as error:
        # Drivers before 570 have no modes, and so none that is reduced.
        if error.code != 13:
            part.fail("nvlink_bandwidth_mode", error)
        return None
    return _MODES.get(int(struct.bwMode), f"mode {int(struct.bwMode)}")


def _read_each_link(part: Part, count: int, links: list[NvmlLink]) -> None:
    speeds = _speeds(part, count)
    counts = True
    for index in range(count):
        link = _Link(part, index)
        state = link.ask("state", "nvmlDeviceGetNvLinkState")
        link.values["state"] = _STATES.get(state, "unknown") if state is not None else "unknown"
        link.ask("version", "nvmlDeviceGetNvLinkVersion")
        if link.values["state"] == "up":
            _read_far_end(link)
            speed = speeds[index]
            if isinstance(speed, Unanswered):
                link.unknown["speed_mbps"] = speed.reason
            else:
                # 0 is what the driver says of a link whose speed it does not know.
                link.values["speed_mbps"] = speed or None
                if not speed:
                    link.unknown["speed_mbps"] = "the driver says 0"
        if counts:
            counts = _read_counters(link)
        links.append(NvmlLink(index=index, unknown=link.unknown, **link.values))
    if not counts:
        _read_field_counters(part, links)


class _Link:
    """Gathers the values of one link."""

    def __init__(self, part: Part, index: int) -> None:
        self.part, self.index = part, index
        self.values: dict[str, Any] = {}
        self.unknown: dict[str, str] = {}

    def ask(self, name: str, function: str, *arguments: Any) -> Any:
        """Return the answer, kept under `name`; None with its reason where there is none."""
        try:
            answer = self.part.asker.call(function, self.part.handle, self.index, *arguments)
        except Lost:
            raise
        except Unanswered as error:
            self.unknown[name] = error.reason
            return None
        self.values[name] = answer
        return answer


def _read_far_end(link: _Link) -> None:
    kind = link.ask("remote_kind", "nvmlDeviceGetNvLinkRemoteDeviceType")
    link.values["remote_kind"] = _REMOTE.get(kind, "unknown") if kind is not None else None
    pci = link.ask("remote", "nvmlDeviceGetNvLinkRemotePciInfo")
    if pci is None:
        return
    # A switch that is no PCI device of this node has ffffffff:ff:ff.0, or nothing at all.
    hidden = pci.domain == 0xFFFFFFFF or pci.bus == 0xFF or not pci.busId
    link.values["remote"] = None if hidden else address_of(pci)
    link.values["remote_hidden"] = hidden


def address_of(pci: Any) -> str:
    """Return the address in an nvmlPciInfo_t as sysfs writes it; NVML has an 8-digit domain."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def _speeds(part: Part, count: int) -> list[int | Unanswered]:
    """Return the speed of each link in MB/s."""
    speeds = [_number(item) for item in fields(part, [(_SPEED, n) for n in range(count)])]
    if all(isinstance(speed, Unanswered) for speed in speeds):
        old = [(_SPEED_OF_LINK[n] if n < 12 else _SPEED_COMMON, 0) for n in range(count)]
        speeds = [_number(item) for item in fields(part, old)]
    return speeds


def _read_counters(link: _Link) -> bool:
    """Keep the error counters of a link; return False where this GPU has none of this kind."""
    errors: dict[str, int] = {}
    for name, number in _COUNTERS.items():
        try:
            asked = (link.part.handle, link.index, number)
            errors[name] = int(link.part.asker.call("nvmlDeviceGetNvLinkErrorCounter", *asked))
        except Lost:
            raise
        except Unanswered as error:
            if error.code == NOT_SUPPORTED and not errors:
                return False
            link.unknown[f"errors.{name}"] = error.reason
    link.values["errors"] = errors
    return True


def _read_field_counters(part: Part, links: list[NvmlLink]) -> None:
    wanted = [(number, link.index) for link in links for number in _FIELD_COUNTERS.values()]
    items = fields(part, wanted)
    for place, link in enumerate(links):
        some = items[place * len(_FIELD_COUNTERS) : (place + 1) * len(_FIELD_COUNTERS)]
        for name, item in zip(_FIELD_COUNTERS, some, strict=True):
            value = _number(item)
            if not isinstance(value, Unanswered):
                link.errors[name] = value
