"""A file given with --from: opened safely, and told apart by what is in it."""

import os
import stat

import msgspec

from topoprobe.model.errors import InputError, ParseError, SchemaError
from topoprobe.model.report import SCHEMA, Report
from topoprobe.model.units import format_size

# A report of 72 nodes is some MB; no text or report comes near this.
_LIMIT = 64 << 20
_MAX_DEPTH = 64


def read_input(path: str) -> bytes:
    """Return the content of the regular file `path`; raises InputError in one line."""
    try:
        # O_NONBLOCK: a FIFO without a writer would keep us waiting in open.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{path}: {os.strerror(error.errno or 0)}") from error
    except ValueError as error:
        raise InputError(f"{path!r}: not a file name") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise InputError(
                f"{path}: {kind}; --from takes a text of nvidia-smi or lspci, a capture or report"
                + (" (for a tree of /sys use --root)" if kind == "a directory" else "")
            )
        if status.st_size > _LIMIT:
            raise InputError(
                f"{path}: {format_size(status.st_size)} is too large for a text or a "
                f"report (limit {format_size(_LIMIT)})"
            )
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(_LIMIT + 1)
    except OSError as error:
        raise InputError(f"{path}: {os.strerror(error.errno or 0)}") from error
    finally:
        os.close(fd)
    if len(data) > _LIMIT:
        raise InputError(f"{path}: grows while it is read; save it to a file first")
    return data


def decode_text(data: bytes, path: str) -> str:
    """Return `data` as text; raises ParseError for binary content."""
    if not data.strip():
        raise ParseError(
            f"{path}: empty; expected a text of nvidia-smi or lspci, a capture or a report"
        )
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        # What `nvidia-smi topo -m > file` writes in Windows PowerShell.
        return data.decode("utf-16", "replace")
    if b"\0" in data[: 1 << 16]:
        raise ParseError(
            f"{path}: binary data; expected a text of nvidia-smi or lspci, a capture or a report"
        )
    text = data.decode("utf-8-sig", "replace")
    control = sum(text.count(chr(code)) for code in (*range(1, 9), *range(14, 27)))
    if control + text.count("�") > len(text) // 10:
        raise ParseError(
            f"{path}: binary data; expected a text of nvidia-smi or lspci, a capture or a report"
        )
    return text


def is_json(text: str) -> bool:
    """Tell whether `text` is meant as JSON: a topo -m text never begins with a brace."""
    return text.lstrip()[:1] == "{"


def decode_report(text: str, path: str) -> Report:
    """Return the report in `text`; raises SchemaError in one line."""
    if _depth(text) > _MAX_DEPTH:
        raise SchemaError(f"{path}: JSON nested too deeply for a report")
    try:
        head = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SchemaError(f"{path}: not whole JSON ({error})") from error
    schema = head.get("schema") if isinstance(head, dict) else None
    if not isinstance(schema, str) or not schema.startswith("topoprobe/"):
        raise SchemaError(f"{path}: JSON, but not a topoprobe report (no schema topoprobe/…)")
    if schema != SCHEMA:
        raise SchemaError(
            f"{path}: schema {schema[:60]!r} is not one that this version reads ({SCHEMA}); "
            "use a newer topoprobe"
        )
    try:
        return msgspec.convert(head, Report)
    except msgspec.ValidationError as error:
        raise SchemaError(f"{path}: not a valid {SCHEMA}: {error}") from error


def _depth(text: str) -> int:
    """Return an upper bound of the nesting, counting brackets in strings too."""
    depth = deepest = 0
    for character in text:
        if character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}]":
            depth = max(0, depth - 1)
    return deepest
