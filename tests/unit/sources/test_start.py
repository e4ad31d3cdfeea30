"""Where files begin that a connector meets for the first time."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from copycat_agent.formats import LineOptions
from copycat_agent.formats.text import Encoding
from copycat_agent.sources.files.paths.regular_files import open_regular
from copycat_agent.sources.log_file.beginning import since
from copycat_agent.sources.log_file.beginning.since import LineStarts
from copycat_agent.sources.log_file.beginning.start import Beginning, StartAt
from copycat_agent.sources.log_file.log_options import LogFileOptions
from tests.rig.examples import examples
from tests.unit.sources.rig import agent_for

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
AT_NOON = "2026-11-22T12:00:00Z"


def stamp(at: float) -> str:
    """RFC 3339 with microseconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


def minutes(first: int, count: int, *, step: int = 1) -> bytes:
    """Lines a minute apart, numbered from `first`, which is so many minutes after noon."""
    return b"".join(b"%s line %d\n" % (stamp(NOON + 60 * number).encode(), number) for number in range(first, first + count * step, step))


def begin(path: Path, data: bytes, *, first: bool = True, changed: float = NOON + 86400, **options: Any) -> Beginning:
    """Where a file with this content begins."""
    path.write_bytes(data)
    os.utime(path, (changed, changed))
    fd, info = open_regular(str(path), follow_symlinks=False)
    try:
        return StartAt(LogFileOptions(type="log_file", include=("/x",), **options)).begin(fd, info, "f", first=first)
    finally:
        os.close(fd)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("start_at", "data", "at_end"),
    [
        ("beginning", b"old\n", 0),
        ("end", b"", 0),
        ("end", b"old\n", 4),
        ("end", b"old\nunfini", 4),
        ("end", b"unfini", 0),
        ("2100-01-01T00:00:00Z", b"old\n", 4),
        ("2000-01-01T00:00:00+00:00", b"old\n", 0),
    ],
)
def test_start_at_is_for_files_that_were_there_first(tmp_path: Path, start_at: str, data: bytes, at_end: int, first: bool) -> None:
    offset = begin(tmp_path / "f", data, first=first, start_at=start_at).offset
    assert offset.position == (at_end if first else 0)
    assert not offset.skipping
    assert bool(offset.fingerprint.head_bytes) == bool(offset.position)


def test_start_at_end_within_an_over_long_line_skips_the_rest_of_it(tmp_path: Path) -> None:
    offset = begin(tmp_path / "f", b"x" * 1000, start_at="end", line=LineOptions(max_bytes=100)).offset
    assert (offset.position, offset.skipping) == (1000, True)


@pytest.mark.parametrize(
    ("encoding", "delimiter", "whole", "rest"),
    [
        ("utf-16-le", "\n", "old\n".encode("utf-16-le"), "\u0a0anew".encode("utf-16-le")),
        ("utf-16-be", "\n", "old\n".encode("utf-16-be"), "\u0a0anew".encode("utf-16-be")),
        ("auto", "\n", "old\n".encode("utf-16"), "\u0a0anew".encode("utf-16-le")),
        ("utf-8", "\r\n", b"older\nold\r\n", b"new\r"),
        ("latin-1", "||", b"old|old||", b"new|"),
        ("cp037", "\n", "old\n".encode("cp037"), "new".encode("cp037")),
    ],
)
def test_the_end_is_behind_a_delimiter_of_the_files_own_encoding(
    tmp_path: Path, encoding: str, delimiter: str, whole: bytes, rest: bytes
) -> None:
    begun = begin(tmp_path / "f", whole + rest, start_at="end", encoding=encoding, line=LineOptions(delimiter=delimiter))
    assert begun.offset.position == len(whole)


@pytest.mark.parametrize("number", [-1000, 0, 1, 499, 998, 999])
def test_a_time_begins_at_the_first_line_at_or_after_it(tmp_path: Path, number: int) -> None:
    data = minutes(0, 1000)
    begun = begin(tmp_path / "f", data, start_at=stamp(NOON + 60 * number))
    assert data[begun.offset.position :].startswith(stamp(NOON + 60 * max(0, number)).encode())
    assert f"at byte {begun.offset.position}, {stamp(NOON + 60 * max(0, number))[:23]}Z" in begun.why


def test_a_time_after_the_last_line_begins_at_the_end_and_keeps_the_line_that_is_being_written(tmp_path: Path) -> None:
    data = minutes(0, 10)
    begun = begin(tmp_path / "f", data + b"being wri", start_at=stamp(NOON + 86400))
    assert begun.offset.position == len(data)
    assert begun.why.endswith("all its lines are older: at its end")


def test_lines_without_a_time_belong_to_the_line_before(tmp_path: Path) -> None:
    one, two = minutes(0, 1) + b"\tat example.Main\n" * 9, minutes(2, 1) + b"\tat example.Main\n" * 9
    assert begin(tmp_path / "f", one + two, start_at=stamp(NOON + 60)).offset.position == len(one)


def test_a_banner_belongs_to_the_first_line(tmp_path: Path) -> None:
    assert begin(tmp_path / "f", b"version 1\n" + minutes(0, 9), start_at=AT_NOON).offset.position == 0


def test_lines_in_no_order_are_all_read(tmp_path: Path) -> None:
    begun = begin(tmp_path / "f", minutes(-10, 5) + minutes(-30, 5), start_at=AT_NOON)
    assert begun.offset.position == 0
    assert "no order" in begun.why


def test_a_file_whose_lines_and_last_change_are_all_older_is_left_out_even_when_in_no_order(tmp_path: Path) -> None:
    data = minutes(-10, 5) + minutes(-30, 5)
    assert begin(tmp_path / "f", data, changed=NOON - 60, start_at=AT_NOON).offset.position == len(data)


@pytest.mark.parametrize("place", range(800, 2000, 100))
def test_lines_a_little_out_of_order_are_not_lost(tmp_path: Path, place: int) -> None:
    lines = minutes(-2000, 8000).splitlines(keepends=True)
    lines.insert(place, lines.pop(2005))  # its neighbours say it is too old
    begun = begin(tmp_path / "f", b"".join(lines), start_at=AT_NOON)
    assert begun.offset.position == len(b"".join(lines[:place]))


def test_without_times_the_last_change_decides(tmp_path: Path) -> None:
    for changed, expected in ((NOON - 1, 4), (NOON + 1, 0)):
        begun = begin(tmp_path / "f", b"old\n", changed=changed, start_at=AT_NOON)
        assert begun.offset.position == expected
        assert f"start_at {AT_NOON}" in begun.why


def test_utf_16_lines_tell_the_time_too(tmp_path: Path) -> None:
    lines = minutes(-3000, 6000).decode()
    data = lines.encode("utf-16")
    begun = begin(tmp_path / "f", data, encoding="auto", start_at=AT_NOON)
    assert data[begun.offset.position :].decode("utf-16-le").startswith("2026-11-22T12:00:00.000000")


def test_a_large_file_costs_a_few_reads(tmp_path: Path) -> None:
    data, reads = minutes(-80_000, 200_000), []

    def read(position: int, size: int) -> bytes:
        reads.append(size)
        return data[position : position + size]

    found = since.find(len(data), LineStarts(read, Encoding("utf-8", "\n", is_raw=False).of(read, 0)), NOON, NOON)
    assert found is not None
    assert data[found.position :].startswith(stamp(NOON).encode())
    assert max(reads) <= 64 * 1024
    assert len(reads) < 40


@pytest.mark.parametrize("head", [b"", b"no time\n", minutes(-2, 1)[:-1], minutes(-2, 1), minutes(-2, 2)])
def test_a_line_that_never_ends_costs_a_few_reads(head: bytes) -> None:
    reads = []

    def read(position: int, size: int) -> bytes:
        reads.append(size)
        assert sum(reads) < 2**26
        return head[position : position + size].ljust(size, b"x")

    found = since.find(2**40, LineStarts(read, Encoding("utf-8", "\n", is_raw=False).of(read, 0)), NOON, NOON + 60)
    assert found is None or found.position == head.rfind(b"\n") + 1


@pytest.mark.parametrize(("delimiter", "encoding"), [("\n", "utf-8"), ("\r\n", "utf-8"), ("\n", "utf-16-le"), ("|;", "utf-32-be")])
def test_lines_are_found_from_every_byte(delimiter: str, encoding: str) -> None:
    pieces = [f"{'x' * (number % 7)}{delimiter}".encode(encoding) for number in range(30)]
    data = b"".join(pieces)
    starts = [sum(map(len, pieces[:number])) for number in range(30)]

    def read(position: int, size: int) -> bytes:
        return data[position : position + size]

    lines = LineStarts(read, Encoding(encoding, delimiter, is_raw=False).of(read, 0))
    with mock.patch.multiple(since, BLOCK_BYTES=32):
        for position in range(len(data)):
            found = list(lines.lines(position, len(data)))
            assert [line.start for line in found] == [start for start in starts if start >= position]
            assert [line.data for line in found] == [pieces[starts.index(line.start)] for line in found]
            assert lines.is_start(position) == (position in starts)
            assert lines.last_end(position, 1000) == max((start for start in starts[1:] if start <= position), default=None)


@settings(max_examples=examples(150), deadline=None)
@given(
    gaps=st.lists(
        st.tuples(st.sampled_from([0, 1, 60, 86400]), st.integers(0, 3), st.sampled_from([0, 3, 80, 700])), min_size=1, max_size=80
    ),
    delimiter=st.sampled_from(["\n", "\r\n", "||"]),
    encoding=st.sampled_from(["utf-8", "utf-16-le"]),
    wanted=st.floats(0, 1),
    cut=st.integers(0, 3),
)
@example(gaps=[(0, 0, 0)], delimiter="\n", encoding="utf-8", wanted=1.0, cut=0)
def test_sorted_lines_begin_exactly_where_they_should(
    gaps: list[tuple[int, int, int]], delimiter: str, encoding: str, wanted: float, cut: int
) -> None:
    """With small blocks, so that lines and stack traces span several of them."""
    at, groups, text = NOON, [], b""
    for gap, traces, filler in gaps:
        at += gap
        groups.append((len(text), at))
        text += f"{stamp(at)} {'x' * filler}{delimiter}{('  at ' + 'y' * filler + delimiter) * traces}".encode(encoding)
    text = text[: len(text) - cut * (2 if encoding != "utf-8" else 1)]
    time_wanted = NOON + wanted * (at - NOON + 1)
    block = 512
    with mock.patch.multiple(since, BLOCK_BYTES=block, FAR_BYTES=64 * block):

        def read(position: int, size: int) -> bytes:
            return text[position : position + size]

        found = since.find(len(text), LineStarts(read, Encoding(encoding, delimiter, is_raw=False).of(read, 0)), time_wanted, at)
    assert found is not None
    expected = next((start for start, written in groups if written >= time_wanted - 1e-6), -1)
    assert found.position == expected


def test_a_stretch_without_times_that_is_too_long_is_rather_read(tmp_path: Path) -> None:
    head, trace = minutes(-10, 5), b"  at example.Main\n" * 200_000
    begun = begin(tmp_path / "f", head + trace + minutes(10, 1), start_at=AT_NOON)
    assert begun.offset.position == len(head)
    assert "certainly older" in begun.why


@pytest.mark.parametrize("first", [True, False])
def test_ignore_older_leaves_out_what_old_files_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    monkeypatch.setattr(time, "time", lambda: NOON)
    begun = begin(tmp_path / "f", b"old\nunfini", first=first, changed=NOON - 8, ignore_older=5.0)
    assert (begun.offset.position, begun.is_old) == (4, True)
    assert begun.why.startswith("ignore_older 5s: last changed 8 s ago")
    assert begin(tmp_path / "f", b"young\n", first=first, changed=NOON - 2, ignore_older=5.0).offset.position == 0


def test_an_old_file_is_counted_once_and_read_from_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "copycat_agent")
    for name, seconds in (("old1", 100), ("old2", 100), ("young", 1)):
        (tmp_path / name).write_bytes(b"%s before\n" % name.encode())
        os.utime(tmp_path / name, (time.time() - seconds,) * 2)
    agent = agent_for(tmp_path, ignore_older=50.0)
    agent.drain()
    with (tmp_path / "old1").open("ab") as file:
        file.write(b"old1 after\n")
    agent.drain()
    agent.restart()
    agent.drain()
    assert agent.lines == [b"young before", b"old1 after"]
    assert agent.losses == []
    (said,) = [record for record in caplog.records if "ignore_older" in record.getMessage()]
    assert vars(said)["fields"]["files"] == 2


def test_a_renamed_file_is_known_however_old_it_is(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes(b"1\n2\n")
    agent = agent_for(tmp_path, "app.*", ignore_older=50.0)
    agent.scan()
    agent.work(lambda: "stop")
    os.utime(tmp_path / "app.log", (time.time() - 100,) * 2)
    (tmp_path / "app.log").rename(tmp_path / "app.log.1")
    agent.restart()
    agent.drain()
    assert agent.lines == [b"1", b"2"]


def close_to_all(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Nobody can open `path` until `monkeypatch` is undone."""
    opened = os.open

    def refuse(name: Any, *arguments: Any, **more: Any) -> int:
        fd = opened(name, *arguments, **more)
        try:
            is_it = path.exists() and os.path.sameopenfile(fd, other := opened(path, os.O_PATH)) and arguments[0] & os.O_PATH == 0
            os.close(other)
        except OSError:
            is_it = False
        if is_it:
            os.close(fd)
            raise PermissionError(13, "Permission denied", str(path))
        return fd

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("start_at", ["end", "2100-01-01T00:00:00Z"])
def test_start_at_holds_for_a_file_that_could_not_be_opened_at_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_at: str, restart: bool
) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"old\nunfini")
    agent = agent_for(tmp_path, start_at=start_at)
    with monkeypatch.context() as patch:
        close_to_all(patch, path)
        agent.drain()
        with path.open("ab") as file:
            file.write(b"shed\nnew\n")
        agent.drain()
        if restart:
            agent.restart()
    agent.drain()
    assert agent.lines == [b"unfinished", b"new"]


def test_start_at_beginning_reads_all_of_a_file_that_could_not_be_opened_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"old\n")
    agent = agent_for(tmp_path)
    with monkeypatch.context() as patch:
        close_to_all(patch, path)
        agent.drain()
    agent.drain()
    assert agent.lines == [b"old"]


def test_a_deleted_file_that_stays_unread_is_given_up_after_hold_deleted(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"1\n2\n3\n")
    agent = agent_for(tmp_path, hold_deleted=500.0)
    agent.scan()
    agent.work(lambda: "stop")
    path.unlink()
    agent.scan()
    agent.scan()
    assert agent.losses == []
    with mock.patch("copycat_agent.sources.log_file.file_closer.time.monotonic", side_effect=lambda: time.monotonic_ns() / 1e9 + 600):
        agent.scan()
    (loss,) = agent.losses
    assert (loss.path, loss.start, loss.end, loss.reason) == (str(path), 2, 6, "destroyed")
    assert "hold_deleted" in loss.detail
    agent.drain()
    assert agent.lines == [b"1"]


@pytest.mark.parametrize(("hold", "seconds"), [("forever", 1000), (500.0, 400)])
def test_a_deleted_file_is_held_for_ever_by_default_and_while_it_gets_read(tmp_path: Path, hold: Any, seconds: int) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"1\n")
    with path.open("ab", buffering=0) as writer:
        agent = agent_for(tmp_path, hold_deleted=hold)
        agent.scan()
        path.unlink()
        for turn in range(1, 4):
            writer.write(b"more\n")
            later = turn * seconds
            with mock.patch(
                "copycat_agent.sources.log_file.file_closer.time.monotonic",
                side_effect=lambda later=later: time.monotonic_ns() / 1e9 + later,
            ):
                agent.scan()
            agent.work()
    agent.drain()
    assert agent.lines == [b"1", *[b"more"] * 3]
    assert agent.losses == []


@pytest.mark.parametrize("options", [{"start_at": "end"}, {"ignore_older": 50.0}, {"start_at": "2100-01-01T00:00:00Z"}])
def test_an_old_archive_counts_as_read(tmp_path: Path, options: Any) -> None:
    path = tmp_path / "app.log.1.gz"
    path.write_bytes(gzip.compress(b"old\n"))
    os.utime(path, (time.time() - 100,) * 2)
    agent = agent_for(tmp_path, **options)
    agent.drain()
    agent.restart()
    agent.drain()
    assert (agent.lines, agent.losses) == ([], [])


def test_an_archive_that_is_the_rest_of_a_known_file_is_not_too_old(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"1\n2\n3\n")
    agent = agent_for(tmp_path, "app*", ignore_older=50.0)
    agent.scan()
    agent.work(lambda: "stop")
    path.unlink()
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(b"1\n2\n3\n"))
    os.utime(tmp_path / "app.log.1.gz", (time.time() - 100,) * 2)
    agent.restart()
    agent.drain()
    assert (agent.lines, agent.losses) == ([b"1", b"2", b"3"], [])


def test_a_copy_that_is_the_rest_of_a_known_file_is_not_too_old(tmp_path: Path) -> None:
    path, lines = tmp_path / "app.log", [b"line %d" % number for number in range(300)]
    path.write_bytes(b"\n".join(lines[:200]) + b"\n")
    agent = agent_for(tmp_path, "app*", ignore_older=50.0)
    agent.drain()
    with path.open("ab") as file:
        file.write(b"\n".join(lines[200:]) + b"\n")
    shutil.copy(path, tmp_path / "app.log.1")
    os.utime(tmp_path / "app.log.1", (time.time() - 100,) * 2)
    path.write_bytes(b"after\n")
    agent.restart()
    agent.drain()
    assert (sorted(agent.lines), agent.losses) == (sorted([*lines, b"after"]), [])


@pytest.mark.parametrize("pattern", ["app.log*", "app.log"])
@pytest.mark.parametrize("way", ["packed", "copied and cut"])
def test_what_holds_a_known_file_of_which_nothing_was_read_is_not_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, way: str
) -> None:
    log, now = tmp_path / "app.log", time.time
    log.write_bytes(b"1\n2\n")
    agent = agent_for(tmp_path, pattern, ignore_older=3600.0)
    agent.scan()
    with log.open("ab") as file:
        file.write(b"3\n")
    agent.stop()
    if way == "packed":
        (tmp_path / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
        log.unlink()
    else:
        shutil.copy(log, tmp_path / "app.log.1")
        os.truncate(log, 0)
    monkeypatch.setattr(time, "time", lambda: now() + 2 * 3600)
    agent.drain()
    log.write_bytes(b"4\n")
    os.utime(log, (time.time(),) * 2)
    agent.drain()
    assert (agent.lines, agent.losses) == ([b"1", b"2", b"3", b"4"], [])
