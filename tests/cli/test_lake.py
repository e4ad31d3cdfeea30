"""The commands and a connector from a topic into files: nothing but a run writes any, and what is shown is told in its words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.lake.conftest import as_json, definition_of, send
from tests.lake.written import files_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.cli.conftest import Done, Said


@pytest.fixture
def lake(tmp_path: Path, connectors: Path, broker: DevBroker, make_topic: Callable[..., str]) -> Path:
    """A connector `lake` of a topic with 30 records, in connectors.d; returns where its files would go."""
    topic, root = make_topic(), tmp_path / "lake"
    send(broker.bootstrap, topic, as_json({"n": number} for number in range(30)))
    kafka = {"bootstrap_servers": [broker.bootstrap]}
    document = definition_of("lake", [topic], root, errors={"tolerance": "all", "dlq": {"topic": "letters"}}, kafka=kafka)
    (connectors / "lake.yaml").write_text(yaml.safe_dump(document), "utf-8")
    return root


def test_a_dry_run_shows_records_and_writes_no_file(quick: Callable[..., Done], connectors: Path, lake: Path) -> None:
    done = quick("run", connectors, "--dry-run", "--state-dir", lake.parent / "state")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, len(shown)) == (0, 30), done.stderr
    assert json.loads(shown[7]["value"]) == {"n": 7}
    assert files_below(lake) == []


def test_what_would_be_written_is_shown(in_process: Callable[..., Said], connectors: Path, lake: Path) -> None:
    checked = in_process("check", connectors)
    assert f"kafka -> file://{lake}/{{@topic}}" in checked.out
    tried = in_process("try", "-d", connectors / "lake.yaml", "-n", "1", "--format", "json")
    (record,) = json.loads(tried.out)["records"]
    assert (record["outputs"][0]["value"], record["outputs"][0]["payload"]) == ({"n": 0}, '{"n":0}')
    state = ("--state-dir", lake.parent / "state")
    planned = in_process("backfill", connectors / "lake.yaml", "--plan", *state)
    assert "1 of 1 files to send" in planned.out
    assert "about 30 records" in planned.out
    assert "30 records behind it" in in_process("plan", connectors, *state).out


def test_a_definition_to_begin_with_is_good_with_topics_and_with_files(in_process: Callable[..., Said], connectors: Path) -> None:
    begun = in_process("new", "kafka").out
    (connectors / "kafka.yaml").write_text(begun, "utf-8")
    assert "good kafka: kafka -> copy.{@topic}" in in_process("check", connectors).out
    record, rest = begun.split("# sink:")
    (connectors / "kafka.yaml").write_text(record.split("record:")[0] + "sink:" + rest.replace("\n#   ", "\n  "), "utf-8")
    assert "good kafka: kafka -> file:///srv/lake/orders/{@topic}/dt=" in in_process("check", connectors).out


@pytest.mark.usefixtures("lake")
def test_what_files_cannot_do_is_said(in_process: Callable[..., Said], connectors: Path) -> None:
    replayed = in_process("dlq", "replay", connectors, "lake")
    assert (replayed.code, "source.topics: [letters]" in replayed.err) == (1, True)
    named = in_process("backfill", connectors / "lake.yaml", "orders/0", "--state-dir", connectors / "state")
    assert (named.code, "source kafka has no files" in named.err) == (2, True)
