"""States that a real rsyslogd has written, also one that was killed in the middle of a rotation, and ones that are no states."""

from __future__ import annotations

import json
import shutil
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from copycat_agent.workbench.takeover import rsyslog_state
from tests.unit.workbench.takeover.following import Peer, following
from tests.unit.workbench.takeover.peers import assert_never_crashes, judged, read_on, refused, successor, taken_over
from tests.unit.workbench.takeover.rotating import RotatingLog, assert_nothing_lost

needs_rsyslog = pytest.mark.skipif(shutil.which("rsyslogd") is None, reason="rsyslog is not installed")
EVERY = 10
"""So many lines rsyslogd may have handed on and not saved."""
_CONFIGURATION = """global(workDirectory="{work}/state")
module(load="imfile" mode="inotify")
template(name="line" type="string" string="%msg%\\n")
input(type="imfile" File="{log}" Tag="app:" PersistStateInterval="{every}" persistStateAfterSubmission="on" ruleset="out" {more})
ruleset(name="out" queue.type="Direct") {{ action(type="omfile" file="{work}/out/lines" template="line") }}
"""


def rsyslogd(work: Path, log: Path, more: str = "") -> AbstractContextManager[Peer]:
    """A real rsyslogd that follows a log; its state is in `work/state`."""
    (work / "state").mkdir(parents=True)
    configuration = work / "rsyslog.conf"
    configuration.write_text(_CONFIGURATION.format(work=work, log=log, every=EVERY, more=more))
    return following(["rsyslogd", "-n", "-f", str(configuration), "-i", str(work / "pid")], work / "out")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "app.log"
    path.parent.mkdir()
    return path


def numbered(begin: int, end: int) -> bytes:
    return b"".join(b"line %06d of a log\n" % number for number in range(begin, end))


@needs_rsyslog
@pytest.mark.parametrize("count", [3, 200])
def test_the_agent_goes_on_behind_the_last_line_that_rsyslog_handed_on(tmp_path: Path, log: Path, count: int) -> None:
    log.write_bytes(numbered(0, count) + b"begun")
    with rsyslogd(tmp_path / "rsyslog", log) as peer:
        peer.await_lines(count)
        peer.end()
        handed_on = peer.lines
    with log.open("ab") as file:
        file.write(b" and ended\nnew\n")
    takeover = taken_over(successor(log), state=rsyslog_state.read(tmp_path / "rsyslog" / "state"))
    why = judged(takeover)["app.log"].why
    assert why.startswith("same inode, a line ends" if count == 3 else "same inode, same hash of the first 512 bytes, a line ends")
    assert handed_on == numbered(0, count).splitlines()
    assert read_on(log, takeover.rows["app"]) == [b"begun and ended", b"new"]


@needs_rsyslog
def test_a_record_of_several_lines_that_rsyslog_had_begun_is_read_whole(tmp_path: Path, log: Path) -> None:
    log.write_bytes(b"2025 a\n  b\n2026 c\n  d\n  e\n")
    with rsyslogd(tmp_path / "rsyslog", log, 'startmsg.regex="^20"') as peer:
        peer.await_lines(1)
        time.sleep(0.3)
        peer.end()
        assert peer.lines == [b"2025 a\\n  b"]
    takeover = taken_over(successor(log), state=rsyslog_state.read(tmp_path / "rsyslog" / "state"))
    assert read_on(log, takeover.rows["app"]) == [b"2026 c", b"  d", b"  e"]


@needs_rsyslog
def test_rsyslog_is_killed_in_the_middle_of_a_rotating_log_and_nothing_is_lost(tmp_path: Path, log: Path) -> None:
    rotating = RotatingLog(log)
    with rsyslogd(tmp_path / "rsyslog", log) as peer:
        rotating.kill_in_the_middle(peer.await_lines, lambda: peer.end(signal.SIGKILL))
        handed_on = peer.lines
    state = rsyslog_state.read(tmp_path / "rsyslog" / "state")
    both = set(assert_nothing_lost(rotating, handed_on, read_on(log, taken_over(successor(log), state=state).rows["app"])))
    kept = {one.inode for one in state.positions if not one.unusable}  # it deletes the state of a file that is rotated twice
    repeated = [both & set(part) for inode, part in rotating.files if inode in kept]
    assert repeated
    assert all(len(one) <= EVERY for one in repeated)


@pytest.mark.parametrize("content", ["", '{ "filename": "/a.lo', "garbage"])
def test_a_state_that_a_crash_has_cut_is_told_and_its_file_is_read_anew(tmp_path: Path, log: Path, content: str) -> None:
    log.write_bytes(numbered(0, 3))
    state = tmp_path / "state"
    state.mkdir()
    (state / f"imfile-state:{log.stat().st_ino}").write_text(content)
    takeover = taken_over(successor(log), state=rsyslog_state.read(state))
    told = judged(takeover)["app.log"]
    assert (told.taken, told.is_there) == (False, True)
    assert "its state cannot be read" in told.why
    assert str(state) in told.why
    assert "from the beginning" in told.then


def test_a_state_of_another_file_with_the_inode_is_refuted_by_the_hash(tmp_path: Path, log: Path) -> None:
    log.write_bytes(numbered(0, 200))
    state = tmp_path / "state"
    state.mkdir()
    values = {"filename": str(log), "prev_was_nl": 0, "curr_offs": 44, "strt_offs": 44}
    (state / f"imfile-state:{log.stat().st_ino}:0123456789abcdef").write_text(json.dumps(values))
    told = judged(taken_over(successor(log), state=rsyslog_state.read(state)))["app.log"]
    assert not told.taken
    assert "begins with other bytes" in told.why


def test_hostile_states_are_refused_with_words(tmp_path: Path) -> None:
    assert "is no directory" in refused("rsyslog", tmp_path / "none")
    state = tmp_path / "state"
    state.mkdir()
    assert "no state of imfile" in refused("rsyslog", state)
    path = state / "imfile-state:12"
    whole = b'{ "filename": "\\/a.log", "prev_was_nl": 0, "curr_offs": 8, "strt_offs": 8, "prev_msg_segment": "a\xff" }'
    assert_never_crashes("rsyslog", state, whole, path)
    for wrong in ("-1", "1.5", '"8"', "null", "9" * 30, "[]"):
        path.write_text(f'{{"filename": "/a", "strt_offs": {wrong}}}')
        assert "strt_offs" in refused("rsyslog", state)
    path.write_text('{"filename": "/a\\u0000b", "strt_offs": 1}')
    assert "no text" in refused("rsyslog", state)
    path.write_text('{"filename": "\\ud800", "strt_offs": 1}')
    assert "no text" in refused("rsyslog", state)
    path.write_text("[]")
    assert "map of fields" in refused("rsyslog", state)
