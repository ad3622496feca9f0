"""What hangs beyond the PCI tree: the memory of each GPU, and the networks behind the NICs."""

from topoprobe.model.nic import NicPort
from topoprobe.model.speed import LinkState
from topoprobe.model.topology import Device, Link

# 8b/10b coding below FDR: the rate that sysfs prints is that of the wire, of which 8/10 is data.
# FDR itself prints 56 for 54.54. From EDR on it prints the data rate.
_DATA_SHARE = {"SDR": 0.8, "DDR": 0.8, "QDR": 0.8, "FDR10": 1.0, "FDR": 54.54 / 56}


def add_gpu_memory(devices: dict[str, Device], links: dict[str, Link]) -> None:
    """Add the memory of each GPU that tells its size, and the link to it."""
    for gpu in [device for device in devices.values() if device.kind == "gpu"]:
        if gpu.memory_bytes is None:
            continue
        source = gpu.sources.get("memory_bytes", "nvml")
        memory = Device(
            key=f"{gpu.key}/memory", kind="memory", parent=gpu.key, numa=gpu.numa,
            memory_bytes=gpu.memory_bytes, sources={"*": source},
        )  # fmt: skip
        link = Link(
            key=f"memory:{gpu.key}", kind="memory", a=gpu.key, b=memory.key, state="up",
            sources={"*": source},
        )  # fmt: skip
        devices[memory.key] = memory
        links[link.key] = link


def add_networks(devices: dict[str, Device], links: dict[str, Link]) -> None:
    """Add a network for each link layer that ports are on, and a link for every port."""
    networks: dict[str, str] = {}
    for nic in [device for device in devices.values() if device.kind == "nic" and device.nic]:
        for port in nic.nic.ports if nic.nic else ():
            layer = port.link_layer or "unknown"
            key = networks.setdefault(layer, f"network:{len(networks)}")
            name = f"network:{nic.key}:{port.port}"
            links[name] = _port_link(name, nic.key, key, port)
    for layer, key in networks.items():
        devices[key] = Device(
            key=key, kind="network", name=layer, sources={"*": "sysfs"},
            unknown={"parent": "what is behind the ports cannot be seen from here"},
        )  # fmt: skip


def _port_link(key: str, nic: str, network: str, port: NicPort) -> Link:
    states: dict[str, LinkState] = {"ACTIVE": "up", "DOWN": "down"}
    state = states.get((port.state or "").upper(), "unknown")
    unknown = {} if port.rate_gbps else {"signal_GBps": "sysfs tells no rate"}
    return Link(
        key=key, kind="network", a=nic, b=network, index=port.port, state=state,
        version=port.rate_label, signal_GBps=data_rate(port), unknown=unknown,
        sources={"*": "sysfs"},
    )  # fmt: skip


def data_rate(port: NicPort) -> float | None:
    """Return the data rate of a port in GB/s, as width and speed give it; None where unknown.

    ``400 Gb/sec (4X NDR)`` is 50 GB/s; a split port prints ``200 Gb/sec (2X NDR)``.
    """
    if not port.rate_gbps:
        return None
    speed = (port.rate_label or "").split()[-1:] or [""]
    return port.rate_gbps * _DATA_SHARE.get(speed[0], 1.0) / 8
