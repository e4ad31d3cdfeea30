"""`copycat offsets set` checks line starts by the connector's definition: given, or asked of the running agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from copycat_agent.cli import main as cli
from copycat_agent.model import SourceState, state_partition
from copycat_agent.offsets import OffsetStore

if TYPE_CHECKING:
    from pathlib import Path

DEFINITION = 'name: app\nsource: {type: log_file, include: [/x], line: {delimiter: "||"}}\nrecord: {topic: "${env:NO_SUCH_NAME:-t}"}\n'


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory in which connector `app` has looked at its directories once."""
    for name in ("STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit({state_partition("app"): SourceState({"first_ms": 1})})
    return tmp_path / "state"


def set_(state: Path, monkeypatch: pytest.MonkeyPatch, path: Path, position: str, *more: str) -> int:
    arguments = ["offsets", "set", "app", "--path", str(path), "--position", position, "--state-dir", str(state), *more]
    monkeypatch.setattr(sys, "argv", ["copycat", *arguments])
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_definition_says_what_a_line_is(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, definition = tmp_path / "app.log", tmp_path / "app.yaml"
    log.write_bytes(b"one||two||")
    definition.write_text(DEFINITION)
    assert set_(state, monkeypatch, log, "5") == 1
    assert "is not just behind a line's end" in capsys.readouterr().err
    assert set_(state, monkeypatch, log, "5", "-d", str(definition)) == 0
    with OffsetStore.open(state) as store:
        (offset,) = store.read("app").values()
    assert (offset.position, offset.records) == (5, 1)


@pytest.mark.parametrize(("text", "said"), [(DEFINITION.replace("app", "web"), "defines web, not app"), ("name: [", "app.yaml:")])
def test_another_connectors_definition_or_a_broken_one_changes_nothing(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    log, definition = tmp_path / "app.log", tmp_path / "app.yaml"
    log.write_bytes(b"one||two||")
    definition.write_text(text)
    assert set_(state, monkeypatch, log, "5", "-d", str(definition)) == 1
    assert said in capsys.readouterr().err
    with OffsetStore.open(state) as store:
        assert not store.read("app")
