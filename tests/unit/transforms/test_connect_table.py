"""Kafka Connect's transformations in docs/records.md: each right-hand side loads, and makes of its line what stands beside it."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from copycat_agent.definitions import load_file
from copycat_agent.encoding.encoder import Encoder, compiled
from copycat_agent.formats import Draft
from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.options import AgentOptions

PAGE = Path(__file__).parents[3] / "docs/records.md"
ALL = {
    "Cast", "DropHeaders", "ExtractField", "Filter", "Flatten", "HeaderFrom", "HoistField", "InsertField", "InsertHeader", "MaskField",
    "RegexRouter", "ReplaceField", "SetSchemaMetadata", "TimestampConverter", "TimestampRouter", "ValueToKey",
    "HasHeaderKey", "TopicNameMatches", "RecordIsTombstone",
}  # fmt: skip
"""What Kafka 4 ships in org.apache.kafka.connect.transforms, predicates included."""
SPLIT = Split(SourcePartition("app", "1"), "/var/log/app.log", "/var/log/app.log", SourceOffset(0), 1000, mtime_ms=1_795_341_600_000)


class Line(NamedTuple):
    """A row of the table."""

    name: str
    there: dict[str, Any]
    here: str
    line: bytes
    becomes: dict[str, Any] | None


def table() -> list[Line]:
    rows = [re.split(r"(?<!\\)\|", row)[1:-1] for row in re.findall(r"^\| [A-Za-z].*\|$", PAGE.read_text("utf-8"), re.MULTILINE)]
    return [_line([cell.strip().replace(r"\|", "|") for cell in row]) for row in rows if "`" in row[1]]


def _line(cells: list[str]) -> Line:
    name, there, here, line, becomes = cells
    sections = [text for text in re.findall(r"`([^`]+)`", here) if re.match(r"(transforms|record|converters):", text)]
    return Line(name, json.loads(there.strip("`")), "\n".join(sections), line.strip("`").encode(), json.loads(becomes.strip("`")))


def definition_of(line: Line, tmp_path: Path) -> Any:
    """The row's sections in a whole definition, through the loader."""
    schema = tmp_path / "order.avsc"
    schema.write_text('{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}')
    sections = yaml.safe_load(line.here.replace("SCHEMA_FILE", str(schema)))
    sections["transforms"] = [{"json": {}}, *sections.get("transforms", [])]
    whole = {"name": "app", "source": {"type": "log_file", "include": ["/var/log/app.log"]}, "record": {"topic": "logs"}, **sections}
    path = tmp_path / "app.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    loaded = load_file(path, AgentOptions(), environ={})
    assert loaded.problems == ()
    return loaded.definition


@pytest.mark.parametrize("line", table(), ids=lambda line: line.name)
def test_each_row_makes_of_its_line_what_it_says(line: Line, tmp_path: Path) -> None:
    definition = definition_of(line, tmp_path)
    draft = Draft(line.line, 0, len(line.line) + 1)
    encoder = compiled(pickle.dumps(definition))
    encoder.clock = lambda: SPLIT.mtime_ms / 1000
    if line.becomes is not None and "fields" in line.becomes:
        assert encoder.bind(SPLIT, lambda _: 1, 0).apply(draft)
        assert draft.value == line.becomes["fields"]
        return
    assert sent(encoder, draft, line.becomes) == line.becomes


def sent(encoder: Encoder, draft: Draft, wanted: dict[str, Any] | None) -> dict[str, Any] | None:
    """What of the message the row speaks of; None for a record that was dropped."""
    messages = encoder.bind(SPLIT, lambda _: 1, 0).encode(draft)
    if not messages:
        return None
    ((topic, value, key, _, _, _, timestamp, headers),) = messages
    told = {
        "topic": topic,
        "value": None if value is None else json.loads(value),
        "key": key and key.decode(),
        "timestamp": timestamp,
        "headers": {name: text.decode() for name, text in headers or ()},
    }
    return {name: told[name] for name in wanted or told}


def test_every_transformation_has_a_row() -> None:
    types = {re.sub(r"\$.*|^predicates\.", "", line.there["type"]) for line in table()}
    named = {word for line in table() for word in re.findall(r"[A-Z][A-Za-z]+", line.name)}
    assert ALL - types == set()
    assert ALL - named - {"Connect"} == set()
