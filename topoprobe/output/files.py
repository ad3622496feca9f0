"""Files we write: whole or not at all."""

import contextlib
import os
import stat
import tempfile

from topoprobe.model.errors import InputError


def write_atomically(path: str, text: str) -> None:
    """Write `text` to `path` by way of a new file beside it; raises InputError in one line."""
    folder = os.path.dirname(path) or "."
    temporary = None
    try:
        if os.path.isdir(path):
            raise InputError(f"{path}: is a directory; -o needs a file name")
        # Taking the place of /dev/null, as root, would break the node.
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise InputError(f"{path}: not a regular file; leave out -o to write to stdout")
        fd, temporary = tempfile.mkstemp(prefix=".topoprobe-", dir=folder)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes 0600; a report is for its readers, as the umask says.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InputError(f"{path}: cannot write: {os.strerror(error.errno or 0)}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
