"""`topoprobe capture` and its replay: the same report, the same raw files, nothing but a file."""

import io
import json
import os
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from testbed.made import Maker
from topoprobe.cli import main
from topoprobe.model.errors import SourceError
from topoprobe.sources.capture import environment
from topoprobe.sources.deadline import run_readings
from topoprobe.sources.kernel_log import kmsg_lines, read_kernel_log, syslog_lines
from topoprobe.sources.raw_tree import RawReading
from topoprobe.sources.rootfs import Root
from topoprobe.sources.sysfs import read_node

MACHINES = (
    ("hgx-h100-8", "xid:gpu3"), ("dgx-2",), ("gh200",), ("aws-p5", "nic-down"), ("wsl",),
    ("container-2-of-8",), ("pex-multilevel", "pcie-width:gpu0:4"), ("a100-mig", "numa-unknown"),
)  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def untimed(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    report["created"] = None
    for source in report["sources"]:
        source["seconds"] = None
    return report


def unpacked(capture: Path, folder: Path) -> Path:
    """Unpack a capture by the rules of its format alone."""
    with tarfile.open(capture) as tar:
        for member in tar:
            place = folder / member.name
            place.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                place.symlink_to(member.linkname)
            else:
                file = tar.extractfile(member)
                assert file is not None
                place.write_bytes(file.read())
    return folder


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine[0])
def test_a_capture_replays_to_the_same_report(
    machine: tuple[str, ...], maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(maker(*machine).root)
    file = tmp_path / "node.tar.xz"
    assert run(capsys, "capture", "-o", str(file), "--root", root)[:2] == (0, "")
    live = run(capsys, "report", "--json", "--root", root)
    replay = run(capsys, "report", "--json", "--from", str(file))
    assert replay[0] == live[0] == 0
    assert untimed(replay[1]) == untimed(live[1])
    assert untimed(replay[1])["synthetic"] is True
    # The raw files, unpacked, are the same machine for the readers.
    copy = unpacked(file, tmp_path / "copy") / "root"
    before, after = (read_node(Root(path), 10) for path in (root, str(copy)))
    assert after.sysfs == before.sysfs
    assert after.host == before.host
    assert untimed(run(capsys, "report", "--json", "--root", str(copy))[1]) == untimed(live[1])


def test_a_redacted_capture_replays_to_the_same_map(
    maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(maker("hgx-h100-8").root)
    reports = []
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    for flags in ([], ["--redact"], ["--redact-key", str(key)]):
        file = str(tmp_path / "node.tar.xz")
        assert run(capsys, "capture", "-o", file, "--root", root, *flags)[0] == 0
        reports.append(untimed(run(capsys, "report", "--json", "--from", file)[1]))
    uuids = [[d.pop("uuid") for d in r["topology"]["devices"]] for r in reports]
    assert reports[0] == reports[1] == reports[2]
    known = [[uuid for uuid in some if uuid] for some in uuids]
    assert len(set(known[0] + known[1] + known[2])) == 24


def test_what_is_in_a_capture(
    maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = maker("hgx-h100-4", "xid:gpu1").root
    # Links that lead out, absolute ones, FIFOs and rubbish in a tree harm nobody.
    nodes = root / "sys/devices/system/node/node0"
    (nodes / "distance").unlink()
    (nodes / "distance").symlink_to("/etc/passwd")
    os.mkfifo(root / "proc/net")
    (root / "sys/class/net/out").symlink_to("../../../../../../etc")
    file = tmp_path / "node.tar.xz"
    said = run(capsys, "capture", "-o", str(file), "--root", str(root))[2]
    assert "environment.json: " in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as tar:
        members = tar.getmembers()
        log = tar.extractfile("kernel.log")
        manifest = tar.extractfile("manifest.json")
        assert log and manifest
        assert "NVRM: Xid (PCI:" in log.read().decode()
        told = json.load(manifest)
    names = [member.name for member in members]
    assert names == sorted(names)
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members} == {(0, 0, 0, "")}
    assert all(member.isreg() or member.issym() for member in members)
    assert not any(name.endswith("passwd") or "out" in name.split("/") for name in names)
    assert (told["schema"], told["synthetic"], told["redacted"]) == (
        "topoprobe/capture/1", True, None,
    )  # fmt: skip
    assert run(capsys, "report", "--from", str(file))[0] == 0


def test_two_captures_of_a_node_differ_in_times_only(
    maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(maker("t4-single").root)
    contents = []
    for name in ("a", "b"):
        run(capsys, "capture", "-o", str(tmp_path / name), "--root", root)
        with tarfile.open(tmp_path / name) as tar:
            contents.append(
                {m.name: m.linkname or (tar.extractfile(m) or io.BytesIO()).read() for m in tar}
            )
    differing = {name for name in contents[0] if contents[0][name] != contents[1].get(name)}
    assert contents[0].keys() == contents[1].keys()
    assert differing <= {"manifest.json", "snapshot.json"}


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder", "device", "nowhere"])
def test_nothing_but_a_file_is_written(
    kind: str, maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    victim = tmp_path / "victim"
    victim.write_text("mine")
    if kind == "link":
        target.symlink_to(victim)
    elif kind == "dangling":
        target.symlink_to(tmp_path / "new")
    elif kind == "fifo":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    elif kind == "device":
        target = Path("/dev/null")
    else:
        target = tmp_path / "no" / "target"
    before = sorted(os.listdir(tmp_path))
    code, out, said = run(
        capsys, "capture", "-o", str(target), "--root", str(maker("t4-single").root)
    )
    assert (code, out) == (1, "")
    assert str(target) in said.splitlines()[-1]
    assert sorted(os.listdir(tmp_path)) == before
    assert victim.read_text() == "mine"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_an_older_capture_is_replaced(
    maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.tar.xz"
    file.write_text("old")
    assert run(capsys, "capture", "-o", str(file), "--root", str(maker("t4-single").root))[0] == 0
    assert file.read_bytes()[:6] == b"\xfd7zXZ\0"
    assert os.listdir(tmp_path) == ["node.tar.xz"]


@pytest.mark.parametrize(("content", "says"), [(b"short", "16"), (None, "No such file")])
def test_a_wrong_key_writes_nothing(
    content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, file = tmp_path / "key", tmp_path / "node.tar.xz"
    if content is not None:
        key.write_bytes(content)
    code, _, said = run(capsys, "capture", "-o", str(file), "--redact-key", str(key))
    assert code == 1
    assert says in said
    assert not file.exists()


def test_wrong_usage_and_wrong_files_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["capture"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run(capsys, "capture", "-o", str(tmp_path / "x"), "--root", "/nonexistent")[0] == 1
    broken = tmp_path / "broken.tar.xz"
    broken.write_bytes(b"\xfd7zXZ\0 and no more")
    code, _, said = run(capsys, "report", "--from", str(broken))
    assert code == 1
    assert said.count("\n") == 1
    assert "damaged archive" in said


def test_the_live_machine_can_be_copied() -> None:
    raw = RawReading(Root("/"), 10)
    run_readings([raw.reading])
    tree = raw.result()
    assert tree.entries["/proc/cpuinfo"].data
    assert not any(path.split("/")[2:3] == [str(os.getpid())] for path in tree.entries)
    assert all(not (entry.target or "").startswith("/") for entry in tree.entries.values())


def test_only_variables_of_communication_libraries_are_taken() -> None:
    taken = environment({
        "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0", "UCX_TLS": "rc", "FI_PROVIDER": "efa",
        "AWS_SECRET_ACCESS_KEY": "x", "PATH": "/bin", "XNCCL_A": "1", "NCCL_LONG": "a" * 9000,
    })  # fmt: skip
    assert list(taken) == [
        "CUDA_VISIBLE_DEVICES", "FI_PROVIDER", "NCCL_DEBUG", "NCCL_LONG", "UCX_TLS",
    ]  # fmt: skip
    assert len(taken["NCCL_LONG"]) == 4096


def test_records_of_kmsg_are_the_kernels_own_and_about_links() -> None:
    text = (
        "3,1,12000001,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
        " SUBSYSTEM=pci\n"
        "4,2,13500000,-;pcieport 0000:3a:00.0: AER: Corrected error received\n"
        # Facility 1: a program wrote it. Then one about a disk, and rubbish.
        "11,3,14000000,-;NVRM: Xid (PCI:0000:3b:00): 31, made up\n"
        "6,4,15000000,-;sd 0:0:0:0: [sda] Attached SCSI disk\n"
        "x,y;NVRM\n;NVRM\nNVRM\n6,5,16000000,c,caller=T1;mlx5_core 0000:17:00.0: Port up\n"
    )
    assert kmsg_lines(text) == [
        "[   12.000001] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "[   13.500000] pcieport 0000:3a:00.0: AER: Corrected error received",
        "[   16.000000] mlx5_core 0000:17:00.0: Port up",
    ]


def test_lines_of_a_log_lose_their_host() -> None:
    text = (
        "Nov 20 17:05:01 node17 kernel: [ 12.0] NVRM: Xid (PCI:0000:3b:00): 79, x\n"
        "2026-11-20T17:05:01.123456+00:00 node17 kernel: mlx5_core 0000:17:00.0: y\n"
        "Nov 20 17:05:02 node17 sshd[12]: NVRM: Xid from a program\n"
        "[   12.000000] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034\n"
        "Nov 20 17:05:02 node17 kernel: usb 1-1: new device\n"
    )
    assert syslog_lines(text) == [
        "Nov 20 17:05:01 [ 12.0] NVRM: Xid (PCI:0000:3b:00): 79, x",
        "2026-11-20T17:05:01.123456+00:00 mlx5_core 0000:17:00.0: y",
        "[   12.000000] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034",
    ]


def test_without_kmsg_the_log_file_is_read_and_without_any_there_is_a_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "var/log").mkdir(parents=True)
    line = "[   12.000000] NVRM: Xid (PCI:0000:3b:00): 79, x"
    (tmp_path / "var/log/messages").write_text(line + "\n")
    found = read_kernel_log(Root(str(tmp_path)))
    assert (found.lines, found.path) == ((line,), "/var/log/messages")
    (tmp_path / "var/log/messages").unlink()
    with pytest.raises(SourceError, match="not there"):
        read_kernel_log(Root(str(tmp_path)))
