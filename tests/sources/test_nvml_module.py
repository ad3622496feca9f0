"""Which pynvml would be imported."""

from pathlib import Path

from topoprobe import pipeline
from topoprobe.health.registry import run_checks
from topoprobe.model.snapshot import Snapshot
from topoprobe.model.topology import Topology
from topoprobe.sources.nvml_module import foreign_pynvml


def make(folder: Path, *names: str) -> str:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return str(folder)


def test_binding_wrapper_and_stranger(tmp_path: Path) -> None:
    ours = make(tmp_path / "a", "pynvml.py", "nvidia_ml_py-13.6.dist-info/METADATA")
    wrapper = make(tmp_path / "b", "pynvml/__init__.py", "pynvml-11.5.dist-info/METADATA")
    stranger = make(tmp_path / "c", "pynvml.py")
    both = make(tmp_path / "d", "pynvml.py", "pynvml/__init__.py", "nvidia_ml_py-12.dist-info/X")

    assert foreign_pynvml([str(tmp_path / "no"), ours, wrapper]) is None
    assert foreign_pynvml([wrapper, ours]) == f"{wrapper}/pynvml/__init__.py"
    assert foreign_pynvml([stranger, ours]) == f"{stranger}/pynvml.py"
    assert foreign_pynvml([both]) == f"{both}/pynvml/__init__.py"
    assert foreign_pynvml([]) is None


def test_it_is_a_warning() -> None:
    found = run_checks(Snapshot(created="", foreign_pynvml="/x/pynvml.py"), Topology())

    assert [(f.id, f.status) for f in found] == [("source-pynvml", "warn")]
    assert "/x/pynvml.py" in found[0].message


def test_this_environment_is_clean() -> None:
    assert pipeline.inspect_node().foreign_pynvml is None
