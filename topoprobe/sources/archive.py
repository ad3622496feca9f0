"""Captures read: the Snapshot in a .tar.xz that may come from anybody.

Nothing is unpacked to a disk. The archive is decompressed piece by piece, its members are looked
at one after the other, and only two files of it are kept; sizes, counts and the memory of the
decompressor are bounded, so that an archive made to harm is refused in seconds.
"""

import lzma
import re
from typing import TypeVar

import msgspec

from topoprobe.model.errors import ParseError, SchemaError
from topoprobe.model.snapshot import SCHEMA as SNAPSHOT_SCHEMA
from topoprobe.model.snapshot import Snapshot
from topoprobe.model.units import format_size
from topoprobe.sources._tar_members import BLOCK, members

SCHEMA = "topoprobe/capture/1"
MANIFEST = "manifest.json"
SNAPSHOT = "snapshot.json"

_XZ = b"\xfd7zXZ\0"
_MAX_BYTES = 256 << 20
# xz -9 needs 65 MiB to decompress, more is asked by no preset.
_MAX_MEMORY = 96 << 20
_PIECE = 1 << 18
# The largest machines have 16 GPUs; virtual functions make some hundred GPUs or NICs of a node.
_MAX_GPUS, _MAX_ENDS, _MAX_FUNCTIONS = 512, 1024, 16384
_T = TypeVar("_T", bound=msgspec.Struct)
_WANTED = {MANIFEST: 1 << 20, SNAPSHOT: 64 << 20}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a capture says about itself.

    redacted
        None if nothing was replaced, else ``open`` (replaced with the key that everybody has)
        or ``keyed`` (with a key of the owner's).
    gaps
        Part of the capture, or file of the raw subset → why it is missing.
    """

    schema: str = SCHEMA
    tool: str
    created: str
    synthetic: bool = False
    redacted: str | None = None
    gaps: dict[str, str] = msgspec.field(default_factory=dict)


def is_capture(data: bytes) -> bool:
    """Tell whether `data` begins as a .tar.xz or a .tar does."""
    return data.startswith(_XZ) or data[257:262] == b"ustar"


def read_capture(data: bytes, path: str) -> Snapshot:
    """Return the snapshot in the capture `data`; raises ParseError or SchemaError in one line."""
    stream = _Stream(data, path)
    found: dict[str, bytes] = {}
    for member in members(stream.read, _WANTED, path):
        if member.data is None:
            continue
        if member.name in found:
            raise SchemaError(f"{path}: {member.name} is in it twice; not a topoprobe capture")
        found[member.name] = member.data
    stream.finish()
    if MANIFEST not in found:
        raise SchemaError(f"{path}: an archive, but not a topoprobe capture (no {MANIFEST})")
    manifest = _decode(found[MANIFEST], Manifest, SCHEMA, f"{path}: {MANIFEST}")
    if SNAPSHOT not in found:
        raise SchemaError(f"{path}: a capture without {SNAPSHOT}; capture again")
    snapshot = _decode(found[SNAPSHOT], Snapshot, SNAPSHOT_SCHEMA, f"{path}: {SNAPSHOT}")
    wrong = _beyond_belief(snapshot)
    if wrong:
        raise SchemaError(f"{path}: {SNAPSHOT}: {wrong}; not a capture of a machine")
    if manifest.synthetic and not snapshot.synthetic:
        snapshot = msgspec.structs.replace(snapshot, synthetic=True)
    return snapshot


def _beyond_belief(snapshot: Snapshot) -> str | None:
    """Say what no reader can have said: it would take the map apart, or take for ever."""
    gpus = snapshot.nvml.gpus if snapshot.nvml else ()
    pairs = snapshot.nvml.pairs if snapshot.nvml else ()
    functions = snapshot.sysfs.pci if snapshot.sysfs else ()
    known = {gpu.index for gpu in gpus}
    if any(pair.a not in known or pair.b not in known for pair in pairs):
        return "a pair of GPUs that are not in it"
    # Every two endpoints have a path: their number counts squared.
    kinds = [(function.class_code or 0) >> 16 for function in functions]
    displays, ends = kinds.count(3), sum(kind in (2, 3, 0x12) for kind in kinds)
    crowd = max(len(gpus), displays) > _MAX_GPUS or ends > _MAX_ENDS
    if crowd or len(functions) > _MAX_FUNCTIONS:
        return f"{max(len(gpus), len(functions))} devices"
    return None


def _decode(data: bytes, kind: type[_T], schema: str, where: str) -> _T:
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        given = msgspec.json.decode(head.get("schema", b"null"))
        if given != schema:
            family = schema.rpartition("/")[0]
            if isinstance(given, str) and re.fullmatch(rf"{family}/[0-9]{{1,9}}", given):
                raise SchemaError(
                    f"{where}: schema {given!r} is not one that this version reads ({schema}); "
                    "use a newer topoprobe"
                )
            raise SchemaError(f"{where}: no schema {schema}; not a topoprobe capture")
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"{where}: not a valid {schema}: {str(error)[:200]}") from error


class _Stream:
    """The bytes of the tar, decompressed as they are asked for, never more than the limit."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data, self._at, self._path = memoryview(data), 0, path
        self._total = 0
        self._buffer = bytearray()
        self._xz = None
        if data.startswith(_XZ):
            self._xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_MEMORY)

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        while len(self._buffer) < size:
            piece = self._next()
            if not piece:
                break
            self._total += len(piece)
            if self._total > _MAX_BYTES:
                raise ParseError(
                    f"{self._path}: more than {format_size(_MAX_BYTES)} when decompressed; not a "
                    "topoprobe capture"
                )
            self._buffer += piece
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def finish(self) -> None:
        """Read what is behind the last member: zeros only, and a whole end of the xz stream."""
        while block := self.read(BLOCK * 128):
            if block.count(0) != len(block):
                raise ParseError(f"{self._path}: data behind the end of the archive; refused")

    def _next(self) -> bytes:
        if self._xz is None:
            piece = bytes(self._data[self._at : self._at + _PIECE])
            self._at += len(piece)
            return piece
        try:
            while not self._xz.eof:
                fed = b""
                if self._xz.needs_input:
                    fed = bytes(self._data[self._at : self._at + _PIECE])
                    self._at += len(fed)
                    if not fed:
                        raise ParseError(f"{self._path}: the archive is cut short; capture again")
                piece = self._xz.decompress(fed, _PIECE)
                if piece:
                    return piece
        except (lzma.LZMAError, EOFError) as error:
            raise ParseError(f"{self._path}: damaged archive ({error})") from error
        if self._at < len(self._data) or self._xz.unused_data:
            raise ParseError(f"{self._path}: data behind the end of the archive; refused")
        return b""
