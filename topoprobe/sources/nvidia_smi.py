"""nvidia-smi: its matrices as a cross-check, and as all there is where NVML cannot be used.

It runs in a child of its own, bounded in time and output: drivers hang it for minutes, and 470
prints some errors without end. Its texts are kept as they are, for captures.
"""

import os
import re
import selectors
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from topoprobe.model.errors import ParseError, SourceError
from topoprobe.model.gpu import SmiGpu
from topoprobe.model.snapshot import SourceResult, SourceStatus, TopoMatrix
from topoprobe.model.texts import P2pMatrix
from topoprobe.sources.deadline import Reading
from topoprobe.sources.p2p_text import parse_p2p
from topoprobe.sources.topo_text import parse_topo

# Where drivers put it, and what mounts it into containers and WSL.
_FOLDERS = ("/usr/bin", "/usr/local/bin", "/bin", "/usr/sbin", "/usr/local/nvidia/bin",
            "/opt/nvidia/bin", "/run/nvidia/driver/usr/bin", "/usr/lib/wsl/lib")  # fmt: skip
_MATRICES = {"topo -m": ("topo", "-m"), "topo -p2p r": ("topo", "-p2p", "r")}
# Which GPU is at which address: asked only where NVML cannot say it.
_GPUS = {
    "--query-gpu": (
        "--query-gpu=index,pci.bus_id,uuid,memory.total,name", "--format=csv,noheader,nounits",
    )
}  # fmt: skip
_COMMANDS = {**_MATRICES, **_GPUS}
_BUS_ID = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
# 16 GPUs and 32 NICs print 15 KB.
_OUTPUT_LIMIT = 1 << 20


class SmiText(Struct, frozen=True):
    """What one call of nvidia-smi printed, and its exit status."""

    text: str
    status: int
    cut: bool = False


def find_nvidia_smi(path: str | None = None) -> str | None:
    """Return an nvidia-smi that nobody but root and this user can have put there, or None.

    `path` stands for the environment's PATH: a prolog runs as root with whatever PATH it has.
    """
    listed = (os.environ.get("PATH", "") if path is None else path).split(":")
    for folder in [*(name for name in listed if os.path.isabs(name)), *_FOLDERS]:
        program = os.path.join(folder, "nvidia-smi")
        if _is_ours(folder, stat.S_ISDIR) and _is_ours(program, stat.S_ISREG):
            if os.access(program, os.X_OK):
                return program
    return None


def _is_ours(path: str, right_kind: Callable[[int], bool]) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    owned = status.st_uid in (0, os.geteuid())
    return right_kind(status.st_mode) and owned and not others_write


class SmiReading:
    """The reading of nvidia-smi: give `reading` to `run_readings`, then take `result`."""

    def __init__(
        self, program: str, until: float, deadline_s: float, *, matrices: bool, gpus: bool
    ) -> None:
        commands = {**(_GPUS if gpus else {}), **(_MATRICES if matrices else {})}
        self._program = program
        self._until = until
        self.reading = Reading(
            [f"smi/{name}" for name in commands],
            self._read,
            {"smi": SmiText},
            until=until,
            stall_s=deadline_s * 0.9,
            lost=_drop,
        )
        self.texts: dict[str, str] = {}

    def _read(self, item: str) -> SmiText:
        return run_bounded([self._program, *_COMMANDS[item.partition("/")[2]]], self._until)

    def gpus(self) -> tuple[SmiGpu, ...]:
        """Return the GPUs that it lists, where that was asked."""
        answer = self.reading.answers.records.get("smi/--query-gpu")
        return parse_gpus(answer.text) if answer and answer.status == 0 else ()

    def result(self) -> tuple[TopoMatrix | None, dict[str, P2pMatrix], SourceResult]:
        """Return the matrix, the peer access tables, and how reading them went."""
        answers = self.reading.answers
        failed: list[str] = [
            f"nvidia-smi {item.partition('/')[2]}: {why}" for item, why in answers.failed.items()
        ]
        for item, answer in answers.records.items():
            self.texts[item.partition("/")[2]] = answer.text
            if answer.cut:
                failed.append(f"{item[4:]}: cut at {_OUTPUT_LIMIT >> 20} MiB of output")
            elif answer.status != 0:
                said = _first_error(answer.text)
                failed.append(f"{item[4:]} ended with status {answer.status}{said}")
        matrix = self._matrix(answers.records, failed)
        p2p = self._p2p(answers.records, failed)
        status: SourceStatus = "ok"
        if failed:
            status = "partial" if matrix or p2p else "timeout" if answers.hung else "error"
        detail = failed[0] if failed else self._program
        seconds = self.reading.seconds
        return matrix, p2p, SourceResult("nvidia-smi", status, detail, seconds)

    def _matrix(self, records: Mapping[str, SmiText], failed: list[str]) -> TopoMatrix | None:
        answer = records.get("smi/topo -m")
        if answer is None or answer.cut or answer.status != 0:
            return None
        try:
            matrix = parse_topo(answer.text, "nvidia-smi topo -m")
        except ParseError as error:
            failed.append(str(error))
            return None
        failed += [f"topo -m: {warning}" for warning in matrix.warnings]
        return matrix

    def _p2p(self, records: Mapping[str, SmiText], failed: list[str]) -> dict[str, P2pMatrix]:
        answer = records.get("smi/topo -p2p r")
        if answer is None or answer.cut or answer.status != 0:
            return {}
        try:
            found = parse_p2p(answer.text, "nvidia-smi topo -p2p r")
        except ParseError as error:
            failed.append(str(error))
            return {}
        return {"read": found.matrices[0]} if found.matrices else {}


def parse_gpus(text: str) -> tuple[SmiGpu, ...]:
    """Return the GPUs in ``index, bus id, uuid, MiB, name`` lines; odd lines are left out."""
    gpus = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",", 4)]
        found = _BUS_ID.fullmatch(words[1]) if len(words) == 5 else None
        if not found or not words[0].isdigit():
            continue
        # An 8-digit domain in capitals; sysfs writes four digits where they are enough.
        address = f"{int(found[1], 16):04x}:{found[2].lower()}"
        memory = int(words[3]) << 20 if words[3].isdigit() else None
        gpus.append(
            SmiGpu(
                index=int(words[0]), address=address, uuid=_told(words[2]), name=_told(words[4]),
                memory_bytes=memory,
            )
        )  # fmt: skip
    return tuple(gpus)


def _told(word: str) -> str | None:
    return None if word.startswith("[") or not word else word


def _first_error(text: str) -> str:
    """Return ``: `` and the line that says what went wrong, or "" where nothing was printed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search("fail|error|unable", line, re.I)]
    chosen = (errors or lines)[:1]
    return f": {chosen[0][:100]}" if chosen else ""


def _drop(_: str, todo: Sequence[str]) -> Mapping[str, str]:
    """Ask nothing more of a nvidia-smi that hung once."""
    return dict.fromkeys(todo, "not asked: nvidia-smi did not answer before")


def run_bounded(command: list[str], until: float, limit: int = _OUTPUT_LIMIT) -> SmiText:
    """Run `command` and return what it prints, at most `limit` bytes; raises SourceError.

    Ends it when the output is full. It is the parent that ends both of us when time is up:
    whatever waits here cannot be relied on.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise SourceError(f"{command[0]}: {os.strerror(error.errno or 0)}") from error
    assert process.stdout is not None
    kept = bytearray()
    cut = False
    with process.stdout, selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, until - time.monotonic())):
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            kept += chunk
            if len(kept) >= limit:
                cut = True
                process.kill()
                break
    try:
        status = process.wait(1.0)
    except subprocess.TimeoutExpired:
        status = -1
    return SmiText(bytes(kept[:limit]).decode("utf-8", "replace"), status, cut)
