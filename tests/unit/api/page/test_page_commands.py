"""What the page shows of files, records, dead letters and definitions that are tried: to whom, within which bounds, and never as markup."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.parse
from pathlib import Path

import psutil
import pytest

from copycat_agent.api.page import child_commands
from copycat_agent.api.page.child_commands import CHILDREN_MAX, ChildCommands, CommandOutput
from copycat_agent.errors import BusyError
from copycat_agent.model import Sample
from copycat_agent.sources import FileView
from tests.rig.waiting import wait_until
from tests.unit.api.conftest import DEFINITION
from tests.unit.api.doubles import CANARY, MemoryControl
from tests.unit.api.page.conftest import PagePort, Read, User

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202e"
SHOWN = "<img src=x onerror=alert(1)>\\x1b[31m\\u202e"
OPERATED = ("/connectors/app/records", "/connectors/app/tap", "/connectors/app/letters", "/connectors/app/replay", "/try")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that has to import everything on a busy machine."""
    monkeypatch.setattr(child_commands, "SECONDS", 120.0)


@pytest.mark.parametrize("path", OPERATED)
def test_records_and_trials_are_for_those_who_may_operate(reader: User, control: MemoryControl, path: str) -> None:
    assert reader.ask(path).status == 403
    assert reader.post(path).status in {403, 405}
    assert control.tapped == 0


@pytest.mark.parametrize("headers", [{}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_what_another_page_sends_tries_and_replays_nothing(writer: User, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("of_agent", "apart"):
        monkeypatch.setattr(ChildCommands, kind, lambda *_, **__: pytest.fail("nothing is run"))
    for path in ("/try", "/connectors/app/replay"):
        assert writer.post(path, headers, definition=DEFINITION, lines="x").status == 403


def test_records_come_as_texts_one_object_a_line(writer: User, control: MemoryControl) -> None:
    hostile = HOSTILE.encode()
    control.samples = (Sample("logs.app", None, hostile, ((HOSTILE, b"\xff"),), 1_763_776_800_000, f"/var/log/{HOSTILE}", 7, 9),)
    answer = writer.ask("/connectors/app/tap")
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    (line,) = filter(None, answer.body.splitlines())
    assert json.loads(line) == {
        "timestamp": "2025-11-22T02:00:00.000Z",
        "key": "-",
        "value": SHOWN,
        "headers": f"{SHOWN}: \\xff",
        "topic": "logs.app",
        "from": f"/var/log/{SHOWN}:7",
    }


def test_without_scripts_the_page_of_records_says_where_they_are(writer: User) -> None:
    assert "copycat tap app shows them in a terminal" in writer.read("/connectors/app/records").text


def test_a_file_that_is_not_followed_is_not_looked_at(reader: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChildCommands, "of_agent", lambda *_: pytest.fail("nothing is run"))
    for key in ("", "nowhere", "/etc/passwd", "-"):
        assert reader.ask(f"/connectors/app/file?key={key}").status == 404


def test_a_followed_file_is_explained_by_its_name(reader: User, control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def of_agent(_commands: ChildCommands, *arguments: str) -> CommandOutput:
        asked.append(arguments)
        return CommandOutput(f"{HOSTILE}\n  identity", 0)

    monkeypatch.setattr(ChildCommands, "of_agent", of_agent)
    followed = FileView(f"/var/log/{HOSTILE}", "fe00:1:2:0", 5, 10, 1, "following", True)
    monkeypatch.setattr(control, "files", lambda _name: (followed,))
    (link,) = (one for one in reader.read("/connectors/app").links() if "/file?" in one)
    read = reader.read(link)
    assert asked == [("explain", followed.path, "-n", "0")]
    assert f"{SHOWN} identity" in read.text
    assert not any(name == "img" for name, _ in read.tags)


def test_a_connector_without_a_dead_letter_topic_is_told_how_to_get_one(writer: User) -> None:
    assert "set errors.dlq.topic" in writer.read("/connectors/app/letters").text


LETTERS = f"""\
dead[0] 17  2025-11-22T02:00:00.000Z
  stage record, DataError: {SHOWN}
  /var/log/{SHOWN}, bytes 0 to 4, record 0
  dead[0] 99  not a place: the words of a record are indented
dead[2] 4  -
  stage record, DataError: field 'missing' is missing"""


@pytest.fixture
def asked(control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What was asked of commands; the connector has the dead-letter topic `dead`, with two letters."""
    path = Path(control.path("app"))
    path.write_text(DEFINITION + "errors: {tolerance: all, dlq: {topic: dead}}\n")
    control.definitions = MemoryControl(path.parent).definitions
    made: list[tuple[str, ...]] = []

    def of_agent(_commands: ChildCommands, *arguments: str) -> CommandOutput:
        made.append(arguments)
        return CommandOutput(LETTERS if arguments[1] == "show" else "app: 1 dead letter: 1 sent, 0 left", 0)

    monkeypatch.setattr(ChildCommands, "of_agent", of_agent)
    return made


def test_single_letters_are_chosen_asked_about_and_replayed_alone(writer: User, asked: list[tuple[str, ...]]) -> None:
    read = writer.read("/connectors/app/letters")
    boxes = [str(given["name"]) for name, given in read.tags if name == "input"]
    assert boxes == ["letter-0-17", "letter-2-4"]
    assert SHOWN in read.text
    assert not any(name == "img" for name, _ in read.tags)
    question = writer.read("/connectors/app/replay?some=1&letter-2-4=1")
    assert "Replay 1 dead letter of app?" in question.text
    assert "2:4" in question.text
    kept = {str(given["name"]): str(given["value"]) for name, given in question.tags if name == "input"}
    assert kept == {"some": "1", "letter-2-4": "1"}
    assert asked == [("dlq", "show", "app", "-n", "50")], "nothing is sent before it is confirmed"
    assert "1 sent" in Read(writer.post("/connectors/app/replay", None, **kept).body).text
    assert asked[1:] == [("dlq", "replay", "app", "--limit", "1000", "--only=2:4")]


@pytest.mark.parametrize("fields", [{"some": "1"}, {"some": "1", "letter-x-1": "1", "letter-0--1": "1", "letter-0-1;": "1"}])
def test_none_chosen_is_not_all(writer: User, asked: list[tuple[str, ...]], fields: dict[str, str]) -> None:
    assert "No letter is chosen" in writer.read("/connectors/app/replay?" + urllib.parse.urlencode(fields)).text
    assert "No letter is chosen" in Read(writer.post("/connectors/app/replay", None, **fields).body).text
    assert asked == []


def test_who_may_only_look_replays_no_single_letter(reader: User, asked: list[tuple[str, ...]]) -> None:
    assert reader.ask("/connectors/app/replay?some=1&letter-0-17=1").status == 403
    assert reader.post("/connectors/app/replay", None, **{"some": "1", "letter-0-17": "1"}).status == 403
    assert asked == []


def test_a_second_replay_waits_for_the_first_to_end(writer: User, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def of_agent(_commands: ChildCommands, *_arguments: str) -> CommandOutput:
        begun.set()
        assert go_on.wait(60)
        return CommandOutput("app: 2 dead letters: 2 sent, 0 left", 0)

    monkeypatch.setattr(ChildCommands, "of_agent", of_agent)
    answers: list[Read] = []
    first = threading.Thread(target=lambda: answers.append(Read(writer.post("/connectors/app/replay").body)))
    first.start()
    try:
        assert begun.wait(60)
        assert writer.post("/connectors/app/replay").status == 409
    finally:
        go_on.set()
        first.join(60)
    assert "2 sent, 0 left" in answers[0].text


def test_a_definition_is_tried_step_by_step_and_what_was_sent_stays_in_the_form(writer: User) -> None:
    definition = DEFINITION.replace("- drop_if: {path: /healthz}", r"- regex: '^(?P<client>\S+) (?P<status>\d+)$'")
    lines = "a 200\n\t</textarea><script>alert(1)</script>\n"
    answer = writer.post("/try", definition=definition, lines=lines)
    assert answer.status == 200, answer
    read = Read(answer.body)
    assert '+ client "a"' in read.text
    assert "transforms[0] regex fails" in read.text
    assert "expects" in read.text, "where the pattern stopped"
    assert [given for name, given in read.tags if name == "script"] == [{"src": "/page.js", "defer": None}]
    assert read.text.count("</textarea><script>alert(1)</script>") >= 2, "in the result, and in the form"


def test_a_definition_that_is_tried_reads_no_variable_and_no_secret(writer: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTS_OWN", CANARY)
    secret = tmp_path / "secret"
    secret.write_text(CANARY)
    headers = f'{{a: "${{env:AGENTS_OWN}}", b: "${{file:{secret}}}"}}'
    answer = writer.post("/try", definition=DEFINITION.replace("{host: h1}", headers), lines="x\n")
    assert answer.status == 200
    assert CANARY not in answer.body.decode()
    assert "AGENTS_OWN" in Read(answer.body).text


def test_only_schemas_that_a_running_definition_names_are_opened(writer: User, control: MemoryControl, tmp_path: Path) -> None:
    schema = tmp_path / "credentials.json"
    schema.write_text(json.dumps({"type": "object", "required": [CANARY]}))
    value = f"schema_registry: {{url: http://127.0.0.1:1}}\n  value: {{type: json_schema, schema: {schema}}}"
    definition = DEFINITION.replace("value: json", value)
    refused = Read(writer.post("/try", definition=definition, lines="x\n").body).text
    assert "no definition that runs names this schema" in refused
    assert CANARY not in refused
    path = Path(control.path("app"))
    path.write_text(definition)
    control.definitions = MemoryControl(path.parent).definitions
    assert "no definition that runs" not in Read(writer.post("/try", definition=definition, lines="x\n").body).text


def test_a_definition_that_is_bad_is_told_with_its_line(writer: User) -> None:
    text = Read(writer.post("/try", definition="name: app\nsource: {type: nothing}\n", lines="x").body).text
    assert "definition.yaml:2" in text


def test_a_form_is_bounded_and_has_to_be_one(writer: User, with_users: PagePort) -> None:
    assert with_users.ask("/try", "POST", headers={**writer.headers, **writer.own, "Content-Length": "600000"}).status == 413
    assert writer.post("/try", {**writer.own, "Content-Type": "application/json"}).status == 415
    assert with_users.ask("/try", "POST", headers=writer.own, body=b"definition=x").status == 401


def test_the_form_holds_a_connectors_definition_without_its_secrets(writer: User, control: MemoryControl) -> None:
    path = Path(control.path("app"))
    path.write_text(
        DEFINITION + f"kafka: {{security: {{password: {CANARY}}}}}\nerrors:\n  password: {CANARY}\n  tolerance: all\n"
        f'sink: [{CANARY}]\nrecord:\n  "secret": >\n    x\n'
    )
    read = writer.read("/try?connector=app")
    assert "include: [/var/log/app.log]" in read.text
    assert "tolerance: all" in read.text
    assert CANARY not in read.text
    assert writer.ask("/try?connector=none").status == 404


@pytest.mark.parametrize(
    "section",
    [
        f"source: {{type: log_file, include: [/var/log/app.log], password: {CANARY}, x: {{token: {CANARY}}}}}",
        f"source:\n  type: log_file\n  include: [/var/log/app.log]\n  password:\n    {CANARY}\n    {CANARY}",
        f"transforms:\n  - hash: {{field: user, secret: {CANARY}}}",
        f'converters: {{schema_registry: {{url: "http://u:{CANARY}@r:8081", basic_auth: {{username: u, password: {CANARY}}}}}}}',
        f"transforms: []  # password: {CANARY}",
    ],
    ids=["in brackets", "on its own line", "in a step", "in a part", "in a comment"],
)
def test_the_form_shows_no_secret_however_it_is_written(writer: User, control: MemoryControl, section: str) -> None:
    path = Path(control.path("app"))
    kept = [line for line in DEFINITION.splitlines() if not line.startswith(section.partition(":")[0])]
    path.write_text("\n".join((*kept, section, "errors: {tolerance: all}", "")))
    read = writer.read("/try?connector=app")
    assert "tolerance: all" in read.text
    assert "********" in read.text
    assert CANARY not in read.text


def test_a_child_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_commands, "SECONDS", 3.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    began = time.monotonic()
    told = ChildCommands(tmp_path / "none.sock").apart("try", "-d", "d.yaml", str(pipe), files={"d.yaml": DEFINITION}, memory_bytes=2**30)
    assert told.code is None
    assert time.monotonic() - began < 60


def _reads(process: psutil.Process, path: Path) -> bool:
    """False of one that has just ended."""
    try:
        return str(path) in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _readers(path: Path) -> list[psutil.Process]:
    """Those of our children that read it."""
    return [one for one in psutil.Process().children() if _reads(one, path)]


def test_children_beyond_the_places_are_told_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_commands, "WAIT_SECONDS", 0.05)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    commands = ChildCommands(tmp_path / "none.sock")
    arguments = ("try", "-d", "d.yaml", str(pipe))
    files = {"d.yaml": DEFINITION}
    under_way: list[CommandOutput] = []

    def run() -> None:
        under_way.append(commands.apart(*arguments, files=files, memory_bytes=2**30))

    waiting = [threading.Thread(target=run) for _ in range(CHILDREN_MAX)]
    for one in waiting:
        one.start()
    wait_until(lambda: len(_readers(pipe)) == CHILDREN_MAX)
    with pytest.raises(BusyError):
        commands.apart(*arguments, files=files, memory_bytes=2**30)
    for child in _readers(pipe):
        child.kill()
    for one in waiting:
        one.join(60)
    assert len(under_way) == CHILDREN_MAX
