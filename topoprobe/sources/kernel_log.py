"""What the kernel wrote about GPUs, links and NICs: from /dev/kmsg, else from a file of the log.

A record of /dev/kmsg is ``priority,number,microseconds,flags;text`` and lines that begin with a
blank for its keys (Documentation/ABI/testing/dev-kmsg); each read gives one record. Only what the
kernel itself wrote counts: programs may write there too.
"""

import contextlib
import os
import re
import stat
import time

from msgspec import Struct

from topoprobe.model.errors import SourceAbsent, SourceDenied, SourceError
from topoprobe.sources.deadline import Reading
from topoprobe.sources.rootfs import Root

_KMSG = "/dev/kmsg"
_FILES = ("/var/log/kern.log", "/var/log/messages")
_KMSG_NUMBER = os.makedev(1, 11)

_MAX_LINES = 5_000
_MAX_LINE = 1_000
# Of a file, its end; the ring buffer of the kernel is 2 MB on most nodes.
_MAX_BYTES = 8 << 20
_STALL_S = 2.0
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_ABOUT = re.compile(
    r"NVRM|\bS?Xid\b|nvidia|nvswitch|nvlink|\bpcieport\b|\bpciehp\b|\bAER\b|PCIe Bus Error"
    r"|\bmlx[45]|\binfiniband\b|\bib_|\bbnxt_|\birdma\b|\befa\b|\bhfi1|\bEDAC\b|\bMCE\b",
    re.IGNORECASE,
)
# "Nov 20 17:05:01 node17 kernel: …" and "2026-11-20T17:05:01.12+00:00 node17 kernel: …"
_SYSLOG = re.compile(
    r"((?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)|(?:\d{4}-\d\d-\d\dT[0-9:.]{8,20}[0-9:+Z-]{0,6}))"
    r" \S{1,255} kernel: (.*)"
)


class KernelLog(Struct, frozen=True):
    """The lines about GPUs, links and NICs, oldest first, and the file they are from."""

    lines: tuple[str, ...]
    path: str


class KernelLogReading:
    """The reading of the log: give `reading` to `run_readings`, then take `result`."""

    def __init__(self, root: Root, deadline_s: float) -> None:
        self.reading = Reading(
            ["log/"],
            lambda _: read_kernel_log(root),
            {"log": KernelLog},
            until=time.monotonic() + deadline_s,
            stall_s=_STALL_S,
        )

    def result(self) -> KernelLog | str:
        """Return the log, or in one line why it could not be read."""
        answers = self.reading.answers
        return answers.records.get("log/") or answers.failed.get("log/", "not read")


def read_kernel_log(root: Root) -> KernelLog:
    """Return what the first log that may be read says; raises SourceError where none may."""
    reasons = []
    for path in (_KMSG, *_FILES):
        try:
            data = _live(path) if root.live else _below(root, path)
        except SourceError as error:
            reasons.append(str(error))
            continue
        text = data.decode("utf-8", "replace")
        lines = kmsg_lines(text) if path == _KMSG else syslog_lines(text)
        return KernelLog(tuple(lines[-_MAX_LINES:]), path)
    raise SourceError("; ".join(reasons))


def kmsg_lines(text: str) -> list[str]:
    """Return the kernel's own records in `text` that are of interest, as dmesg prints them."""
    lines = []
    for record in text.split("\n"):
        head, semicolon, message = record.partition(";")
        words = head.split(",")
        # A line of keys begins with a blank; the facility, above the three bits of the level,
        # is 0 for the kernel.
        if not semicolon or len(words) < 3 or not all(word.isdecimal() for word in words[:3]):
            continue
        if len(head) < 80 and int(words[0]) >> 3 == 0 and _ABOUT.search(message):
            stamp = int(words[2])
            at = f"[{stamp // 1_000_000:5d}.{stamp % 1_000_000:06d}]"
            lines.append(f"{at} {message[:_MAX_LINE]}")
    return lines


def syslog_lines(text: str) -> list[str]:
    """Return the kernel's lines in a log file that are of interest, the host's name left out."""
    lines = []
    for line in text.split("\n"):
        found = _SYSLOG.match(line)
        if found is None and not line.startswith("["):
            continue
        message = found[2] if found else line
        if _ABOUT.search(message):
            lines.append((f"{found[1]} {message}" if found else message)[:_MAX_LINE])
    return lines


def _below(root: Root, path: str) -> bytes:
    folder, name = os.path.split(path)
    with root.open(folder) as directory:
        return directory.read_bytes(name, _MAX_BYTES)


def _live(path: str) -> bytes:
    try:
        # Look before opening: in a container /dev/kmsg may be a terminal or anything else.
        status = os.stat(path, follow_symlinks=False)
        device = stat.S_ISCHR(status.st_mode) and status.st_rdev == _KMSG_NUMBER
        if not device and not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{path}: neither the kernel's log nor a file; not opened")
        fd = os.open(path, _OPEN)
    except FileNotFoundError as error:
        raise SourceAbsent(f"{path}: not there") from error
    except PermissionError as error:
        raise SourceDenied(f"{path}: no permission") from error
    except OSError as error:
        raise SourceError(f"{path}: {os.strerror(error.errno or 0)}") from error
    try:
        return _records(fd) if device else _tail(fd)
    except PermissionError as error:
        # kernel.dmesg_restrict
        raise SourceDenied(f"{path}: no permission") from error
    except OSError as error:
        raise SourceError(f"{path}: {os.strerror(error.errno or 0)}") from error
    finally:
        os.close(fd)


def _records(fd: int) -> bytes:
    """Return all records that are there now; reading never waits for the next one."""
    records: list[bytes] = []
    size = 0
    while size < _MAX_BYTES:
        try:
            record = os.read(fd, 8192)
        except BlockingIOError:
            break
        except BrokenPipeError:
            continue  # Overwritten while we read; the next read gives the oldest that is left.
        if not record:
            break
        records.append(record)
        size += len(record)
    return b"".join(records)


def _tail(fd: int) -> bytes:
    with contextlib.suppress(OSError):
        os.lseek(fd, -_MAX_BYTES, os.SEEK_END)
    chunks: list[bytes] = []
    left = _MAX_BYTES
    while left > 0 and (chunk := os.read(fd, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
