"""Vital product data of a PCI function: what its maker wrote into it.

The layout is that of PCI Local Bus 3.0, appendix I: resources of a tag and a length, and in the
read-only one keywords of two letters. Mellanox keeps a list of its own in a keyword ``V?``:
``MLX:MN=MLNX:CSKU=V2:UUID=V3:PCI=V0:MODL=CX75310AAS:SMDL=…``.
"""

from collections.abc import Iterator

_READ_ONLY, _END, _LARGE = 0x90, 0x78, 0x80


def submodel(data: bytes) -> str | None:
    """Return the sub-model (``SMDL``) in Mellanox' own field, or None where there is none."""
    for keyword, text in _keywords(data):
        if not keyword.startswith("V"):
            continue
        for part in text.split(":"):
            name, _, word = part.partition("=")
            if name == "SMDL" and word.strip("\0 "):
                return word.strip("\0 ")[:64]
    return None


def _keywords(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield keyword and text of the read-only fields; damaged data end where they stop to fit."""
    at = 0
    while at < len(data) and data[at] != _END:
        if not data[at] & _LARGE:
            at += 1 + (data[at] & 7)
            continue
        body = data[at + 3 : at + 3 + int.from_bytes(data[at + 1 : at + 3], "little")]
        if data[at] == _READ_ONLY:
            yield from _split(body)
        at += 3 + int.from_bytes(data[at + 1 : at + 3], "little")


def _split(body: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at + 3 <= len(body):
        end = at + 3 + body[at + 2]
        yield body[at : at + 2].decode("ascii", "replace"), body[at + 3 : end].decode("latin-1")
        at = end
