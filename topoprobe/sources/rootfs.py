"""Files below a root directory that stands for ``/``: the live machine, a captured or made tree.

A tree that is not the live one may be hostile, and a prolog reads it as root. So links are
resolved here, component by component, and never by the kernel: a relative link that climbs
above the root is refused, an absolute one counts from the root, as in a chroot. Only regular
files are opened, and only so many bytes of them are read.
"""

import errno
import os
import stat

from topoprobe.model.errors import InputError, SourceAbsent, SourceDenied, SourceError

_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO without a writer would wait for ever; O_NOCTTY: never a terminal.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# The kernel's own bound on links in one path (ELOOP).
_MAX_LINKS = 40
# A sysfs attribute is at most one page, 64 KiB on Grace; /proc/cpuinfo of 512 CPUs is 1 MB.
DEFAULT_LIMIT = 1 << 16


class Root:
    """A directory tree that stands for ``/``; every path given to it is absolute inside it.

    Raises InputError at construction where `path` is not a directory that can be opened.
    """

    def __init__(self, path: str = "/") -> None:
        self.path = path
        self.live = os.path.realpath(path) == "/"
        try:
            self._fd = os.open(path, _DIR)
        except OSError as error:
            raise InputError(
                f"{path}: {os.strerror(error.errno or 0)}; --root needs a directory that "
                "holds sys/ and proc/"
            ) from error

    def open(self, path: str) -> "Directory":
        """Open the directory `path`; raises SourceAbsent, SourceDenied or SourceError."""
        try:
            if self.live:
                return Directory(os.open(path, _DIR), path, live=True)
            return Directory(self._walk(path), path, live=False)
        except OSError as error:
            raise _source_error(path, error) from error

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> str:
        """Return the text of the regular file `path`, stripped; errors as `open`."""
        folder, name = os.path.split(path)
        with self.open(folder) as directory:
            return directory.read(name, limit)

    def exists(self, path: str) -> bool:
        """Tell whether `path` is there, whatever it is."""
        folder, name = os.path.split(path)
        try:
            with self.open(folder) as directory:
                return directory.kind(name) is not None
        except SourceError:
            return False

    def is_file(self, path: str) -> bool:
        """Tell whether `path` is a regular file; one masked with /dev/null is none."""
        folder, name = os.path.split(path)
        try:
            with self.open(folder) as directory:
                return directory.kind(name) == stat.S_IFREG
        except SourceError:
            return False

    def names(self, path: str) -> list[str]:
        """Return the sorted names in the directory `path`; errors as `open`."""
        with self.open(path) as directory:
            return directory.names()

    def _walk(self, path: str) -> int:
        """Return a descriptor of directory `path`, resolving links inside the root only."""
        todo = path.split("/")[::-1]
        stack = [os.dup(self._fd)]
        links = 0
        try:
            while todo:
                part = todo.pop()
                if part in ("", "."):
                    continue
                if part == "..":
                    if len(stack) == 1:
                        raise SourceError(f"{path}: a link points outside the root; not followed")
                    os.close(stack.pop())
                    continue
                target = _link_target(part, stack[-1])
                if target is None:
                    stack.append(os.open(part, _DIR | os.O_NOFOLLOW, dir_fd=stack[-1]))
                    continue
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if target.startswith("/"):
                    while len(stack) > 1:
                        os.close(stack.pop())
                todo.extend(target.split("/")[::-1])
            return stack.pop()
        finally:
            for fd in stack:
                os.close(fd)


class Directory:
    """An open directory; a context manager. Names given to it hold no slash."""

    def __init__(self, fd: int, path: str, *, live: bool) -> None:
        self._fd = fd
        self.path = path
        self._live = live

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def names(self) -> list[str]:
        """Return the sorted names in this directory."""
        return sorted(os.listdir(self._fd))

    def kind(self, name: str) -> int | None:
        """Return the file type bits of `name` (links not followed), or None if it is not there."""
        try:
            return stat.S_IFMT(os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode)
        except OSError:
            return None

    def link(self, name: str) -> str | None:
        """Return what the link `name` points to, or None if it is no link."""
        return _link_target(name, self._fd)

    def read(self, name: str, limit: int = DEFAULT_LIMIT) -> str:
        """Return the text of the regular file `name`, stripped; errors as `Root.open`."""
        return self.read_bytes(name, limit).decode("utf-8", "replace").strip("\0 \t\n")

    def read_bytes(self, name: str, limit: int = DEFAULT_LIMIT) -> bytes:
        """Return at most `limit` bytes of the regular file `name`; errors as `Root.open`."""
        where = f"{self.path}/{name}"
        try:
            # Outside the live /sys the name may be a device node, and opening one can act on
            # the device: look before opening. (Swapping it in between needs root already.)
            kind = self.kind(name)
            if not self._live and kind not in (None, stat.S_IFREG, stat.S_IFLNK):
                raise SourceError(f"{where}: not a regular file; not opened")
            fd = os.open(name, _FILE, dir_fd=self._fd)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise SourceError(f"{where}: not a regular file; not read")
                return _read_up_to(fd, limit)
            finally:
                os.close(fd)
        except OSError as error:
            raise _source_error(where, error) from error


def _read_up_to(fd: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    while limit > 0:
        # sysfs answers a config space read of a non-root user with its first 64 bytes, and
        # /proc files come in pieces: read on until nothing more comes.
        chunk = os.read(fd, limit)
        if not chunk:
            break
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def _link_target(name: str, dir_fd: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=dir_fd)
    except OSError:
        return None


def _source_error(path: str, error: OSError) -> SourceError:
    if isinstance(error, FileNotFoundError):
        return SourceAbsent(f"{path}: not there")
    if isinstance(error, PermissionError):
        return SourceDenied(f"{path}: no permission")
    if error.errno == errno.ELOOP:
        # O_NOFOLLOW on a link: files of a device are never links in a real sysfs.
        return SourceError(f"{path}: a link; not followed")
    return SourceError(f"{path}: {os.strerror(error.errno or 0)}")
