"""Names of PCI devices from the system's own pci.ids, where it has one."""

from collections.abc import Iterable

from topoprobe.model.errors import SourceError
from topoprobe.model.snapshot import PciRecord
from topoprobe.sources.rootfs import Root

# Debian, then Fedora and SUSE, then what pciutils' own updater writes.
_PLACES = (("/usr/share/misc", "pci.ids"), ("/usr/share/hwdata", "pci.ids"))
_LIMIT = 8 << 20


def lookup_names(root: Root, records: Iterable[PciRecord]) -> dict[str, str]:
    """Return ``vvvv:dddd`` → device name for the ids of `records` that pci.ids knows."""
    data = _load(root)
    if not data:
        return {}
    names: dict[str, str] = {}
    for record in records:
        if record.vendor is None or record.device is None:
            continue
        key = f"{record.vendor:04x}:{record.device:04x}"
        if key not in names and (name := find_name(data, record.vendor, record.device)):
            names[key] = name
    return names


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
    for folder, name in _PLACES:
        try:
            with root.open(folder) as directory:
                return directory.read_bytes(name, _LIMIT)
        except SourceError:
            continue
    return b""
