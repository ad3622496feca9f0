"""What a NIC is for, and what its ports say: the device's `nic` in the report."""

from typing import Literal

from msgspec import Struct, field

NicRole = Literal["compute", "storage", "management", "nvswitch-management", "unknown"]


class NicPort(Struct, frozen=True, kw_only=True):
    """One RDMA port. `rate_gbps` is the data rate in Gbit/s; counters by the kernel's names."""

    port: int
    state: str | None = None
    physical_state: str | None = None
    rate_gbps: float | None = None
    rate_label: str | None = None
    link_layer: str | None = None
    counters: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)


class NicFacts(Struct, frozen=True, kw_only=True):
    """A NIC beyond its place. `role_reason` says in words why the role was concluded.

    `physical_function` is the key of the device that a virtual function belongs to;
    `virtual_functions` counts those of a physical one; `bond` is the key of the bond it serves.
    """

    role: NicRole = "unknown"
    role_reason: str | None = None
    firmware: str | None = None
    hca: str | None = None
    board: str | None = None
    ports: tuple[NicPort, ...] = ()
    speed_mbps: int | None = None
    net_state: str | None = None
    mtu: int | None = None
    physical_function: str | None = None
    virtual_functions: int | None = None
    bond: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)
