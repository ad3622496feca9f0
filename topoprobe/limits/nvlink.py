"""NVLink and C2C in GB/s, one direction a link: the data rate that a version is sold with.

NVIDIA's own figures, divided by two directions and the links of the board: P100 160 (4 links),
V100 300 (6), A100 600 (12), H100 900 (18) and B200 1800 GB/s (18); GA102's whitepaper has 112.5
for its 4 links, GH200's 900 for C2C. Beside it stands the signalling rate that drivers print for a
link at full speed (`nvidia-smi nvlink -s`): a link that reports less carries that much less.
"""

from msgspec import Struct


class Nominal(Struct, frozen=True):
    """Data rate and signalling rate of one link in one direction, GB/s."""

    data: float
    signal: float


_VERSIONS = {
    "1.0": Nominal(20.0, 20.0),
    "2.0": Nominal(25.0, 25.781),
    "2.2": Nominal(25.0, 25.781),
    "3.0": Nominal(25.0, 25.0),
    "3.1": Nominal(14.0625, 14.062),
    "4.0": Nominal(25.0, 26.562),
    "5.0": Nominal(50.0, 53.125),
}
# GH200: 900 GB/s both ways over 10 links, each reported with 44.712.
_C2C = Nominal(45.0, 44.712)
# NVML's reduced bandwidth modes; "min" is not said to be any share.
_MODES = {"full": 1.0, "3/4": 0.75, "half": 0.5}


def payload_rate(version: str | None, signal: float, mode: str | None) -> float | None:
    """Return the data rate of one NVLink, None for a version or mode that is not known."""
    nominal = _VERSIONS.get(version or "")
    share = _MODES.get(mode) if mode is not None else 1.0
    if nominal is None or share is None:
        return None
    return nominal.data * min(1.0, signal / nominal.signal) * share


def c2c_payload_rate(signal: float) -> float:
    """Return the data rate of one C2C link; both directions at once halve it."""
    return _C2C.data * min(1.0, signal / _C2C.signal)
