"""The real pynvml on our machines: what a description or a fault says arrives as NVML says it."""

import json
import sys
from typing import Any

import pytest

from testbed.made import Made, Maker

pytestmark = pytest.mark.usefixtures("nvml")

# Evaluates the expressions that it is given for every GPU: `h` is the handle, `n` pynvml, `i` the
# index, `field(id, scope)` a field's value, `fabric()` the newest fabric struct. An NVMLError
# becomes its code in a list.
ASK = """
import json, sys, pynvml as n

def field(number, scope=0):
    value = n.nvmlDeviceGetFieldValues(h, [(number, scope)])[0]
    if value.nvmlReturn:
        raise n.NVMLError(value.nvmlReturn)
    return value.value.uiVal

def fabric():
    info = n.c_nvmlGpuFabricInfo_v3_t()
    n.nvmlDeviceGetGpuFabricInfoV(h, n.byref(info))
    return info

def attempt(text):
    try:
        return eval(text)
    except n.NVMLError as error:
        return [error.value]

n.nvmlInit()
rows = []
for i in range(n.nvmlDeviceGetCount()):
    try:
        h = n.nvmlDeviceGetHandleByIndex(i)
    except n.NVMLError as error:
        rows.append([[error.value]] * len(sys.argv[1:]))
        continue
    rows.append([attempt(text) for text in sys.argv[1:]])
print(json.dumps(rows))
"""


def ask(made: Made, *expressions: str) -> list[Any]:
    """Return the values of the expressions for every GPU; one expression: plain values."""
    result = made.run(sys.executable, "-c", ASK, *expressions)
    assert result.code == 0, result.errors[-800:]
    rows: list[list[Any]] = json.loads(result.output)
    return [row[0] for row in rows] if len(expressions) == 1 else rows


UP = "sum(n.nvmlDeviceGetNvLinkState(h, k) for k in range(field(91)))"


def test_every_machine_is_read_as_it_is_described(made: Made) -> None:
    expect = made.machine.expect
    assert expect
    has_links = any(gpu.links for gpu in made.machine.nvml_gpus())
    rows = ask(
        made,
        "n.nvmlDeviceGetCurrPcieLinkGeneration(h)",
        "n.nvmlDeviceGetCurrPcieLinkWidth(h)",
        UP if has_links else "0",
        "n.nvmlDeviceGetPciInfo(h).busId.lower()",
    )
    assert len(rows) == expect.gpus
    for gpu, (gen, width, up, bus) in zip(made.machine.nvml_gpus(), rows, strict=True):
        assert ((gen, width), up) == (expect.pcie, expect.nvlinks)
        assert bus.endswith(gpu.address[4:])


def test_chip_to_chip_links_of_a_grace_hopper(maker: Maker) -> None:
    # Public `nvidia-smi c2c -s` of a GH200: 10 links of 44.712 GB/s.
    assert ask(maker("gh200"), "[field(170), field(171), field(172)]") == [[10, 1, 44712]]


def test_mig_devices_have_their_profiles(maker: Maker) -> None:
    name = "n.nvmlDeviceGetName(n.nvmlDeviceGetMigDeviceHandleByIndex(h, %d))"
    rows = ask(maker("a100-mig"), "n.nvmlDeviceGetMigMode(h)[0]", name % 0, name % 2)
    assert rows[0][0] == 1
    assert rows[0][1:] == [
        "NVIDIA A100 80GB PCIe MIG 3g.40gb",
        "NVIDIA A100 80GB PCIe MIG 1g.10gb",
    ]
    assert rows[1][0] == 0


def test_a_rack_wide_fabric_has_its_cluster_and_health(maker: Maker) -> None:
    cluster = "bytes(fabric().clusterUuid).hex()"
    rows = ask(maker("gb200-tray"), "fabric().state", "fabric().healthMask", cluster)
    # NVML_GPU_FABRIC_STATE_COMPLETED; four two-bit answers "false".
    assert rows == [[3, 0xAA, "0f3ab1c27d5e4b0a9c11a5b6c7d8e9f0"]] * 4


def test_a_name_and_a_link_version_that_no_table_knows(maker: Maker) -> None:
    rows = ask(maker("future-4"), "n.nvmlDeviceGetName(h)", "n.nvmlDeviceGetNvLinkVersion(h, 0)")
    assert rows == [["NVIDIA Z900 512GB HBM6", 9]] * 4


# Fault, what to ask, what GPU 3 (1 on small machines) answers, what the others answer. Codes of
# nvmlReturn_t are lists: 15 is GPU_IS_LOST. Written from nvml.h, not from the fake.
EFFECTS = [
    ("hgx-h100-8", "nvlink-down:gpu3:7", "n.nvmlDeviceGetNvLinkState(h, 7)", 0, 1),
    ("dgx-a100", "nvlink-fewer:gpu3:2", UP, 10, 12),
    ("hgx-h100-8", "nvlink-slow:gpu3:2", "field(164, 2)", 13281, 26562),
    ("dgx-1v", "nvlink-errors:gpu3:1", "n.nvmlDeviceGetNvLinkErrorCounter(h, 1, 2)", 8741, 0),
    ("hgx-h100-8", "pcie-width:gpu3", "n.nvmlDeviceGetCurrPcieLinkWidth(h)", 8, 16),
    ("hgx-h100-8", "pcie-gen:gpu3", "n.nvmlDeviceGetCurrPcieLinkGeneration(h)", 1, 5),
    ("l40s-8", "pcie-gen:gpu3:2", "n.nvmlDeviceGetMaxPcieLinkGeneration(h)", 4, 4),
    ("hgx-h100-8", "gpu-lost-handle:gpu3", "n.nvmlDeviceGetUUID(h)[:4]", [15], "GPU-"),
    ("hgx-h100-8", "gpu-lost-later:gpu3:1", "n.nvmlDeviceGetUUID(h)[:4]", [15], "GPU-"),
    ("dgx-a100", "ecc:gpu3:4", "n.nvmlDeviceGetTotalEccErrors(h, 1, 0)", 4, 0),
    ("hgx-h100-8", "remap-pending:gpu3", "n.nvmlDeviceGetRemappedRows(h)", [0, 1, 1, 0], [0] * 4),
    ("hgx-h100-8", "remap-failed:gpu3", "n.nvmlDeviceGetRemappedRows(h)", [0, 8, 0, 1], [0] * 4),
    ("dgx-1v", "throttle:gpu3", "n.nvmlDeviceGetCurrentClocksThrottleReasons(h)", 0x48, 1),
    ("hgx-b200-8", "fabric-pending:gpu3", "fabric().state", 2, 3),
    ("hgx-b200-8", "fabric-failed:gpu3", "fabric().status", 999, 0),
    ("hgx-b200-8", "fabric-unhealthy:gpu3", "fabric().healthMask", 0xA9, 0xAA),
    ("hgx-b200-8", "fabric-unhealthy:gpu3", "fabric().healthSummary", 3, 1),
    (
        "hgx-h100-8", "nvml-call:nvmlDeviceGetNvLinkState:999:gpu3:link5",
        "n.nvmlDeviceGetNvLinkState(h, 5)", [999], 1,
    ),
    (
        "hgx-h100-8", "nvml-call:nvmlDeviceGetUUID:15:gpu3:after1",
        "[n.nvmlDeviceGetUUID(h)[:4], n.nvmlDeviceGetUUID(h)[:4]]", [15], ["GPU-"] * 2,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fault", "question", "sick", "healthy"), EFFECTS)
def test_a_fault_reaches_nvml_at_its_gpu_alone(
    name: str, fault: str, question: str, sick: object, healthy: object, maker: Maker
) -> None:
    answers = ask(maker(name, fault), question)
    assert answers.pop(3) == sick
    assert answers == [healthy] * len(answers)


def test_peer_access_of_one_pair_is_broken_and_of_no_other(maker: Maker) -> None:
    status = "[n.nvmlDeviceGetP2PStatus(h, n.nvmlDeviceGetHandleByIndex(j), 0) for j in range(8)]"
    rows = ask(maker("dgx-a100", "p2p-broken:gpu1:gpu4"), status)
    broken = [
        (i, j) for i, row in enumerate(rows) for j, code in enumerate(row) if code and i != j
    ]
    assert broken == [(1, 4), (4, 1)]
    assert rows[1][4] == 1  # NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED


def test_a_missing_gpu_is_not_counted(maker: Maker) -> None:
    buses = ask(maker("dgx-a100", "gpu-missing:gpu2"), "n.nvmlDeviceGetPciInfo(h).busId")
    assert len(buses) == 7
    assert maker("dgx-a100").machine.gpus[2].address[4:] not in "".join(buses).lower()


@pytest.mark.parametrize(
    ("fault", "code"), [("gpu-lost-init", 15), ("driver-mismatch", 18), ("driver-missing", 9)]
)
def test_a_driver_that_does_not_start_says_why(fault: str, code: int, maker: Maker) -> None:
    script = "import pynvml as n\ntry: n.nvmlInit()\nexcept n.NVMLError as e: print(e.value)"
    result = maker("dgx-1v", fault).run(sys.executable, "-c", script)
    assert result.output == f"{code}\n", result.errors


def test_a_hanging_call_hangs_and_a_crashing_one_kills(maker: Maker) -> None:
    state = "import pynvml as n; n.nvmlInit()\nfor i in range(2):\n"
    state += (
        " print(i, n.nvmlDeviceGetNvLinkState(n.nvmlDeviceGetHandleByIndex(i), 0), flush=True)"
    )
    hung = maker("rtx3090-pair", "nvml-hang:gpu1").run(sys.executable, "-c", state, timeout=2)
    assert (hung.stopped, hung.output) == ("time", "0 1\n")
    dead = maker("rtx3090-pair", "nvml-crash:gpu1").run(sys.executable, "-c", state)
    assert (dead.code, dead.output) == (-6, "0 1\n")


def test_latency_slows_every_call(maker: Maker) -> None:
    # 40 calls of 20 ms cannot take less than their sum.
    script = (
        "import time, pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)\n"
        "t = time.monotonic()\nfor _ in range(40): n.nvmlDeviceGetUUID(h)\n"
        "print(time.monotonic() - t >= 0.8)"
    )
    result = maker("t4-single", "nvml-latency:20000").run(sys.executable, "-c", script)
    assert result.output == "True\n", result.errors
