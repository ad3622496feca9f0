"""One question to NVML: ask it, tell the parent what is being asked, put a failure into words.

The only module that imports pynvml (nvidia-ml-py), and only in the reader's child: the parent
must stay able to end whatever happens inside the driver's library.
"""

import ctypes
import mmap
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

# nvmlReturn_t
NOT_SUPPORTED, NO_PERMISSION, NO_LIBRARY, NOT_ON_DRIVER, GPU_IS_LOST = 3, 4, 12, 13, 15
_LIBRARY = "libnvidia-ml.so.1"
# Ours: nvidia-ml-py itself stumbled.
_BINDING_FAILED = -1
NOT_HERE = "not on this driver"
_WORDS = {
    2: "invalid argument",
    NOT_SUPPORTED: "not supported",
    NO_PERMISSION: "no permission",
    6: "not found",
    9: "the NVIDIA kernel driver is not loaded",
    10: "the driver timed out",
    NO_LIBRARY: f"{_LIBRARY} was not found",
    NOT_ON_DRIVER: NOT_HERE,
    GPU_IS_LOST: "the GPU is lost (fallen off the bus)",
    16: "the GPU needs a reset",
    17: "the driver is blocked by the operating system (cgroup or SELinux)",
    18: "driver and library have different versions: reboot, or reload the kernel module",
    20: "the GPU is in use",
    25: "another version of the struct is wanted",
    _BINDING_FAILED: "nvidia-ml-py does not fit this driver",
    999: "the driver says: unknown error",
}
_NOTE_BYTES = 96


class Note:
    """A few bytes that parent and child share: the function that is being called."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOTE_BYTES)

    def write(self, text: str) -> None:
        """Say what is being done; costs a microsecond, so that every call can."""
        self._memory[:] = text.encode()[:_NOTE_BYTES].ljust(_NOTE_BYTES, b"\0")

    def read(self) -> str:
        """Return what was said last."""
        return bytes(self._memory).rstrip(b"\0").decode("ascii", "replace")


class Unanswered(Exception):
    """NVML gave an error; `reason` names it and the function."""

    def __init__(self, code: int, function: str) -> None:
        words = _WORDS.get(code, f"NVML error {code}")
        self.code = code
        self.reason = f"{words} ({function})"
        super().__init__(self.reason)


class Lost(Unanswered):
    """The GPU is gone: whatever is asked of it from here on answers the same."""


class Asker:
    """Asks the functions of pynvml by name; made once in each child."""

    def __init__(self, note: Note) -> None:
        # What pynvml loads, by the same name, before the 20 ms that importing pynvml takes: most
        # machines without a GPU have no such library.
        try:
            ctypes.CDLL(_LIBRARY)
        except OSError as error:
            if "cannot open shared object" in str(error):
                raise Unanswered(NO_LIBRARY, "nvmlInit") from None
            raise ImportError(str(error)) from None
        import pynvml  # noqa: PLC0415  (in the child, and not where NVML is not asked)

        self.nvml: Any = pynvml
        self._note = note
        self._handles: dict[int, Any] = {}

    def call(self, function: str, *arguments: Any) -> Any:
        """Return what the function answers; raises Unanswered or Lost."""
        self._note.write(function)
        try:
            ask = getattr(self.nvml, function)
        except AttributeError:
            raise Unanswered(NOT_ON_DRIVER, f"{function}, by this nvidia-ml-py") from None
        try:
            return ask(*arguments)
        except self.nvml.NVMLError as error:
            # NVMLError objects cannot be hashed, nor compared with what has no `value`.
            code = int(error.value)
        except Exception as error:  # noqa: BLE001  (see below)
            # pynvml raises NVMLLibraryMismatchError, no NVMLError, where an unversioned function
            # stands for one that the driver lacks; and TypeError and the like where its own
            # code does not fit the driver. None of that may hide the other GPUs.
            code = NOT_ON_DRIVER if "Mismatch" in type(error).__name__ else _BINDING_FAILED
        raise (Lost if code == GPU_IS_LOST else Unanswered)(code, function)

    def handle(self, index: int) -> Any:
        """Return the handle of a GPU; raises Unanswered or Lost."""
        if index not in self._handles:
            self._handles[index] = self.call("nvmlDeviceGetHandleByIndex", index)
        return self._handles[index]


class Part:
    """Values that are being gathered for one struct, each known, absent or with a reason."""

    def __init__(self, asker: Asker, handle: Any) -> None:
        self.asker = asker
        self.handle = handle
        self.values: dict[str, Any] = {}
        self.unknown: dict[str, str] = {}

    def ask(
        self,
        field: str,
        function: str,
        *arguments: Any,
        convert: Callable[[Any], Any] | None = None,
        optional: bool = True,
    ) -> Any:
        """Ask the GPU and keep the answer under `field`; return it, None where there is none.

        `optional`: "not supported" means that this kind of GPU has no such thing, and leaves no
        reason. Raises Lost, since nothing else can be asked then.
        """
        try:
            answer = self.asker.call(function, self.handle, *arguments)
        except Lost:
            raise
        except Unanswered as error:
            self.fail(field, error, optional=optional)
            return None
        try:
            self.values[field] = convert(answer) if convert else answer
        except (ValueError, LookupError, UnicodeDecodeError):
            self.unknown[field] = f"{function} answers {answer!r:.60}"
            return None
        return self.values[field]

    def fail(self, field: str, error: Unanswered, *, optional: bool = True) -> None:
        """Note why a field is not known, unless the GPU just has no such thing."""
        if not (optional and error.code == NOT_SUPPORTED):
            self.unknown[field] = error.reason


def text(value: Any) -> str:
    """Return a string of NVML; pynvml gives bytes on older versions."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def bits(words: Any) -> list[int]:
    """Return the numbers of the set bits in an array of 64-bit words."""
    return [
        64 * place + bit
        for place, word in enumerate(words)
        for bit in range(64)
        if int(word) >> bit & 1
    ]


def ranges(numbers: list[int]) -> str:
    """Write sorted numbers as Linux does: ``0-55,112-167``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
