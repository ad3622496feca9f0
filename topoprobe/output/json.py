"""The Report as JSON, and its JSON Schema."""

from typing import Any

import msgspec

from topoprobe.model.report import Report


def to_json(report: Report) -> bytes:
    """Return the report as one indented JSON document with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of ``topoprobe/report/1``: every key required, more allowed."""
    schema = msgspec.json.schema(Report)
    for struct in schema["$defs"].values():
        if "properties" in struct:
            # Fields have defaults for readers of older reports; a writer writes them all.
            struct["required"] = sorted(struct["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "topoprobe/report/1",
        **schema,
    }
