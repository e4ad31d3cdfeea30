"""A connector that would read what it writes is refused, as far as names tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from copycat_agent.definitions import load_file
from copycat_agent.options import AgentOptions, KafkaOptions

if TYPE_CHECKING:
    from pathlib import Path

HERE = AgentOptions(kafka=KafkaOptions(bootstrap_servers=("here:9092",)))


def told(tmp_path: Path, source: dict[str, Any], topic: str, **sections: Any) -> list[tuple[str, int]]:
    path = tmp_path / "app.yaml"
    record = {"topic": topic, **sections.pop("record", {})}
    path.write_text(yaml.safe_dump({"name": "app", "source": {"type": "kafka", **source}, "record": record, **sections}, sort_keys=False))
    return [(one.text, one.line) for one in load_file(path, HERE).problems]


@pytest.mark.parametrize(
    ("source", "topic", "sections"),
    [
        ({"topics": ["orders"]}, "orders", {}),
        ({"topics": ["orders", "or.*"]}, "orders.copy", {}),
        ({"topics": [".*"]}, "copy.{@topic}", {}),
        ({"topics": ["logs[.].*"]}, "logs.{level}", {}),
        ({"topics": ["copy.a", "a"]}, "copy.{@topic}", {}),
        ({"topics": ["a"]}, "{t}", {"record": {"allowed_topics": ["b", "a"]}}),
        ({"topics": ["a.*"]}, "b", {"errors": {"tolerance": "all", "dlq": {"topic": "a.dlq"}}}),
        ({"topics": ["orders"], "kafka": {"bootstrap_servers": ["other:9092", "here:9092"]}}, "orders", {}),
    ],
)
def test_what_would_be_read_again_is_told(tmp_path: Path, source: dict[str, Any], topic: str, sections: dict[str, Any]) -> None:
    ((words, line),) = told(tmp_path, source, topic, **sections)
    assert "the connector would read what it writes, for ever" in words
    assert line > 1


@pytest.mark.parametrize(
    ("source", "topic"),
    [
        ({"topics": ["orders"]}, "orders.copy"),
        ({"topics": ["orders", "orders-.*"]}, "copy.{@topic}"),
        ({"topics": [".*"], "exclude": ["copy[.].*"]}, "copy.{@topic}"),
        ({"topics": [".*"], "exclude": ["copy"]}, "copy"),
        ({"topics": ["orders"], "kafka": {"bootstrap_servers": ["other:9092"]}}, "orders"),
    ],
)
def test_what_is_none_is_let_through(tmp_path: Path, source: dict[str, Any], topic: str) -> None:
    assert told(tmp_path, source, topic) == []
