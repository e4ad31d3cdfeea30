"""A failpoint acts where and when it is told to, and nowhere else; every place that is listed is in the code."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from copycat_agent import failpoints
from copycat_agent.cli.main import app

PACKAGE = Path(failpoints.__file__).parent
THRICE = """
import sys
from copycat_agent import failpoints
from copycat_agent.errors import RetriableError
for time in range(3):
    try:
        failpoints.hit("begun")
        failpoints.hit("saved")
    except RetriableError as error:
        print("raised", error.message, error.hint)
    print(time, flush=True)
"""


def run(code: str, setting: str | None, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {name: text for name, text in os.environ.items() if not name.startswith(failpoints.VARIABLE)}
    environ |= {failpoints.VARIABLE: setting} if setting is not None else {}
    return subprocess.run([sys.executable, "-c", code], env=environ | more, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("setting", "code", "printed"),
    [
        (None, 0, "0\n1\n2\n"),
        ("", 0, "0\n1\n2\n"),
        ("cleaned", 0, "0\n1\n2\n"),
        ("begun", -signal.SIGKILL, ""),
        ("saved:3:kill", -signal.SIGKILL, "0\n1\n"),
        ("saved:4", 0, "0\n1\n2\n"),
        ("begun:2:error", 0, "0\nraised failpoint begun unset COPYCAT_FAILPOINT\n1\n2\n"),
        ("begun:error", 0, "raised failpoint begun unset COPYCAT_FAILPOINT\n0\n1\n2\n"),
    ],
)
def test_it_acts_the_nth_time_and_no_other(setting: str | None, code: int, printed: str) -> None:
    done = run(THRICE, setting)
    assert (done.returncode, done.stdout, done.stderr) == (code, printed, "")


def test_a_hanging_thread_hangs_alone() -> None:
    code = """
import threading
from copycat_agent import failpoints
thread = threading.Thread(target=failpoints.hit, args=("saved",), daemon=True)
thread.start()
thread.join({seconds})
print(thread.is_alive())
"""
    assert run(code.format(seconds=0.2), "saved:hang").stdout == "True\n"
    assert run(code.format(seconds=30), "moved:hang").stdout == "False\n"


def test_only_one_process_acts_where_a_file_says_so(tmp_path: Path) -> None:
    once = tmp_path / "once"
    codes = [run(THRICE, "begun", COPYCAT_FAILPOINT_ONCE=str(once)).returncode for _ in range(3)]
    assert codes == [-signal.SIGKILL, 0, 0]
    assert int(once.read_text()) > 1


def problem_of(setting: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a process that begins with this setting says."""
    monkeypatch.setenv(failpoints.VARIABLE, setting)
    spec = importlib.util.spec_from_file_location("fresh_failpoints", failpoints.__file__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    said: str = fresh.problem()
    return said


@pytest.mark.parametrize("setting", ["nowhere", "begun:0", "begun:x", "begun:-1", "begun:1:2", "begun:kill:1", ":1", "begun:1:", "begun:²"])
def test_what_is_no_failpoint_is_told(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "copycat --failpoints lists" in problem_of(setting, monkeypatch)
    assert problem_of("begun:2:hang", monkeypatch) == ""


def test_it_is_an_error_of_usage_and_no_traceback(tmp_path: Path) -> None:
    done = run(f"import sys; sys.argv[1:] = ['run', {str(tmp_path)!r}]; from copycat_agent.cli.main import main; main()", "nowhere")
    words = "error: COPYCAT_FAILPOINT is not name[:nth][:kill|hang|stop|error] with a name that copycat --failpoints lists\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", words)


def test_the_command_lists_all_with_their_windows() -> None:
    told = CliRunner().invoke(app, ["--failpoints"])
    as_json = CliRunner().invoke(app, ["--failpoints", "--format", "json"])
    assert (told.exit_code, as_json.exit_code) == (0, 0)
    assert [line.split()[0] for line in told.output.splitlines()[: len(failpoints.NAMES)]] == list(failpoints.NAMES)
    found = json.loads(as_json.output)
    assert [one["name"] for one in found] == list(failpoints.NAMES)
    assert all(one["window"].startswith("W") and one["where"] for one in found)


def test_every_place_that_is_listed_is_in_the_code_and_every_place_in_the_code_is_listed() -> None:
    called = {
        str(node.args[0].value)
        for path in PACKAGE.rglob("*.py")
        if "failpoints.hit(" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "hit"
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "failpoints"
        if isinstance(node.args[0], ast.Constant)
    }
    assert sorted(called) == sorted(failpoints.NAMES)
