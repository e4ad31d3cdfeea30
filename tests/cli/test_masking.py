"""Secrets that stand in records on purpose (a token in a header, say) are masked wherever a record or its definition is shown."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.definitions import load_directory, load_file, origins
from copycat_agent.options import HIDDEN, AgentOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

FILE, CREDENTIAL, VARIABLE, LITERAL = 'canary-"file"\\{{1}}-ü', "canary-cred", "canary-env", "canary-literal"
RENDERED = FILE.replace("{{", "{").replace("}}", "}")
SHORT = "7c"


@pytest.fixture
def connectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A definition that puts secrets of every origin into its records, and tests that fail."""
    for name, secret in (("file", FILE), ("cred", CREDENTIAL), ("short", SHORT)):
        (tmp_path / name).write_text(f"{secret}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("API_TOKEN", VARIABLE)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("one\nlevel=two\n")
    directory = tmp_path / "connectors.d"
    directory.mkdir()
    (directory / "app.yaml").write_text(f"""
name: app
source: {{type: log_file, include: ['{tmp_path}/logs/*.log']}}
transforms:
  - regex: '^(?P<word>.*)$'
  - set: {{signed: '${{file:{tmp_path}/file}}', password: '{LITERAL}', pin: '${{file:{tmp_path}/short}}'}}
record:
  topic: t
  key: '${{cred:cred}}-{{@file.name}}'
  headers: {{Authorization: 'Bearer ${{file:{tmp_path}/file}}', api_key: '${{env:API_TOKEN}}', pin: '${{cred:short}}', host: h1}}
tests:
  - input: one
    expect: [{{key: another, value: {{word: another, password: another}}, headers: {{api_key: another, Authorization: another}}}}]
""")
    return directory


@pytest.fixture
def copycat(connectors: Path) -> Callable[..., Result]:
    """A command in this process."""
    del connectors
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)), env={"NO_COLOR": "1"})


def leaks(text: str) -> list[str]:
    """The secrets that a text shows, however it escapes them."""
    plain = text.replace("\\\\", "\\").replace('\\\\"', '"').replace('\\"', '"').replace("\\u00fc", "ü")
    return [secret for secret in (FILE, RENDERED, "canary-", f'"{SHORT}"', f" {SHORT}\n", f": {SHORT},") if secret in plain]


COMMANDS = {
    "explain": ("explain", "logs/a.log", "connectors.d", "--state-dir", "s"),
    "explain as json": ("explain", "logs/a.log", "connectors.d", "--state-dir", "s", "--format", "json"),
    "plan": ("plan", "connectors.d", "--state-dir", "s"),
    "plan as json": ("plan", "connectors.d", "--state-dir", "s", "--format", "json"),
    "try": ("try", "logs/a.log", "-d", "connectors.d/app.yaml", "-v"),
    "try as json": ("try", "logs/a.log", "-d", "connectors.d/app.yaml", "--format", "json"),
    "test": ("test", "connectors.d"),
    "test as json": ("test", "connectors.d", "--format", "json"),
    "check as json": ("check", "connectors.d", "--format", "json"),
    "run": ("run", "connectors.d", "--dry-run", "--state-dir", "s"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_command_shows_one(copycat: Callable[..., Result], command: tuple[str, ...]) -> None:
    done = copycat(*command)
    assert done.exit_code in {0, 1}, done.output
    assert leaks(done.output) == []
    if command[0] not in {"check", "plan"}:
        assert HIDDEN in done.output
        assert "h1" in done.output or command[0] == "test"


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize(("command", "room"), [("try", 2000), ("test", 300)])
def test_nor_a_part_of_one_where_a_long_value_is_cut_nor_one_among_odd_bytes(
    copycat: Callable[..., Result], connectors: Path, tmp_path: Path, command: str, room: int, output: str
) -> None:
    """A token may be longer than what is shown of a value, and what is no UTF-8 is shown as base64."""
    token = LITERAL * (room // len(LITERAL) + 5)
    (tmp_path / "logs" / "a.log").write_bytes(b"\xff " + token.encode() + b"\n" + b"x" * (room - 12) + token.encode() + b"\n")
    case = {"input_file": str(tmp_path / "logs" / "a.log"), "expect": [{"value": {"token": "a"}}, {"value": {"token": "b"}}]}
    (connectors / "app.yaml").write_text(f"""
name: app
source: {{type: log_file, include: ['{tmp_path}/logs/*.log']}}
transforms: [{{set: {{token: '{token}'}}}}]
record: {{topic: t}}
tests: [{json.dumps(case)}]
""")
    where = ("logs/a.log", "-d", "connectors.d/app.yaml", "-v") if command == "try" else ("connectors.d",)
    done = copycat(command, *where, "--format", output)
    assert HIDDEN in done.output
    assert leaks(done.output) == []
    encoded = re.findall(r'"base64": "([^"]*)"', done.output)
    assert encoded or output == "text"
    assert leaks("".join(base64.b64decode(one).decode(errors="replace") for one in encoded)) == []


def test_nor_does_the_report_of_tests(copycat: Callable[..., Result], tmp_path: Path) -> None:
    copycat("test", "connectors.d", "--junit", "junit.xml")
    text = (tmp_path / "junit.xml").read_text()
    assert "another" in text
    assert leaks(text.replace("&quot;", '"')) == []


def test_nor_do_the_values_of_a_definition_that_runs(connectors: Path) -> None:
    """What `describe` shows, and the API answers."""
    agent = AgentOptions()
    definition = load_directory(connectors, agent).definitions["app"]
    path = connectors / "app.yaml"
    shown = json.dumps([definition.masked(), [each.value for each in origins(path, None, definition, agent)]], ensure_ascii=False)
    assert leaks(shown) == []
    path.write_text(f"name: app\nsource: {{type: log_file, include: [/x]}}\nrecord: {{topic: t, headers: {{token: {LITERAL}, b: c}}}}\n")
    literal = load_file(path, agent).definition
    assert literal is not None
    assert literal.masked()["record"]["headers"] == {"token": HIDDEN, "b": "c"}


def test_nor_a_line_that_is_quoted_because_it_is_wrong(connectors: Path) -> None:
    path = connectors / "app.yaml"
    path.write_text(path.read_text().replace("host: h1", f"host: '{{', Authorization-token: {LITERAL}"))
    loaded = load_file(path, AgentOptions())
    assert loaded.problems
    assert leaks(str(loaded.problems)) == []


def test_what_is_sent_is_the_secret_itself(connectors: Path) -> None:
    definition = load_directory(connectors, AgentOptions()).definitions["app"]
    assert definition.record.headers["api_key"] == VARIABLE
    assert definition.record.headers["Authorization"] == f"Bearer {FILE}"


def test_two_definitions_that_differ_in_a_secret_differ(connectors: Path, tmp_path: Path) -> None:
    before, same = (load_directory(connectors, AgentOptions()).definitions["app"] for _ in range(2))
    (tmp_path / "cred").write_text("canary-other\n")
    assert before == same
    assert before != load_directory(connectors, AgentOptions()).definitions["app"]
