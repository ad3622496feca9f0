"""Say what a text without a topology matrix is instead, and what to do about it."""

import re
from collections.abc import Callable

# Only so much is looked at: what a text is shows at its start.
_LOOK = 1 << 20

_FIX = "run `nvidia-smi topo -m` on the node and give its whole output"
_HANDLE = (
    r"Unable to determine the device handle for (?:GPU\s{0,2})?(?:\d{1,3}:\s)?"
    r"(?P<address>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])?[^\n]{0,80}"
)
_LOST = (
    r"(?:GPU\s*)?(?P<address>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])?"
    r"[^\n]{0,40}GPU is lost|GPU has fallen off the bus"
)
_VENDOR_TOOLS = {
    "ppu-smi": "T-Head PPU",
    "rocm-smi": "AMD",
    "amd-smi": "AMD",
    "hl-smi": "Intel Gaudi",
    "xpu-smi": "Intel or Kunlun",
    "xpumcli": "Intel",
    "npu-smi": "Huawei Ascend",
    "mthreads-gmi": "Moore Threads",
    "mx-smi": "MetaX",
    "ixsmi": "Iluvatar",
    "hy-smi": "Hygon",
    "efsmi": "Enflame",
    "brsmi": "Biren",
    "cnmon": "Cambricon",
}
_VENDOR_TOOL = r"(?<![\w-])(" + "|".join(_VENDOR_TOOLS) + r")(?![\w-])"
_VENDOR_WORDS = {
    "ICN#": "T-Head PPU",
    "PPU": "T-Head PPU",
    "XGMI": "AMD",
    "HCCS": "Huawei Ascend",
    "MTLINK#": "Moore Threads",
    "MTLink": "Moore Threads",
    "MX": "MetaX",
    "MetaXLink": "MetaX",
    "DCU": "Hygon",
    "NPU": "Huawei Ascend",
    "HPU": "Intel Gaudi",
    "MLU": "Cambricon",
    "GCU": "Enflame",
    "XL": "Intel",
    "MDF": "Intel",
}
# A label (PPU0), a legend entry (ICN# = …) or a cell (XGMI), never a mere mention.
_VENDOR_LABEL = r"(?<![\w-])(PPU|DCU|NPU|HPU|MLU|GCU)\d{1,3}\s+(?:\1\d|X\s|[A-Z]{2,4}\d?\s)"
_VENDOR_LEGEND = (
    r"^\W{0,40}(ICN#|MTLINK#|MTLink|MX|MetaXLink|XGMI|HCCS|MDF|XL)"
    r"[ \t]{0,20}(?:\[[^\]\n]{0,20}\])?[ \t]{0,20}[=:]\s"
)
_AMD_TABLE = r"^\W{0,40}(?:GPU\d+|[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:\S+)\s[^\n]{0,400}\bXGMI\b"
_HEADERLESS = (
    r"^[^\n]{0,120}?(?<![\w])(?:GPU|NIC|DD|mlx\d_)\w{1,12}\s+"
    r"(?:(?:SYS|SOC|NODE|PHB|PXB|PIX|NV\d{1,3})\s+){0,1100}X\s"
)
_P2P_LEGEND = r"\b(?:CNS|GNS|TNS)\s*=\s|\bOK\s*=\s*Status Ok"
_TOPO_COMMAND_FAILED = r"Failed to run topology matrix|Topology matrix is not supported"

P2P = f"a p2p capability matrix (topo -p2p), not a topology matrix; {_FIX}"
EMPTY = f"the text is empty; {_FIX}"


def vendor_of(text: str) -> str | None:
    """Return whose matrix the text is if its tool, legend or labels are not NVIDIA's."""
    if tool := re.search(_VENDOR_TOOL, text):
        return f"{_VENDOR_TOOLS[tool[1]]} ({tool[1]})"
    for pattern in (_VENDOR_LABEL, _VENDOR_LEGEND):
        if found := re.search(pattern, text, re.M):
            return f"{_VENDOR_WORDS[found[1]]} ({found[1]})"
    return "AMD (XGMI)" if re.search(_AMD_TABLE, text, re.M) else None


def lost_gpu(text: str) -> str | None:
    """Return what the text says about a GPU that cannot be opened, if it says so."""
    found = re.search(_HANDLE, text) or re.search(_LOST, text)
    if found is None:
        return None
    address = found.groupdict().get("address")
    return (
        f"a GPU is lost or cannot be opened ({address or 'no address given'})"
        "; see `dmesg | grep -i xid`, and reset the GPU or reboot the node"
    )


def what_it_is(raw: str, lines: list[str]) -> str:
    """Say what the text is, given that no topology matrix is in it."""
    raw = raw[:_LOOK]
    text = "\n".join(lines)[:_LOOK]
    if not text.strip() and "<" not in raw:
        return EMPTY
    if lost := lost_gpu(text):
        return lost
    for marks, message in _MESSAGES:
        if any(mark in text for mark in marks):
            return message
    if re.search(_TOPO_COMMAND_FAILED, text):
        return (
            "nvidia-smi topo -m failed (exit 255), as with a SoftiWARP RDMA device; "
            "let topoprobe read sysfs on the node instead"
        )
    vendor = vendor_of(text)
    if _headerless(text):
        whose = f"; it looks like a matrix of {vendor}" if vendor else ""
        return f"no header row: the line with GPU0, GPU1, … is cut off{whose}; {_FIX}"
    if vendor:
        return f"a matrix of {vendor}, not of nvidia-smi; topoprobe reads NVIDIA's only"
    if re.search(_P2P_LEGEND, text):
        return P2P
    for test, kind in _KINDS:
        if re.search(test, raw, re.M) if isinstance(test, str) else test(raw):
            return f"no topology matrix found: this is {kind}; {_FIX}"
    return f"no topology matrix found; {_FIX}"


def _headerless(text: str) -> bool:
    return any(
        len(line) < 20_000 and re.match(_HEADERLESS, line + " ")
        for line in text.splitlines()
        if "X" in line
    )


_MESSAGES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("couldn't communicate with the NVIDIA driver", "communicate with the NVIDIA driver"),
        "nvidia-smi could not reach the NVIDIA driver; load the driver (`modprobe nvidia`) or "
        "install one, then " + _FIX,
    ),
    (
        ("Driver/library version mismatch", "driver/library version mismatch"),
        "driver/library version mismatch: the NVIDIA driver was updated under a loaded module; "
        "reload the module or reboot, then " + _FIX,
    ),
    (
        ("No devices were found", "No devices found"),
        "no devices were found: nvidia-smi sees no GPU; look at `lspci -d 10de:` and `dmesg`",
    ),
    (
        ("Insufficient Permissions", "Failed to initialize NVML"),
        "nvidia-smi could not start NVML; check the driver and the rights on /dev/nvidia*",
    ),
    (
        ("command not found", "not recognized as", "No such file or directory"),
        "command not found: nvidia-smi is not installed or not in PATH where this was run; "
        + _FIX,
    ),
)

_NVLINK = r"^[ \t]{0,40}GPU \d+:[^\n]{0,200}\n\s{0,40}Link \d+:"
_LIST = r"^[ \t]{0,40}GPU \d+: [^\n]{1,120}\(UUID: "
_LSPCI = r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] |^[-+\\ |]{1,80}-\[[0-9a-f]{4}[:\]]"
_LSTOPO = r"^[ \t]{0,40}(?:Machine \(|Package L#|NUMANode L#|HostBridge)"

_KINDS: tuple[tuple[str | Callable[[str], bool], str], ...] = (
    (_NVLINK, "the output of `nvidia-smi nvlink`"),
    (_LIST, "the output of `nvidia-smi -L`"),
    (
        lambda text: "NVSMI LOG" in text or "Attached GPUs" in text,
        "the output of `nvidia-smi -q`",
    ),
    (
        lambda text: "| NVIDIA-SMI " in text or "Driver Version:" in text,
        "the plain table of `nvidia-smi`",
    ),
    (lambda text: "<system" in text and "<cpu" in text, "an NCCL topology XML file"),
    (lambda text: "<nvidia_smi_log" in text, "the XML output of `nvidia-smi -q -x`"),
    (lambda text: "<topology" in text, "the XML output of lstopo"),
    (lambda text: "<html" in text.lower() or "<!doctype" in text.lower(), "an HTML page"),
    (_LSTOPO, "the output of lstopo"),
    (_LSPCI, "the output of lspci"),
    (lambda text: text.lstrip()[:1] in ("{", "["), "JSON"),
    (lambda text: text.lstrip()[:1] == "<", "an XML file"),
)
