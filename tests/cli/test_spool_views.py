"""`copycat explain`, `plan` and `describe` speak of spooled files in the unit that their positions count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from copycat_agent.cli.describe import _show_files
from copycat_agent.cli.main import app
from copycat_agent.cli.watching import make_console

if TYPE_CHECKING:
    from pathlib import Path

ONE = """
name: {name}
source: {{type: spool_dir, dir: {dir}, pattern: "*.{name}", ready: {{min_age: 0s}}, format: {name}}}
record: {{topic: t}}
kafka: {{bootstrap_servers: ["127.0.0.1:1"]}}
"""


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    """A spool directory with a file each for the connectors csv and parquet of `tmp_path / "connectors.d"`."""
    incoming, definitions = tmp_path / "in", tmp_path / "connectors.d"
    incoming.mkdir()
    definitions.mkdir()
    for name in ("csv", "parquet"):
        (definitions / f"{name}.yaml").write_text(ONE.format(name=name, dir=incoming))
    (incoming / "a.csv").write_text("id,name\n1,x\n2,y\n")
    pq.write_table(pa.table({"id": [1, 2, 3]}), incoming / "a.parquet")
    return incoming


def ask(command: str, *arguments: str | Path, root: Path) -> str:
    words = [command, *map(str, arguments), "--state-dir", str(root / "state")]
    return CliRunner().invoke(app, words, catch_exceptions=False).stdout


def test_a_row_of_a_parquet_file_is_a_record_not_bytes(incoming: Path) -> None:
    text = ask("explain", incoming / "a.parquet", incoming.parent / "connectors.d", root=incoming.parent)
    assert "  next          record 1: " in text
    assert '    record 1  -> t\n      {"id":1}\n    record 2  -> t' in text


def test_a_header_is_no_record_that_was_dropped(incoming: Path) -> None:
    text = ask("explain", incoming / "a.csv", incoming.parent / "connectors.d", root=incoming.parent)
    assert "    bytes 0 to 8  no record: a header" in text
    assert "dropped" not in text


def test_a_plan_names_the_next_record(incoming: Path) -> None:
    text = ask("plan", incoming.parent / "connectors.d", root=incoming.parent)
    assert "a.parquet: at record 1 (" in text
    assert "a.csv: at 0 of 16, 16 to read" in text


def test_describe_says_why_a_file_is_not_read_on(capsys: pytest.CaptureFixture[str]) -> None:
    file: dict[str, Any] = {
        "path": "/in/a.parquet", "state": "failing", "position": 7, "size": 900, "unread": 0, "records": 7, "is_open": False,
        "read_at": 0.0, "why": "parquet: its footer is cut off", "counts_records": True,
    }  # fmt: skip
    _show_files({"files": [file, file | {"path": "/in/b", "state": "done", "why": ""}], "total": 2}, make_console(no_color=True))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "/in/a.parquet: parquet: its footer is cut off" in lines
    assert any(line.startswith("failing  7 records   900     0 B") for line in lines), lines


@pytest.mark.parametrize("policy", ["delete", "move"])
def test_who_only_looks_leaves_every_file_where_it_is(incoming: Path, policy: str) -> None:
    root, done = incoming.parent, incoming.parent / "done"
    to = f", to: {done}" if policy == "move" else ""
    for definition in (root / "connectors.d").iterdir():
        cleanup = f"cleanup: {{policy: {policy}{to}, failed_to: {root / 'failed'}}}"
        definition.write_text(definition.read_text().replace("format:", f"{cleanup}, format:"))
    (incoming / "bad.csv").write_bytes(b"\x1f\x8b\x08\x00cut")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    shown = ask("run", root / "connectors.d", "--dry-run", root=root)
    assert len(shown.splitlines()) == 5
    ask("plan", root / "connectors.d", root=root)
    ask("explain", incoming / "a.csv", root / "connectors.d", root=root)
    ask("backfill", root / "connectors.d/csv.yaml", "--plan", root=root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not done.exists()
    assert not (root / "failed").exists()
