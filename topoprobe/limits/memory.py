"""Memory of a GPU in GB/s: what its bus can carry at its highest clock.

NVML gives the memory clock as half the data rate of a pin, for HBM and GDDR alike, so that the
formula is 2 × clock × bus width / 8. GB10's LPDDR reports the data rate itself (8533).
"""

from topoprobe.model.gpu import GpuFacts


def memory_rate(name: str | None, facts: GpuFacts) -> float | None:
    """Return GB/s by the formula; None where the driver tells no clock or no width."""
    clock, bits = facts.max_clock_mhz.get("memory"), facts.memory_bus_bits
    if not clock or not bits:
        return None
    multiplier = 1 if "GB10" in (name or "").split() else 2
    return multiplier * clock * bits / 8 / 1000
