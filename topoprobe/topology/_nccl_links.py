"""NVLink and C2C of an NCCL topology file: it counts links by target and does not number them."""

from collections.abc import Iterable, Iterator, Mapping

from topoprobe.model.nccl import HIDDEN_TARGET, NcclGpu, NcclLink, NcclPci
from topoprobe.model.topology import Device, Link
from topoprobe.topology._nccl_devices import SOURCE
from topoprobe.topology.nvlinks import HIDDEN_SWITCH

_NO_NUMBER = "NCCL counts links and does not number them"
_NO_VERSION = "an NCCL topology file does not tell the version of a link"
_SWITCH_CLASS = 0x0680
# No GPU has near as many: a larger count is a slip, and no reason to make that many links.
_MAX_COUNT = 256


def switch_of(link: NcclLink, devices: Mapping[str, Device]) -> str | None:
    """Return the key of the NVSwitch that links end at; None where they end at another thing."""
    if link.element != "nvlink":
        return None
    if (link.target or "").lower().startswith(HIDDEN_TARGET):
        return HIDDEN_SWITCH
    far = devices.get(link.address or "")
    if far is not None:
        return far.key if far.kind == "nvswitch" else None
    class_ = (link.target_class or 0) >> 8
    return link.address if class_ == _SWITCH_CLASS else None


def gpu_links(gpu: Device, said: NcclGpu, devices: Mapping[str, Device]) -> Iterator[Link]:
    """Yield one link for each that NCCL counts; it counts only those that are up."""
    number = 0
    for link in said.links:
        if link.element != "nvlink":
            continue
        for _ in range(min(link.count or 0, _MAX_COUNT)):
            yield _nvlink(gpu.key, number, link, devices)
            number += 1
    if said.c2c is not None:
        for index in range(min(said.c2c.count or 0, _MAX_COUNT)):
            yield _c2c(gpu, index, said.c2c.speed_mbps)


def _nvlink(gpu: str, number: int, link: NcclLink, devices: Mapping[str, Device]) -> Link:
    unknown = {"index": _NO_NUMBER, "signal_GBps": _NO_VERSION}
    unknown |= dict.fromkeys(("version", "current.generation", "maximum.generation"), _NO_VERSION)
    far = switch_of(link, devices) or link.address
    if far == gpu:
        far = None
        unknown["b"] = "the file says that the link ends at its own GPU"
    elif far is None:
        unknown["b"] = link.unknown.get("address") or link.unknown.get("target", "not in the file")
    return Link(
        key=f"nvlink:{gpu}:{number}", kind="nvlink", a=gpu, b=far, state="up",
        unknown=unknown, sources={"*": SOURCE},
    )  # fmt: skip


def _c2c(gpu: Device, number: int, speed_mbps: int | None) -> Link:
    unknown = {} if gpu.numa is not None else {"b": "the NUMA node of the GPU is unknown"}
    if speed_mbps is None:
        unknown["signal_GBps"] = "not in the file"
    return Link(
        key=f"c2c:{gpu.key}:{number}", kind="c2c", a=gpu.key,
        b=f"numa:{gpu.numa}" if gpu.numa is not None else None, index=number, state="up",
        signal_GBps=speed_mbps / 1000 if speed_mbps is not None else None,
        unknown=unknown, sources={"*": SOURCE},
    )  # fmt: skip


def xgmi_pairs(elements: Iterable[NcclPci]) -> frozenset[frozenset[str]]:
    """Return the pairs of devices that xGMI joins in a file of RCCL."""
    return frozenset(
        frozenset((pci.address, link.address))
        for pci in elements
        for gpu in pci.gpus
        for link in gpu.links
        if link.element == "xgmi" and link.count and pci.address and link.address
    )
