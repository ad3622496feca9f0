"""Read the text of ``nvidia-smi nvlink`` (-s, -c, -e, -R, -info), pasted, cut or elided.

The rule of topo texts holds here too: a link belongs to the GPU whose line is above it, and
where that line was lost the link is kept without a GPU. A link that is not in the text is no
link that is down.
"""

from topoprobe.model.errors import ParseError
from topoprobe.model.texts import NvlinkText
from topoprobe.sources._nvlink_build import GpuDraft, LinkDraft, Peers, build_gpu, put
from topoprobe.sources._nvlink_lines import (
    GpuLine,
    LinkLine,
    is_all_inactive,
    is_partial_link,
    is_whole_uuid,
    read_gpu,
    read_info,
    read_link,
)
from topoprobe.sources._paste_clean import clean_lines, is_elision, starts_anew
from topoprobe.sources._topo_errors import vendor_of

_FIX = "run `nvidia-smi nvlink -s` on the node and give its whole output"


def parse_nvlink(text: str, name: str = "text") -> NvlinkText:
    """Parse all that ``nvidia-smi nvlink`` printed in a text, whatever is around it.

    Args:
        text: What nvidia-smi printed. It prints nothing on GPUs without NVLink, so an empty
            text, or the command alone, gives no GPUs and a warning, not an error.
        name: What to call the text in an error, e.g. its file name.

    Raises:
        ParseError: The text is of another kind.
    """
    lines, ended = clean_lines(text)
    reader = _Reader()
    last = max((at for at, line in enumerate(lines) if line), default=-1)
    for at, line in enumerate(lines):
        if line:
            reader.take(line, at == last and not ended)
    told = any(gpu.told for gpu in reader.gpus)
    gpus = reader.gpus if told or reader.command else []
    if not told:
        _refuse_other(reader, lines, name)
    warnings = list(reader.warnings)
    if not gpus:
        warnings.append(
            "no GPU is listed: nvidia-smi prints nothing on GPUs without NVLink, so this says "
            "nothing about links"
        )
    if any(gpu.index is None for gpu in gpus):
        warnings.append("some links have no GPU line above them; they are kept without a GPU")
    peers = Peers(gpus)
    return NvlinkText(gpus=tuple(build_gpu(gpu, peers) for gpu in gpus), warnings=tuple(warnings))


def _refuse_other(reader: "_Reader", lines: list[str], name: str) -> None:
    """Raise unless the text is empty or only the command, which say that there is no NVLink."""
    head = "\n".join(lines)[: 1 << 20]
    vendor = vendor_of(head) or reader.vendor
    if vendor:
        raise ParseError(
            f"{name}: links of {vendor}, not of nvidia-smi; topoprobe reads NVIDIA's only"
        )
    if reader.other and not reader.gpus:
        raise ParseError(f"{name}: no line of `nvidia-smi nvlink` found; {_FIX}")
    if reader.gpus and not reader.command:
        raise ParseError(
            f"{name}: GPUs without links, as `nvidia-smi -L` prints them, not an output of "
            f"`nvidia-smi nvlink`; {_FIX}"
        )


class _Reader:
    """Goes through the lines once and puts each to the GPU that it belongs to."""

    def __init__(self) -> None:
        self.gpus: list[GpuDraft] = []
        self.by_index: dict[int, GpuDraft] = {}
        self.warnings: list[str] = []
        self.command = False
        self.other = 0
        self.vendor: str | None = None
        self.host: str | None = None
        self.current: GpuDraft | None = None
        self.run: tuple[str, int, set[str]] = ("", -1, set())
        self.elision: tuple[GpuDraft, str] | None = None
        self.foreign = False
        self.info_group: str | None = None

    def take(self, line: str, cut: bool) -> None:
        if found := read_link(line, cut):
            self.take_link(found)
        elif gpu := read_gpu(line):
            self.take_gpu(gpu)
        elif is_elision(line):
            self.take_elision()
        elif starts_anew(line):
            self.command = self.command or "nvlink" in line
            self.leave()
        elif is_partial_link(line):
            self.other += 1
            self.warn(f"a line of a link cannot be read: {line.strip()[:60]!r}")
            self.take_elision()
        elif is_all_inactive(line):
            if self.current is None:
                self.begin(None)
            if self.current:
                self.current.all_inactive = True
        elif not self.take_info(line):
            self.other += 1

    def warn(self, text: str) -> None:
        if text not in self.warnings[-1:] and len(self.warnings) < 20:
            self.warnings.append(text)

    def leave(self) -> None:
        self.current, self.elision, self.foreign = None, None, False
        self.run, self.info_group = ("", -1, set()), None

    def is_other_host(self, host: str) -> bool:
        if self.host is None:
            self.host = host
        if host != self.host:
            self.warn("lines of more than one node are in the text; only the first's are read")
        return host != self.host

    def begin(self, line: GpuLine | None) -> None:
        """Go on with the GPU of this line, or with one that has no line."""
        self.run, self.info_group = ("", -1, set()), None
        gpu = self.by_index.get(line.number) if line else None
        if line and gpu and _differ(gpu, line):
            self.warn(f"GPU {line.number} is printed as two GPUs; they are kept apart")
            gpu = None
        if gpu is None:
            gpu = GpuDraft(line.number if line else None)
            self.gpus.append(gpu)
        if line:
            self.by_index[line.number] = gpu
            gpu.name = gpu.name or line.name
            if gpu.uuid is None or not is_whole_uuid(gpu.uuid):
                gpu.uuid = line.uuid or gpu.uuid
        self.current = gpu

    def take_gpu(self, line: GpuLine) -> None:
        if not line.ours:
            self.leave()
            self.foreign = True
            self.vendor = self.vendor or "another vendor"
            return None
        if self.is_other_host(line.host):
            return self.leave()
        if self.elision:
            before, kind = self.elision
            skipped = line.number - (before.index or 0) - 1 if before.index is not None else 0
            before.elided[kind] = max(skipped, 0)
        self.leave()
        self.begin(line)
        return None

    def take_elision(self) -> None:
        if self.current:
            self.elision = (self.current, self.run[0] or "status")
            self.current.elided[self.elision[1]] = 0

    def take_link(self, line: LinkLine) -> None:
        if self.foreign or self.is_other_host(line.host):
            return
        self.elision = None
        kind, index, names = self.run
        again = kind == line.kind and line.number == index and line.name in names
        # A number that starts over, or lines of another kind: the GPU line between is lost.
        if self.current and kind and (kind != line.kind or line.number < index or again):
            self.begin(None)
        if self.current is None:
            self.begin(None)
        same = self.run[:2] == (line.kind, line.number)
        self.run = (line.kind, line.number, {*self.run[2], line.name} if same else {line.name})
        if self.current:
            put(self.current.links.setdefault(line.number, LinkDraft()), line)

    def take_info(self, line: str) -> bool:
        if self.current is None or self.current.index is None:
            return False
        found = read_info(line, self.info_group is not None)
        if found is None:
            self.info_group = None
            return False
        name, value = found
        if value is None:
            self.info_group = name + "/"
        else:
            self.info_group = self.info_group or ""
            self.current.info.setdefault(self.info_group + name, value.strip())
        return True


def _differ(gpu: GpuDraft, line: GpuLine) -> bool:
    both = gpu.uuid and line.uuid and is_whole_uuid(gpu.uuid) and is_whole_uuid(line.uuid)
    return bool(both and gpu.uuid != line.uuid) or gpu.name != line.name
