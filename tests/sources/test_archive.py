"""Captures as hostile input: each kind of harm in an archive of its own, and damage at random."""

import io
import lzma
import tarfile
import time
from collections.abc import Callable, Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topoprobe.model.errors import ParseError, SchemaError, TopoprobeError
from topoprobe.model.gpu import NvmlGpu, NvmlPair, NvmlRecord
from topoprobe.model.snapshot import HostRecord, PciRecord, Snapshot, SysfsRecord
from topoprobe.sources.archive import is_capture, read_capture

MANIFEST = {"schema": "topoprobe/capture/1", "tool": "topoprobe 1", "created": "c"}
SNAPSHOT = Snapshot(
    created="2026-01-01T00:00:00Z",
    host=HostRecord(name="node1"),
    sysfs=SysfsRecord(pci=(PciRecord(address="0000:3b:00.0", vendor=0x10DE),)),
)


def json(value: object) -> bytes:
    return msgspec.json.encode(value)


GOOD: tuple[tuple[str, bytes], ...] = (
    ("manifest.json", json(MANIFEST)),
    ("root/sys/class/net/eth0/mtu", b"1500\n"),
    ("snapshot.json", json(SNAPSHOT)),
)


def tar_of(
    files: Iterable[tuple[str, bytes]],
    *more: tarfile.TarInfo,
    kind: int = tarfile.PAX_FORMAT,
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in more:
            tar.addfile(info)
    return buffer.getvalue()


def capture_of(files: Iterable[tuple[str, bytes]], *more: tarfile.TarInfo) -> bytes:
    return lzma.compress(tar_of(files, *more), preset=1)


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def refused(data: bytes) -> str:
    with pytest.raises((ParseError, SchemaError)) as caught:
        read_capture(data, "node.tar.xz")
    line = str(caught.value)
    assert line.startswith("node.tar.xz: ")
    assert "\n" not in line
    return line


def test_a_whole_capture_gives_its_snapshot() -> None:
    data = capture_of(GOOD)
    assert is_capture(data)
    assert read_capture(data, "node.tar.xz") == SNAPSHOT


def test_an_unpacked_and_packed_again_capture_is_read_too() -> None:
    folders = [entry("root", tarfile.DIRTYPE), entry("root/sys", tarfile.DIRTYPE)]
    dotted = [(f"./{name}", data) for name, data in GOOD]
    long_name = ("root/" + "a" * 90 + "/" + "b" * 200, b"x")
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        data = tar_of([*dotted, long_name], *folders, kind=kind)
        assert is_capture(data)
        assert read_capture(data, "node.tar") == SNAPSHOT


def test_the_mark_of_the_manifest_makes_it_synthetic() -> None:
    files = [("manifest.json", json({**MANIFEST, "synthetic": True})), GOOD[2]]
    assert read_capture(capture_of(files), "f").synthetic


def test_texts_and_reports_are_no_captures() -> None:
    for data in (
        b"",
        b"\tGPU0\tCPU Affinity\nGPU0\t X \t0-31\n",
        b'{"schema": "topoprobe/report/1"}',
    ):
        assert not is_capture(data)


@pytest.mark.parametrize(
    ("harmful", "says"),
    [
        (entry("/etc/passwd"), "outside"),
        (entry("../x"), "outside"),
        (entry("root/../../x"), "outside"),
        (entry("./../x"), "outside"),
        (entry("/" + "a/" * 120 + "x"), "outside"),
        (entry("root/l", tarfile.SYMTYPE, "/etc"), "outside"),
        (entry("root/l", tarfile.SYMTYPE, "../../etc"), "outside"),
        (entry("root/l", tarfile.SYMTYPE, "a/../../../etc"), "outside"),
        (entry("root/l", tarfile.SYMTYPE, ""), "outside"),
        (entry("root/l", tarfile.SYMTYPE, "../" * 100 + "etc"), "outside"),
        (entry("root/h", tarfile.LNKTYPE, "manifest.json"), "hard link"),
        (entry("root/c", tarfile.CHRTYPE), "device"),
        (entry("root/b", tarfile.BLKTYPE), "device"),
        (entry("root/f", tarfile.FIFOTYPE), "FIFO"),
        (entry("root/s", tarfile.GNUTYPE_SPARSE), "sparse"),
        (entry("root/v", b"V"), "unknown kind"),
    ],
)
def test_members_that_no_capture_holds_are_refused(harmful: tarfile.TarInfo, says: str) -> None:
    assert says in refused(capture_of(GOOD, harmful))


def test_a_link_inside_is_accepted() -> None:
    link = entry("root/sys/bus/pci/devices/0000:3b:00.0", tarfile.SYMTYPE, "../../../devices/x")
    assert read_capture(capture_of(GOOD, link), "f") == SNAPSHOT


def test_a_bomb_of_zeros_is_refused_quickly() -> None:
    info = tarfile.TarInfo("root/sys/zeros")
    info.size = 1 << 30
    head = info.tobuf(tarfile.USTAR_FORMAT)
    packer = lzma.LZMACompressor(preset=0)
    parts = [packer.compress(head)]
    parts += [packer.compress(bytes(1 << 22)) for _ in range(1 << 8)]
    bomb = b"".join([*parts, packer.flush()])
    assert len(bomb) < 1 << 20
    started = time.monotonic()
    assert "more than" in refused(bomb)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("name", ["root/x", "./"])
def test_millions_of_entries_are_refused_quickly(name: str) -> None:
    head = tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT)
    packer = lzma.LZMACompressor(preset=0)
    thousand = head * 1000
    many = b"".join([*(packer.compress(thousand) for _ in range(300)), packer.flush()])
    started = time.monotonic()
    assert "more than 100000 files" in refused(many)
    assert time.monotonic() - started < 10


def test_millions_of_pax_headers_are_refused() -> None:
    info = tarfile.TarInfo("h")
    info.type, info.size = tarfile.XHDTYPE, 0
    many = lzma.compress(info.tobuf(tarfile.USTAR_FORMAT) * 150_000, preset=0)
    assert "more than 100000 files" in refused(many)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_a_huge_header_is_refused_before_it_is_read(kind: bytes) -> None:
    info = tarfile.TarInfo("h")
    info.type, info.size = kind, 200 << 20
    data = info.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20)
    assert "header of 209715200 bytes" in refused(lzma.compress(data, preset=0))


@pytest.mark.parametrize(
    "pax",
    [{"size": "99999999999"}, {"GNU.sparse.map": "0,1"}, {"path": "../../etc/passwd"},
     {"path": "/etc/passwd"}],
)  # fmt: skip
def test_pax_headers_cannot_smuggle(pax: dict[str, str]) -> None:
    info = entry("root/x")
    info.pax_headers = pax
    refused(capture_of(GOOD, info))


@pytest.mark.parametrize(
    "body", [b"", b"5", b"99 path=x\n", b"-3 path=x\n", b"0 path=x\n", b"x" * 40]
)
def test_damaged_pax_headers_are_refused_or_empty(body: bytes) -> None:
    info = tarfile.TarInfo("h")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    head = info.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)
    data = lzma.compress(head + tar_of(GOOD))
    if body:
        assert "pax" in refused(data)
    else:
        assert read_capture(data, "f") == SNAPSHOT


def test_a_file_twice_is_refused() -> None:
    for again in (0, 2):
        assert "twice" in refused(capture_of([*GOOD, GOOD[again]]))


def test_a_manifest_too_large_is_refused() -> None:
    assert "more than any capture" in refused(capture_of([("manifest.json", bytes(2 << 20))]))


def test_missing_parts_are_named() -> None:
    assert "no manifest.json" in refused(capture_of(GOOD[1:]))
    assert "without snapshot.json" in refused(capture_of(GOOD[:2]))
    assert "no manifest.json" in refused(capture_of([]))


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ({**MANIFEST, "schema": "topoprobe/capture/2"}, "use a newer topoprobe"),
        ({**MANIFEST, "schema": "other/1"}, "not a topoprobe capture"),
        ({**MANIFEST, "schema": None}, "not a topoprobe capture"),
        ({**MANIFEST, "schema": "topoprobe/capture/x\n\x1b[2J"}, "not a topoprobe capture"),
        ({"schema": "topoprobe/capture/1"}, "not a valid"),
        ([], "not a valid"),
    ],
)
def test_other_schemas_are_told_apart(manifest: object, says: str) -> None:
    assert says in refused(capture_of([("manifest.json", json(manifest)), GOOD[2]]))


def test_a_snapshot_of_the_future_asks_for_a_newer_topoprobe() -> None:
    later = {"schema": "topoprobe/snapshot/2", "created": "x"}
    assert "newer topoprobe" in refused(capture_of([GOOD[0], ("snapshot.json", json(later))]))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"schema":"topoprobe/snapshot/1"',
        b"[" * 5000,
        b'{"schema":"topoprobe/snapshot/1","created":"a","x":' + b"[" * 100_000,
    ],
)
def test_a_damaged_snapshot_is_refused(body: bytes) -> None:
    assert "not a valid" in refused(capture_of([GOOD[0], ("snapshot.json", body)]))


def test_pairs_of_gpus_that_are_not_there_are_refused() -> None:
    nvml = NvmlRecord(gpus=(NvmlGpu(index=0),), pairs=(NvmlPair(a=0, b=7),))
    body = json(msgspec.structs.replace(SNAPSHOT, nvml=nvml))
    assert "not in it" in refused(capture_of([GOOD[0], ("snapshot.json", body)]))


def test_a_crowd_of_devices_is_refused_before_a_map_is_made_of_it() -> None:
    many = tuple(PciRecord(address=f"{i:04x}:00:00.0", class_code=0x30200) for i in range(5000))
    body = json(msgspec.structs.replace(SNAPSHOT, sysfs=SysfsRecord(pci=many)))
    assert "5000 devices" in refused(capture_of([GOOD[0], ("snapshot.json", body)]))


def test_cut_and_extended_archives_are_refused() -> None:
    data = capture_of(GOOD)
    for end in range(6, len(data), 7):
        refused(data[:end])
    assert "behind the end" in refused(data + b"more")
    assert "behind the end" in refused(data + data)
    tar = tar_of(GOOD)
    assert "behind the end" in refused(lzma.compress(tar + tar))
    assert "cut short" in refused(lzma.compress(tar[:700]))
    assert "cut short" in refused(lzma.compress(tar[:2048]))


def test_an_xz_that_asks_for_much_memory_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 512 << 20}]
    packer = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=filters)
    assert "emory" in refused(packer.compress(tar_of(GOOD)) + packer.flush())


TAR, XZ = tar_of(GOOD), capture_of(GOOD)


def damaged(whole: bytes) -> st.SearchStrategy[bytes]:
    def change(changes: list[tuple[int, bytes]]) -> bytes:
        data = bytearray(whole)
        for at, new in changes:
            data[at : at + len(new)] = new
        return bytes(data)

    place = st.integers(0, len(whole) - 1)
    return st.lists(st.tuples(place, st.binary(min_size=1, max_size=12)), max_size=6).map(change)


@pytest.mark.parametrize("pack", [bytes, lambda data: lzma.compress(data, preset=0)])
@given(data=st.one_of(damaged(TAR), st.binary(max_size=2048)))
@settings(max_examples=300, deadline=None)
def test_damage_raises_nothing_but_our_errors(pack: Callable[[bytes], bytes], data: bytes) -> None:
    try:
        read_capture(pack(data), "f")
    except TopoprobeError as error:
        assert "\n" not in str(error)


@given(damaged(XZ))
@settings(max_examples=300, deadline=None)
def test_damage_of_the_compressed_raises_nothing_but_our_errors(data: bytes) -> None:
    try:
        read_capture(data, "f")
    except TopoprobeError as error:
        assert "\n" not in str(error)
