"""The schema of the chart's values is that of the types."""

from tools import values_schema


def test_the_schema_is_that_of_the_types() -> None:
    written = values_schema.PATH.read_text()
    assert written == values_schema.schema(), "run .venv/bin/python tools/values_schema.py"
