"""The parser of topo -m against texts written here: whole ones, damaged ones, other ones."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoprobe.model.errors import ParseError
from topoprobe.model.snapshot import TopoMatrix
from topoprobe.sources.topo_text import parse_topo

LABELS = ("GPU0", "GPU1", "GPU2", "NIC0", "NIC1")
CLASSES = {0: ("X", "NV4", "SYS"), 1: ("NV4", "X", "SYS"), 2: ("SYS", "SYS", "X")}
CPUS = ("0-15,32-47", "0-15,32-47", "16-31,48-63")
LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NODE = Connection traversing PCIe as well as the interconnect between Host Bridges
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges
  PIX  = Connection traversing at most a single PCIe bridge
"""
NVLINK = "  NV#  = Connection traversing a bonded set of # NVLinks\n"
NICS = "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"


def matrix_text(labels: tuple[str, ...] = LABELS, legend: bool = True) -> str:
    out = ["\t\x1b[4m" + "\t".join(labels) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]
    for i, label in enumerate(labels):
        if i < 3:
            cells = [*CLASSES[i], "PIX", "NODE"]
            tail = f"{CPUS[i]}\t{i // 2}\t\tN/A"
        else:
            cells = [("PIX", "NODE")[i - 3]] * 3 + [" X " if k == i else "PHB" for k in (3, 4)]
            tail = "\t\t\t"
        cells = [" X " if cell == "X" else cell for cell in cells]
        out.append(label + "\t" + "\t".join(cells) + "\t" + tail)
    return "\n".join(out) + "\n" + (LEGEND + NVLINK + NICS if legend else "")


TEXT = matrix_text()
WHOLE = parse_topo(TEXT)


def wrapped(width: int) -> str:
    lines = TEXT.replace("\x1b[4m", "").replace("\x1b[0m", "").expandtabs(8).split("\n")
    return "\n".join(
        line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)
    )


def before_each(prefix: str) -> str:
    return "\n".join(prefix + line for line in TEXT.split("\n"))


def nothing_invented(found: TopoMatrix) -> None:
    for row, cells in found.cells.items():
        assert cells.items() <= WHOLE.cells[row].items()
    for field in ("cpu_affinity", "numa_affinity", "gpu_numa_id", "nic_legend"):
        assert getattr(found, field).items() <= getattr(WHOLE, field).items(), field


def test_whole_text() -> None:
    assert WHOLE.columns == WHOLE.printed == WHOLE.rows == LABELS
    assert WHOLE.cells["GPU0"] == dict(
        zip(LABELS, ("X", "NV4", "SYS", "PIX", "NODE"), strict=True)
    )
    assert WHOLE.cpu_affinity["GPU2"] == "16-31,48-63"
    assert WHOLE.gpu_numa_id["GPU1"] == "N/A"
    assert WHOLE.affinity_columns == ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
    assert WHOLE.nic_legend == {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}
    assert WHOLE.pcie_only is False
    assert WHOLE.warnings == () and WHOLE.unreadable == {}


DAMAGES = {
    "crlf": TEXT.replace("\n", "\r\n"),
    "nbsp": TEXT.expandtabs(8).replace(" ", "\xa0"),
    "bom": "\ufeff" + TEXT,
    "escape lost": TEXT.replace("\x1b", ""),
    "escape spelled": TEXT.replace("\x1b", "^["),
    "expanded": TEXT.replace("\x1b[4m", "").replace("\x1b[0m", "").expandtabs(8),
    "double tabs": TEXT.replace("\t", "\t\t"),
    "stripped": "\n".join(line.strip() for line in TEXT.split("\n")).strip(),
    "fenced": f"```\n{TEXT}```\n",
    "one line": repr(TEXT),
    "timestamps": "\n".join(
        f"2025-01-02 03:04:{n:02d} {line}" for n, line in enumerate(TEXT.split("\n"))
    ),
    "twice": TEXT + "\n" + TEXT,
    "first cut": TEXT[: TEXT.index("NIC0\tPIX")] + "\n" + TEXT,
    "two nodes mixed": "\n".join(f"n1: {line}\nn2: {line}" for line in TEXT.split("\n")),
    "p2p behind": TEXT + "\n \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\n  OK   = Status Ok\n",
    "nvlink before": "GPU 0: A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n" + TEXT,
    "glued": TEXT.replace("GPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU", "GPU0GPU1GPU2NIC0NIC1CPU"),
    **{p: before_each(p) for p in ("# ", "> ", "| ", "[1,0]<stdout>:", "n17: ", "a/b.log:")},
    **{f"wrapped at {width}": wrapped(width) for width in (80, 100, 132)},
    "wrapped at 52": wrapped(52),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_that_can_be_undone(kind: str) -> None:
    found = parse_topo(DAMAGES[kind])
    assert found == WHOLE


def test_repeated_and_blank_labels() -> None:
    many = parse_topo(matrix_text(("GPU0", "GPU1", "GPU2", "mlx5_ib", "mlx5_ib")))
    assert many.columns[3:] == ("mlx5_ib#0", "mlx5_ib#1") and many.warnings == ()
    for text in (matrix_text(("GPU0", "GPU1", "GPU2", "", "")),):
        blank = parse_topo(text)
        assert blank.columns[3:] == ("col3", "col4") and blank.printed[3:] == ("", "")
        assert blank.rows == blank.columns and blank.cells["col4"]["col3"] == "PHB"
        assert parse_topo(text.replace("\x1b[4m", "").expandtabs(8)) == blank


def test_unknown_headings_and_classes() -> None:
    text = "\tGPU0\tGPU1\tSocket\tCPU Affinity\tMem Node\n"
    text += "GPU0\t X \tQPX\t0\t0-3\t7\nGPU1\tQPX\t X \t1\t4-7\t8\n"
    found = parse_topo(text)
    assert found.cells["GPU0"] == {"GPU0": "X", "GPU1": "QPX"}
    assert found.affinity_columns == ("Socket", "CPU Affinity", "Mem Node")
    assert found.cpu_affinity == {"GPU0": "0-3", "GPU1": "4-7"} and found.warnings == ()


def test_row_that_does_not_align_is_named_and_not_filled() -> None:
    for bad in ("GPU1\tNV4\tSYS\t X ", "GPU1\tNV4\t X ", "GPU1\tX\t X \tSYS", "GPU1\tNV4\tsys\tX"):
        text = TEXT.replace("GPU1\tNV4\t X \tSYS", bad)
        found = parse_topo(text)
        assert "GPU1" not in found.cells and found.unreadable["GPU1"]
        assert found.rows == ("GPU0", "GPU2", "NIC0", "NIC1") and found.warnings
        nothing_invented(found)


@pytest.mark.parametrize("expand", [False, True])
def test_every_cut_invents_nothing(expand: bool) -> None:
    text = DAMAGES["expanded"] if expand else TEXT
    for end in range(len(text)):
        for part in (text[:end], text[end:]):
            try:
                found = parse_topo(part)
            except ParseError:
                continue
            nothing_invented(found)
            assert found.warnings or found.rows == LABELS


def test_pcie_only() -> None:
    plain = TEXT.replace("NV4", "SYS").replace(NVLINK, "")
    assert parse_topo(plain).pcie_only is True
    assert parse_topo("$ nvidia-smi topo -mp\n" + plain).pcie_only is True
    assert parse_topo(matrix_text(legend=False).replace("NV4", "SYS")).pcie_only is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", "p2p"),
        ("| NVIDIA-SMI 535.1  Driver Version: 535 |\n| Persistence-M |", "plain"),
        ("GPU 0: A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n", "nvlink"),
        ("GPU 0: A100 (UUID: GPU-1)\n", "nvidia-smi -L"),
        ("==============NVSMI LOG==============\n", "nvidia-smi -q"),
        ("Unable to determine the device handle for GPU0000:0A:00.0: x", "(0000:0A:00.0)"),
        ("Unable to determine the device handle for GPU0: 00000000:0A:00.0: x", "0:0A:00.0)"),
        ("Failed to run topology matrix", "failed"),
        ("couldn't communicate with the NVIDIA driver", "driver"),
        ("Failed to initialize NVML: Driver/library version mismatch", "version mismatch"),
        ("No devices were found", "no GPU"),
        ("bash: nvidia-smi: command not found", "command not found"),
        ("\tGPU0\tGPU1\nGPU0\tX\tICN4\nGPU1\tICN4\tX\n", "another vendor"),
        ("       GPU0   GPU1\nGPU0   0      XGMI\nGPU1   XGMI   0\n", "AMD"),
        ("NIC6\tSYS\tPIX\t X \n" + LEGEND, "no header row"),
        ("hello", "no topology matrix found"),
    ],
)
def test_error_says_what_it_is(text: str, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_topo(text, "a.txt")
    message = str(caught.value)
    assert message.startswith("a.txt: ") and words in message and "\n" not in message


PIECES = st.sampled_from(
    [
        *TEXT.split("\n"),
        *TEXT.split(),
        "\t",
        " ",
        "\n",
        "\\n",
        "X",
        "NV",
        "GPU9",
        "\x1b[",
        "N/A",
        ":",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.text(), st.lists(PIECES, max_size=60).map("\t".join), st.lists(PIECES).map("\n".join)
    )
)
def test_only_parse_errors(text: str) -> None:
    try:
        found = parse_topo(text)
    except ParseError as error:
        assert "\n" not in str(error)
        return
    assert set(found.rows) <= set(found.columns) and len(set(found.columns)) == len(found.columns)
    assert all(cells[row] == "X" for row, cells in found.cells.items())


@pytest.mark.parametrize(
    "piece",
    ["\tGPU0\tGPU1\n", "GPU0 ", "GPU0\tX\n", "[", "\\n", " \n", "X\t", "GPU0GPU1", "|", "a:"],
)
def test_time_is_linear(piece: str) -> None:
    text = piece * (600_000 // len(piece))
    start = time.perf_counter()
    for each in (text, TEXT + text, "\tGPU0\tGPU1\n" + text):
        with contextlib.suppress(ParseError):
            parse_topo(each)
    assert time.perf_counter() - start < 15


def test_wide_matrix() -> None:
    n = 300
    labels = [f"GPU{i}" for i in range(n)]
    rows = [
        [label, *(" X " if i == k else ("SYS", "NV18")[(i + k) % 2] for k in range(n)), "0-1"]
        for i, label in enumerate(labels)
    ]
    text = "\t" + "\t".join(labels) + "\tCPU Affinity\n" + "\n".join(map("\t".join, rows)) + "\n"
    found = parse_topo(text)
    assert len(found.rows) == n and found.warnings == ()
