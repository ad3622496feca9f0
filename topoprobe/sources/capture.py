"""Captures written: one .tar.xz with all that a node's report was made from.

Equal content gives equal bytes: names are sorted, times, owners and modes are fixed. The file is
for its owner alone (0600), is written whole or not at all, and never through a link.
"""

import contextlib
import io
import lzma
import os
import stat
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import metadata

import msgspec

from topoprobe.model.errors import InputError, SourceError
from topoprobe.model.snapshot import Snapshot
from topoprobe.sources.archive import MANIFEST, SNAPSHOT, Manifest
from topoprobe.sources.deadline import Reading, run_readings
from topoprobe.sources.kernel_log import KernelLogReading
from topoprobe.sources.nvidia_smi import find_nvidia_smi, run_bounded
from topoprobe.sources.raw_tree import RawEntry, RawReading
from topoprobe.sources.redact import Parts
from topoprobe.sources.rootfs import Root

_VARIABLES = ("NCCL_", "CUDA_", "UCX_", "FI_")
_MAX_VALUE = 4096
_PACKAGES = (
    "torch", "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-ml-py", "cupy",
    "jax", "mpi4py", "psutil", "msgspec",
)  # fmt: skip
_SMI = (
    "-q", "topo -m", "topo -p2p r", "topo -p2p w", "topo -p2p n", "nvlink -s", "nvlink -e",
    "nvlink -R",
)  # fmt: skip
_SMI_LIMIT = 4 << 20
_MAX_GAPS = 1000
_KEY_LEAST, _KEY_MOST = 16, 4096


def collect(root: Root, snapshot: Snapshot, deadline_s: float) -> Parts:
    """Return the parts of a capture: `snapshot` with what is read for captures only.

    Takes at most `deadline_s` seconds. What belongs to the running machine (environment,
    nvidia-smi, versions) is not taken where `root` is a tree of another one.
    """
    raw, log = RawReading(root, deadline_s), KernelLogReading(root, deadline_s)
    smi = _smi_reading(snapshot, deadline_s) if root.live else None
    run_readings([raw.reading, log.reading, *([smi] if smi else [])])
    gaps: dict[str, str] = {}
    lines = log.result()
    if isinstance(lines, str):
        gaps["kernel.log"] = lines
    texts = {f"nvidia-smi {name}": text for name, text in snapshot.texts.items()}
    if smi:
        texts |= {f"nvidia-smi {item[4:]}": text for item, text in smi.answers.records.items()}
        gaps |= {f"nvidia-smi {item[4:]}": why for item, why in smi.answers.failed.items()}
    else:
        why = "not there, or it hung" if root.live else f"{root.path} is another machine's tree"
        gaps["nvidia-smi"] = why
    if not root.live:
        gaps["environment.json"] = f"{root.path} is another machine's tree"
    tree = raw.result()
    for path, why in list(tree.unread.items())[:_MAX_GAPS]:
        gaps[path] = why
    return Parts(
        snapshot=msgspec.structs.replace(
            snapshot,
            kernel_log=None if isinstance(lines, str) else lines.lines,
            environment=environment(os.environ) if root.live else None,
        ),
        raw=tree,
        texts=texts,
        versions=_versions() if root.live else {},
        gaps=gaps,
    )


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that steer communication libraries, sorted."""
    return {
        name: variables[name].encode("utf-8", "replace").decode()[:_MAX_VALUE]
        for name in sorted(variables)
        if name.startswith(_VARIABLES) and name.isprintable()
    }


def names_of_this_host() -> list[str]:
    """Return what this machine is called, by itself and by its scheduler."""
    return [os.uname().nodename, *_set("HOSTNAME", "SLURMD_NODENAME")]


def names_of_users() -> list[str]:
    """Return whose session this is; the directory service is not asked, since it may hang."""
    homes = [os.path.basename(home) for home in _set("HOME")]
    return [*_set("USER", "LOGNAME", "SUDO_USER", "SLURM_JOB_USER"), *homes]


def read_key(path: str) -> bytes:
    """Return the key in the file `path`; raises InputError in one line."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise InputError(f"{path}: not a regular file; --redact-key takes a file")
            key = file.read(_KEY_MOST + 1).strip()
    except OSError as error:
        raise InputError(f"{path}: {os.strerror(error.errno or 0)}") from error
    if not _KEY_LEAST <= len(key) <= _KEY_MOST:
        raise InputError(
            f"{path}: a key has {_KEY_LEAST} to {_KEY_MOST} bytes, this has {len(key)}; "
            "make one with `head -c 32 /dev/urandom | base64 > FILE`"
        )
    return key


def encode(parts: Parts, tool: str, redacted: str | None) -> bytes:
    """Return the bytes of the capture."""
    snapshot = parts.snapshot
    manifest = Manifest(
        tool=tool,
        created=snapshot.created,
        synthetic=snapshot.synthetic,
        redacted=redacted,
        gaps=parts.gaps,
    )
    members = {f"root{path}": entry for path, entry in parts.raw.entries.items()}
    members[MANIFEST] = RawEntry(data=_json(manifest))
    members[SNAPSHOT] = RawEntry(data=_json(snapshot))
    if snapshot.environment is not None:
        told = {"variables": snapshot.environment, "versions": parts.versions}
        members["environment.json"] = RawEntry(data=_json(told))
    if snapshot.kernel_log is not None:
        text = "".join(f"{line}\n" for line in snapshot.kernel_log)
        members["kernel.log"] = RawEntry(data=text.encode())
    for command, text in parts.texts.items():
        name = command.replace(" ", "_").replace("/", "_")
        members[f"texts/{name}.txt"] = RawEntry(data=text.encode("utf-8", "replace"))
    return lzma.compress(_tar(members), preset=6)


def write_private(path: str, data: bytes) -> None:
    """Write `data` to `path`, for its owner only; raises InputError in one line."""
    temporary = None
    try:
        kind = stat.S_IFMT(os.lstat(path).st_mode) if os.path.lexists(path) else stat.S_IFREG
        if kind != stat.S_IFREG:
            # Replacing /dev/null or /dev/stdout as root would break the system.
            raise InputError(f"{path}: exists and is no regular file; -o needs a file name")
        fd, temporary = tempfile.mkstemp(prefix=".topoprobe-", dir=os.path.dirname(path) or ".")
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise InputError(f"{path}: cannot write: {os.strerror(error.errno or 0)}") from error
    except ValueError as error:
        raise InputError(f"{path!r}: not a file name") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _tar(members: Mapping[str, RawEntry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(members):
            entry = members[name]
            info = tarfile.TarInfo(name)
            if entry.target is not None:
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
                tar.addfile(info)
            else:
                info.size, info.mode = len(entry.data or b""), 0o644
                tar.addfile(info, io.BytesIO(entry.data or b""))
    return buffer.getvalue()


def _smi_reading(snapshot: Snapshot, deadline_s: float) -> Reading | None:
    """Return the reading of what nvidia-smi was not asked yet; one that hung is not asked."""
    program = find_nvidia_smi()
    hung = any(s.name == "nvidia-smi" and s.status == "timeout" for s in snapshot.sources)
    if program is None or hung:
        return None
    until = time.monotonic() + deadline_s

    def read(item: str) -> str:
        answer = run_bounded([program, *item[4:].split()], until, _SMI_LIMIT)
        if answer.status != 0 and not answer.text:
            raise SourceError(f"ended with status {answer.status}")
        return answer.text

    def lost(_: str, todo: Sequence[str]) -> Mapping[str, str]:
        return dict.fromkeys(todo, "not run: another call of nvidia-smi hung")

    items = [f"smi/{arguments}" for arguments in _SMI if arguments not in snapshot.texts]
    return Reading(items, read, {"smi": str}, until=until, stall_s=deadline_s * 0.9, lost=lost)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _set(*names: str) -> list[str]:
    return [os.environ[name] for name in names if os.environ.get(name)]
