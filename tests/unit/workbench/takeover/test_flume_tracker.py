"""What Flume's source spooldir keeps of its files: markers of finished ones, and where it is in the one that it reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from copycat_agent.workbench.takeover import FileDecision, flume_positions
from tests.rig.waiting import wait_until
from tests.unit.workbench.takeover.peers import LINES, assert_never_crashes, judged, read_spooled, refused, spooling, taken_over

SYNC = bytes(range(16))
SCHEMA = (
    b'{"type":"record","name":"TransferStateFileMeta","namespace":"org.apache.flume.serialization",'
    b'"fields":[{"name":"offset","type":"long"}]}'
)


def number(value: int) -> bytes:
    """Avro's `long`."""
    value, found = value << 1, b""
    while value > 0x7F:
        value, found = value >> 7, found + bytes([value & 0x7F | 0x80])
    return found + bytes([value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def meta(path: Path, *positions: int) -> bytes:
    """As Flume 1.11.0 writes it."""
    header = number(2) + text(b"avro.schema") + text(SCHEMA) + text(b"file") + text(os.fsencode(path)) + number(0)
    return b"Obj\x01" + header + SYNC + b"".join(number(1) + text(number(one)) + SYNC for one in positions)


class Spooled:
    """A spoolDir whose `one.log` is finished, whose `two.log` is being read, and whose `three.log` was not begun."""

    def __init__(self, root: Path) -> None:
        self.root, self.tracker = root, root / ".flumespool"
        self.tracker.mkdir(parents=True)
        for name in ("one.log", "two.log", "three.log"):
            (root / name).write_bytes(LINES)
        (root / "one.log").write_bytes(LINES + b"no line feed")
        (self.tracker / "one.log.COMPLETED").touch()
        (self.tracker / ".flumespool-main.meta").write_bytes(meta(root / "two.log", 4, 8))

    def taken(self, where: str = "", *, trust_names: bool = False) -> tuple[dict[str, FileDecision], list[bytes]]:
        """The judgements, and what an agent reads that goes on there."""
        takeover = taken_over(spooling(self.root), state=flume_positions.read(self.root / where), trust_names=trust_names)
        return judged(takeover), sorted(read_spooled(self.root, takeover))


@pytest.fixture
def spooled(tmp_path: Path) -> Spooled:
    return Spooled(tmp_path / "spool")


@pytest.mark.parametrize("where", ["", ".flumespool"])
def test_finished_files_are_not_read_again_and_the_one_that_was_begun_is_read_on(spooled: Spooled, where: str) -> None:
    told, arrived = spooled.taken(where)
    assert told["one.log"].why == "same device and inode, it was finished"
    assert (told["two.log"].position, told["two.log"].why) == (8, "same device and inode, a line ends before byte 8, 6 bytes more since")
    assert told["three.log"].why == "the peer knows nothing of it"
    assert arrived == sorted([b"three", *LINES.splitlines()])


def test_a_finished_file_counts_as_that_though_a_position_in_it_is_left(spooled: Spooled) -> None:
    (spooled.tracker / "two.log.COMPLETED").touch()
    told, arrived = spooled.taken()
    assert told["two.log"].why == "same device and inode, it was finished"
    assert arrived == sorted(LINES.splitlines())


def test_a_crash_may_have_cut_the_position(spooled: Spooled) -> None:
    whole = meta(spooled.root / "two.log", 4, 8)
    (spooled.tracker / ".flumespool-main.meta").write_bytes(whole[:-3])
    assert spooled.taken()[0]["two.log"].position == 4


def test_a_file_that_was_changed_since_is_read_anew(spooled: Spooled) -> None:
    for name in ("one.log", "two.log"):
        os.utime(spooled.root / name, (2**32, 2**32))
    told, arrived = spooled.taken(trust_names=True)
    assert {told[name].why for name in ("one.log", "two.log")} == {"it was changed after Flume last said where it was in it"}
    assert len(arrived) == 3 * 3 + 1


def test_a_file_that_was_put_there_since_with_an_old_time_is_another_one(spooled: Spooled) -> None:
    os.utime(spooled.tracker / "one.log.COMPLETED", (2**30, 2**30))
    os.utime(spooled.root / "one.log", (2**29, 2**29))
    told, arrived = spooled.taken(trust_names=True)
    assert told["one.log"].why == "it was made after the peer last saved where it was"
    assert b"no line feed" in arrived


def test_a_file_that_was_touched_since_is_taken_only_when_a_person_trusts_its_name(spooled: Spooled) -> None:
    """Its times say that it is as it was, and they can be set."""
    path, marker = spooled.root / "one.log", spooled.tracker / "one.log.COMPLETED"

    def is_touched() -> bool:
        path.chmod(0o600)
        return path.stat().st_ctime_ns > marker.stat().st_mtime_ns

    wait_until(is_touched, message="the file is touched after the marker")
    assert "--trust-names takes it" in spooled.taken()[0]["one.log"].why
    assert spooled.taken(trust_names=True)[0]["one.log"].taken


def test_finished_files_that_are_gone_and_those_in_directories_below(spooled: Spooled) -> None:
    (spooled.root / "one.log").unlink()
    (spooled.tracker / "below").mkdir()
    (spooled.tracker / "below" / "four.log.COMPLETED").touch()
    paths = {one.path for one in flume_positions.read(spooled.root).positions}
    assert paths == {str(spooled.root / name) for name in ("one.log", "two.log", "below/four.log")}
    assert not spooled.taken()[0]["one.log"].is_there


def test_hostile_states_are_refused_with_words(spooled: Spooled) -> None:
    path = spooled.tracker / ".flumespool-main.meta"
    assert_never_crashes("flume", spooled.root, path.read_bytes(), path)
    for content in (b"Obj\x01", b"Obj\x01" + number(1) + text(b"a") + text(b"b") + number(0) + SYNC, b"[]"):
        path.write_bytes(content)
        assert "not what Flume's source spooldir writes" in refused("flume", spooled.tracker)
    path.write_bytes(meta(Path("/a"), 4).replace(number(4) + SYNC, b"\x07" + SYNC))
    assert "its offset is -4" in refused("flume", spooled.tracker)
