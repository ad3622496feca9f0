"""lspci texts of real machines, where the folder with them is beside the checkout."""

import json
from pathlib import Path
from typing import Any

import pytest

from topoprobe.model.errors import ParseError
from topoprobe.model.texts import LspciLink
from topoprobe.sources.lspci_text import parse_lspci
from topoprobe.sources.lspci_tree import parse_lspci_tree
from topoprobe.sources.text_kind import kinds_in

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "lspci"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))


def speed(printed: str | None) -> float | None:
    return float(printed.removesuffix("GT/s")) if printed and "GT/s" in printed else None


def is_below(link: LspciLink) -> bool:
    lower = link.speed_GTps is not None and link.speed_GTps < (link.cap_speed_GTps or 0)
    return lower or (link.width or 0) < (link.cap_width or 0)


def check_link(link: LspciLink | None, fact: dict[str, Any]) -> None:
    assert link is not None
    assert (link.cap_speed_GTps, link.cap_width) == (speed(fact["cap_speed"]), fact["cap_width"])
    assert (link.speed_GTps, link.width) == (speed(fact["sta_speed"]), fact["sta_width"])
    assert link.speed_word == fact["sta_speed_word"] and link.width_word == fact["sta_width_word"]
    assert is_below(link) == fact["below_cap"]


@pytest.mark.skipif(not NAMES, reason="the folder of real cases is not here")
@pytest.mark.parametrize("name", NAMES or ["none"])
def test_case(name: str) -> None:
    text = (CASES / f"{name}.txt").read_bytes().decode("utf-8", "replace")
    facts = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    kinds = ["lspci"] * ("tree" not in facts or bool(facts["devices"]))
    assert list(kinds_in(text)) == kinds + ["lspci-tree"] * ("tree" in facts)
    if "lspci" in kinds:
        check_list(text, facts)
    else:
        with pytest.raises(ParseError):
            parse_lspci(text)
    if "tree" in facts:
        tree = parse_lspci_tree(text)
        assert list(tree.roots) == facts["tree"]["roots"] and tree.warnings == ()
        names = [node.name or "" for node in tree.nodes]
        assert sum("NVIDIA" in one for one in names) == len(facts["tree"]["nvidia_lines"])
        assert sum("Mellanox" in one for one in names) == facts["tree"]["mellanox_lines"]


def check_list(text: str, facts: dict[str, Any]) -> None:
    found = parse_lspci(text)
    devices = {device.address: device for device in found.devices}
    assert len(devices) == len(facts["devices"])
    for fact in facts["devices"]:
        address = fact["address"]
        assumed = address.count(":") == 1
        device = devices[f"0000:{address}" if assumed else address]
        assert (device.domain_assumed, device.title) == (assumed, fact["title"])
        if "cap_speed" in fact:
            check_link(device.link, fact)
        assert device.driver == fact.get("driver")
        assert str(device.numa_node) == fact.get("numa_node", "None")
        if "bus" in fact:
            buses = (device.primary_bus, device.secondary_bus, device.subordinate_bus)
            assert [f"{bus:02x}" for bus in buses if bus is not None] == list(fact["bus"].values())
        flags = (f"{name}{'-+'[on]}" for name, on in (device.acs_control or {}).items())
        assert " ".join(flags) == fact.get("acs_ctl", "")
    if "link_without_device" in facts:
        (link,) = found.loose_links
        check_link(link, facts["link_without_device"])
    else:
        assert found.loose_links == ()
