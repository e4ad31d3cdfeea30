"""`copycat dlq` as a user runs it: look at what was dead-lettered, mend the definition, send it again."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.dev_broker import free_port
from copycat_agent.producer import topic_reader
from tests.rig.kafka import consume, unique_topic
from tests.scenarios.test_errors import append, wait_position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.rig.shipping import Shipping

LINES = b"one\ntwo \x1b[31mred\n\xff\xfe\nfour is longer than thirty bytes are\n"


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Dlq:
    """A connector with four dead letters, the last one cut, and the command for it."""

    def __init__(self, shipping: Shipping, topic: str, directory: Path) -> None:
        self.shipping, self.topic, self.directory = shipping, topic, directory
        directory.mkdir()

    def define(self, **sections: Any) -> None:
        """The definition as it is now."""
        base = {"source": {"line": {"max_bytes": "30B"}}, "errors": {"tolerance": "all", "dlq": {"topic": self.topic}}}
        self.shipping.definition(**{**base, **sections})
        written = self.directory.parent / f"{self.shipping.name}.yaml"
        (self.directory / "app.yaml").write_bytes(written.read_bytes())

    def run(self, verb: str, *options: str, bootstrap: str | None = None) -> Outcome:
        """`copycat dlq VERB DIR ...`, in this process: a new one takes a second to begin."""
        arguments = ["dlq", verb, str(self.directory), *options, "--bootstrap-servers", bootstrap or self.shipping.bootstrap]
        done = CliRunner().invoke(app, arguments)
        return Outcome(done.exit_code, done.stdout_bytes.decode("utf-8", "surrogateescape"), done.stderr)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """`replay` installs handlers of its own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def dlq(shipping: Shipping, make_topic: Callable[..., str], logs_dir: Path, tmp_path: Path) -> Dlq:
    topic = make_topic()
    append(logs_dir / "app", LINES)
    errors = {"tolerance": "all", "dlq": {"topic": topic}}
    shipping.start(source={"line": {"max_bytes": "30B"}}, record={"key": "{missing}"}, errors=errors)
    wait_position(shipping, len(LINES))
    shipping.stop()
    made = Dlq(shipping, topic, tmp_path / "connectors.d")
    made.define(record={"key": "{missing}"})
    return made


def test_look_mend_replay(dlq: Dlq) -> None:
    command = [sys.executable, "-m", "copycat_agent", "dlq", "ls", str(dlq.directory), "--bootstrap-servers", dlq.shipping.bootstrap]
    listed = subprocess.run(command, capture_output=True, check=True, text=True, timeout=180).stdout
    assert f"{dlq.topic}: 4 dead letters" in listed
    assert "app  stage record  DataError  3 (3 to replay)" in listed
    shown = dlq.run("show", "app")
    assert "stage record, DataError: field 'missing' is missing" in shown.out
    assert r"two \x1b[31mred" in shown.out
    assert "\x1b" not in shown.out
    assert "raw bytes cut: the first 30 bytes" in shown.out
    before = dlq.run("replay", "app")
    assert (before.code, "app: 4 dead letters: 0 sent, 4 left" in before.out) == (3, True)
    dlq.define(record={"key": "k"})
    dry = dlq.run("replay", "app", "--dry-run", "--format", "json")
    assert (dry.code, dry.json["sent"], dry.json["left"]) == (3, 3, 1)
    assert consume(dlq.shipping.bootstrap, dlq.shipping.topic) == []
    first = dlq.run("replay", "app", "-n", "3", "--format", "json")
    assert (first.code, first.json["sent"]) == (0, 3)
    last = dlq.run("replay", "app", "--format", "json")
    assert (last.code, last.json["tried"], last.json["left"]) == (3, 1, 1)
    assert "bytes are not all there" in last.json["named"][0]["why"]
    assert [record.value for record in consume(dlq.shipping.bootstrap, dlq.shipping.topic)] == LINES.split(b"\n")[:3]
    again = dlq.run("ls", "--format", "json").json[0]["letters"]
    assert {(one["stage"], one["letters"], one["waiting"]) for one in again} == {("record", 3, 0), ("frame", 1, 1)}


def test_letters_for_programs_have_all_their_bytes(dlq: Dlq) -> None:
    letters = [json.loads(line) for line in dlq.run("show", "app", "--format", "json").out.splitlines()]
    assert [letter.get("raw") for letter in letters] == ["one", "two \x1b[31mred", None, LINES.decode("latin-1").split("\n")[3][:30]]
    assert base64.b64decode(letters[2]["raw_base64"]) == b"\xff\xfe"
    assert [letter["start"] for letter in letters] == [0, 4, 17, 20]
    raw = dlq.run("show", "app", "--raw", "-n", "3")
    assert raw.out.encode("utf-8", "surrogateescape") == LINES[4:20] + LINES[20:50] + b"\n"


def test_a_secret_of_the_definition_is_not_shown_cut_or_encoded(dlq: Dlq) -> None:
    secret = "canary-" * 100
    dlq.define(record={"key": "{missing}", "headers": {"token": secret}})
    letter = consume(dlq.shipping.bootstrap, dlq.topic)[0]
    producer = Producer({"bootstrap.servers": dlq.shipping.bootstrap})
    for value in (b"\xff " + secret.encode(), b"x" * 490 + secret.encode()):
        producer.produce(dlq.topic, value, headers=[*letter.headers])
    producer.flush()
    text = dlq.run("show", "app", "-n", "6").out
    assert text.count("********") == 2
    assert "canary-" not in text
    letters = [json.loads(line) for line in dlq.run("show", "app", "-n", "6", "--format", "json").out.splitlines()]
    raw = [base64.b64decode(one["raw_base64"]) if "raw_base64" in one else one["raw"].encode() for one in letters]
    assert {b"\xff ********", b"x" * 490 + b"********"} <= set(raw)
    assert b"canary-" not in b"".join(raw)


def test_foreign_records_are_counted_and_nothing_else(dlq: Dlq) -> None:
    stranger = Producer({"bootstrap.servers": dlq.shipping.bootstrap})
    stranger.produce(dlq.topic, b"hello", headers=[("copycat.connector", b"app")])
    stranger.flush()
    assert "1 record in it is no dead letter of this agent" in dlq.run("ls").out


def test_what_cannot_be_done_says_so(dlq: Dlq, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as impatient:
        impatient.setattr(topic_reader, "ANSWER_SECONDS", 1.0)
        nobody = dlq.run("replay", "app", bootstrap=f"127.0.0.1:{free_port()}")
    assert (nobody.code, nobody.out) == (69, "")
    assert "no broker answers" in nobody.err
    assert dlq.run("show", "other").code == 2
    dlq.define(errors={})
    bare = dlq.run("replay", "app")
    assert (bare.code, bare.err) == (1, "error: app has no dead-letter topic: set errors.dlq.topic\n")
    dlq.define(errors={"tolerance": "all", "dlq": {"topic": unique_topic()}})
    empty = dlq.run("replay", "app")
    assert (empty.code, empty.out) == (0, "app: 0 dead letters: 0 sent, 0 left\n")
    assert "does not exist" in dlq.run("ls").out
