"""A reader of tar that trusts nothing: one pass, bounded, and no more of tar than captures need.

tarfile would read a pax header of any length into memory and follow sparse maps. Here a member
is a regular file, a directory or a symbolic link; long names may come as pax or GNU headers of
bounded size; all else is refused. Formats: POSIX.1-1988 (ustar), POSIX.1-2001 (pax), GNU tar.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from topoprobe.model.errors import ParseError

BLOCK = 512
MAX_MEMBERS = 100_000
_MAX_HEADER = 1 << 16
_MAX_NAME = 4096

_FILE, _LINK, _FOLDER = (b"0", b"\0", b"7"), b"2", b"5"
_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_TARGET = b"x", b"g", b"L", b"K"
_REFUSED = {
    b"1": "a hard link", b"3": "a device", b"4": "a device", b"6": "a FIFO",
    b"S": "a sparse file",
}  # fmt: skip

# Gives exactly so many bytes of the archive, or fewer at its end.
Read = Callable[[int], bytes]


class Member(Struct, frozen=True):
    """One regular file of an archive: its name, and its content if it was wanted."""

    name: str
    data: bytes | None


def members(read: Read, wanted: dict[str, int], path: str) -> Iterator[Member]:
    """Yield the files of a tar; the content of those in `wanted`, name → most bytes, is kept.

    Raises ParseError in one line for anything that no capture holds.
    """
    extended: dict[str, str] = {}
    for count in range(MAX_MEMBERS + 1):
        block = read(BLOCK)
        if block.count(0) == BLOCK:
            return
        if len(block) < BLOCK:
            raise ParseError(f"{path}: the archive is cut short; capture again")
        if count == MAX_MEMBERS:
            break
        kind, size = block[156:157], _header(block, path)
        if kind in (_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_TARGET):
            if size > _MAX_HEADER:
                raise ParseError(f"{path}: a tar header of {size} bytes; not a topoprobe capture")
            data = _content(read, size, path)
            if kind != _PAX_GLOBAL:
                extended |= _extended(kind, data, path)
            continue
        name = extended.get("path") or _name(block)
        target = extended.get("linkpath") or _text(block[157:257])
        extended = {}
        _accept(kind, name, target, path)
        if kind not in _FILE:
            # Links and directories have no content; what claims some is no tar of ours.
            if size:
                raise ParseError(f"{path}: {_show(name)} is no file but has content; refused")
            continue
        name = name.removeprefix("./")
        if name in wanted:
            if size > wanted[name]:
                raise ParseError(f"{path}: {name} has {size} bytes, more than any capture holds")
            yield Member(name, _content(read, size, path))
        else:
            _skip(read, size, path)
            yield Member(name, None)
    raise ParseError(f"{path}: more than {MAX_MEMBERS} files; not a topoprobe capture")


def _header(block: bytes, path: str) -> int:
    """Check the sum of a header block and return the size it gives."""
    stored = _number(block[148:156])
    # The sum counts its own eight bytes as blanks.
    if stored is None or stored != sum(block) - sum(block[148:156]) + 8 * 32:
        raise ParseError(f"{path}: damaged archive (a tar header with a wrong sum); capture again")
    size = _number(block[124:136])
    if size is None:
        raise ParseError(f"{path}: damaged archive (a file without a size); capture again")
    return size


def _number(field: bytes) -> int | None:
    """Return an octal field; None for anything else, base-256 numbers among it."""
    text = field.strip(b"\0 ")
    if not text.isdigit() or any(digit > 0x37 for digit in text):
        return None
    return int(text, 8)


def _name(block: bytes) -> str:
    name, prefix = _text(block[:100]), _text(block[345:500])
    return f"{prefix}/{name}" if prefix and block[257:263] == b"ustar\0" else name


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


def _extended(kind: bytes, data: bytes, path: str) -> dict[str, str]:
    if kind in (_GNU_NAME, _GNU_TARGET):
        return {"path" if kind == _GNU_NAME else "linkpath": _text(data)}
    values: dict[str, str] = {}
    while data:
        # "<length of the record, itself included> <key>=<value>\n"
        length, blank, _ = data.partition(b" ")
        end = int(length) if length.isdigit() and len(length) < 7 else 0
        record = data[len(length) + 1 : max(0, end - 1)]
        if not blank or not len(length) < end <= len(data) or b"=" not in record:
            raise ParseError(f"{path}: damaged archive (a wrong pax header); capture again")
        key, _, value = record.partition(b"=")
        if key == b"size" or key.startswith(b"GNU.sparse"):
            raise ParseError(f"{path}: a sparse or oversized file in it; not a topoprobe capture")
        values[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        data = data[end:]
    return values


def _accept(kind: bytes, name: str, target: str, path: str) -> None:
    """Raise ParseError for a member that would land, or lead, outside, or is no file."""
    if kind in _REFUSED:
        raise ParseError(f"{path}: {_show(name)} is {_REFUSED[kind]}; refused")
    if kind not in (*_FILE, _LINK, _FOLDER):
        raise ParseError(f"{path}: {_show(name)} is of an unknown kind; refused")
    if not name or len(name) > _MAX_NAME or name.startswith("/") or ".." in name.split("/"):
        raise ParseError(f"{path}: the name {_show(name)} leads outside the archive; refused")
    if kind != _LINK:
        return
    depth = name.removeprefix("./").count("/")
    if not target or len(target) > _MAX_NAME or target.startswith("/"):
        raise ParseError(f"{path}: {_show(name)} links outside the archive; refused")
    for part in target.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            raise ParseError(f"{path}: {_show(name)} links outside the archive; refused")


def _content(read: Read, size: int, path: str) -> bytes:
    data = read(size)
    _pad(read, size, path)
    if len(data) < size:
        raise ParseError(f"{path}: the archive is cut short; capture again")
    return data


def _skip(read: Read, size: int, path: str) -> None:
    left = size
    while left:
        chunk = read(min(left, 1 << 16))
        if not chunk:
            raise ParseError(f"{path}: the archive is cut short; capture again")
        left -= len(chunk)
    _pad(read, size, path)


def _pad(read: Read, size: int, path: str) -> None:
    rest = -size % BLOCK
    if len(read(rest)) < rest:
        raise ParseError(f"{path}: the archive is cut short; capture again")


def _show(name: str) -> str:
    return repr(name[:80])
