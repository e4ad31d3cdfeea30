"""`copycat run --dry-run`: what would be sent, from where a run would go on; no Kafka, no Spark, no offset moved."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.definitions import load_directory
from copycat_agent.executor import InlineExecutor
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.store_reader import saved_offsets
from copycat_agent.options import AgentOptions
from copycat_agent.watch import Watcher
from copycat_agent.workbench.trying import RecordingProducer, RecordingProducerPool
from copycat_agent.worker import Worker
from tests.cli.conftest import COMMAND
from tests.rig.registry import RegistryFront

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Done


@pytest.fixture
def dry(quick: Callable[..., Done], connectors: Path, tmp_path: Path) -> Callable[..., Done]:
    """`copycat run DIR --dry-run`, without any Kafka address."""

    def call(*options: str) -> Done:
        return quick("run", connectors, "--dry-run", "--state-dir", tmp_path / "state", *options)

    return call


def records(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_record_comes_with_its_topic_and_place_and_nothing_is_left_behind(
    dry: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app", "'t.{@file.name}'")
    path = connectors / "app.yaml"
    path.write_text(path.read_text().replace("record: {", 'record: {key: "{@file.name}", headers: {host: h}, '))
    (logs / "a.log").write_bytes("ä\nplain\n".encode() + b"\xff\x00\nunfinished")
    done = dry()
    assert done.returncode == 0, done.stderr
    first, second, third, last = records(done)
    where = {"path": f"{logs}/a.log", "start": 0, "end": 3}
    assert first == {"connector": "app", "topic": "t.a.log", "key": "a.log", "value": "ä", "headers": {"host": "h"}} | where
    assert (second["value"], second["start"], second["end"]) == ("plain", 3, 9)
    assert third["value"] == {"base64": "/wA="}
    assert (last["value"], last["headers"]["copycat.partial"]) == ("unfinished", "true")
    assert "4 to send" in done.stderr
    assert not (tmp_path / "state").exists()


def test_records_that_would_act_on_the_terminal_cannot(dry: Callable[..., Done], define: Callable[..., Path]) -> None:
    evil = "\x1b[31m\x7f\u202e\x9b"
    (define("app") / "a.log").write_text(f"{evil}\n")
    done = dry()
    assert not set(evil) - {"[", "3", "1", "m"} & set(done.stdout)
    assert records(done)[0]["value"] == evil


def run_to_the_end(directory: Path, state_dir: Path) -> None:
    """What a run leaves in the state directory, without Spark and Kafka."""
    executor, watcher = InlineExecutor(RecordingProducerPool(lambda _: RecordingProducer())), Watcher()
    with OffsetStore.open(state_dir) as store:
        worker = Worker(store, executor, watcher, until_idle=True)
        worker.apply(load_directory(directory, AgentOptions()).definitions.values())
        assert worker.wait(60)
        worker.stop()
    executor.close()
    watcher.close()


def test_it_goes_on_where_a_run_would_and_moves_nothing(
    dry: Callable[..., Done], quick: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app")
    (logs / "a.log").write_text("one\n")
    state = tmp_path / "state"
    run_to_the_end(connectors, state)
    with (logs / "a.log").open("a") as log:
        log.write("two\n")
    before = saved_offsets(state)
    assert before
    assert [record["value"] for record in records(dry())] == ["two"]
    assert [record["value"] for record in records(dry())] == ["two"]
    assert saved_offsets(state) == before
    plan = json.loads(quick("plan", connectors, "--state-dir", state, "--format", "json").stdout)
    assert [(file["position"], file["to_read"]) for file in plan[0]["files"]] == [(4, 4)]


def test_a_bad_record_ends_it_as_it_would_end_a_run(dry: Callable[..., Done], define: Callable[..., Path], connectors: Path) -> None:
    logs = define("app")
    path = connectors / "app.yaml"
    path.write_text(path.read_text().replace("log_file,", "log_file, line: {max_bytes: 10B},"))
    (logs / "a.log").write_text("good\n" + "x" * 50 + "\nlater\n")
    done = dry()
    assert done.returncode == 1
    assert [record["value"] for record in records(done)] == ["good"]
    assert "it would fail" in done.stderr
    assert "xxxx" not in done.stderr
    with path.open("a") as file:
        file.write("errors: {tolerance: all, dlq: {topic: dead}}\n")
    done = dry()
    assert done.returncode == 0, done.stderr
    assert sorted(record["topic"] for record in records(done)) == ["dead", "t", "t"]
    assert "1 to the dead-letter topic" in done.stderr


def test_what_is_written_by_a_schema_is_shown_as_json_and_no_registry_is_asked(
    dry: Callable[..., Done], define: Callable[..., Path]
) -> None:
    with RegistryFront("http://127.0.0.1:9") as front:
        schema = "{type: avro, auto_register: true}"
        more = f"transforms: [{{json: {{}}}}]\nconverters: {{value: {schema}, key: {schema}, schema_registry: {{url: '{front.url}'}}}}\n"
        (define("app", "t, key: '{id}'", more) / "a.log").write_text('{"id": 5}\n')
        (record,) = records(dry())
        assert (record["key"], record["value"], front.requests) == ("5", '{"id":5}', [])


def test_only_and_unknown_names(dry: Callable[..., Done], define: Callable[..., Path]) -> None:
    for name in ("one", "two"):
        (define(name) / "a.log").write_text(f"{name}\n")
    assert {record["connector"] for record in records(dry("--only", "two"))} == {"two"}
    assert dry("--only", "three").returncode == 2


def test_a_reader_that_has_seen_enough_ends_it(
    define: Callable[..., Path], connectors: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    (define("app") / "a.log").write_text("line\n" * 60_000)
    command = [*COMMAND, "run", str(connectors), "--dry-run", "--state-dir", str(tmp_path / "state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b'"line"' in process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(60) == 0, said
    assert "Traceback" not in said
