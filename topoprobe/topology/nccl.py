"""What NCCL calls a path. Its names only: its numbers change from release to release.

NCCL has no NODE (that is PHB) and knows ways that nvidia-smi does not: NVB, through one other
GPU over NVLink; PXN, to a NIC through the GPU that sits near it; P2C, over C2C to a near NIC. The
rules are those of NCCL 2.28 to 2.30 (paths.cc), its defaults, GPUDirect RDMA taken to work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from topoprobe.model.topology import Device
from topoprobe.topology.nvlinks import joined

if TYPE_CHECKING:
    from topoprobe.topology.paths import Ground

_OF_CLASS = {"PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "PHB", "SYS": "SYS"}
_NEAR = ("PIX", "PXB")


class NcclNames:
    """Names paths as NCCL does, on one map."""

    def __init__(
        self, ground: Ground, chains: Mapping[str, Sequence[str]], ends: Sequence[Device]
    ) -> None:
        self._ground = ground
        self._chains = chains
        self._gpus = [device for device in ends if device.kind == "gpu"]
        self._c2c = {link.a for link in ground.links.values() if link.kind == "c2c"}

    def name(self, a: Device, b: Device, tree: str | None, nvlink: bool) -> str | None:
        """Return NCCL's name for the path from `a` to `b`, whose class by the tree is `tree`."""
        if nvlink:
            return "NVL"
        if a.kind == "gpu" and b.kind == "gpu":
            return "NVB" if self._through_one(a, b) else self._by_tree(a, b, tree)
        gpu, nic = (a, b) if a.kind == "gpu" else (b, a)
        name = self._by_tree(gpu, nic, tree)
        if gpu.kind != "gpu" or name in _NEAR:
            return name
        if self._peer_near(gpu, nic):
            return "PXN"
        return "P2C" if gpu.key in self._c2c and name == "PHB" else name

    def _by_tree(self, a: Device, b: Device, tree: str | None) -> str | None:
        if tree == "PXB" and len(self._chips_between(a.key, b.key)) <= 1:
            return "PIX"
        return _OF_CLASS.get(tree or "")

    def _chips_between(self, a: str, b: str) -> set[str]:
        """Return the switches on the way, each chip once."""
        chain_a, chain_b = self._chains[a], self._chains[b]
        shared = next(key for key in chain_a if key in chain_b)
        keys = {*chain_a[: chain_a.index(shared) + 1], *chain_b[: chain_b.index(shared)]}
        return {
            self._ground.chips.get(key, key)
            for key in keys
            if self._ground.devices[key].kind == "pcie-switch"
        }

    def _through_one(self, a: Device, b: Device) -> bool:
        """Tell whether a third GPU has direct NVLinks to both."""
        active = self._ground.active
        near = {link.b for link in active.get(a.key, ())} & {
            link.b for link in active.get(b.key, ())
        }
        return any(gpu.key in near for gpu in self._gpus)

    def _peer_near(self, gpu: Device, nic: Device) -> bool:
        """Tell whether NVLink reaches a GPU that is below one switch chip with the NIC."""
        for peer in self._gpus:
            if peer.key == gpu.key or not self._below_switch(peer.key, nic.key):
                continue
            ground = self._ground
            if joined(gpu.key, peer.key, ground.active, set(ground.switches)):
                return True
        return False

    def _below_switch(self, a: str, b: str) -> bool:
        shared = next((key for key in self._chains[a] if key in self._chains[b]), None)
        return shared is not None and self._ground.devices[shared].kind in (
            "pcie-switch", "pcie-port", "root-port",
        )  # fmt: skip
