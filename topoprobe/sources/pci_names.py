"""Names of PCI devices from the system's own pci.ids, where it has one."""

from topoprobe.model.errors import SourceError
from topoprobe.sources.rootfs import Root

# Debian, then Fedora and SUSE.
_FOLDERS = ("/usr/share/misc", "/usr/share/hwdata")
_LIMIT = 8 << 20


class PciNames:
    """The pci.ids below a root, read at the first question."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._data: bytes | None = None

    def find(self, vendor: int, device: int) -> str | None:
        """Return the name of a device, None where there is no pci.ids or it lacks it."""
        if self._data is None:
            self._data = _load(self._root)
        return find_name(self._data, vendor, device)


def find_name(data: bytes, vendor: int, device: int) -> str | None:
    """Return the name of one device in pci.ids text; a search is far quicker than a parse."""
    start = data.find(b"\n%04x  " % vendor)
    if start < 0:
        return None
    at = data.find(b"\n\t%04x  " % device, start + 1)
    # The section of a vendor ends at the next line that begins with a hexadecimal digit.
    if at < 0 or any(data.find(b"\n%x" % digit, start + 1, at) >= 0 for digit in range(16)):
        return None
    return data[at + 8 : data.find(b"\n", at + 8)].decode("utf-8", "replace").strip()


def _load(root: Root) -> bytes:
    for folder in _FOLDERS:
        try:
            with root.open(folder) as directory:
                return b"\n" + directory.read_bytes("pci.ids", _LIMIT) + b"\n"
        except SourceError:
            continue
    return b""
