"""Drawings of ``lspci -t``: what must come out of them, and what must never."""

import contextlib
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoprobe.model.errors import ParseError
from topoprobe.sources.lspci_tree import parse_lspci_tree
from topoprobe.sources.text_kind import detect

TREE = r"""-+-[0000:15]---01.0-[16-1b]----00.0-[17-1b]--+-00.0-[18]----00.0  Acme NIC
 |                                           \-01.0-[1b]----00.0  NVIDIA Corporation GH100
 +-[0000:26]-+-01.0-[29]--+-00.0  Acme Port + more
 |           |            \-00.1  Acme Port
 |           +-02.0  Acme Thing
 |           \-03.0-[2a]--
 \-[0001:00]-
"""
PARENTS = {
    "0000:15:01.0": None,
    "0000:16:00.0": "0000:15:01.0",
    "0000:17:00.0": "0000:16:00.0",
    "0000:18:00.0": "0000:17:00.0",
    "0000:17:01.0": "0000:16:00.0",
    "0000:1b:00.0": "0000:17:01.0",
    "0000:26:01.0": None,
    "0000:29:00.0": "0000:26:01.0",
    "0000:29:00.1": "0000:26:01.0",
    "0000:26:02.0": None,
    "0000:26:03.0": None,
}


def parents(text: str) -> dict[str, str | None]:
    return {node.address: node.parent for node in parse_lspci_tree(text).nodes}


def test_tree() -> None:
    tree = parse_lspci_tree(TREE)
    assert tree.roots == ("0000:15", "0000:26", "0001:00") and tree.warnings == ()
    nodes = {node.address: node for node in tree.nodes}
    assert {key: node.parent for key, node in nodes.items()} == PARENTS
    assert nodes["0000:1b:00.0"].name == "NVIDIA Corporation GH100"
    assert nodes["0000:29:00.0"].name == "Acme Port + more"
    switch = nodes["0000:16:00.0"]
    assert (switch.secondary_bus, switch.subordinate_bus, switch.name) == (0x17, 0x1B, None)
    empty = nodes["0000:26:03.0"]
    assert (empty.secondary_bus, empty.subordinate_bus) == (0x2A, 0x2A)


def test_tree_of_one_root_without_domain() -> None:
    tree = parse_lspci_tree("-[00]-+-00.0\n      \\-1f.3\n")
    assert tree.roots == ("0000:00",)
    assert [(n.address, n.domain_assumed) for n in tree.nodes] == [
        ("0000:00:00.0", True),
        ("0000:00:1f.3", True),
    ]


TREE_COPIES: list[tuple[str, Callable[[str], str]]] = [
    ("crlf", lambda text: text.replace("\n", "\r\n")),
    ("indented", lambda text: re.sub(r"^", "    ", text, flags=re.M)),
    ("first blank lost", lambda text: re.sub(r"^ ", "", text, flags=re.M)),
    ("fences", lambda text: f"```\n{text}```\n"),
    ("prompt", lambda text: f"$ lspci -tv\n{text}$ \n"),
    ("no-break blanks", lambda text: text.replace(" ", "\xa0")),
    ("box lines", lambda text: text.replace("|", "│")),
]


@pytest.mark.parametrize(("name", "copy"), TREE_COPIES, ids=[name for name, _ in TREE_COPIES])
def test_copying_a_tree_changes_nothing(name: str, copy: Callable[[str], str]) -> None:
    assert parents(copy(TREE)) == PARENTS


def test_a_bridge_with_buses_that_its_bus_cannot_have_is_left_out() -> None:
    tree = parse_lspci_tree(TREE.replace("01.0-[1b]", "01.0-[1c]"))
    assert "0000:17:01.0" not in {node.address for node in tree.nodes} and tree.warnings


def test_left_out_lines_of_a_tree_take_their_children() -> None:
    lines = TREE.splitlines()
    text = "\n".join([*lines[:2], "...", *lines[3:], ""])
    tree = parse_lspci_tree(text)
    assert {node.address for node in tree.nodes} < set(PARENTS)
    assert not any(node.address.startswith(("0000:26", "0000:29")) for node in tree.nodes)
    assert tree.roots == ("0000:15", "0001:00") and "hang on a line" in tree.warnings[0]


def test_buses_that_are_named_need_no_start_of_the_drawing() -> None:
    tree = parse_lspci_tree("".join(TREE.splitlines(keepends=True)[1:]))
    assert tree.roots == ("0000:26", "0001:00")
    assert {node.address: node.parent for node in tree.nodes} == {
        key: parent for key, parent in PARENTS.items() if key[5:7] in ("26", "29")
    }
    assert tree.warnings[0].startswith("1 lines of the drawing hang on a line")


@pytest.mark.parametrize("lost", range(len(TREE.splitlines())))
def test_a_lost_line_gives_no_child_to_another(lost: int) -> None:
    lines = TREE.splitlines(keepends=True)
    with contextlib.suppress(ParseError):
        assert parents("".join(lines[:lost] + lines[lost + 1 :])).items() <= PARENTS.items()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(TREE)))
def test_a_cut_tree_has_no_other_devices(end: int) -> None:
    with contextlib.suppress(ParseError):
        assert parents(TREE[:end]).items() <= PARENTS.items()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(TREE.splitlines()), st.text(max_size=30)), max_size=30))
def test_any_mixture_gives_a_result_or_one_line(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        tree = parse_lspci_tree(text, "f")
    except ParseError as error:
        assert str(error).startswith("f: ") and "\n" not in str(error)
        return
    addresses = {node.address for node in tree.nodes}
    for node in tree.nodes:
        assert node.address[-4:] in text and node.address[5:7] in text
        assert node.parent is None or node.parent in addresses


def test_kind() -> None:
    assert detect(TREE) == "lspci-tree"
