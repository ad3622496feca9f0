"""Before NVML is asked: is the module `pynvml` the one that we mean, and is the driver cold?

Two packages on PyPI give a module of that name: nvidia-ml-py (NVIDIA's binding, one file) and
the deprecated wrapper pynvml (a folder). Whichever lies first on the path wins, silently.
"""

import os
import sys

from topoprobe.model.errors import SourceError
from topoprobe.sources.rootfs import Root

_GPUS = "/proc/driver/nvidia/gpus"


def foreign_pynvml(path: list[str] | None = None) -> str | None:
    """Return where a `pynvml` that is not nvidia-ml-py's would be imported from, else None.

    Looks along `path` (default: sys.path) as the import system does, without importing.
    """
    for folder in sys.path if path is None else path:
        package = os.path.join(folder, "pynvml", "__init__.py")
        module = os.path.join(folder, "pynvml.py")
        # In one folder Python takes the package before the module.
        if os.path.isfile(package):
            return package
        if os.path.isfile(module):
            return None if _holds_nvidia_ml_py(folder) else module
    return None


def _holds_nvidia_ml_py(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(name.lower().replace("-", "_").startswith("nvidia_ml_py") for name in names)


def driver_is_cold(root: Root) -> bool:
    """Tell whether the driver is loaded and has not started its GPUs yet.

    Until its first client opens a GPU, the driver writes question marks for the UUID. These files
    are the kernel module's own memory; reading them asks nothing of a GPU.
    """
    try:
        texts = [root.read(f"{_GPUS}/{name}/information") for name in root.names(_GPUS)]
    except SourceError:
        return False
    return bool(texts) and all("GPU-????" in text for text in texts)
