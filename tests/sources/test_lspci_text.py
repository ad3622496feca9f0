"""lspci lists and drawings: what must come out of them, and what must never."""

import contextlib
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoprobe.model.errors import ParseError
from topoprobe.sources.lspci_text import parse_lspci
from topoprobe.sources.lspci_tree import parse_lspci_tree
from topoprobe.sources.text_kind import detect, kinds_in

FLAGS = "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
PORT = f"""\
3a:00.0 PCI bridge: Acme Root Port A (rev 04) (prog-if 00 [Normal decode])
\tPhysical Slot: 2
\tControl: I/O+ Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr+ Stepping-
\tLatency: 0, Cache Line Size: 64 bytes
\tNUMA node: 1
\tIOMMU group: 27
\tBus: primary=3a, secondary=3b, subordinate=41, sec-latency=0
\tCapabilities: [90] Express (v2) Root Port (Slot+), MSI 00
\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0
\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tMaxPayload 256 bytes, MaxReadReq 128 bytes
\t\tLnkCap:\tPort #5, Speed 16GT/s, Width x16, ASPM L1, Exit Latency L1 <16us
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)
\t\tSltCtl:\tEnable: AttnBtn- PwrFlt- MRL- PresDet- CmdCplt- HPIrq- LinkChg-
\t\t\tControl: AttnInd Off, PwrInd Off, Power- Interlock-
\t\tLnkCap2: Supported Link Speeds: 2.5-16GT/s, Crosslink-
\t\tLnkSta2: Current De-emphasis Level: -3.5dB, EqualizationComplete+
\tCapabilities: [110 v1] Access Control Services
\t\tACSCap:\t{FLAGS.replace("TransBlk-", "TransBlk+")}
\t\tACSCtl:\t{FLAGS}
\tKernel driver in use: pcieport
\tKernel modules: shpchp

"""
GPU = """\
41:00.0 3D controller: NVIDIA Corporation Device 2330 (rev a1)
\tSubsystem: NVIDIA Corporation Device 16c1
\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping-
\tNUMA node: 0
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x16 (ok)
\tKernel driver in use: nvidia

"""


def test_whole_port() -> None:
    port, gpu = parse_lspci(PORT + GPU).devices
    assert (port.address, port.domain_assumed) == ("0000:3a:00.0", True)
    assert (port.class_name, port.name, port.revision) == ("PCI bridge", "Acme Root Port A", 4)
    assert (port.numa_node, port.iommu_group, port.slot) == (1, 27, "2")
    assert (port.primary_bus, port.secondary_bus, port.subordinate_bus) == (0x3A, 0x3B, 0x41)
    assert (port.port_type, port.mps_bytes, port.driver) == ("Root Port", 256, "pcieport")
    link = port.link
    assert link is not None and link.unknown == {}
    assert (link.cap_speed_GTps, link.cap_width) == (16.0, 16)
    assert (link.speed_GTps, link.width) == (2.5, 8)
    assert (link.speed_word, link.width_word) == ("downgraded", "downgraded")
    assert port.acs_control == {
        "SrcValid": True,
        "TransBlk": False,
        "ReqRedir": True,
        "CmpltRedir": True,
        "UpstreamFwd": True,
        "EgressCtrl": False,
        "DirectTrans": False,
    }
    assert port.acs_capability is not None and port.acs_capability["TransBlk"]
    assert gpu.device == 0x2330 and gpu.vendor is None and "lspci -nn" in gpu.unknown["vendor"]
    assert gpu.link is not None and (gpu.link.width, gpu.link.width_word) == (16, "ok")


def test_numbers_of_nn_n_and_mm() -> None:
    nn, n, mm, mmnn = (
        parse_lspci(line + "\n").devices[0]
        for line in (
            "0001:0B:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100] [10de:20b2] (rev a1)",  # noqa: E501
            "01:00.0 0302: 10de:20b2 (rev a1)",
            '01:00.0 "3D controller" "NVIDIA Corporation" "GA100 [A100]" -ra1 "NVIDIA" "Device 1"',
            '01:00.0 "3D controller [0302]" "NVIDIA Corporation [10de]" "GA100 [A100] [20b2]" -ra1',  # noqa: E501
        )
    )
    for device in (nn, n, mmnn):
        assert (device.class_code, device.vendor, device.device) == (0x0302, 0x10DE, 0x20B2)
        assert device.revision == 0xA1
    assert (nn.address, nn.domain_assumed) == ("0001:0b:00.0", False)
    assert nn.name == mm.name == "NVIDIA Corporation GA100 [A100]"
    assert (mm.class_name, mm.vendor) == ("3D controller", None)
    assert nn.unknown == {
        "link": "the text is a list without details; `sudo lspci -vv` prints them"
    }


def test_old_lspci_prints_no_words() -> None:
    text = GPU.replace(" (ok), Width x16 (ok)", ", Width x16, TrErr- Train- SlotClk+")
    link = parse_lspci(text).devices[0].link
    assert link is not None and (link.speed_GTps, link.width) == (32.0, 16)
    assert (link.speed_word, link.width_word) == (None, None)


def test_virtual_function_and_empty_slot() -> None:
    text = GPU.replace(
        "32GT/s (ok), Width x16 (ok)", "unknown (downgraded), Width x0 (downgraded)"
    )
    link = parse_lspci(text).devices[0].link
    assert link is not None and (link.speed_GTps, link.width) == (None, 0)
    assert link.unknown == {"speed_GTps": "lspci prints 'unknown'"}


def test_not_root_is_said() -> None:
    text = GPU.split("\tCapabilities")[0] + "\tCapabilities: <access denied>\n"
    device = parse_lspci(text).devices[0]
    assert device.link is None and device.numa_node == 0
    assert device.unknown["link"] == device.unknown["acs_control"]
    assert "run it as root" in device.unknown["link"]


def test_numa_node_that_firmware_does_not_tell() -> None:
    device = parse_lspci(GPU.replace("node: 0", "node: -1")).devices[0]
    assert device.numa_node is None and "does not tell" in device.unknown["numa_node"]


def test_one_v_prints_the_numa_node_among_the_flags() -> None:
    text = (
        "41:00.0 3D controller: X\n\tFlags: bus master, fast devsel, NUMA node 3, IOMMU group 9\n"
    )
    device = parse_lspci(text).devices[0]
    assert (device.numa_node, device.iommu_group) == (3, 9)


def test_path_of_pp() -> None:
    text = "0001:04:01.0/05:00.0/06:00.0 Bridge: NVIDIA Corporation Device 22a3 (rev a1)\n"
    device = parse_lspci(text).devices[0]
    assert device.address == "0001:06:00.0"
    assert device.above == ("0001:04:01.0", "0001:05:00.0")


def test_path_of_p_has_no_buses() -> None:
    text = "04:01.0 PCI bridge: Acme X\n04:01.0/00.0 Bridge: NVIDIA Corporation Device 22a3\n"
    found = parse_lspci(text)
    assert [device.address for device in found.devices] == ["0000:04:01.0"]
    assert found.warnings == ("1 devices of lspci -P are left out: it prints no bus numbers",)


def test_link_lines_without_a_device() -> None:
    text = "".join(line + "\n" for line in GPU.splitlines() if "Lnk" in line)
    found = parse_lspci(text.replace("\t", " ") * 2)
    assert found.devices == () and len(found.loose_links) == 2
    assert found.loose_links[0].cap_speed_GTps == 32.0 and found.loose_links[0].width == 16


def test_grepped_lines_of_devices() -> None:
    grepped = [line for line in (PORT + GPU).splitlines() if re.match(r"\d|\t\tLnkSta:", line)]
    port, gpu = parse_lspci("\n".join(grepped) + "\n").devices
    assert port.link is not None and port.link.width == 8
    assert port.link.unknown["cap_width"] == "the text has no LnkCap line of it"
    assert gpu.link is not None and gpu.link.width == 16


def test_a_lost_device_line_gives_what_is_below_to_nobody() -> None:
    found = parse_lspci(PORT + GPU.split("\n", 1)[1])
    (port,) = found.devices
    assert port.driver == "pcieport" and port.numa_node == 1
    assert port.link is not None and port.link.width == 8
    assert [link.width for link in found.loose_links] == [16]
    assert found.warnings == ("the line of a device is missing; what is below it is left out",)


def test_bus_numbers_of_another_bridge_are_not_taken() -> None:
    text = PORT.replace("primary=3a", "primary=3c")
    (port,) = parse_lspci(text).devices
    assert port.slot == "2" and port.secondary_bus is None and port.driver is None
    assert port.link is None and "link" in port.unknown


@pytest.mark.parametrize("end", range(1, 5))
def test_a_width_that_the_end_may_have_cut_is_unknown(end: int) -> None:
    text = GPU[: GPU.index("Width x16 (ok)") + len("Width x16")][:-end]
    link = parse_lspci(text).devices[0].link
    assert link is not None and link.width is None and "width" in link.unknown
    assert link.cap_width == 16


def test_cut_flags_are_named() -> None:
    device = parse_lspci(PORT[: PORT.index(FLAGS) + 30] + "\n").devices[0]
    assert device.acs_control == {"SrcValid": True, "TransBlk": False, "ReqRedir": True}
    assert "cut or wrapped" in device.unknown["acs_control"]


def test_two_lists_of_one_node_add_up() -> None:
    nn = "41:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330] (rev a1)\n"
    (device,) = parse_lspci(f"$ lspci -nn\n{nn}$ lspci -vv\n{GPU}").devices
    assert device.vendor == 0x10DE and device.link is not None and device.link.width == 16


def test_a_domain_that_the_start_has_cut_is_not_0000() -> None:
    text = "".join(f"0001:0{n}:00.0 3D controller: Acme X\n" for n in range(3))
    found = parse_lspci(text[5:])
    assert [device.address for device in found.devices] == ["0001:01:00.0", "0001:02:00.0"]
    assert "begins within its address" in found.warnings[0]


def test_one_address_with_two_devices_is_unknown() -> None:
    found = parse_lspci(GPU + "41:00.0 Ethernet controller: Acme X\n")
    (device,) = found.devices
    assert device.link is None and device.class_name is None and "class_name" in device.unknown
    assert "two nodes" in found.warnings[0]


def copies() -> list[tuple[str, str]]:
    whole = PORT + GPU
    return [
        ("crlf", whole.replace("\n", "\r\n")),
        ("blanks for tabs", whole.expandtabs()),
        ("no indent", re.sub(r"^\s+(?=\S)", "", whole, flags=re.M)),
        ("quoted", re.sub(r"^", "> ", whole, flags=re.M)),
        ("colours", whole.replace("41:00.0", "\x1b[1m41:00.0\x1b[0m")),
        ("fences", f"```\n{whole}```\n"),
        ("prompt", f"root@a:~# lspci -vvv\n{whole}root@a:~# \n"),
        ("no-break blanks", whole.replace(" ", "\xa0")),
        ("html", "<pre>" + whole.replace("<", "&lt;") + "</pre>"),
    ]


@pytest.mark.parametrize(("name", "text"), copies(), ids=[name for name, _ in copies()])
def test_copying_changes_nothing(name: str, text: str) -> None:
    assert parse_lspci(text).devices == parse_lspci(PORT + GPU).devices


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "GPU 00000000:07:00.0 Off\n",
        "pci 0000:17:00.0: BAR 0: assigned\n",
        "12:30:01.5 something: happened\n",
        "NIC0: mlx5_0\n",
    ],
)
@pytest.mark.parametrize("parse", [parse_lspci, parse_lspci_tree])
def test_other_texts_are_refused_in_one_line(
    text: str, parse: Callable[[str, str], object]
) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, "a.txt")
    assert str(caught.value).startswith("a.txt: ") and "\n" not in str(caught.value)
    assert detect(text) is None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(PORT + GPU)), st.integers(0, len(PORT + GPU)))
def test_a_cut_list_has_no_other_facts(start: int, end: int) -> None:
    whole = {device.address: device for device in parse_lspci(PORT + GPU).devices}
    text = (PORT + GPU)[:end] if start % 2 else (PORT + GPU)[start:]
    try:
        found = parse_lspci(text)
    except ParseError:
        return
    for device in found.devices:
        # "2:00.0", of an address that a cut took the start of, is no address.
        own = whole[device.address]
        for name in ("numa_node", "driver", "secondary_bus", "mps_bytes", "port_type", "slot"):
            assert getattr(device, name) in (None, getattr(own, name))
        if device.link and own.link:
            for name in ("cap_speed_GTps", "cap_width", "speed_GTps", "width", "width_word"):
                assert getattr(device.link, name) in (None, getattr(own.link, name)), name
        assert (device.acs_control or {}).items() <= (own.acs_control or {}).items()


PIECES = st.sampled_from([*(PORT + GPU).splitlines(), "...", "$ lspci", "\\-", "-+-[0000:15]-"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=30)), max_size=40))
def test_any_mixture_gives_a_result_or_one_line(lines: list[str]) -> None:
    text = "\n".join(lines)
    with contextlib.suppress(ParseError):
        for device in parse_lspci(text, "f").devices:
            assert device.address.removeprefix("0000:") in text


def test_kinds() -> None:
    tree = "-+-[0000:00]---00.0\n \\-[0000:15]---01.0\n"
    assert detect(PORT) == "lspci" and kinds_in(f"{GPU}$ lspci -tv\n{tree}") == (
        "lspci",
        "lspci-tree",
    )
    assert len(parse_lspci(f"{GPU}$ lspci -tv\n{tree}").devices) == 1


def seconds(parse: Callable[[str], object], text: str) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        with contextlib.suppress(ParseError):
            parse(text)
        best = min(best, time.process_time() - start)
    return best


@pytest.mark.parametrize(
    "piece",
    [
        PORT + GPU,
        '01:00.0 "a" "b" "c"\n',
        "\t\tLnkSta:\tSpeed 8GT/s, Width x16\n",
        "-+-[0000:00]-",
        "| " * 30,
        "01:00.0/" * 8,
        'x "',
        "+-00.0-[01]-",
        " |\\-",
        "...\n",
        "01:00.0 " + "A " * 40,
    ],
)
@pytest.mark.parametrize("parse", [parse_lspci, parse_lspci_tree])
def test_time_is_linear(piece: str, parse: Callable[[str], object]) -> None:
    times = 40_000 // len(piece)
    # Linear is 4 times, quadratic 16; between them lies what caches and the collector cost.
    assert seconds(parse, piece * times * 4) <= 9 * seconds(parse, piece * times) + 0.05
