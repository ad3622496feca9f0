"""A report takes the place of nothing but a regular file."""

import os
import stat
from pathlib import Path

import pytest

from topoprobe.model.errors import InputError
from topoprobe.output.files import write_atomically


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("old and longer than the new one")
    write_atomically(str(target), "new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_what_is_no_regular_file_stays(kind: str, tmp_path: Path) -> None:
    target, other = tmp_path / "target", tmp_path / "other"
    other.write_text("kept")
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "link":
        target.symlink_to(other)
    else:
        target.mkdir()
    before = target.lstat().st_mode
    with pytest.raises(InputError, match=r"target: (not a regular file|is a directory)"):
        write_atomically(str(target), "new")
    assert target.lstat().st_mode == before
    assert other.read_text() == "kept"


def test_a_device_is_no_target() -> None:
    with pytest.raises(InputError, match="/dev/null: not a regular file"):
        write_atomically("/dev/null", "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
