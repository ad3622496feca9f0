"""The library exports what the drivers of a branch do, so that pynvml misses what they lack."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fixtures"))

from fakenvml.build import ABIS, FLAGS, BuildError, MissingError, build, exports, find_header
from fakenvml.trial import Trial

# From which branch on a driver has the function: read off the real libraries of Debian.
SINCE = {
    "nvmlDeviceGetTopologyCommonAncestor": 470,
    "nvmlDeviceGetP2PStatus": 470,
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": 470,
    "nvmlDeviceGetNvLinkRemoteDeviceType": 470,
    "nvmlDeviceGetFieldValues": 470,
    "nvmlDeviceGetPciInfo_v3": 470,
    "nvmlDeviceGetMemoryAffinity": 470,
    "nvmlDeviceGetMemoryInfo_v2": 535,
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": 535,
    "nvmlDeviceGetPcieSpeed": 535,
    "nvmlDeviceGetPcieLinkMaxSpeed": 535,
    "nvmlDeviceGetGpuFabricInfo": 535,
    "nvmlDeviceGetGpuFabricInfoV": 550,
    "nvmlDeviceGetPciInfoExt": 550,
    "nvmlDeviceGetNumaNodeId": 550,
    "nvmlDeviceGetC2cModeInfoV": 550,
    "nvmlDeviceGetPlatformInfo": 999,
    "nvmlDeviceGetNvLinkInfo": 999,
    "nvmlDeviceGetGpuFabricInfo_v4": 999,
}


@pytest.fixture(scope="module", params=ABIS)
def trial(request: pytest.FixtureRequest) -> Trial:
    try:
        return Trial(build(abi=request.param))
    except MissingError as error:
        pytest.skip(str(error))


def branch(trial: Trial) -> int:
    """Return the number of the branch; the newest is beyond all."""
    name = trial.folder.name.split("-")[0]
    return 999 if name == "current" else int(name)


def test_pynvml_finds_the_functions_of_the_branch(trial: Trial) -> None:
    # 13 is FUNCTION_NOT_FOUND, which pynvml raises when it asks for the pointer.
    questions = [f"n._nvmlGetFunctionPointer('{name}') and 0" for name in SINCE]
    found = dict(zip(SINCE, trial.ask(*questions), strict=True))
    expected = {name: 0 if since <= branch(trial) else "!13" for name, since in SINCE.items()}
    assert found == expected


def test_an_old_driver_still_answers_what_it_has(trial: Trial) -> None:
    questions = (
        "n.nvmlDeviceGetName(h[0])",
        "n.nvmlDeviceGetNvLinkState(h[0], 2)",
        "fields(h[0], 91)",
    )
    assert trial.ask(*questions) == ["NVIDIA H100 80GB HBM3", 0, [5]]


def test_exports_are_exactly_those_of_the_list(trial: Trial) -> None:
    command = ["nm", "-D", "--defined-only", str(trial.folder / "libnvidia-ml.so.1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    names = sorted(line.split()[2] for line in done.stdout.splitlines())
    assert names == sorted(exports(trial.folder.name.split("-")[0], find_header()))


def test_both_names_of_the_library_are_there(trial: Trial) -> None:
    # In a process of its own, not to leave the fake in this one.
    code = (
        "import ctypes\n"
        "a, b = ctypes.CDLL('libnvidia-ml.so'), ctypes.CDLL('libnvidia-ml.so.1')\n"
        "print(a._handle == b._handle)"
    )
    assert trial.python(code).output == "True\n"
    assert not (trial.folder / "libnvidia-ml.so").readlink().is_absolute()


def test_a_second_build_is_the_first(trial: Trial) -> None:
    assert build(abi=trial.folder.name.split("-")[0]) == trial.folder


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="no gcc"):
        build(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr("fakenvml.build.VENV", tmp_path)
    monkeypatch.delenv("NVML_INCLUDE", raising=False)
    with pytest.raises(BuildError, match="pip install nvidia-nvml-dev"):
        find_header()
    with pytest.raises(BuildError, match="unknown ABI '340'"):
        build(tmp_path, "340")
    with pytest.raises(BuildError, match="is an ABI and no directory"):
        build(Path("535"))


def test_a_compiler_s_complaint_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        find_header()
    except MissingError as error:
        pytest.skip(str(error))
    gcc = tmp_path / "gcc"
    gcc.write_text("#!/bin/sh\necho 'no such thing' >&2\nexit 1\n")
    gcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(BuildError, match="no such thing"):
        build(tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_the_source_compiles_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fakenvml.build.FLAGS", [*FLAGS, "-Werror"])
    try:
        build(tmp_path)
    except MissingError as error:
        pytest.skip(str(error))


def test_structs_have_the_sizes_of_their_versions() -> None:
    # The numbers that clients pass; pynvml's own classes are the other witness.
    pynvml = pytest.importorskip("pynvml")
    assert ctypes.sizeof(pynvml.c_nvmlGpuFabricInfo_v2_t) == 0x24
    assert ctypes.sizeof(pynvml.c_nvmlGpuFabricInfo_v3_t) == 0x28
    assert ctypes.sizeof(pynvml.nvmlPciInfoExt_v1_t) == 0x40
