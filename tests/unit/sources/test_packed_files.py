"""Packed files, driver and task: read once, to the end that is there; waited for while unfinished; told when damaged."""

from __future__ import annotations

import gzip
import os
import subprocess
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.formats import Chunk, LineOptions, MultilineFrames, MultilineOptions
from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.packing import compressions, unpacking
from copycat_agent.sources.files.packing.unpacking import Unpacker
from copycat_agent.sources.log_file import file_closer
from copycat_agent.sources.log_file.log_kind import open_stream
from tests.unit.sources.packing import PACK, SUFFIX, random_lines, source, write_packed
from tests.unit.sources.rig import Agent, agent_for, tick

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.formats import Reader

CODECS = pytest.mark.parametrize("codec", sorted(PACK))
TEXT = random_lines(2000)
LINES = TEXT.splitlines()


def let_be_quiet(agent: Agent, seconds: float | None = None) -> None:
    """As if so much time had passed since anything was written; by default as much as ends a last line."""
    seconds = file_closer.LAST_LINE_SECONDS if seconds is None else seconds
    for file in agent.source._catalog.followed.files.values():
        file.seen = replace(file.seen, grown_at=file.grown_at - seconds)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@CODECS
def test_an_archive_is_read_as_what_it_holds_and_once(tmp_path: Path, codec: str) -> None:
    path = write_packed(tmp_path / f"a.log{SUFFIX[codec]}", TEXT, codec)
    agent = agent_for(tmp_path)
    agent.drain()
    (offset,) = [one for one in agent.store.values() if one.path]
    assert agent.lines == LINES
    assert (offset.position, offset.records, offset.compression) == (len(TEXT), 2000, codec)
    assert (offset.size, offset.done) == (path.stat().st_size, True)
    assert offset.fingerprint == fingerprint.take(source(TEXT), len(TEXT))
    for start_again in (agent.restart, agent.stop):
        start_again()
        agent.scan()
        assert agent.work() == 0, "a finished archive is not even opened by a task"
    assert agent.losses == []


@pytest.mark.parametrize("name", ["a.log", "a.txt.gz"])
def test_the_first_bytes_tell_and_not_the_name(tmp_path: Path, name: str) -> None:
    write_packed(tmp_path / "packed.log", b"one\ntwo\n", "zstd")
    (tmp_path / name).write_bytes(b"three\n")
    agent = agent_for(tmp_path)
    agent.drain()
    assert sorted(agent.lines) == [b"one", b"three", b"two"]


def test_nothing_is_unpacked_unless_it_is_wanted(tmp_path: Path) -> None:
    data = write_packed(tmp_path / "a.gz", b"one\n").read_bytes() + b"\n"
    (tmp_path / "a.gz").write_bytes(data)
    agent = agent_for(tmp_path, compression="none")
    agent.drain()
    assert b"\n".join([*agent.lines, b""]) == data
    assert {one.compression for one in agent.store.values()} == {""}


@CODECS
def test_an_archive_that_is_written_byte_by_byte_is_waited_for(tmp_path: Path, codec: str) -> None:
    path, data = tmp_path / "a", PACK[codec](b"one\ntwo\n")
    path.write_bytes(b"")
    agent = agent_for(tmp_path)
    for place in range(len(data)):
        agent.drain()
        append(path, data[place : place + 1])
    agent.drain()
    assert (agent.lines, agent.losses) == ([b"one", b"two"], [])
    assert {(one.position, one.done) for one in agent.store.values() if one.path} == {(8, True)}


@CODECS
def test_members_that_come_later_go_on_with_the_lines(tmp_path: Path, codec: str) -> None:
    path = write_packed(tmp_path / "a", b"one\ntw", codec)
    agent = agent_for(tmp_path)
    agent.drain()
    agent.restart()
    append(path, PACK[codec](b"o\nthree\n"))
    agent.drain()
    agent.stop()
    append(path, PACK[codec](b"four\n"))
    agent.drain()
    assert agent.lines == [b"one", b"two", b"three", b"four"]


def test_a_last_line_without_its_end_is_one_when_the_archive_is_quiet(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a", b"one\ntwo")
    agent = agent_for(tmp_path)
    agent.drain()
    assert agent.lines == [b"one"]
    let_be_quiet(agent)
    agent.drain()
    assert agent.lines == [b"one", b"two"]
    agent.restart()
    agent.drain()
    assert agent.lines == [b"one", b"two"]
    append(path, PACK["gzip"](b"three\n"))
    agent.drain()
    assert (agent.lines, agent.losses) == ([b"one", b"two", b"three"], [])


def test_a_run_to_the_end_does_not_wait(tmp_path: Path) -> None:
    write_packed(tmp_path / "whole", b"one\ntwo")
    (tmp_path / "cut").write_bytes(PACK["gzip"](TEXT)[:-9])
    (tmp_path / "stub").write_bytes(b"\x1f\x8b")
    agent = agent_for(tmp_path)
    agent.drain()
    assert agent.source.drained()
    agent.source.finalise()
    agent.drain()
    assert agent.lines[-1] == b"two"
    assert [(loss.reason, loss.path) for loss in agent.losses] == [("damaged", str(tmp_path / name)) for name in ("cut", "stub")]


def test_an_archive_that_stays_unfinished_is_damaged_and_goes_on_when_it_grows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, other = PACK["gzip"](TEXT), write_packed(tmp_path / "other", b"other\n")
    path = tmp_path / "a"
    path.write_bytes(data[:20_000])
    agent = agent_for(tmp_path, rotate_wait=300.0)
    agent.drain()
    read = len(agent.lines) - 1
    let_be_quiet(agent)
    agent.drain()
    assert agent.losses == [], "somebody may be writing it still"
    let_be_quiet(agent, file_closer.UNFINISHED_SECONDS)
    agent.drain()
    (loss,) = agent.losses
    (offset,) = [one for one in agent.store.values() if one.path == str(path)]
    assert 0 < offset.records == read < 2000
    assert (offset.done, offset.size) == (True, 20_000)
    assert (loss.reason, loss.path, loss.start, loss.size_bytes) == ("damaged", str(path), offset.position, 0)
    assert "it ends before its end marker, at packed byte 20000" in loss.detail
    agent.restart()
    agent.drain()
    assert len(agent.losses) == 1, "told once"
    append(path, data[20_000:])
    agent.drain()
    assert sorted(agent.lines) == sorted([*LINES, b"other"])
    assert (len(agent.losses), other.exists()) == (1, True)
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in told] == ["packed file is damaged, what comes before is sent"]


def test_a_broken_archive_is_told_once_and_holds_up_nobody(tmp_path: Path) -> None:
    data = bytearray(PACK["gzip"](TEXT))
    data[-6] ^= 1
    path = tmp_path / "a"
    path.write_bytes(data + PACK["gzip"](b"behind\n"))
    write_packed(tmp_path / "b", b"other\n")
    agent = agent_for(tmp_path)
    agent.drain()
    assert sorted(agent.lines) == sorted([*LINES, b"other"])
    assert [(loss.reason, loss.start) for loss in agent.losses] == [("damaged", len(TEXT))]
    assert 0 < agent.losses[0].size_bytes < 60
    agent.stop()
    agent.drain()
    assert len(agent.losses) == 1
    path.write_bytes(PACK["gzip"](TEXT) + PACK["gzip"](b"behind\n"))
    agent.drain()
    assert sorted(agent.lines) == sorted([*LINES, b"behind", b"other"])


def test_a_file_cut_and_packed_anew_in_place_with_the_same_bytes_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(PACK["gzip"](TEXT)[:30_000])
    agent = agent_for(tmp_path)
    agent.drain()
    read = len(agent.lines)
    path.write_bytes(PACK["gzip"](TEXT)[:100])
    agent.drain()
    path.write_bytes(subprocess.run(["gzip", "-9c"], input=TEXT, stdout=subprocess.PIPE, check=True).stdout)
    agent.drain()
    assert 0 < read < 2000
    assert (agent.lines, agent.losses) == (LINES, [])


def test_an_archive_with_other_bytes_is_another_one(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a", b"one\n")
    agent = agent_for(tmp_path)
    agent.drain()
    with path.open("r+b") as file:
        file.write(PACK["gzip"](b"another one\n"))
    agent.drain()
    agent.stop()
    path.write_bytes(PACK["gzip"](b"a third one\n"))
    agent.drain()
    assert agent.lines == [b"one", b"another one", b"a third one"]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_an_archive_that_was_read_to_its_end_and_is_packed_anew_in_place_is_no_loss(tmp_path: Path, is_damaged: bool) -> None:
    text = random_lines(2000)
    before, now = (gzip.compress(one, 0) for one in (text[: 40 * 51] + random_lines(1960), text))  # of one size
    path, agent = tmp_path / "a", agent_for(tmp_path)
    path.write_bytes(before[:-8] + bytes(8) if is_damaged else before)
    agent.drain()
    let_be_quiet(agent)
    agent.drain()
    assert len(agent.losses) == is_damaged
    agent.restart()
    agent.drain()
    path.write_bytes(now)
    os.utime(path, (1, 1))
    agent.drain()
    assert agent.lines[-2000:] == text.splitlines()
    assert len(agent.losses) == is_damaged, "all of it was read"


def test_what_holds_nothing_for_long_is_still_the_same_archive(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = PACK["gzip"](TEXT)
    path.write_bytes(
        data[:3] + b"\x08" + data[4:10] + b"n" * compressions.HEAD_INPUT_BYTES + b"\0" + data[10:]
    )  # the name of the file that was packed
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    agent.restart()
    agent.drain()
    assert agent.lines == LINES


def test_an_archive_that_is_emptied_before_it_is_read_is_a_loss_in_packed_bytes(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a", TEXT)
    size = path.stat().st_size
    agent = agent_for(tmp_path)
    agent.scan()
    agent.work(lambda: "stop")
    path.write_bytes(b"")
    agent.drain()
    (loss,) = agent.losses
    assert (loss.reason, loss.start) == ("destroyed", len(LINES[0]) + 1)
    assert 0 <= loss.size_bytes <= size
    assert "packed as gzip" in loss.detail


def test_a_finished_archive_that_goes_away_is_no_loss(tmp_path: Path) -> None:
    for name in "abc":
        write_packed(tmp_path / name, TEXT)
    agent = agent_for(tmp_path)
    agent.drain()
    (tmp_path / "a").unlink()
    agent.drain()
    agent.stop()
    (tmp_path / "b").unlink()
    agent.scan()
    agent.restart()
    (tmp_path / "c").write_bytes(b"")
    agent.drain()
    assert agent.losses == []


def test_random_stops_restarts_and_growth_repeat_nothing_that_was_settled(tmp_path: Path) -> None:
    data = b"".join(PACK["gzip"](TEXT[place : place + 7001]) for place in range(0, len(TEXT), 7001))
    path, behaviours = tmp_path / "a", ["stop", "read", "fail"]
    path.write_bytes(b"")
    agent = agent_for(tmp_path)
    for step, place in enumerate(range(0, len(data), 1501)):
        append(path, data[place : place + 1501])
        agent.scan()
        agent.work(lambda: behaviours[step % 3])  # noqa: B023 - called at once
        if step % 5 == 0:
            agent.restart()
        elif step % 7 == 0:
            agent.stop()
    agent.drain()
    assert agent.lines == LINES


def split_of(path: Path, codec: str = "gzip", **changes: object) -> Split:
    offset = SourceOffset(0, compression=codec)
    return replace(Split(SourcePartition("app", path.name), str(path), str(path), offset, 2**30), **changes)  # type: ignore[arg-type]


def origin(position: int, text: bytes = TEXT, records: int = 7) -> SourceOffset:
    return SourceOffset(position, records=records, fingerprint=fingerprint.take(source(text), position))


def read_with(path: Path, *origins: SourceOffset, final: bool = False, done: bool = False) -> tuple[SplitResult, int]:
    """A task's result when it reads nothing but where to begin, and that place."""
    split = split_of(path, origins=origins, final=final)
    stream = open_stream(replace(split, offset=replace(split.offset, done=done, size=path.stat().st_size)))
    try:
        assert stream.is_what_was_read()
        begin = -1 if stream.waits else stream.offset.position
        return stream.complete(SplitResult(split, stream.offset, at_end=stream.waits)), begin
    finally:
        stream.close()


@CODECS
def test_an_archive_goes_on_behind_the_furthest_origin_that_it_holds(tmp_path: Path, codec: str) -> None:
    path = write_packed(tmp_path / "a", TEXT, codec)
    split = split_of(path, codec, origins=(origin(60_000, b"x" * 80_000), origin(len(TEXT) + 9, TEXT * 2), origin(50_000), origin(99)))
    stream = open_stream(split)
    assert stream.is_what_was_read()
    assert (stream.origin, stream.offset.position, stream.offset.records, stream.waits) == (2, 50_000, 7, False)
    assert stream.read(50_000, 10) == TEXT[50_000:50_010]
    stream.close()


def test_without_a_proof_an_archive_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a", TEXT)
    other = TEXT[:2000] + b"y" * 5000  # the same head
    result, begin = read_with(path, origin(5000, other), SourceOffset(4000), SourceOffset(0))
    assert (begin, result.origin) == (0, -1)


def test_an_archive_that_is_too_short_yet_waits_for_the_rest(tmp_path: Path) -> None:
    path, data = tmp_path / "a", PACK["gzip"](TEXT)
    for size in (20, 300, 30_000):
        path.write_bytes(data[:size])
        result, begin = read_with(path, origin(70_000), origin(10_000))
        assert (begin, result.origin, result.at_end, result.offset.position, result.damage) == (-1, -1, True, 0, "")
    assert read_with(path, origin(70_000), origin(10_000), final=True)[1] == 10_000, "nobody adds to it: the next best proof"
    assert read_with(path, origin(70_000, b"z" * 80_000))[1] == 0, "what is there tells that it is another one"
    path.write_bytes(data)
    assert read_with(path, origin(70_000), origin(10_000))[0].origin == 0


def test_what_is_to_be_read_as_a_rest_only_is_not_read_without_an_origin(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a", TEXT)
    result, begin = read_with(path, origin(5000, TEXT[::-1]), done=True)
    assert (begin, result.origin, result.at_end, result.offset) == (
        -1,
        -1,
        True,
        replace(SourceOffset(0, done=True, compression="gzip"), size=path.stat().st_size),
    )
    result, begin = read_with(path, origin(5000), done=True)
    assert (begin, result.origin, result.offset.done) == (5000, 0, False)


def test_a_packed_file_that_is_replaced_while_it_is_read_counts_for_nothing(tmp_path: Path) -> None:
    path = write_packed(tmp_path / "a", TEXT)
    stream = open_stream(split_of(path))
    stream.read(0, 100)
    assert stream.is_still(100)
    with path.open("ab") as file:
        file.write(PACK["gzip"](b"more\n"))
    assert stream.is_still(100), "it has only grown"
    path.write_bytes(PACK["gzip"](b"another\n"))
    assert not stream.is_still(100)
    stream.close()
    assert fresh_unpacker(path), "what was unpacked is of no use"


def fresh_unpacker(path: Path) -> bool:
    """Whether unpacking `path` would begin from its beginning."""
    data = path.read_bytes()
    taken = unpacking.PROCESS.take(SourcePartition("app", path.name), "gzip", source(data), len(data))
    return taken.taken == 0


def test_the_next_batch_goes_on_where_the_last_one_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_packed(tmp_path / "a", random_lines(50_000))
    steps: list[int] = []
    step = Unpacker._step

    def counted(unpacker: Unpacker, read: Reader) -> bool:
        steps.append(unpacker.taken)
        return step(unpacker, read)

    monkeypatch.setattr(Unpacker, "_step", counted)
    offset = split_of(path).offset
    while offset.position < 10**6:
        stream = open_stream(replace(split_of(path), offset=offset))
        assert stream.is_what_was_read()
        data = stream.read(offset.position, 50_000)
        end = offset.position + len(data)
        stream.settled(end)
        offset = replace(offset, position=end, fingerprint=stream.fingerprint(end, data[-256:]))
        stream.close()
    assert steps == sorted(steps), "never begun again"


def test_a_group_that_never_ends_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"S begins\n" + random_lines(5000)
    path = write_packed(tmp_path / "a", text)
    frames = MultilineFrames(LineOptions(), MultilineOptions(start="^S", max_lines=10, on_too_long="dlq"))
    begun: list[Unpacker] = []
    begin_anew = Unpacker._begin_anew

    def counted(unpacker: Unpacker) -> None:
        begun.append(unpacker)
        begin_anew(unpacker)

    monkeypatch.setattr(Unpacker, "_begin_anew", counted)
    offset, bounds = split_of(path).offset, (0, False)
    while offset.position < len(text):
        stream = open_stream(replace(split_of(path), offset=offset))
        assert stream.is_what_was_read()
        for _ in range(2):
            for frame in frames.frames(stream.read, offset.position, stream.bounds(2**24)[0], skipping=offset.skipping, block_bytes=50_000):
                stream.settled(frame.end)
                proof = stream.fingerprint(frame.end, frame.tail)
                offset = replace(offset, position=frame.end, skipping=not getattr(frame, "complete", True), fingerprint=proof)
                if frame.end < len(text) - 60_000:
                    break
            bounds = stream.bounds(2**24)
        stream.close()
    assert (offset.position, bounds) == (len(text), (len(text), False))
    assert len(begun) == 1, "never begun again"


def test_the_end_of_an_archive_once_seen_is_known(tmp_path: Path) -> None:
    text = random_lines(5000)
    stream = open_stream(split_of(write_packed(tmp_path / "a", text)))
    stream.read(0, 2**24)
    stream.settled(len(text))
    stream.read(len(text), 1)
    assert stream.bounds(2**24) == (len(text), False)
    stream.read(2000, 10)
    assert stream.bounds(2**24) == (len(text), False), "though it was begun anew"
    stream.close()


@pytest.mark.parametrize("limit", [2**30, 20])
@pytest.mark.parametrize("begun", [b"", b" at"])
@pytest.mark.parametrize("met", [False, True])
def test_damage_ends_the_group_of_lines_before_it_and_the_end_of_a_split_does_not(
    tmp_path: Path, begun: bytes, limit: int, met: bool
) -> None:
    text = b"S one\n at x\nS two\n at y\n"
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(text + begun) + b"garbage")
    groups = MultilineFrames(LineOptions(), MultilineOptions(start="^S"))
    stream, values, position, bounds = open_stream(split_of(path)), list[bytes](), 0, None
    stream.read(0, 100 if met else 0)
    while bounds != (bounds := stream.bounds(limit)):
        for frame in stream.frames(groups, position, bounds[0], final=False, flush=False):
            assert isinstance(frame, Chunk)
            values += frame.values
            position = frame.end
    stream.close()
    assert values == ([b"S one\n at x", b"S two\n at y"] if limit > len(text) else [b"S one\n at x"])
    assert bounds == (min(limit, len(text + begun)), False)


def test_an_archive_that_grows_at_the_last_moment_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a"
    data = PACK["gzip"](TEXT)
    path.write_bytes(data[:-20])
    agent = agent_for(tmp_path)
    agent.drain()
    let_be_quiet(agent)
    agent.source.scan()
    (split,) = agent.source.plan(1).splits
    assert split.final
    append(path, data[-20:-10])
    result = agent.read(split, "read")
    assert (result.at_end, result.damage) == (True, "")
    agent._save((result,), agent.source.changes_of([result]))
    append(path, data[-10:])
    agent.drain()
    assert (agent.lines, agent.losses) == (LINES, [])


def test_an_old_unfinished_archive_need_not_be_waited_for_long(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(PACK["gzip"](TEXT)[:-4])
    os.utime(path, (time.time() - 3600,) * 2)
    agent = agent_for(tmp_path, rotate_wait=300.0)
    agent.drain()
    let_be_quiet(agent)
    agent.drain()
    assert [loss.reason for loss in agent.losses] == ["damaged"]


def test_one_that_a_server_has_stamped_is_waited_for_whatever_its_clock_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "is_local", lambda _: False)
    path = tmp_path / "a"
    path.write_bytes(PACK["gzip"](TEXT)[:-4])
    os.utime(path, (time.time() - 3600,) * 2)
    agent = agent_for(tmp_path, rotate_wait=300.0)
    agent.drain()
    let_be_quiet(agent)
    agent.drain()
    assert not agent.losses


@pytest.mark.parametrize("meanwhile", ["following", "stopped", "killed"])
@pytest.mark.parametrize("start_at", ["beginning", "end"])
def test_an_archive_that_gets_another_member_goes_on_there_and_one_that_was_left_out_is_read_from_its_beginning(
    tmp_path: Path, start_at: str, meanwhile: str
) -> None:
    """Nobody looked into one that `start_at: end` leaves out: where its new member begins is not known."""
    archive = tmp_path / "app.log.1.gz"
    archive.write_bytes(gzip.compress(b"one\ntwo\n"))
    agent = agent_for(tmp_path, start_at=start_at)
    agent.drain()
    assert agent.lines == ([] if start_at == "end" else [b"one", b"two"])
    {"following": lambda: None, "stopped": agent.stop, "killed": agent.restart}[meanwhile]()
    for member in (b"three\n", b"four\n"):
        with archive.open("ab") as file:
            file.write(gzip.compress(member))
        agent.drain()
    agent.restart()
    agent.drain()
    assert agent.lines == [b"one", b"two", b"three", b"four"]
    assert agent.losses == []


def test_a_large_archive_that_begins_like_a_log_whose_rest_is_missing_is_looked_into_once(tmp_path: Path) -> None:
    banner, log = random_lines(40), tmp_path / "app.log"
    log.write_bytes(banner + b"live\n")
    write_packed(tmp_path / "app.log.1.gz", banner + random_lines(20_000))
    tick()
    agent = agent_for(tmp_path, "*.log")
    agent.drain()
    append(log, b"unread\n")
    agent.scan()
    log.write_bytes(b"")
    agent.drain()
    assert agent.lines == [*banner.splitlines(), b"live"]


def test_an_archive_that_was_given_up_and_is_written_on_is_read_though_it_begins_like_another_log(tmp_path: Path) -> None:
    banner = random_lines(40)
    (tmp_path / "app.log").write_bytes(banner + b"live\n")
    agent = agent_for(tmp_path)
    agent.drain()
    whole = gzip.compress(banner + b"older\n")
    path = tmp_path / "app.log.2.gz"
    path.write_bytes(whole[:12])
    let_be_quiet(agent, 0)
    agent.scan()
    agent.source.finalise()
    agent.drain()
    assert [loss.reason for loss in agent.losses] == ["damaged"]
    append(path, whole[12:])
    agent.drain()
    assert agent.lines == [*banner.splitlines(), b"live", *banner.splitlines(), b"older"]
    agent.restart()
    agent.scan()
    assert agent.work() == 0
