"""Names of PCI devices from the system's own pci.ids, where it has one."""

import re

from topoprobe.model.errors import SourceError
from topoprobe.sources.rootfs import Root

# Debian, then Fedora and SUSE.
_FOLDERS = ("/usr/share/misc", "/usr/share/hwdata")
_LIMIT = 8 << 20
_NEXT_VENDOR = re.compile(rb"\n[0-9a-f]")


class PciNames:
    """The pci.ids below a root, read at the first question."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._data: bytes | None = None
        self._sections: dict[int, bytes] = {}
        self._names: dict[tuple[int, int], str | None] = {}

    def find(self, vendor: int, device: int) -> str | None:
        """Return the name of a device, None where there is no pci.ids or it lacks it."""
        if self._data is None:
            self._data = _load(self._root)
        if vendor not in self._sections:
            self._sections[vendor] = section(self._data, vendor)
        if (vendor, device) not in self._names:
            self._names[vendor, device] = find_name(self._sections[vendor], device)
        return self._names[vendor, device]


def section(data: bytes, vendor: int) -> bytes:
    """Return the lines of one vendor in pci.ids text; a search is far quicker than a parse."""
    start = data.find(b"\n%04x  " % vendor)
    if start < 0:
        return b""
    # The section of a vendor ends at the next line that begins with a hexadecimal digit.
    end = _NEXT_VENDOR.search(data, start + 1)
    return data[start : end.start() + 1 if end else len(data)]


def find_name(lines: bytes, device: int) -> str | None:
    """Return the name of one device in the `section` of its vendor."""
    at = lines.find(b"\n\t%04x  " % device)
    if at < 0:
        return None
    return lines[at + 8 : lines.find(b"\n", at + 8)].decode("utf-8", "replace").strip()


def _load(root: Root) -> bytes:
    for folder in _FOLDERS:
        try:
            with root.open(folder) as directory:
                return b"\n" + directory.read_bytes("pci.ids", _LIMIT) + b"\n"
        except SourceError:
            continue
    return b""
