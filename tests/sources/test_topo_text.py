"""The parser of ``topo -m`` texts: every driver's format, every kind of damage, look-alikes."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topoprobe.model.errors import ParseError
from topoprobe.model.snapshot import TopoMatrix
from topoprobe.sources.topo_text import parse_topo

LEGENDS = {
    "SOC": (
        "SOC  = Connection traversing PCIe as well as the SMP link between CPU sockets(e.g. QPI)",
        "PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
        "PXB  = Connection traversing multiple PCIe switches",
        "PIX  = Connection traversing a single PCIe switch",
    ),
    "SYS": (
        "SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes",
        "NODE = Connection traversing PCIe as well as the interconnect between Host Bridges",
        "PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
        "PXB  = Connection traversing multiple PCIe bridges",
        "PIX  = Connection traversing at most a single PCIe bridge",
    ),
}
NVLINK = "NV#  = Connection traversing a bonded set of # NVLinks"
HEADINGS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")


class Node(NamedTuple):
    """A topology to print; affinities are per GPU, one per heading."""

    labels: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    headings: tuple[str, ...] = HEADINGS
    affinities: tuple[tuple[str, ...], ...] = ()
    nics: tuple[tuple[str, str], ...] = ()
    legend: str | None = "SYS"
    nv_legend: bool = True
    underline: bool = True


def printed(node: Node) -> str:
    """Print as nvidia-smi does: tabs, " X ", two tabs before GPU NUMA ID, an underlined header."""
    head = "\t".join((*node.labels, *node.headings))
    lines = [f"\t\x1b[4m{head}\x1b[0m" if node.underline else f"\t{head}"]
    for number, label in enumerate(node.labels):
        cells = [" X " if cell == "X" else cell for cell in node.cells[number]]
        line = "\t".join((label, *cells))
        values = node.affinities[number] if number < len(node.affinities) else ()
        for place, heading in enumerate(node.headings):
            line += "\t\t" if heading == "GPU NUMA ID" else "\t"
            line += values[place] if values else ""
        lines.append(line)
    if node.legend:
        keys = (*LEGENDS[node.legend], *((NVLINK,) if node.nv_legend else ()))
        lines += ["", "Legend:", "", "  X    = Self", *(f"  {key}" for key in keys)]
    if node.nics:
        lines += ["", "NIC Legend:", "", *(f"  {nic}: {name}" for nic, name in node.nics)]
    return "\n".join(lines) + "\n"


NODE = Node(
    labels=("GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1"),
    cells=(
        ("X", "NV18", "NODE", "SYS", "PIX", "SYS"),
        ("NV18", "X", "PHB", "SYS", "PXB", "SYS"),
        ("NODE", "PHB", "X", "NV4", "NODE", "SYS"),
        ("SYS", "SYS", "NV4", "X", "SYS", "PIX"),
        ("PIX", "PXB", "NODE", "SYS", "X", "SYS"),
        ("SYS", "SYS", "SYS", "PIX", "SYS", "X"),
    ),
    affinities=(
        ("0-23,48-71", "0", "N/A"),
        ("0-23,48-71", "0", "N/A"),
        ("0-23,48-71", "0", "N/A"),
        ("24-47,72-95", "1", "N/A"),
    ),
    nics=(("NIC0", "mlx5_0"), ("NIC1", "mlx5_1")),
)
TEXT = printed(NODE)
PLAIN = printed(NODE._replace(underline=False))
BARE = printed(NODE._replace(underline=False, legend=None, nics=()))
EXPANDED = PLAIN.expandtabs(8)


def expected(node: Node) -> dict[str, dict[str, str]]:
    return {
        row: dict(zip(node.labels, cells, strict=True))
        for row, cells in zip(node.labels, node.cells, strict=True)
    }


CELLS = expected(NODE)
CPUS = {"GPU0": "0-23,48-71", "GPU1": "0-23,48-71", "GPU2": "0-23,48-71", "GPU3": "24-47,72-95"}
NUMA = {"GPU0": "0", "GPU1": "0", "GPU2": "0", "GPU3": "1"}
GPU_NUMA = dict.fromkeys(("GPU0", "GPU1", "GPU2", "GPU3"), "N/A")


def is_whole(found: TopoMatrix) -> None:
    assert found.columns == found.printed == found.rows == NODE.labels
    assert found.cells == CELLS
    assert (found.cpu_affinity, found.numa_affinity) == (CPUS, NUMA)
    assert found.gpu_numa_id == GPU_NUMA
    assert found.affinity_columns == HEADINGS
    assert found.unreadable == {}
    assert found.warnings == ()


def is_right(found: TopoMatrix, node: Node) -> None:
    """Assert that all that was read is so in the node, whatever is missing."""
    cells = expected(node)
    for row, read in found.cells.items():
        assert read.items() <= cells[row].items(), row
    for number, heading in enumerate(HEADINGS):
        values = (found.cpu_affinity, found.numa_affinity, found.gpu_numa_id)[number]
        if heading not in node.headings:
            continue
        place = node.headings.index(heading)
        for row, value in values.items():
            assert value == node.affinities[node.labels.index(row)][place], (row, heading)
    assert found.nic_legend.items() <= dict(node.nics).items()


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def each(text: str, prefix: str) -> str:
    """Put a prefix before each line; ``{n}`` in it is a number that counts up."""
    return "".join(
        prefix.replace("{n}", f"{n:02}") + line + "\n" for n, line in enumerate(lines_of(text))
    )


def hard_wrapped(text: str, width: int, strip: bool = False) -> str:
    """Break lines as a terminal does: within words, at exactly `width`."""
    out = []
    for line in lines_of(text.expandtabs(8)):
        parts = [line[at : at + width] for at in range(0, max(len(line), 1), width)]
        out += [part.rstrip() if strip else part for part in parts]
    return "\n".join(out) + "\n"


def word_wrapped(text: str, width: int) -> str:
    """Break lines as an editor does: between words."""
    out = []
    for line in lines_of(text.expandtabs(8)):
        rest = line
        while len(rest) > width and (cut := rest.rfind(" ", 8, width)) > 0:
            out.append(rest[:cut].rstrip())
            rest = rest[cut:].lstrip()
        out.append(rest)
    return "\n".join(out) + "\n"


def column_cut(text: str, width: int) -> str:
    return "\n".join(line[:width] for line in lines_of(text.expandtabs(8))) + "\n"


# --- formats -------------------------------------------------------------------------------


def test_a_whole_text_is_read_without_warnings() -> None:
    found = parse_topo(TEXT)
    is_whole(found)
    assert found.nic_legend == {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}
    assert found.pcie_only is False


def test_the_oldest_format_has_soc_and_device_names() -> None:
    text = (
        "\tGPU0\tGPU1\tmlx4_0\tCPU Affinity\n"
        "GPU0\t X \tPHB\tSOC\t0-5\nGPU1\tPHB\t X \tSOC\t0-5\nmlx4_0\tSOC\tSOC\t X \t\n"
        "\nLegend:\n\n  X   = Self\n" + "".join(f"  {key}\n" for key in (*LEGENDS["SOC"], NVLINK))
    )
    found = parse_topo(text)
    assert found.columns == found.rows == ("GPU0", "GPU1", "mlx4_0")
    assert found.cells["mlx4_0"] == {"GPU0": "SOC", "GPU1": "SOC", "mlx4_0": "X"}
    assert found.cpu_affinity == {"GPU0": "0-5", "GPU1": "0-5"}
    assert (found.numa_affinity, found.gpu_numa_id, found.nic_legend) == ({}, {}, {})
    assert found.affinity_columns == ("CPU Affinity",)
    assert found.pcie_only is False and found.warnings == ()


@pytest.mark.parametrize("count", range(4))
def test_any_of_the_affinity_columns_may_be_there(count: int) -> None:
    node = NODE._replace(headings=HEADINGS[:count])
    found = parse_topo(printed(node))
    assert found.affinity_columns == HEADINGS[:count] and found.cells == CELLS
    assert found.cpu_affinity == (CPUS if count > 0 else {})
    assert found.numa_affinity == (NUMA if count > 1 else {})
    assert found.gpu_numa_id == (GPU_NUMA if count > 2 else {})
    assert found.warnings == ()


def test_unknown_headings_take_no_part_in_the_matrix() -> None:
    text = (
        "\tGPU0\tGPU1\tSocket\tCPU Affinity\tMemory Node\tNUMA Affinity\n"
        "GPU0\t X \tPIX\t0\t0-3\t7\t1\nGPU1\tPIX\t X \t1\t4-7\t8\t2\n"
    )
    for each_text in (text, text.expandtabs(8)):
        found = parse_topo(each_text)
        assert found.columns == ("GPU0", "GPU1")
        assert found.affinity_columns == (
            "Socket",
            "CPU Affinity",
            "Memory Node",
            "NUMA Affinity",
        )
        assert found.cpu_affinity == {"GPU0": "0-3", "GPU1": "4-7"}
        assert found.numa_affinity == {"GPU0": "1", "GPU1": "2"}


def test_a_heading_alone_that_we_do_not_know() -> None:
    text = "\tGPU0\tGPU1\tMIG\nGPU0\t X \tSYS\tYES\nGPU1\tSYS\t X \tNO\n"
    found = parse_topo(text)
    assert found.columns in {("GPU0", "GPU1"), ("GPU0", "GPU1", "MIG")}
    assert found.cells.get("GPU0", {}).get("GPU1", "SYS") == "SYS"
    assert "YES" not in found.cells.get("GPU0", {}).values()


def test_data_direct_and_unknown_devices() -> None:
    labels = ("GPU0", "NIC0", "DD0", "nvme0", "hfi1_0")
    cells = tuple(tuple("X" if a == b else "NODE" for a in labels) for b in labels)
    node = Node(labels, cells, affinities=(("0-7", "0", "N/A"),), nics=(("NIC0", "mlx5_0"),))
    for text in (printed(node), printed(node._replace(underline=False)).expandtabs(8)):
        found = parse_topo(text)
        assert found.columns == found.rows == labels and found.cells == expected(node)
        assert found.warnings == ()


def test_columns_without_labels_are_numbered() -> None:
    labels = ("GPU0", "GPU1", "", "")
    text = printed(
        Node(
            labels,
            (
                ("X", "NV12", "NODE", "SYS"),
                ("NV12", "X", "SYS", "NODE"),
                ("NODE", "SYS", "X", "SYS"),
                ("SYS", "NODE", "SYS", "X"),
            ),
            HEADINGS[:2],
            (("0-3", "0"), ("4-7", "1")),
        )
    )
    for each_text in (text, text.replace("\x1b[4m", "").replace("\x1b[0m", "").expandtabs(8)):
        found = parse_topo(each_text)
        assert found.columns == found.rows == ("GPU0", "GPU1", "col2", "col3")
        assert found.printed == labels
        assert found.cells["col3"] == {"GPU0": "SYS", "GPU1": "NODE", "col2": "SYS", "col3": "X"}
        assert found.cpu_affinity == {"GPU0": "0-3", "GPU1": "4-7"} and found.warnings == ()


def test_repeated_labels_are_numbered_by_their_x() -> None:
    labels = ("GPU0", "mlx5_ib", "mlx5_ib")
    cells = (("X", "PIX", "SYS"), ("PIX", "X", "SYS"), ("SYS", "SYS", "X"))
    text = printed(Node(labels, cells, HEADINGS[:1], (("0-3",),)))
    found = parse_topo(text)
    assert found.columns == found.rows == ("GPU0", "mlx5_ib#0", "mlx5_ib#1")
    assert found.printed == labels
    # Without the first of them, the second still is the second.
    lost = parse_topo(text.replace("mlx5_ib\tPIX\t X \tSYS\t\n", ""))
    assert lost.rows == ("GPU0", "mlx5_ib#1")
    assert lost.cells["mlx5_ib#1"] == {"GPU0": "SYS", "mlx5_ib#0": "SYS", "mlx5_ib#1": "X"}
    assert lost.warnings == ("row mlx5_ib#0 is missing",)


def test_nv_counts_and_future_classes_are_kept_as_printed() -> None:
    text = (
        "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV36\tPXN\nGPU1\tNV36\t X \tQPX7\nGPU2\tPXN\tQPX7\t X \n"
    )
    found = parse_topo(text)
    assert found.cells["GPU1"] == {"GPU0": "NV36", "GPU1": "X", "GPU2": "QPX7"}
    assert found.cells["GPU2"]["GPU0"] == "PXN" and found.unreadable == {}


def test_one_gpu() -> None:
    found = parse_topo("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-7\tN/A\n")
    assert found.cells == {"GPU0": {"GPU0": "X"}}
    assert found.numa_affinity == {"GPU0": "N/A"}
    assert parse_topo("\tGPU0\nGPU0\t X \n").rows == ("GPU0",)


@pytest.mark.parametrize("expand", [False, True])
def test_an_empty_numa_affinity(expand: bool) -> None:
    node = NODE._replace(
        underline=False, affinities=tuple((cpu, "", "N/A") for cpu in CPUS.values())
    )
    text = printed(node)
    found = parse_topo(text.expandtabs(8) if expand else text)
    assert found.cpu_affinity == CPUS
    assert found.numa_affinity == dict.fromkeys(NUMA, "")
    assert found.gpu_numa_id == GPU_NUMA
    assert found.warnings == ()


def test_a_cell_that_touches_its_neighbour_is_not_taken_apart() -> None:
    # The driver prints an extra tab before a NUMA affinity of N/A.
    found = parse_topo("GPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV3\t0-4\t\tN/A\n")
    assert found.cpu_affinity == {"GPU0": "0-4"} and found.numa_affinity == {"GPU0": "N/A"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (printed(NODE), False),
        (printed(NODE._replace(legend=None)), False),
        (printed(NODE).replace("NV18", "SYS").replace("NV4", "SYS"), False),
        (
            printed(NODE._replace(nv_legend=False)).replace("NV18", "SYS").replace("NV4", "SYS"),
            True,
        ),
        ("$ nvidia-smi topo -mp\n" + BARE.replace("NV18", "SYS").replace("NV4", "SYS"), True),
        ("$ nvidia-smi topo -m\n" + BARE.replace("NV18", "SYS").replace("NV4", "SYS"), False),
        (BARE.replace("NV18", "SYS").replace("NV4", "SYS"), None),
    ],
)
def test_pcie_only(text: str, answer: bool | None) -> None:
    assert parse_topo(text).pcie_only is answer


# --- damage that can be undone ---------------------------------------------------------------

ESCAPES = ("", "^[", "\\u001b", "\\x1b", "\\033", "#033", "␛", "←", "\x1b")
PREFIXES = (
    "# ",
    "    # ",
    "> ",
    ">> ",
    "| ",
    "│ ",
    "   ",
    "\t",
    "INFO: ",
    "node17: ",
    "gpu0-pod-7f9c ",
    "[1,0]<stdout>:",
    "job.sh:# ",
    "job.sh-",
    "{n}:",
    "   {n}\t",
    "2025-05-21 09:40:{n} ",
    "[2025-05-21T09:40:{n}.123Z] INFO probe.py:{n} - ",
    "May 21 09:40:{n} gpu-a01 kernel[123]: ",
    "//  ",
    " * ",
    "(worker pid=12{n}, ip=10.0.0.7) ",
    "GPU0 rank {n}: ",
)
UNDONE = {
    "crlf": TEXT.replace("\n", "\r\n"),
    "old mac line ends": TEXT.replace("\n", "\r"),
    "BOM": "\ufeff" + TEXT,
    "NULs": "".join(c + "\x00" for c in TEXT),
    "nbsp": EXPANDED.replace(" ", "\xa0"),
    "ideographic blanks": EXPANDED.replace("  ", " \u3000"),
    "zero width": TEXT.replace("GPU", "\u200bGPU"),
    "typographic dashes": TEXT.replace("0-23", "0–23"),
    "expanded": EXPANDED,
    "expanded, with colour codes": TEXT.expandtabs(8),
    "narrow": "\n".join("  ".join(line.split("\t")) for line in lines_of(PLAIN)) + "\n",
    "double tabs": TEXT.replace("\t", "\t\t"),
    "tabs and blanks": TEXT.replace("\tSYS", "\t   SYS ").replace("NODE\t", "NODE  \t"),
    "stripped lines": "\n".join(line.strip() for line in lines_of(TEXT)) + "\n",
    "right stripped": "\n".join(line.rstrip() for line in lines_of(TEXT)) + "\n",
    "stripped text": TEXT.strip(),
    "header shifted left": EXPANDED[3:],
    "header shifted right": "     " + EXPANDED,
    "header unindented": EXPANDED.lstrip(),
    "header in single blanks": PLAIN.replace(
        "GPU0\tGPU1\tGPU2\tGPU3\tNIC0", "GPU0 GPU1 GPU2 GPU3 NIC0", 1
    ),
    "headings in single blanks": PLAIN.replace("y\tN", "y N", 1).replace("y\tG", "y G", 1),
    "glued": PLAIN.replace("\t".join(NODE.labels), "".join(NODE.labels), 1),
    "glued to the heading": PLAIN.replace("\tCPU A", "CPU A", 1),
    "all glued": PLAIN.replace(
        "\t".join((*NODE.labels, *HEADINGS)), "".join((*NODE.labels, *HEADINGS)), 1
    ),
    "fence": f"Here it is:\n\n```text\n{TEXT}```\n",
    "details": f"<details><summary>topo</summary>\n<pre>\n{TEXT}</pre></details>\n",
    "box": "\n".join(f"| {line:<120} |" for line in lines_of(EXPANDED)) + "\n",
    "doubled line ends": TEXT.replace("\n", "\n\n"),
    "padded": "\n".join(f"{line:<190}" for line in lines_of(EXPANDED)) + "\n",
    "cat -A": PLAIN.replace("\t", "^I").replace("\n", "$\n"),
    "JSON string": json.dumps({"cmd": "nvidia-smi topo -m", "out": TEXT}),
    "JSON in JSON": json.dumps({"log": json.dumps({"out": TEXT})}),
    "JSON lines": json.dumps(lines_of(TEXT), indent=1),
    "Python string": repr(TEXT),
    "Python bytes": repr(TEXT.encode()),
    "prompt": f"[root@host ~]# nvidia-smi topo -m\n{TEXT}[root@host ~]# \n",
    "nvlink before": "GPU 0: A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n" + TEXT,
    "list before": "GPU 0: A100 (UUID: GPU-1)\nGPU 1: A100 (UUID: GPU-2)\n" + TEXT,
    "prose before": "GPU0 is slow, GPU1 is not.\nGPU0 and GPU1 share a switch:\n" + TEXT,
    "header twice": "- **topology:** " + PLAIN.split("\n")[0] + "\n\n```\n" + PLAIN,
    "twice": TEXT + "\n" + TEXT,
    "cut, then whole": TEXT[:500] + "\n\n" + TEXT,
    "two ranks mixed": "".join(f"[1,{r}]<stdout>:{ln}\n" for ln in lines_of(TEXT) for r in (0, 1)),
    "p2p behind": TEXT + "\n \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n\n"
    "  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n",
    "p2p before": " \tGPU0\tGPU1\t\n GPU0\tX\tNS\t\n GPU1\tNS\tX\t\n\n" + TEXT,
    "noise within": TEXT.replace("\nGPU2", "\n[warn] clock is slow on host\nGPU2", 1),
    "escape lost in header": TEXT.replace("\x1b[4m", "[4m").replace("\x1b[0m", "[0m"),
    "bracket lost in header": TEXT.replace("\x1b[4m", "4m").replace("\x1b[0m", "0m"),
    "coloured cells": PLAIN.replace("NV18", "\x1b[1;32mNV18\x1b[0m"),
    **{f"escape as {esc!r}": TEXT.replace("\x1b", esc) for esc in ESCAPES},
    **{f"prefix {prefix!r}": each(TEXT, prefix) for prefix in PREFIXES},
    **{f"expanded, prefix {prefix!r}": each(EXPANDED, prefix) for prefix in PREFIXES},
    **{f"wrapped at {width}": hard_wrapped(PLAIN, width) for width in (80, 72, 64, 60, 45, 100)},
    **{
        f"wrapped at {width}, stripped": hard_wrapped(PLAIN, width, True) for width in (80, 64, 56)
    },
    **{f"word-wrapped at {width}": word_wrapped(PLAIN, width) for width in (80, 72, 50)},
}


@pytest.mark.parametrize("kind", UNDONE)
def test_damage_that_can_be_undone(kind: str) -> None:
    is_whole(parse_topo(UNDONE[kind]))


COMBINED = {
    "json of a crlf text": json.dumps(TEXT.replace("\n", "\r\n")),
    "prefix, mangled escapes, crlf": each(TEXT.replace("\x1b", ""), "n1: ").replace("\n", "\r\n"),
    "quoted fence": each(f"```\n{TEXT}```\n", "> "),
    "glued, indented": each(UNDONE["glued"], "    "),
    "wrapped, then quoted": each(hard_wrapped(PLAIN, 80), "> "),
    "quoted, then wrapped": hard_wrapped(each(EXPANDED, "> "), 80),
    "time stamps, then wrapped": hard_wrapped(each(EXPANDED, "2025-05-21 09:40:{n} "), 80),
    "nbsp in a box": UNDONE["box"].replace(" ", "\xa0"),
    "grep of a comment": each(each(TEXT, "# "), "a/b.sh:{n}:"),
    "p2p behind, quoted": each(UNDONE["p2p behind"], "| "),
    "escape spelled in JSON": json.dumps(TEXT).replace("\\u001b", "\\\\u001b"),
    "stripped lines, prefix": each(UNDONE["stripped lines"], "INFO: "),
    "BOM, crlf, double tabs": "\ufeff" + UNDONE["double tabs"].replace("\n", "\r\n"),
    "wrapped, crlf": hard_wrapped(PLAIN, 80).replace("\n", "\r\n"),
    "twice, quoted": each(TEXT + TEXT, "> "),
    "box, doubled line ends": UNDONE["box"].replace("\n", "\n\n"),
}


@pytest.mark.parametrize("kind", COMBINED)
def test_kinds_of_damage_together(kind: str) -> None:
    is_whole(parse_topo(COMBINED[kind]))


# --- damage that cannot be undone ------------------------------------------------------------


def test_rows_cut_off_at_the_end_are_named() -> None:
    found = parse_topo(BARE[: BARE.index("GPU3\tSYS")])
    assert found.rows == ("GPU0", "GPU1", "GPU2")
    assert found.warnings == ("rows GPU3, NIC0…NIC1 are missing: the text ends after GPU2",)
    assert found.cpu_affinity == {row: CPUS[row] for row in found.rows}


def test_a_row_cut_in_its_cells_is_not_read() -> None:
    found = parse_topo(BARE[: BARE.index("\tNV4\tNODE")])
    assert found.rows == ("GPU0", "GPU1")
    assert list(found.unreadable) == ["GPU2"] and found.warnings
    is_right(found, NODE)


def test_an_affinity_that_is_cut_is_left_out() -> None:
    for end in ("0-23,48-71", "0-23,48", "0-23,4", "0-23,", "0-23", "0-2", "0"):
        for line_end in ("", "\n"):
            start = BARE.index("GPU2\tNODE")
            at = BARE.index("0-23", start)
            found = parse_topo(BARE[:at] + end + line_end)
            assert found.rows == ("GPU0", "GPU1", "GPU2")
            assert found.cpu_affinity.get("GPU2", CPUS["GPU2"]) == CPUS["GPU2"]
            assert "GPU2" not in found.numa_affinity and found.warnings


def test_the_start_cut_off() -> None:
    found = parse_topo(PLAIN[PLAIN.index("PU1\t") :])
    assert found.columns == found.rows == NODE.labels and found.cells == CELLS
    with pytest.raises(ParseError, match="no header row"):
        parse_topo(PLAIN[PLAIN.index("GPU1\tNV18") :])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("GPU1\tNV18\tPHB\t X \tSYS\tPXB\tSYS", "its X stands in column 2"),
        ("GPU1\tNV18\t X \tSYS\tPXB\tSYS", "5 of its cells can be read"),
        ("GPU1\tNV18\t X \tPHB\tSYS\tPXB\tSYS\tSYS", "7 of its cells can be read"),
        ("GPU1\tNV18\tSYS\tPHB\tSYS\tPXB\tSYS", "no X"),
        ("GPU1\t X \t X \tPHB\tSYS\tPXB\tSYS", "more than one X"),
    ],
)
def test_a_row_that_does_not_align_is_named_and_not_filled(bad: str, reason: str) -> None:
    for text in (PLAIN, EXPANDED):
        line = next(line for line in lines_of(text) if line.startswith("GPU1"))
        whole = "GPU1\tNV18\t X \tPHB\tSYS\tPXB\tSYS"
        tail = lines_of(PLAIN)[2].removeprefix(whole)
        new = bad + tail
        found = parse_topo(text.replace(line, new.expandtabs(8) if text is EXPANDED else new))
        assert "GPU1" not in found.cells and "GPU1" not in found.cpu_affinity
        assert reason in found.unreadable["GPU1"]
        assert found.rows == ("GPU0", "GPU2", "GPU3", "NIC0", "NIC1")
        assert any("GPU1" in warning for warning in found.warnings)
        is_right(found, NODE)


def test_a_cell_that_is_no_cell_is_named() -> None:
    for spoilt in ("", "nv18", "N?"):
        text = PLAIN.replace("NIC0\tPIX\tPXB", f"NIC0\tPIX\t{spoilt}", 1)
        found = parse_topo(text)
        assert found.rows == NODE.labels
        assert found.cells["NIC0"] == {k: v for k, v in CELLS["NIC0"].items() if k != "GPU1"}
        assert list(found.unreadable) == ["NIC0/GPU1"] and found.warnings


def test_a_blank_cell_between_blanks_is_named_if_offsets_prove_it() -> None:
    text = EXPANDED.replace("NIC0    PIX     PXB ", "NIC0    PIX         ")
    found = parse_topo(text)
    assert "GPU1" not in found.cells["NIC0"] and found.cells["NIC0"]["GPU2"] == "NODE"
    # Without nvidia-smi's own columns there is no proof.
    narrow = UNDONE["narrow"].replace("NIC0  PIX  PXB", "NIC0  PIX     ")
    assert "NIC0" not in parse_topo(narrow).cells


def test_rows_that_are_there_twice_and_differ() -> None:
    text = PLAIN.replace("GPU1\t", "GPU1\tNV18\t X \tPHB\tSYS\tPIX\tSYS\t1\t0\t\tN/A\nGPU1\t", 2)
    text = text.replace("\nGPU1\tNV18\t X \tPHB\tSYS\tPIX\tSYS\t1\t0\t\tN/A\nGPU1\tGPU2", "\nGPU2")
    lines = lines_of(PLAIN)
    lines.insert(3, lines[2].replace("PXB", "PIX"))
    found = parse_topo("\n".join(lines) + "\n")
    assert "GPU1" not in found.cells and "more than once" in found.unreadable["GPU1"]


def test_two_matrices_that_differ() -> None:
    found = parse_topo(TEXT + "\n" + TEXT.replace("NV18", "NV17"))
    assert found.cells == CELLS
    assert found.warnings == ("the text has several matrices, and they differ: the first is used",)


def test_two_cells_of_a_pair_that_differ() -> None:
    found = parse_topo(PLAIN.replace("NIC0\tPIX\tPXB", "NIC0\tPIX\tSYS"))
    assert found.warnings == ("the two cells of a pair differ: GPU1–NIC0 (PXB, SYS)",)
    # With a link down, the GPU's own row shows one less than the others': that is no damage.
    assert parse_topo(PLAIN.replace("GPU1\tNV18", "GPU1\tNV17")).warnings == ()


def test_a_part_of_the_nic_legend() -> None:
    found = parse_topo(TEXT[: TEXT.index("  NIC1: ")])
    assert found.nic_legend == {"NIC0": "mlx5_0"}
    assert found.warnings == ("the NIC legend lacks NIC1",)
    cut = parse_topo(TEXT[: TEXT.index("_1")])
    assert cut.nic_legend == {"NIC0": "mlx5_0"} and cut.warnings


@pytest.mark.parametrize("text", [TEXT, EXPANDED, BARE], ids=["tabs", "blanks", "no legend"])
def test_no_cut_invents_anything(text: str) -> None:
    for end in range(0, len(text), 2):
        for part in (text[:end], text[end:], text[:end] + "\n"):
            try:
                found = parse_topo(part)
            except ParseError:
                continue
            is_right(found, NODE)
            assert found.warnings or found.rows == NODE.labels


def test_no_cut_at_the_right_invents_anything() -> None:
    for text in (EXPANDED, TEXT):
        for width in range(8, 110):
            try:
                found = parse_topo(column_cut(text, width))
            except ParseError:
                continue
            is_right(found, NODE)


@pytest.mark.parametrize("strip", [False, True])
def test_no_wrap_invents_anything(strip: bool) -> None:
    for width in range(20, 130):
        with contextlib.suppress(ParseError):
            is_right(parse_topo(hard_wrapped(PLAIN, width, strip)), NODE)
        with contextlib.suppress(ParseError):
            is_right(parse_topo(word_wrapped(PLAIN, width)), NODE)


def test_no_lost_word_invents_anything() -> None:
    for text in (BARE, EXPANDED[: EXPANDED.index("Legend")]):
        words = text.split(" ") if text is not BARE else text.split("\t")
        joint = " " if text is not BARE else "\t"
        for at in range(len(words)):
            with contextlib.suppress(ParseError):
                is_right(parse_topo(joint.join(words[:at] + words[at + 1 :])), NODE)


# --- other texts -----------------------------------------------------------------------------

P2P = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"
PPU = "\tPPU0\tPPU1\tCPU Affinity\nPPU0\tX\tICN7\t0-3\nPPU1\tICN7\tX\t0-3\n"
AMD = "       GPU0   GPU1\nGPU0   0      XGMI\nGPU1   XGMI   0\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the text is empty"),
        (" \n\t\n\ufeff", "the text is empty"),
        (P2P, "p2p capability matrix"),
        (P2P + "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n", "p2p capability matrix"),
        ("\tGPU0\nGPU0\tX\n\nLegend:\n\n  X = Self\n  OK   = Status Ok\n", "p2p capability"),
        ("| NVIDIA-SMI 535.1    Driver Version: 535.1   CUDA Version: 12.2 |", "plain table"),
        ("GPU 0: A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n", "nvidia-smi nvlink"),
        ("GPU 0: A100 (UUID: GPU-1)\nGPU 1: A100 (UUID: GPU-2)\n", "nvidia-smi -L"),
        ("==============NVSMI LOG==============\n\nAttached GPUs : 8\n", "nvidia-smi -q"),
        (
            "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error",
            "0000:07:00.0",
        ),
        (
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot",
            "lost or cannot be opened (0000:02:00.0)",
        ),
        (
            "Unable to determine the device handle for GPU3: 00000000:0A:00.0: Unknown Error",
            "00000000:0A:00.0",
        ),
        ("Failed to run topology matrix\n", "topo -m failed"),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make",
            "could not reach the NVIDIA driver",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "version mismatch"),
        ("No devices were found", "no devices were found"),
        ("bash: nvidia-smi: command not found", "command not found"),
        ("Machine (754GB total)\n  Package L#0\n    NUMANode L#0\n", "lstopo"),
        ("3b:00.0 3D controller: NVIDIA Corporation GV100GL (rev a1)\n", "lspci"),
        ('<system version="1">\n <cpu numaid="0"/>\n</system>', "NCCL topology XML"),
        ("<!DOCTYPE html><html><body>Not found</body></html>", "HTML"),
        ('{"gpus": 8}', "JSON"),
        (PPU, "T-Head PPU (PPU)"),
        (AMD, "AMD"),
        ("$ mx-smi topo -m\n" + PLAIN, "MetaX (mx-smi)"),
        ("NIC6\tSYS\tPIX\t X \nNIC7\tPIX\tSYS\tSYS\n", "no header row"),
        (PLAIN[PLAIN.index("GPU2\tNODE") :], "no header row"),
        ("\tGPU0\tGPU1\tCPU Affinity\n", "rows below it are cut off"),
        ("hello", "no topology matrix found"),
    ],
)
def test_an_error_says_what_the_text_is(text: str, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_topo(text, "a.txt")
    message = str(caught.value)
    assert message.startswith("a.txt: ") and "\n" not in message
    assert words.lower() in message.lower()


def test_too_many_columns() -> None:
    with pytest.raises(ParseError, match="more than 1024 columns"):
        parse_topo("\t" + "\t".join(f"GPU{n}" for n in range(5000)) + "\n")


# --- any input -------------------------------------------------------------------------------

COUNTS = st.integers(min_value=1, max_value=36)
CLASS = st.one_of(
    st.sampled_from(("PIX", "PXB", "PHB", "NODE", "SYS")), COUNTS.map(lambda n: f"NV{n}")
)
CPU_LISTS = st.sampled_from(("0-15", "0-23,48-71", "0,2,4,6", "7", "0-127,256-383", "N/A"))


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    gpus = draw(st.integers(1, 10))
    nics = draw(st.integers(0, 12))
    style = draw(st.sampled_from(("NIC{}", "mlx5_{}")))
    labels = [f"GPU{n}" for n in range(gpus)] + [style.format(n) for n in range(nics)]
    half = {(a, b): draw(CLASS) for a in range(len(labels)) for b in range(a) if a != b}
    cells = tuple(
        tuple("X" if a == b else half[max(a, b), min(a, b)] for b in range(len(labels)))
        for a in range(len(labels))
    )
    count = draw(st.integers(0, 3))
    numa = st.sampled_from(("0", "1", "0-1", "N/A", "10"))
    affinities = tuple(
        (draw(CPU_LISTS), draw(numa), draw(st.sampled_from(("N/A", "4", "12"))))[:count]
        for _ in range(gpus)
    )
    names = ((f"NIC{n}", f"mlx5_{n}") for n in range(nics)) if style[0] == "N" else ()
    return Node(
        tuple(labels),
        cells,
        HEADINGS[:count],
        affinities,
        tuple(names),
        draw(st.sampled_from(("SYS", None))),
        underline=draw(st.booleans()),
    )


REPAIRS: st.SearchStrategy[Callable[[str], str]] = st.sampled_from(
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\x1b", ""),
        lambda text: text.replace("\x1b[4m", "").replace("\x1b[0m", "").expandtabs(8),
        lambda text: each(text, "2025-05-21 09:40:{n} host1: "),
        lambda text: each(text, "> "),
        json.dumps,
        lambda text: "\n".join(line.strip() for line in lines_of(text)) + "\n",
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes(), st.lists(REPAIRS, min_size=1, max_size=3))
def test_a_matrix_printed_and_copied_is_read_back(
    node: Node, repairs: list[Callable[[str], str]]
) -> None:
    text = printed(node)
    for repair in repairs:
        text = repair(text)
    found = parse_topo(text)
    assert found.rows == node.labels and found.cells == expected(node)
    assert found.warnings == ()
    is_right(found, node)
    assert len(found.cpu_affinity) == (len(node.affinities) if node.headings else 0)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes(), st.data())
def test_a_matrix_damaged_anywhere_is_right_or_unknown(node: Node, data: st.DataObject) -> None:
    text = data.draw(REPAIRS)(printed(node))
    kind = data.draw(st.sampled_from(("head", "tail", "wrap", "narrow", "drop line")))
    at = data.draw(st.integers(0, len(text)))
    width = data.draw(st.integers(16, 140))
    lines = lines_of(text)
    damaged = {
        "head": text[:at],
        "tail": text[at:],
        "wrap": hard_wrapped(text, width),
        "narrow": column_cut(text, width),
        "drop line": "\n".join(lines[: at % len(lines)] + lines[at % len(lines) + 1 :]) + "\n",
    }[kind]
    with contextlib.suppress(ParseError):
        is_right(parse_topo(damaged), node)


PIECES = st.sampled_from(
    (
        *lines_of(TEXT),
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
    )
)


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.text(), st.lists(PIECES, max_size=60).map("\t".join), st.lists(PIECES).map("\n".join)
    )
)
def test_nothing_but_a_parse_error(text: str) -> None:
    try:
        found = parse_topo(text)
    except ParseError as error:
        assert "\n" not in str(error)
        return
    assert len(found.columns) == len(set(found.columns)) == len(found.printed)
    assert set(found.rows) <= set(found.columns) and set(found.cells) == set(found.rows)
    assert all(cells[row] == "X" for row, cells in found.cells.items())


@pytest.mark.parametrize(
    "piece",
    [
        "\t",
        " ",
        "\n",
        "\tGPU0\tGPU1\n",
        "GPU0 ",
        "GPU0\tX\n",
        "X\tNV1 ",
        "NIC0: a\n",
        "GPU0GPU1",
        "[",
        "\x1b[",
        "\\n",
        "\\",
        "|",
        "<a",
        "1,",
        "Legend:\nGPU0\n",
        "Unable to determine the device handle for GPU ",
    ],
)
def test_time_is_linear(piece: str) -> None:
    few, many = (cpu_seconds(piece * (size // len(piece))) for size in (30_000, 120_000))
    # Linear is 4 times, quadratic 16; between them lies what caches and the collector cost.
    assert many < 9 * few + 0.05


def cpu_seconds(text: str) -> float:
    """Return the time of the processor, which does not run while others do."""
    start = time.process_time()
    for each_text in (text, TEXT + text, "\tGPU0\tGPU1\nGPU0\t X \t" + text, text + TEXT):
        with contextlib.suppress(ParseError):
            parse_topo(each_text)
    return time.process_time() - start


def test_a_wide_matrix() -> None:
    labels = tuple(f"GPU{n}" for n in range(256))
    cells = tuple(tuple("X" if a == b else "NV18" for b in labels) for a in labels)
    node = Node(labels, cells, HEADINGS[:1], tuple(("0-7",) for _ in labels))
    assert parse_topo(printed(node)).cells == expected(node)


def test_two_nodes_interleaved_with_blank_labels_are_not_one_header() -> None:
    lines = [
        "\tGPU0\tGPU1\t\t\tCPU Affinity",
        "GPU0\t X \tNV12\tNODE\tSYS\t0-3",
        "GPU1\tNV12\t X \tSYS\tNODE\t4-7",
        "\tNODE\tSYS\t X \tSYS\t",
        "\tSYS\tNODE\tSYS\t X \t",
    ]
    text = "".join(f"n1: {line}\nn2: {line}\n" for line in lines)

    try:
        found = parse_topo(text)
    except ParseError:
        return  # Nothing of it can be read with certainty, which is as right.

    right = {
        "GPU0": {"GPU0": "X", "GPU1": "NV12", "col2": "NODE", "col3": "SYS"},
        "GPU1": {"GPU0": "NV12", "GPU1": "X", "col2": "SYS", "col3": "NODE"},
        "col2": {"GPU0": "NODE", "GPU1": "SYS", "col2": "X", "col3": "SYS"},
        "col3": {"GPU0": "SYS", "GPU1": "NODE", "col2": "SYS", "col3": "X"},
    }
    for row, cells in found.cells.items():
        for column, cell in cells.items():
            assert right[row][column] == cell
