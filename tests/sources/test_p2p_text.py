"""``nvidia-smi topo -p2p`` texts: what must come out of them, and what must never."""

import contextlib
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoprobe.model.errors import ParseError
from topoprobe.model.texts import P2pMatrix
from topoprobe.sources.p2p_text import parse_p2p
from topoprobe.sources.text_kind import detect, kinds_in

LEGEND = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  DR   = Disabled by regkey
  U    = Unknown
"""
# One of each word; the diagonal is X.
WORDS = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")


def cell(row: int, column: int) -> str:
    return "X" if row == column else WORDS[(row * 3 + column) % len(WORDS)]


def matrix(gpus: int) -> str:
    header = " \t\x1b[4m" + "".join(f"GPU{n}\t" for n in range(gpus)) + "\x1b[0m\n"
    rows = (
        f" GPU{row}\t" + "".join(f"{cell(row, column)}\t" for column in range(gpus)) + "\n"
        for row in range(gpus)
    )
    return header + "".join(rows)


def expected(gpus: int) -> dict[str, dict[str, str]]:
    return {
        f"GPU{row}": {f"GPU{column}": cell(row, column) for column in range(gpus)}
        for row in range(gpus)
    }


def only(text: str) -> P2pMatrix:
    (found,) = parse_p2p(text).matrices
    return found


def test_whole() -> None:
    found = only(matrix(8) + LEGEND)
    assert found.cells == expected(8) and found.unreadable == {}
    assert found.columns == found.rows == tuple(f"GPU{n}" for n in range(8))
    assert found.legend["CNS"] == "Chipset not supported" and len(found.legend) == 8
    assert found.capability is None and "command line" in found.unknown["capability"]


@pytest.mark.parametrize(
    ("letter", "capability"),
    [("r", "read"), ("w", "write"), ("n", "nvlink"), ("a", "atomics"), ("p", "pcie")],
)
def test_the_command_tells_the_capability(letter: str, capability: str) -> None:
    found = only(f"$ nvidia-smi topo -p2p {letter}\n{matrix(2)}")
    assert found.capability == capability and found.unknown == {}


def test_two_matrices() -> None:
    text = f"$ nvidia-smi topo -p2p r\n{matrix(2)}{LEGEND}$ nvidia-smi topo -p2p w\n{matrix(3)}"
    first, second = parse_p2p(text).matrices
    assert (first.capability, len(first.rows)) == ("read", 2)
    assert (second.capability, len(second.rows)) == ("write", 3)


def test_a_topology_matrix_beside_it_is_not_taken() -> None:
    topo = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n\n"
    text = topo + matrix(2) + LEGEND
    assert only(text).cells == expected(2)
    assert kinds_in(text) == ("topo", "p2p") and detect(text) == "topo"
    assert detect(topo) == "topo" and detect(matrix(2) + LEGEND) == "p2p"


def test_wrapped_by_a_terminal() -> None:
    lines = []
    for line in matrix(16).replace("\x1b[4m", "").replace("\x1b[0m", "").expandtabs().splitlines():
        lines += [line[at : at + 80] for at in range(0, len(line), 80)]
    assert only("\n".join(lines) + "\n" + LEGEND).cells == expected(16)


def copies() -> list[tuple[str, str]]:
    whole = matrix(4) + LEGEND
    return [
        ("crlf", whole.replace("\n", "\r\n")),
        ("no colours", re.sub(r"\x1b\[\d*m", "", whole)),
        ("blanks for tabs", whole.expandtabs()),
        ("one blank", whole.replace("\t", " ")),
        ("quoted", re.sub(r"^", "> ", whole, flags=re.M)),
        ("fences", f"```\n{whole}```\n"),
        ("no legend", matrix(4)),
        ("blank lines", whole.replace("\n", "\n\n")),
        ("host", re.sub(r"^", "node1: ", whole, flags=re.M)),
    ]


@pytest.mark.parametrize(("name", "text"), copies(), ids=[name for name, _ in copies()])
def test_copying_changes_nothing(name: str, text: str) -> None:
    assert only(text).cells == expected(4)


def test_a_lost_cell_makes_its_row_unreadable() -> None:
    found = only(matrix(3).replace("\t", " ").replace("OK", "", 1))
    assert found.cells == {row: expected(3)[row] for row in ("GPU0", "GPU1")}
    assert found.unreadable == {"GPU2": "it has 2 cells, the header 3 columns"}


def test_a_lost_row_is_named() -> None:
    text = "".join(line for line in matrix(3).splitlines(keepends=True) if " GPU1" not in line)
    found = parse_p2p(text)
    assert found.matrices[0].rows == ("GPU0", "GPU2")
    assert found.warnings == ("rows missing or unreadable: GPU1",)


def test_a_word_of_no_legend_is_unreadable() -> None:
    found = only(matrix(3).replace("CNS", "QQQ") + LEGEND)
    assert found.cells["GPU0"] == {"GPU0": "X", "GPU2": "GNS"}
    assert found.unreadable == {"GPU0/GPU1": "it is empty or no word of the legend"}


def test_a_new_word_of_the_legend_is_kept() -> None:
    text = matrix(3).replace("CNS", "QQQ") + LEGEND + "  QQQ  = Queue quota reached\n"
    assert only(text).cells["GPU0"]["GPU1"] == "QQQ"


def test_rows_that_differ_are_unreadable() -> None:
    row = " GPU0\tX\tOK\t\n"
    text = " \tGPU0\tGPU1\t\n" + row + row.replace("OK", "NS") + " GPU1\tOK\tX\t\n"
    found = only(text)
    assert found.rows == ("GPU1",)
    assert found.unreadable == {"GPU0": "it is printed more than once, and differs"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        LEGEND,
        "\tGPU0\tGPU1\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSYS\t0\nGPU1\tSYS\t X \t0\n",
        "GPU0 OK\nGPU1 OK\n",
        "\tGPU0\tGPU1\nGPU0\tSYS\tX\n",
    ],
)
def test_other_texts_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_p2p(text, "a.txt")
    assert str(caught.value).startswith("a.txt: ") and "\n" not in str(caught.value)
    assert detect(text) in (None, "topo")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_keeps_cells_true(data: st.DataObject) -> None:
    text = matrix(5) + LEGEND
    if data.draw(st.booleans()):
        text = text.expandtabs()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        text = (
            text[:start] + data.draw(st.sampled_from(["", "\n", " ", "\t", "?", "é"])) + text[end:]
        )
    try:
        found = parse_p2p(text, "f")
    except ParseError as error:
        assert str(error).startswith("f: ") and "\n" not in str(error)
        return
    for one in found.matrices:
        assert set(one.columns) <= set(re.findall(r"GPU\d+", text))
        for row, cells in one.cells.items():
            assert cells[row] == "X"
            assert all(word in {*WORDS, "X", *one.legend} for word in cells.values())


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.integers(0, 5))
def test_a_cell_lost_with_its_blank_moves_no_other(row: int, column: int) -> None:
    lines = [line.split() for line in matrix(6).replace("\x1b[4m", "").splitlines()]
    lines[0] = [f"GPU{n}" for n in range(6)]
    del lines[row][column + 1]
    found = parse_p2p("\n".join(" ".join(line) for line in lines) + "\n")
    assert f"GPU{row - 1}" not in found.matrices[0].cells
    for label, cells in found.matrices[0].cells.items():
        assert cells == expected(6)[label]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_p2p(text)


def seconds(text: str) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        with contextlib.suppress(ParseError):
            parse_p2p(text)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize(
    "piece", [matrix(16), " GPU0\tX\tOK\n", "\tGPU0\tGPU1\n", "OK OK\n", "GPU0GPU1", "> " * 30]
)
def test_time_is_linear(piece: str) -> None:
    times = 40_000 // len(piece)
    # Linear is 4 times, quadratic 16; between them lies what caches and the collector cost.
    assert seconds(piece * times * 4) <= 9 * seconds(piece * times) + 0.05
