"""Run the real program inside a machine and read its report."""

import sys
from collections.abc import Callable

import pytest
from msgspec import json

from testbed.made import Made
from topoprobe.model.report import Report

Inspect = Callable[..., Report]


@pytest.fixture
def inspect(nvml: None) -> Inspect:
    """Return a function that gives the report that the program makes inside a machine."""

    def run(made: Made, *options: str) -> Report:
        command = [sys.executable, "-m", "topoprobe", "report", "--json", *options]
        result = made.run(*command)
        assert result.code == 0, result.errors[-2000:]
        return json.decode(result.output, type=Report)

    return run
