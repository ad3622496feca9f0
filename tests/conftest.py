"""Fixtures: every machine in turn, machines by name, the programs that judge them.

Hypothesis draws the same examples in every run: a red run can be run again.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fixtures"))

from testbed.describe import load_machine, machine_names
from testbed.made import Made, Maker, make, makers
from testbed.runner import ORACLES, NoLibraryError, library_for, namespaces_work

settings.register_profile("same", derandomize=True)
settings.load_profile("same")


@pytest.fixture(scope="module", params=machine_names())
def made(request: pytest.FixtureRequest) -> Iterator[Made]:
    """Every machine in turn; a test that takes this runs once for each."""
    result = make(request.param)
    yield result
    shutil.rmtree(result.root)


@pytest.fixture
def maker() -> Iterator[Maker]:
    """Make machines by name, with faults."""
    with makers() as maker:
        yield maker


@pytest.fixture
def namespaces() -> None:
    """Skip where no program can be run inside a machine."""
    if not namespaces_work():
        pytest.skip("no mount namespaces here (neither as root nor as user)")


@pytest.fixture
def nvml(namespaces: None) -> None:
    """Skip where there is no fake NVML to run a program on."""
    try:
        library_for(load_machine("t4-single"))
    except NoLibraryError as error:
        pytest.skip(str(error))


@pytest.fixture
def oracle() -> Callable[[str], str]:
    """Find a program that was fetched or is installed; the test skips where it is not."""

    def find(name: str) -> str:
        found = shutil.which(name, path=f"{ORACLES / 'bin'}:/usr/bin:/usr/sbin:/sbin")
        if not found:
            pytest.skip(f"{name} is not here; scripts/oracles fetches it")
        return found

    return find
