"""The machines that are shipped with topoprobe: captures of synthetic ones, by name.

scripts/generate writes them. They are read as any other capture, by the same bounded reader.
"""

import os

import msgspec

from topoprobe.model.errors import UsageError
from topoprobe.sources.saved import read_input

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "demos")


def demo_titles() -> dict[str, str]:
    """Return what there is: name → one line about it."""
    return msgspec.json.decode(
        read_input(os.path.join(_FOLDER, "index.json")), type=dict[str, str]
    )


def demo_path(name: str) -> str:
    """Return the file of the demo `name`; raises UsageError that lists the names."""
    names = demo_titles()
    if name not in names:
        raise UsageError(f"no demo {name!r}; there are {', '.join(names)}")
    return os.path.join(_FOLDER, f"{name}.tar.xz")
