"""Flume's position file of TAILDIR, in the form that TaildirSource writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from copycat_agent.workbench.takeover import flume_positions
from tests.unit.workbench.takeover.peers import assert_never_crashes, judged, read_on, refused, successor, taken_over


def written(tmp_path: Path, *positions: tuple[int, object, str]) -> Path:
    path = tmp_path / "flume" / "taildir_position.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([{"inode": inode, "pos": position, "file": name} for inode, position, name in positions]))
    return path


@pytest.mark.parametrize("by_directory", [False, True])
def test_the_agent_goes_on_where_taildir_was(tmp_path: Path, log: Path, by_directory: bool) -> None:
    path = written(tmp_path, (log.stat().st_ino, 4, str(log)))
    takeover = taken_over(successor(log), state=flume_positions.read(path.parent if by_directory else path))
    assert judged(takeover)["app.log"].why == "same inode, a line ends before byte 4, 10 bytes more since"
    assert read_on(log, takeover.rows["app"]) == [b"two", b"three"]


def test_a_position_that_a_real_flume_has_written_is_taken(tmp_path: Path, log: Path) -> None:
    """Flume 1.11.0 from Maven Central, with TAILDIR, of a log that ends in an unfinished line; only the file is another one here."""
    log.write_bytes(b"one\ntwo\nthree\npart")
    written_by_flume = '[{"inode":10200194,"pos":14,"file":"/var/log/app.log"}]'
    path = tmp_path / "taildir_position.json"
    path.write_text(written_by_flume.replace("10200194", str(log.stat().st_ino)).replace("/var/log/app.log", str(log)))
    takeover = taken_over(successor(log), state=flume_positions.read(path))
    with log.open("ab") as file:
        file.write(b" and ended\n")
    assert read_on(log, takeover.rows["app"]) == [b"part and ended"]


def test_a_log_that_was_rotated_and_one_that_is_gone(tmp_path: Path, log: Path) -> None:
    gone = log.with_name("gone.log")
    state = flume_positions.read(written(tmp_path, (log.stat().st_ino, 8, str(log)), (999_999_999, 5, str(gone))))
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"new\n")
    takeover = taken_over(successor(log.with_name("*.log")), state=state)
    by_path = {(Path(one.path).name, one.position) for one in takeover.decisions if one.taken}
    assert by_path == {("app.log", 8)}
    assert [one.is_there for one in takeover.decisions if one.path == str(gone)] == [False]
    assert sorted(read_on(log.with_name("*.log"), takeover.rows["app"])) == [b"new", b"three"]


def test_hostile_position_files_are_refused_with_words(tmp_path: Path) -> None:
    path = tmp_path / "flume" / "taildir_position.json"
    assert "No such file" in refused("flume", path)
    assert "has no taildir_position.json, and is no spoolDir" in refused("flume", tmp_path)
    written(tmp_path, (5, 4, "/a.log"), (6, 4, "/b.log"))
    assert_never_crashes("flume", path, path.read_bytes(), path)
    for wrong in (-1, 1.5, "4", None, True, 2**63):
        written(tmp_path, (5, wrong, "/a.log"))
        assert "pos of position 1" in refused("flume", path)
    path.write_text("{}")
    assert "are a list" in refused("flume", path)
    path.write_text("[5]")
    assert "no map" in refused("flume", path)
