"""`copycat explain`, `plan` and `describe` speak of spooled files in the unit that their positions count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.cli.screen import make_console
from copycat_agent.cli.status import _show_files
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.sources.files.identity import identify_by_name
from copycat_agent.sources.spool_dir.rows import part_key

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
    assert "no whole record" not in text


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
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not done.exists()
    assert not (root / "failed").exists()


def test_what_is_never_read_is_refused_with_the_reason_be_it_there_or_not(incoming: Path) -> None:
    definition = incoming.parent / "connectors.d/csv.yaml"
    definition.write_text(definition.read_text().replace("*.csv", "*").replace("min_age: 0s", 'done_file: "{name}.ok"'))
    (incoming / "link.csv").symlink_to(incoming / "gone.csv")

    def why(name: str) -> str:
        text = ask("explain", incoming / name, incoming.parent / "connectors.d", root=incoming.parent)
        return next(line for line in text.splitlines() if line.startswith("csv does not read it"))

    assert "a name that ends with .part" in why("a.csv.part")
    assert "is a done file" in why("a.csv.ok")
    assert "follow_symlinks" not in ask("explain", incoming / "link.csv", incoming.parent / "connectors.d", root=incoming.parent)


def test_ranges_of_a_file_are_no_other_files_that_had_its_name(incoming: Path) -> None:
    info = (incoming / "a.csv").stat()
    identity = identify_by_name(str(incoming / "a.csv"), info, follow_symlinks=False)
    assert identity is not None
    row = SourceOffset(0, path=str(incoming / "a.csv"), size=info.st_size, mtime_ns=info.st_mtime_ns)
    with OffsetStore.open(incoming.parent / "state") as store:
        store.reset({SourcePartition("csv", part_key(identity.key(0), 0, 8)): row, SourcePartition("csv", "1:2:3:0"): row})
    text = ask("explain", incoming / "a.csv", incoming.parent / "connectors.d", root=incoming.parent)
    assert text.count("another file had this name") == 1
