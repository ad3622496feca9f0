"""Single values out of a sysfs directory, and where a class device sits on the bus."""

from topoprobe.model.errors import SourceError
from topoprobe.sources.pci import last_address
from topoprobe.sources.rootfs import Directory, Root


def value(directory: Directory, name: str, unknown: dict[str, str], field: str) -> str | None:
    """Return the text of the file `name`, or None with the reason put into ``unknown[field]``."""
    try:
        return directory.read(name)
    except SourceError as error:
        unknown[field] = str(error)
        return None


def class_device_pci(root: Root, folder: str, name: str) -> str | None:
    """Return the PCI function that a class device sits on: the last address on its path."""
    with root.open(folder) as directory:
        target = directory.link(name) or ""
    address = last_address(target)
    if address is None:
        # Older trees and copies hold real directories here, with a link to the device inside.
        with root.open(f"{folder}/{name}") as device:
            address = last_address(device.link("device") or "")
    return address
