"""``nvidia-smi nvlink`` texts: what must come out of them, and what must never."""

import contextlib
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoprobe.model.errors import ParseError
from topoprobe.model.texts import NvlinkText
from topoprobe.sources.nvlink_text import parse_nvlink
from topoprobe.sources.text_kind import detect, kinds_in

UUIDS = [f"GPU-0000000{n}-1111-2222-3333-444444444444" for n in range(8)]


def status(gpus: int, links: int, speed: str = "26.562 GB/s") -> str:
    return "".join(
        f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: {UUIDS[gpu]})\n"
        + "".join(f"\t Link {link}: {speed}\n" for link in range(links))
        for gpu in range(gpus)
    )


def errors(gpu: int, links: int) -> str:
    return f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: {UUIDS[gpu]})\n" + "\n".join(
        "".join(f"\t Link {n}: {name} Errors: {n}\n" for name in ("Replay", "Recovery", "CRC"))
        for n in range(links)
    )


def speeds(found: NvlinkText) -> dict[int | None, dict[int, float | None]]:
    return {gpu.index: {link.index: link.speed_GBps for link in gpu.links} for gpu in found.gpus}


def test_status() -> None:
    found = parse_nvlink(status(2, 3))
    assert speeds(found) == {
        0: dict.fromkeys(range(3), 26.562),
        1: dict.fromkeys(range(3), 26.562),
    }
    first = found.gpus[0]
    assert (first.name, first.uuid, first.incomplete) == ("NVIDIA H100 80GB HBM3", UUIDS[0], {})
    assert {link.state for link in first.links} == {"up"}
    assert found.warnings == ()


def test_inactive_link_is_down_and_has_no_speed() -> None:
    text = status(1, 2).replace("Link 1: 26.562 GB/s", "Link 1: <inactive>")
    up, down = parse_nvlink(text).gpus[0].links
    assert (up.state, up.printed, up.speed_GBps) == ("up", "26.562 GB/s", 26.562)
    assert (down.state, down.printed, down.speed_GBps) == ("down", "<inactive>", None)


def test_a_state_that_nobody_knows_is_unknown_not_up() -> None:
    text = status(1, 1, "<recovering>") + "\t Link 1: Not Supported\n"
    links = parse_nvlink(text).gpus[0].links
    assert [link.state for link in links] == ["unknown", "unknown"]
    assert links[0].unknown["state"] == "nvidia-smi prints '<recovering>' for it"


def test_all_links_inactive_lists_none() -> None:
    line = "\t Unable to retrieve NVLink information as all links are inActive\n"
    gpu = parse_nvlink(status(1, 0) + line).gpus[0]
    assert (
        gpu.all_inactive and gpu.links == () and "all links are inactive" in gpu.unknown["links"]
    )


@pytest.mark.parametrize("text", ["", "\n\n", "$ nvidia-smi nvlink -s\n"])
def test_nothing_printed_is_no_link_down(text: str) -> None:
    found = parse_nvlink(text)
    assert found.gpus == () and "says nothing about links" in found.warnings[0]
    assert detect(text) is None


def test_capabilities() -> None:
    text = (
        "GPU 0: Tesla V100-SXM2-32GB\n"
        "\t Link 0, P2P is supported: true\n\t Link 0, SLI is supported: false\n"
        "\t Link 0, Link is supported: N/A\n"
    )
    link = parse_nvlink(text).gpus[0].links[0]
    assert link.capabilities == {"P2P is supported": True, "SLI is supported": False}
    assert link.unknown["capabilities.Link is supported"] == "the text says 'N/A'"
    assert link.state == "unknown"


def test_errors_of_hopper_and_blackwell() -> None:
    text = (
        f"GPU 0: NVIDIA B200 (UUID: {UUIDS[0]})\n"
        "\t Link 0: Malformed packet Errors: 0\n"
        "\t Link 0: Link recovery successful events: 3\n"
        "\t Link 0: FEC Errors - 0: 36140749276\n"
        "\t Link 0: Effective BER: 15e-255\n"
        "\t Link 0: Raw BER Total: 1037\n"
        "\t Link 0: Tx discards: N/A\n"
    )
    link = parse_nvlink(text).gpus[0].links[0]
    assert link.errors == {
        "Malformed packet Errors": 0,
        "Link recovery successful events": 3,
        "FEC Errors - 0": 36140749276,
    }
    assert link.rates == {"Effective BER": "15e-255", "Raw BER Total": "1037"}
    assert link.unknown["errors.Tx discards"] == "the text says 'N/A'"


def test_remote_ends() -> None:
    text = (
        status(1, 0)
        + "\t Link 0: Remote Device 00000000:0B:00.0: Link 16\n"
        + "\t Link 1: Remote Device FFFFFFFF:FF:FF.0: Link 0\n"
    )
    seen, hidden = parse_nvlink(text).gpus[0].links
    assert (seen.remote, seen.remote_link) == ("0000:0b:00.0", 16)
    assert hidden.remote is None and "hides the other end" in hidden.unknown["remote"]


def test_info() -> None:
    text = status(1, 0) + "\t NVLE: disabled\n\t Firmware Version:\n\t     MSE: 14:4:0\n"
    assert parse_nvlink(text).gpus[0].info == {
        "NVLE": "disabled",
        "Firmware Version/MSE": "14:4:0",
    }


def test_outputs_of_several_commands_add_up() -> None:
    text = f"$ nvidia-smi nvlink -s\n{status(2, 2)}$ nvidia-smi nvlink -e\n{errors(0, 2)}"
    first, second = parse_nvlink(text).gpus
    assert [link.errors["CRC Errors"] for link in first.links] == [0, 1]
    assert [link.speed_GBps for link in first.links] == [26.562, 26.562]
    assert all(link.errors == {} for link in second.links)


def test_a_lost_gpu_line_gives_its_links_to_nobody() -> None:
    lines = status(2, 3).splitlines(keepends=True)
    found = parse_nvlink("".join(lines[:4] + lines[5:]))
    assert speeds(found) == {
        0: dict.fromkeys(range(3), 26.562),
        None: dict.fromkeys(range(3), 26.562),
    }
    assert "without a GPU" in found.warnings[0]


def test_a_block_without_gpu_line_is_not_that_of_the_gpu_before() -> None:
    text = status(1, 1) + "### nvidia-smi nvlink -e\n\t Link 0: Replay Errors: 5\n"
    first, nobody = parse_nvlink(text).gpus
    assert first.links[0].errors == {} and nobody.index is None
    assert nobody.links[0].errors == {"Replay Errors": 5}


@pytest.mark.parametrize("mark", ["...", "[...]", "[snip]", "…", "\t Link ..."])
def test_left_out_links_are_named(mark: str) -> None:
    lines = status(1, 6).splitlines()
    gpu = parse_nvlink("\n".join([*lines[:3], mark, lines[6], ""])).gpus[0]
    assert [link.index for link in gpu.links] == [0, 1, 5]
    assert gpu.incomplete == {"status": "lines of it were left out of the text"}


def test_left_out_gpus_leave_the_others_whole() -> None:
    text = status(8, 2).splitlines()
    found = parse_nvlink("\n".join([*text[:3], "[snip]", *text[-3:], ""]))
    assert [(gpu.index, gpu.incomplete) for gpu in found.gpus] == [(0, {}), (7, {})]


def test_a_lost_line_between_links_is_named() -> None:
    lines = status(1, 4).splitlines()
    gpu = parse_nvlink("\n".join(lines[:2] + lines[3:]) + "\n").gpus[0]
    assert gpu.incomplete == {"status": "link 1 is not in the text, and a later one is"}


def test_a_gpu_with_fewer_links_is_no_damage() -> None:
    text = "".join(status(2, 4).splitlines(keepends=True)[:-1])
    assert [(len(gpu.links), gpu.incomplete) for gpu in parse_nvlink(text).gpus] == [
        (4, {}),
        (3, {}),
    ]


def test_a_number_that_the_end_may_have_cut_is_unknown() -> None:
    text = errors(0, 1)[: -len("0\n")] + "12"
    link = parse_nvlink(text).gpus[0].links[0]
    assert "CRC Errors" not in link.errors
    assert link.unknown["errors.CRC Errors"] == "the text ends within it"
    assert parse_nvlink(text + "\n").gpus[0].links[0].errors["CRC Errors"] == 12


def test_a_cut_speed_is_no_speed() -> None:
    gpu = parse_nvlink(status(1, 2)[: -len("2 GB/s\n")]).gpus[0]
    assert [link.index for link in gpu.links] == [0]
    assert "status" in gpu.incomplete


@pytest.mark.parametrize("uuid", ["GPU-略-332e-08e4-72fe-略", "GPU-f3aa01f8-...", "<redacted>"])
def test_redacted_uuid_stays_as_printed(uuid: str) -> None:
    gpu = parse_nvlink(status(1, 1).replace(UUIDS[0], uuid)).gpus[0]
    assert gpu.uuid == uuid and gpu.unknown["uuid"] == "it is shortened, redacted or cut"


def damaged() -> list[tuple[str, str]]:
    whole = status(2, 3)
    return [
        ("crlf", whole.replace("\n", "\r\n")),
        ("colours", whole.replace("Link", "\x1b[1mLink").replace("GB/s", "GB/s\x1b[0m")),
        ("blanks", whole.replace("\t ", "\xa0 \u2003")),
        ("no indent", whole.replace("\t ", "")),
        ("quoted", re.sub(r"^", "> ", whole, flags=re.M)),
        ("pdsh", re.sub(r"^", "node-1: ", whole, flags=re.M)),
        ("json", whole.replace("\n", "\\n").replace("\t", "\\t")),
        ("fences", f"```\n{whole}```\n"),
        ("prompt", f"[root@a ~]# nvidia-smi nvlink --status\n{whole}[root@a ~]# \n"),
        ("blank lines", whole.replace("\n", "\n\n")),
        ("html", "<pre>" + whole.replace("<", "&lt;") + "</pre>"),
        ("bom", "\ufeff" + whole),
    ]


@pytest.mark.parametrize(("name", "text"), damaged(), ids=[name for name, _ in damaged()])
def test_copying_changes_nothing(name: str, text: str) -> None:
    assert parse_nvlink(text).gpus == parse_nvlink(status(2, 3)).gpus


def test_inactive_survives_html() -> None:
    text = status(1, 1, "&lt;inactive&gt;")
    assert parse_nvlink(text).gpus[0].links[0].state == "down"


def test_two_nodes_are_not_mixed() -> None:
    other = re.sub(r"^", "b: ", status(1, 2), flags=re.M)
    found = parse_nvlink(re.sub(r"^", "a: ", status(1, 1), flags=re.M) + other)
    assert speeds(found) == {0: {0: 26.562}}
    assert "more than one node" in found.warnings[0]


def test_same_number_and_other_uuid_is_another_gpu() -> None:
    found = parse_nvlink(status(1, 1) + status(1, 1, "<inactive>").replace(UUIDS[0], UUIDS[5]))
    assert [(gpu.index, gpu.links[0].state) for gpu in found.gpus] == [(0, "up"), (0, "down")]


def test_what_is_printed_twice_and_differs_is_unknown() -> None:
    found = parse_nvlink(f"$ a\n{status(1, 1)}$ a\n{status(1, 1, '<inactive>')}")
    link = found.gpus[0].links[0]
    assert link.state == "unknown" and "'26.562 GB/s' and as '<inactive>'" in link.unknown["state"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello world\n", "no line of `nvidia-smi nvlink` found"),
        (status(2, 0), "nvidia-smi -L"),
        ("PPU 0: PPU (UUID: GPU-1)\n    Link 0: 50 GB/s\n", "another vendor"),
        ("$ ppu-smi icn -s\nPPU 0: PPU (UUID: GPU-1)\n    Link 0: 50 GB/s\n", "T-Head PPU"),
        ("Link 0: https://example.org\nLink 1: see below\n", "no line"),
        ("bash: nvidia-smi: command not found\n", "no line"),
    ],
)
def test_other_texts_are_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_nvlink(text, "a.txt")
    message = str(caught.value)
    assert message.startswith("a.txt: ") and words in message and "\n" not in message
    assert detect(text) is None


def test_kind() -> None:
    assert detect(status(2, 2)) == "nvlink"
    assert kinds_in(errors(0, 2) + "\n01:00.0 3D controller: NVIDIA Corporation X\n") == (
        "nvlink",
        "lspci",
    )


PIECES = st.sampled_from(
    [
        *status(2, 3).splitlines(),
        *errors(1, 2).splitlines(),
        "...",
        "$ nvidia-smi nvlink -e",
        "```",
        "\t Link 2, P2P is supported: true",
        "Link 1: <inactive>",
        "GPU 1:",
        "\x1b[0m",
        "PPU 0: x",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=30)), max_size=40), st.data())
def test_any_damage_gives_a_result_or_one_line(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    start = data.draw(st.integers(0, len(text)))
    text = text[start : data.draw(st.integers(start, len(text)))]
    try:
        found = parse_nvlink(text, "f")
    except ParseError as error:
        assert str(error).startswith("f: ") and "\n" not in str(error)
        return
    for gpu in found.gpus:
        assert gpu.index is None or re.search(rf"GPU {gpu.index}:", text)
        for link in gpu.links:
            assert re.search(rf"Link {link.index}\b", text)
            if link.speed_GBps is not None:
                assert f"{link.speed_GBps:g} GB/s" in text
            assert (link.state == "up") == (link.speed_GBps is not None)
            assert link.state != "down" or "inactive" in text


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 27), max_size=12))
def test_lost_lines_add_no_link(lost: list[int]) -> None:
    lines = status(4, 6).splitlines(keepends=True)
    text = "".join(line for at, line in enumerate(lines) if at not in lost)
    try:
        found = parse_nvlink(text)
    except ParseError:
        return
    named = {gpu.index for gpu in found.gpus if gpu.index is not None}
    assert named <= set(range(4))
    total = sum(len(gpu.links) for gpu in found.gpus)
    assert total <= text.count("Link")
    assert all(link.index < 6 for gpu in found.gpus for link in gpu.links)


def seconds(text: str) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        with contextlib.suppress(ParseError):
            parse_nvlink(text)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize(
    "piece",
    [
        status(8, 18),
        "\t Link 0: 25 GB/s\n",
        " " * 60 + "Link \\\\\\x1b[",
        "GPU 0: NVIDIA A(",
        "...\n",
    ],
)
def test_time_is_linear(piece: str) -> None:
    times = 40_000 // len(piece)
    # Linear is 4 times, quadratic 16; between them lies what caches and the collector cost.
    assert seconds(piece * times * 4) <= 9 * seconds(piece * times) + 0.05
