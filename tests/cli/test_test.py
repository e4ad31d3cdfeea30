"""`copycat test`: the tests of definitions, with what was expected and what came, types included; and JUnit XML."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

REGEX = r"transforms: [{regex: '^(?P<level>[A-Z]+) (?P<status>\d+)'}]"
GOOD = f"{REGEX}\ntests:\n  - name: a level & a status\n    input: INFO 200\n    expect: [{{value: {{level: INFO}}}}]\n"
BAD = GOOD + "  - input: INFO 200\n    expect: [{topic: u, value: {status: 200, gone: x}}]\n"


@pytest.fixture
def copycat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """As the other tests' `copycat`, in this process: ten times as fast."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)), env={"NO_COLOR": "1"})


def test_all_good_exits_0_and_names_those_without_tests(
    copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path
) -> None:
    define("app", more=GOOD)
    define("bare")
    done = copycat("test", connectors)
    assert (done.exit_code, done.stdout) == (0, f"ok    app: a level & a status  {connectors}/app.yaml:6\n")
    assert done.stderr == "1 test of 1 definition: 1 passed; without tests: bare\n"


def test_a_failure_shows_what_was_expected_and_what_came_with_types(
    copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path
) -> None:
    define("app", more=BAD)
    done = copycat("test", connectors, "-q")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        f"FAIL  app: test 2  {connectors}/app.yaml:9",
        "      record 1",
        '        topic         expected  "u" (text)',
        '                      got       "t" (text)',
        "        value.status  expected  200 (int)",
        '                      got       "200" (text)',
        '        hint: only the type differs: make a number or boolean of it with "- convert: {status: int}", or expect the text in quotes',
        '        value.gone    expected  "x" (text)',
        "                      got       nothing",
        "        input record 1: INFO 200",
    ]
    assert done.stderr == "2 tests of 1 definition: 1 passed, 1 failed\n"


def test_junit_has_a_case_for_each_test_with_its_line(
    copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    define("app", more=BAD)
    define("bare")
    (connectors / "broken.yaml").write_text("name: broken\n")
    assert copycat("test", connectors, "--junit", "out.xml").exit_code == 78
    root = ET.fromstring((tmp_path / "out.xml").read_text())  # noqa: S314 - our own
    assert (root.tag, {name: root.get(name) for name in ("tests", "failures", "errors", "skipped")}) == (
        "testsuites", {"tests": "3", "failures": "1", "errors": "1", "skipped": "0"},
    )  # fmt: skip
    suites = {suite.get("name"): suite for suite in root}
    assert {name: suite.get("tests") for name, suite in suites.items()} == {"app": "2", "bare": "0", "broken": "1"}
    good, bad = suites["app"]
    assert {name: good.get(name) for name in ("name", "classname", "file", "line")} == {
        "name": "a level & a status", "classname": "app", "file": f"{connectors}/app.yaml", "line": "6",
    }  # fmt: skip
    assert float(good.get("time") or "-") >= 0
    assert not list(good)
    (failure,) = bad
    assert failure.tag == "failure"
    assert "value.status  expected  200 (int)" in (failure.text or "")
    (error,) = suites["broken"][0]
    assert (error.tag, "source" in (error.get("message") or "")) == ("error", True)


def test_bad_definitions_exit_78_and_the_others_are_tested(
    copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path
) -> None:
    define("app", more=GOOD)
    define("broken", more="tests: [{input: a}]\n")
    done = copycat("test", connectors)
    assert (done.exit_code, "a test needs expect" in done.stderr, "ok    app" in done.stdout) == (78, True, True)
    assert "bad definitions: broken" in done.stderr
    assert copycat("test", connectors, "--only", "app").exit_code == 0
    assert copycat("test", connectors, "--only", "other").exit_code == 2


def test_one_file_can_be_tested_and_json_is_for_programs(
    copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path
) -> None:
    define("app", more=BAD)
    done = copycat("test", connectors / "app.yaml", "--format", "json")
    said = json.loads(done.stdout)
    assert (done.exit_code, said["good"], said["tests"], said["passed"]) == (1, False, 2, 1)
    second = said["definitions"][0]["tests"][1]
    assert (second["name"], second["line"]) == ("test 2", 9)
    assert second["mismatches"][0]["differences"][1] == {
        "place": "value.status", "expected": {"value": 200, "type": "int"}, "got": {"value": "200", "type": "text"},
        "hint": 'only the type differs: make a number or boolean of it with "- convert: {status: int}", or expect the text in quotes',
    }  # fmt: skip


def test_a_bad_agent_file_is_told_whatever_is_asked_for(
    copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    define("app", more=GOOD)
    (tmp_path / "agent.yaml").write_text("kafk: {}\n")
    for options in ([], ["--only", "app"]):
        done = copycat("test", connectors, *options)
        assert (done.exit_code, "unknown key 'kafk'" in done.stderr) == (78, True)


@pytest.mark.parametrize("directory", ["empty", "absent"])
def test_nothing_to_test_is_told(copycat: Callable[..., Result], tmp_path: Path, directory: str) -> None:
    (tmp_path / "empty").mkdir()
    done = copycat("test", directory)
    assert done.exit_code == (0 if directory == "empty" else 78)
    assert f"no definition in {directory}" in done.stderr


@pytest.mark.long
def test_a_query_is_answered_by_a_real_spark(copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path) -> None:
    """Many cases of queries are in the tests of `spark.sql_local`, and those of samples with a stand-in."""
    explode = 'SELECT level, explode(split(words, "[+]")) AS word FROM records WHERE level <> "DEBUG"'
    regex = r"regex: '^(?P<level>\w+) (?P<words>.*)$'"
    steps = f"transforms: [{{{regex}}}, {{sql: {{query: '{explode}', schema: 'level string, words string'}}}}, {{drop_if: {{word: no}}}}]"
    tests = "tests: [{input: [INFO a+no+b, DEBUG c], expect: [{value: {level: INFO, word: a}}, {value: {word: b}}]}]"
    define("app", more=f"{steps}\n{tests}\n")
    count = "transforms: [{sql: {query: 'SELECT count(*) FROM records', schema: 'message string'}}]"
    define("bad", more=f"{count}\ntests: [{{input: a, expect: []}}]\n")
    done = copycat("test", connectors)
    assert (done.exit_code, done.stdout) == (78, f"ok    app: test 1  {connectors}/app.yaml:5\n"), done.stderr
    assert "transforms[0] sql: the query cannot be run" in done.stderr


def test_the_directory_of_junits_file_is_made(copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path) -> None:
    define("app", more=GOOD)
    done = copycat("test", connectors, "--junit", connectors.parent / "out" / "deep" / "junit.xml")
    assert done.exit_code == 0
    assert b'tests="1"' in (connectors.parent / "out" / "deep" / "junit.xml").read_bytes()
    done = copycat("test", connectors, "--junit", connectors / "app.yaml" / "junit.xml")
    assert "1 passed" in done.stderr, "what became of the tests is told first"
    assert "junit.xml cannot be written" in str(done.exception)


REFERS = """transforms: [{set: {stage: "${env:STAGE}"}}, {hash: {field: message, secret: "${cred:salt}"}}]
kafka:
  bootstrap_servers: ["${env:BROKERS}"]
  security: {protocol: SASL_SSL, mechanism: PLAIN, username: "${env:LOGIN}", password: "${file:/gone}"}
  client: {linger.ms: "${env:LINGER}"}
limits: {records_per_second: "${env:RATE}"}
tests:
  - input: a
    expect: [{value: {stage: "${env:STAGE}"}}]
"""


def test_neither_secrets_nor_variables_of_production_are_needed(
    copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    define("app", more=REFERS)
    (connectors.parent / "agent.yaml").write_text(
        'kafka: {security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: "${cred:password}"}}\n'
    )
    for name in ("STAGE", "BROKERS", "LOGIN", "LINGER", "RATE", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    done = copycat("test", connectors)
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[0] == "looked at without ${cred:salt}, ${env:STAGE}: the name stands for each"
    (connectors.parent / "a.log").write_text("x\n")
    (connectors.parent / "salt").write_text("sesame")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(connectors.parent))
    monkeypatch.setenv("STAGE", "here")
    done = copycat("try", connectors.parent / "a.log", "-d", connectors / "app.yaml")
    assert (done.exit_code, '"here"' in done.stdout) == (0, True)
    assert done.stderr.splitlines()[-1] == "looked at without ${cred:salt}: the name stands for each", "no secret is read"
    assert copycat("check", connectors).exit_code == 78, "the agent needs them all"


def test_what_decides_has_to_be_known(copycat: Callable[..., Result], define: Callable[..., Path], connectors: Path) -> None:
    define("app", more=GOOD.replace("tests:", 'errors: {tolerance: "${env:COPYCAT_TOLERANCE}"}\ntests:'))
    done = copycat("test", connectors)
    assert done.exit_code == 78
    assert "the environment variable COPYCAT_TOLERANCE is not set" in done.stderr
