"""nvlink texts of real machines, where the folder with them is beside the checkout."""

import json
from pathlib import Path

import pytest

from topoprobe.model.errors import ParseError
from topoprobe.sources.nvlink_text import parse_nvlink
from topoprobe.sources.text_kind import detect

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "nvlink_status"
NAMES = sorted(path.stem for path in CASES.glob("*.json"))
# Facts call them "links_complete", "errors_complete" and so on.
KINDS = {"status": "links", "errors": "errors", "capabilities": "capabilities"}


def short(counters: dict[str, int]) -> dict[str, int]:
    return {name.removesuffix(" Errors"): count for name, count in counters.items()}


@pytest.mark.skipif(not NAMES, reason="the folder of real cases is not here")
@pytest.mark.parametrize("name", NAMES or ["none"])
def test_case(name: str) -> None:
    text = (CASES / f"{name}.txt").read_bytes().decode("utf-8", "replace")
    facts = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    if facts["expect"].startswith("error"):
        with pytest.raises(ParseError, match=f"^{name}: "):
            parse_nvlink(text, name)
        assert detect(text) is None
        return
    found = parse_nvlink(text, name)
    assert detect(text) == ("nvlink" if facts["gpus"] else None)
    gpus = [gpu for gpu in found.gpus if gpu.index is not None]
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in gpus] == [
        (fact["index"], fact["name"], fact["uuid"]) for fact in facts["gpus"]
    ]
    for gpu, fact in zip(gpus, facts["gpus"], strict=True):
        speeds = {str(link.index): link.speed_GBps for link in gpu.links if link.printed}
        assert speeds == fact.get("links", {})
        states = [link.state for link in gpu.links]
        assert states.count("up") == fact.get("active", 0)
        assert states.count("down") == fact.get("inactive", 0)
        assert {
            str(link.index): short(link.errors) for link in gpu.links if link.errors
        } == fact.get("errors", {})
        assert {
            str(link.index): link.capabilities for link in gpu.links if link.capabilities
        } == fact.get("capabilities", {})
        for kind, word in KINDS.items():
            assert (kind in gpu.incomplete) == (not fact.get(f"{word}_complete", True)), kind
    lost = {
        str(link.index): short(link.errors)
        for gpu in found.gpus
        if gpu.index is None
        for link in gpu.links
    }
    assert lost == facts.get("errors_without_gpu", {})
