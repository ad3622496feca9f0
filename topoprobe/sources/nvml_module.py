"""Is the module `pynvml` the one that we mean?

Two packages on PyPI give a module of that name: nvidia-ml-py (NVIDIA's binding, one file) and
the deprecated wrapper pynvml (a folder). Whichever lies first on the path wins, silently.
"""

import os
import sys


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
