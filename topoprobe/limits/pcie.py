"""PCIe in GB/s, one direction: by generation, width and maximum payload size.

Line rates are those of the PCI Express Base Specification after line coding: 8b/10b up to
Gen2, 128b/130b for Gen3 to 5, 242 of 256 bytes of a FLIT from Gen6.
"""

_GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
# Per packet up to Gen5: 4 bytes of framing with sequence number, a header of four double
# words (64-bit addresses) and 4 bytes of LCRC.
_OVERHEAD_BYTES = 24
# In a FLIT of 256 bytes 236 carry packets; framing and LCRC are no longer per packet.
_FLIT_SHARE = 236 / 242


def line_rate(generation: int, width: int) -> float | None:
    """Return GB/s after line coding, or None for a generation that we do not know."""
    gts = _GTS.get(generation)
    if gts is None:
        return None
    coding = 8 / 10 if generation <= 2 else 128 / 130 if generation <= 5 else 242 / 256
    return gts * coding * width / 8


def payload_rate(generation: int, width: int, mps_bytes: int) -> float | None:
    """Return GB/s that data can reach when every packet carries `mps_bytes`."""
    line = line_rate(generation, width)
    if line is None:
        return None
    if generation >= 6:
        return line * _FLIT_SHARE * mps_bytes / (mps_bytes + 16)
    return line * mps_bytes / (mps_bytes + _OVERHEAD_BYTES)
