"""Dead letters of spooled files are read back by the format that a task has."""

from __future__ import annotations

from typing import Any

import pytest

from copycat_agent.dlq.letter import DeadLetter, record_of
from copycat_agent.formats.records import FORMATS
from copycat_agent.sources import SOURCES


@pytest.mark.parametrize(
    ("form", "raw", "columns", "value"),
    [
        ({"type": "csv", "delimiter": ";", "types": {"qty": "int"}}, b"o5;7", ("id", "qty"), {"id": "o5", "qty": 7}),
        ({"type": "fixed_width", "columns": ({"name": "id", "width": 2},)}, b"o5", (), {"id": "o5"}),
        ({"type": "json"}, b'{"id": 5}', (), {"id": 5}),
        ({"type": "xml"}, b"<r><id>5</id></r>", (), {"id": "5"}),
    ],
)
def test_a_record_is_read_by_itself(form: dict[str, Any], raw: bytes, columns: tuple[str, ...], value: dict[str, Any]) -> None:
    kind = SOURCES["spool_dir"]
    options = kind.options.model_validate({"type": "spool_dir", "dir": "/in", "format": FORMATS[form["type"]].options.model_validate(form)})
    letter = DeadLetter(
        partition=0, offset=0, raw=raw, said="", connector="drops", host="", path="/in/a", file_key="", start=100, end=100 + len(raw),
        number=9, partial=False, stage="record", error="DataError", message="", columns=columns, at_ms=0, file_time_ms=0,
    )  # fmt: skip
    row = record_of(letter, kind.framing(options, raw=False))
    assert (row.value, row.start) == (value, 100)
