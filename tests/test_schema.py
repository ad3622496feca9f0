"""The committed JSON Schema is that of the code."""

import json
from pathlib import Path

from topoprobe.output.json import json_schema

FILE = Path(__file__).resolve().parents[1] / "docs/schema/report-1.json"


def test_committed_schema_is_in_step() -> None:
    """Run scripts/generate after a change of the report, and say so in CHANGELOG.md."""
    assert json.loads(FILE.read_text()) == json.loads(json.dumps(json_schema()))
