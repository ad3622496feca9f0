"""The bandwidth that NCCL plans a ring with, from the constants in its source (2.30.7).

src/graph/topo.h holds what it takes a link of each generation to be worth; its search adds
rings up until a link is full. What it plans is some three quarters of the nominal rate.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from topoprobe.limits.collectives_cuts import crossing, joined
from topoprobe.limits.collectives_ground import Bundle, Ground, Nvls
from topoprobe.limits.collectives_net import net_bound
from topoprobe.limits.collectives_node import RINGS, node_bound

_K = TypeVar("_K")
# Compute capability from which it holds → GB/s of one NVLink, one direction (SM86: see below).
_NVLINK = ((100, 40.1), (90, 20.6), (70, 20.0), (60, 18.0))
_NVLINK_GA10X = 12.0


def nvlink_constant(capability: int | None) -> float | None:
    """Return the GB/s that NCCL plans for one NVLink of a GPU of this compute capability."""
    if capability is None:
        return None
    if capability == 86:
        return _NVLINK_GA10X
    return next((rate for least, rate in _NVLINK if capability >= least), None)


def planning(
    op: str, ranks: Sequence[str], ground: Ground, nodes: int, placement: str, *, nvls: bool | None
) -> tuple[float | None, str]:
    """Return NCCL's planned bus bandwidth of `op`, or None and why there is none."""
    if op not in RINGS:
        return None, "NCCL plans no bandwidth for operations made of sends and receives"
    if op == "all_reduce" and nvls is not False and nodes == 1:
        return None, "NCCL's figure for NVLS is not a sum of constants per link"
    if nodes > 1 and placement == "rail":
        return None, "NCCL's figure for trees over rails follows from its search"
    if len(ranks) > 1 and (why := _not_told(ranks, ground)):
        return None, why
    constant = nvlink_constant(ground.compute_capability)
    if constant is None and (ground.switched or ground.pairs):
        return None, "the compute capability of the GPUs is not known"
    plan = _planned(ground, constant or 0.0)
    bound = net_bound(op, nodes, placement, plan) if nodes > 1 else node_bound(op, ranks, plan)
    if bound.busbw is None:
        return None, bound.unknown or "a rate is not known"
    return round(bound.busbw, 6), ""


def _not_told(ranks: Sequence[str], ground: Ground) -> str | None:
    how = joined(ranks, ground)
    if how == "part":
        return "NCCL's figure for NVLink and PCIe in one ring follows from its search"
    if how == "none" and crossing(ranks, ground):
        return "through the CPU, NCCL's figure depends on the CPU's model, which is not in the map"
    return None


def _planned(ground: Ground, constant: float) -> Ground:
    """Return the node with NCCL's constants for rates."""
    return replace(
        ground,
        switched=_bundles(ground.switched, constant),
        pairs=_bundles(ground.pairs, constant),
        wires={key: replace(wire, rate=wire.nccl) for key, wire in ground.wires.items()},
        nics=tuple(replace(nic, rate=nic.nccl) for nic in ground.nics),
        nvls=Nvls(False, "a plan of rings"),
    )


def _bundles(bundles: Mapping[_K, Bundle], constant: float) -> dict[_K, Bundle]:
    return {
        key: replace(bundle, rate=constant * len(bundle.links)) for key, bundle in bundles.items()
    }
