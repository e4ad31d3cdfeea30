"""Promises of the log: one line per event, unforgeable, and repeats are counted."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import re
import socket
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent import logs
from copycat_agent.errors import FatalError
from copycat_agent.logs.events import Event, RepeatFilter, json_line
from copycat_agent.logs.handler import Handler, Sink
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Leave logging as it was found."""
    root, ours = logging.getLogger(), logging.getLogger("copycat_agent")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    for handler in [one for one in root.handlers if isinstance(one, Handler) and one not in handlers]:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    logging.captureWarnings(capture=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(level: str = "info", format: str = "json") -> tuple[io.StringIO, logs.Log]:  # noqa: A002
    stream = io.StringIO()
    logs.setup(level, format, stream)
    root = logging.getLogger()
    root.handlers[:] = root.handlers[-1:]  # without pytest's, which raises where ours must not
    return stream, logs.get("test")


def events(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def raised(message: str) -> FatalError:
    """An error with a stack."""
    with pytest.raises(FatalError) as caught:
        raise FatalError(message, "do this")
    return caught.value


def test_an_event_in_json_carries_its_words_fields_and_utc_time() -> None:
    stream, log = lines_of()
    log.info("file opened", connector="nginx", path="/var/log/ä b", offset=12, done=False, delay_s=0.5, missing=None)
    (event,) = events(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("ts"))
    assert event == {
        "level": "info",
        "logger": "test",
        "event": "file opened",
        "connector": "nginx",
        "path": "/var/log/ä b",
        "offset": 12,
        "done": False,
        "delay_s": 0.5,
        "missing": None,
    }


def test_an_event_as_text_is_easy_to_read_and_still_unambiguous() -> None:
    stream, log = lines_of(format="text")
    log.warning("connector backs off", connector="nginx", path="/a b", offset=12, odd='x" y=1', ok=True, tags=["a", "b"])
    assert re.fullmatch(
        r'\S+Z WARNING test: connector backs off connector=nginx path="/a b" offset=12 odd="x\\" y=1" ok=true tags=\["a", "b"\]\n',
        stream.getvalue(),
    )


@pytest.mark.parametrize(("stream", "is_json"), [(io.StringIO(), True), (Terminal(), False)])
def test_auto_is_text_on_a_terminal_and_json_elsewhere(stream: io.StringIO, is_json: bool) -> None:
    logs.setup("info", "auto", stream)
    logs.get("test").info("hello")
    assert stream.getvalue().startswith("{") is is_json


@given(st.text(st.characters() | st.characters(categories=["Cs", "Cc"])), st.text(st.characters() | st.characters(categories=["Cc"])))
def test_no_value_forges_a_line_in_json(value: str, words: str) -> None:
    stream, log = lines_of()
    log.error(words, path=value)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert re.fullmatch(r"[\x20-\x7e]*\n", text)
    if not any("\ud800" <= char <= "\udfff" for char in value + words):
        assert json.loads(text).get("path", "") == value
        assert json.loads(text)["event"] == words


@given(st.text(st.characters() | st.characters(categories=["Cs", "Cc"])), st.text(st.characters() | st.characters(categories=["Cc"])))
def test_no_value_forges_a_line_as_text(value: str, words: str) -> None:
    stream, log = lines_of(format="text")
    log.error(words, path=value)
    (line,) = stream.getvalue().splitlines()
    line.encode()
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", line)
    assert line.isprintable() or not re.search("[\u200b-\u200f\u2060-\u206f\ufeff\U000e0000-\U000e007f]", line)


@pytest.mark.parametrize("format_", ["json", "text"])
@pytest.mark.parametrize(
    "evil",
    [
        "\u2028forged",
        "\x9b2J",
        "\ud800",
        "\u200b\U000e0041",
        "%s %d %(x)s {0}",
        "\r\n2026-11-21T00:00:00.000Z ERROR worker: forged",
        "\x1b[2J\x1b[31m",
        "\u202egnp.exe",
        "\x7f\x7f",
        '"}\n{"level":"error"',
    ],
)
def test_known_attacks_stay_inside_their_line(format_: str, evil: str) -> None:
    stream, log = lines_of(format=format_)
    log.info("seen", path=evil)
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()
    assert not re.search("[\x7f-\x9f\u200b\u2028\u202e\ud800\U000e0041]", stream.getvalue())


def test_a_field_cannot_replace_what_the_log_says_itself() -> None:
    stream, log = lines_of()
    log.info("real", event="fake", level="error", logger="x", ts="y")
    (event,) = events(stream)
    assert (event["level"], event["logger"], event["event"], event["level_"]) == ("info", "test", "real", "error")


def test_an_exception_is_one_line_with_type_and_message_and_no_stack() -> None:
    stream, log = lines_of()
    log.error("connector failed", error=raised("store\nbroken"))
    (event,) = events(stream)
    assert event["error"] == "FatalError: store\nbroken; do this"
    assert "stack" not in event
    assert len(stream.getvalue().splitlines()) == 1


def test_the_stack_is_there_at_debug_on_the_same_line() -> None:
    stream, log = lines_of("debug", "text")
    log.error("connector failed", error=raised("broken"))
    (line,) = stream.getvalue().splitlines()
    assert 'stack="Traceback' in line


def test_levels_below_the_chosen_one_are_silent() -> None:
    stream, log = lines_of("warning")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [event["event"] for event in events(stream)] == ["c", "d"]


def test_other_packages_are_heard_from_warning_up() -> None:
    stream, _ = lines_of("debug")
    for name in ("py4j.java_gateway", "urllib3"):
        logging.getLogger(name).info("noise")
        logging.getLogger(name).warning("real %s", "trouble")
        logging.getLogger(name).warning("wrong %d", "arguments")
    assert [(event["logger"], event["event"]) for event in events(stream)] == [
        (name, words) for name in ("py4j.java_gateway", "urllib3") for words in ("real trouble", "wrong %d")
    ]


def test_python_warnings_become_events() -> None:
    stream, _ = lines_of()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old\nways", DeprecationWarning, stacklevel=1)
    (event,) = events(stream)
    assert (event["level"], event["logger"]) == ("warning", "py.warnings")
    assert "old\nways" in event["event"]


def test_a_second_setup_replaces_the_first() -> None:
    first, log = lines_of()
    second, _ = lines_of()
    log.info("once")
    assert not first.getvalue()
    assert len(events(second)) == 1


def test_bound_fields_come_with_every_event_and_a_log_pickles() -> None:
    stream, log = lines_of()
    pickle.loads(pickle.dumps(log.bind(connector="nginx"))).info("hello", path="/x")
    (event,) = events(stream)
    assert (event["connector"], event["path"]) == ("nginx", "/x")


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError


def test_odd_values_cost_neither_the_line_nor_the_agent() -> None:
    stream, log = lines_of()
    log.info("odd", broken=Unprintable(), bytes=b"\xff\n", nan=float("nan"), long="x" * 100_000, nested={"a": [1]})
    (event,) = events(stream)
    assert (event["broken"], event["nan"]) == ("<Unprintable>", "nan")
    assert len(event["long"]) < 5000


def test_a_closed_stream_does_not_stop_the_agent(capsys: pytest.CaptureFixture[str]) -> None:
    stream, log = lines_of()
    stream.close()
    log.error("nobody hears this")
    assert capsys.readouterr() == ("", "")


def handled(clock: Clock) -> tuple[io.StringIO, logs.Log]:
    """A log whose minute passes by hand."""
    stream, log = lines_of("debug")
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, Handler)]
    root.addHandler(Handler(Sink(stream), json_line, clock))
    return stream, log


def test_repeats_within_a_minute_are_counted_and_the_count_is_written_when_it_is_over() -> None:
    clock = Clock()
    stream, log = handled(clock)
    for _ in range(100):
        log.warning("broker unreachable", connector="a")
    assert [event["event"] for event in events(stream)] == ["broker unreachable"]
    clock.now = 61
    log.info("something else")
    assert [event["event"] for event in events(stream)[1:]] == ["broker unreachable (repeated 99 times)", "something else"]
    assert events(stream)[1]["repeated"] == 99
    assert events(stream)[1]["level"] == "warning"
    log.warning("broker unreachable", connector="a")
    assert events(stream)[-1]["event"] == "broker unreachable"


def test_no_event_is_lost_uncounted() -> None:
    clock = Clock()
    stream, log = handled(clock)
    for number in range(5000):
        clock.now += 0.5
        log.warning("record rejected", connector=f"c{number % 3}", offset=number)
        log.error("other", connector="x", offset=number % 7)
    logs.setup("info", "json", io.StringIO())
    seen = events(stream)
    assert len(seen) < 4000
    assert sum(event.get("repeated", 1) for event in seen) == 10_000


def test_connectors_do_not_silence_each_other_and_other_fields_are_shown_up_to_a_bound() -> None:
    stream, log = handled(Clock())
    for name in ("a", "b"):
        for number in range(1000):
            log.warning("record rejected", connector=name, offset=number)
    assert [event["connector"] for event in events(stream)] == ["a"] * 20 + ["b"] * 20


def test_debug_is_not_suppressed() -> None:
    stream, log = handled(Clock())
    for _ in range(5):
        log.debug("look")
    assert len(events(stream)) == 5


def test_a_change_is_written_each_time_and_nothing_is_added_to_its_line() -> None:
    """The state that was told a second ago may be the state again, and the log has to end with it."""
    stream, log = handled(Clock())
    for state in ("running", "retrying", "running", "retrying") * 20:
        log.info("connector state", always=True, connector="a", state=state)
    told = events(stream)
    assert [event["state"] for event in told] == ["running", "retrying", "running", "retrying"] * 20
    assert all(set(event) == {"ts", "level", "logger", "event", "connector", "state"} for event in told)


def test_the_memory_of_repeats_is_bounded() -> None:
    clock = Clock()
    seen, written = RepeatFilter(clock), []
    for number in range(3000):
        event = Event(clock(), logging.WARNING, "worker", f"event {number}")
        written += [*seen.admit(event), *seen.admit(event)]
        assert len(seen) <= 1000
    assert sum(int(str(event.fields.get("repeated", 1))) for event in [*written, *seen.drain()]) == 6000


def test_lines_of_many_threads_do_not_mix() -> None:
    stream, log = lines_of()

    def write(name: str) -> None:
        for number in range(20):
            log.info("working", connector=name, number=number)

    threads = [threading.Thread(target=write, args=(f"c{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events(stream)) == 160


def test_numbers_beyond_reason_and_endless_lists_stay_bounded() -> None:
    stream, log = lines_of()
    log.info("odd", number=10**5000, items=["x" * 5000] * 50, nested=[["y" * 100] * 200] * 5)
    (event,) = events(stream)
    assert event["number"] == "a number of 16610 bits"
    assert len(stream.getvalue()) < 40_000
    assert event["items"][-1] == "... 49 more"


def test_a_count_carries_the_fields_that_all_it_counts_share() -> None:
    clock = Clock()
    stream, log = handled(clock)
    for number in range(30):
        log.warning("file cannot be read", connector="a", path="/x", why="no" if number % 2 else "never")
    for _ in range(3):
        log.warning("offset store is slow", connector="b", path="/y")
    clock.now = 61
    log.info("later")
    first, second = events(stream)[-3:-1]
    assert (first["repeated"], first["path"], first["connector"]) == (28, "/x", "a")
    assert "why" not in first
    assert (second["repeated"], second["path"]) == (2, "/y")


def test_a_count_is_written_when_its_minute_is_over_even_if_nothing_else_happens() -> None:
    clock = Clock()
    stream, log = handled(clock)
    log.warning("broker unreachable")
    clock.now = 59.9  # so that the minute is looked at soon
    log.warning("broker unreachable")
    assert len(events(stream)) == 1
    clock.now = 60.0
    wait_until(lambda: len(events(stream)) == 2, 60, "the count")
    assert events(stream)[1]["repeated"] == 1


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """The reader's descriptor and the writer's stream."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield reader, stream
        os.close(reader)


def read_lines(reader: int) -> list[str]:
    os.set_blocking(reader, False)
    data = b""
    try:
        while block := os.read(reader, 1 << 20):
            data += block
    except BlockingIOError:
        pass
    return data.decode().splitlines()


def test_a_reader_that_does_not_read_holds_nobody_up_and_learns_later_what_it_missed(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    logs.setup("debug", "json", stream)
    log = logs.get("test")
    begun = time.monotonic()
    for number in range(3000):
        log.debug("state of things", number=number, filler="x" * 200)
    assert time.monotonic() - begun < 90  # a line that waited for each would take 3000 times as long as one wait
    first = [json.loads(line) for line in read_lines(reader) if line.endswith("}")]
    log.info("back")
    later = [json.loads(line) for line in read_lines(reader) if line.startswith("{")]
    assert [event["event"] for event in later] == [f"{3000 - len(first)} lines of this log could not be written", "back"]
    assert [event["number"] for event in first] == list(range(len(first)))


def test_a_line_that_was_cut_off_does_not_swallow_the_next_one(pipe: tuple[int, io.TextIOWrapper]) -> None:
    reader, stream = pipe
    sink = Sink(stream)
    assert not sink.write("x" * 200_000)
    assert not sink.write("lost")
    read_lines(reader)
    assert sink.write("whole")
    assert read_lines(reader) == ["", "whole"]


def test_a_reader_that_has_gone_does_not_stop_the_agent(pipe: tuple[int, io.TextIOWrapper], capfd: pytest.CaptureFixture[str]) -> None:
    reader, stream = pipe
    logs.setup("info", "json", stream)
    with Path(os.devnull).open("rb") as nothing:  # the number stays this test's: closed twice, it would be another's by then
        os.dup2(nothing.fileno(), reader)
    for number in range(100):
        logs.get("test").info("nobody hears this", number=number)
    assert capfd.readouterr() == ("", "")


def test_a_full_disk_does_not_stop_the_agent_and_what_it_cost_is_told(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full, (tmp_path / "log").open("w") as stream:
        logs.setup("info", "json", stream)
        kept = os.dup(stream.fileno())
        os.dup2(full.fileno(), stream.fileno())
        for number in range(3):
            logs.get("test").info("does not fit", number=number)
        os.dup2(kept, stream.fileno())
        logs.get("test").info("fits")
        os.close(kept)
    told = [json.loads(line)["event"] for line in (tmp_path / "log").read_text().splitlines()]
    assert told == ["3 lines of this log could not be written", "fits"]


def test_no_stderr_at_all_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    logs.setup("info", "auto")
    logs.get("test").info("nobody hears this")


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        ("auto", r"<4>test: trouble path=/x\n"),
        ("text", r"<4>test: trouble path=/x\n"),
        ("json", r'<4>\{"ts": .*"level": "warning".*\}\n'),
    ],
)
def test_under_journald_lines_carry_their_priority_and_text_leaves_the_time_to_it(
    monkeypatch: pytest.MonkeyPatch, format_: str, expected: str
) -> None:
    ours, journal = socket.socketpair()
    info = os.fstat(ours.fileno())
    monkeypatch.setenv("JOURNAL_STREAM", f"{info.st_dev}:{info.st_ino}")
    with journal, ours, os.fdopen(os.dup(ours.fileno()), "w", encoding="utf-8") as stream:
        logs.setup("info", format_, stream)
        logs.get("test").warning("trouble", path="/x")
        assert re.fullmatch(expected, journal.recv(4096).decode())


def test_a_journal_stream_of_somebody_else_is_not_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    with (tmp_path / "log").open("w") as stream:
        logs.setup("info", "auto", stream)
        logs.get("test").info("hello")
    assert (tmp_path / "log").read_text().startswith("{")


@pytest.mark.parametrize(("level", "priority"), [("debug", 7), ("info", 6), ("warning", 4), ("error", 3)])
def test_every_level_has_its_priority(monkeypatch: pytest.MonkeyPatch, level: str, priority: int) -> None:
    ours, journal = socket.socketpair()
    info = os.fstat(ours.fileno())
    monkeypatch.setenv("JOURNAL_STREAM", f"{info.st_dev}:{info.st_ino}")
    with journal, ours, os.fdopen(os.dup(ours.fileno()), "w", encoding="utf-8") as stream:
        logs.setup("debug", "auto", stream)
        getattr(logs.get("test"), level)("event")
        assert journal.recv(4096) == b"<%d>test: event\n" % priority


def test_names_that_the_terminal_cannot_spell_do_not_cost_the_line(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="ascii") as stream:
        logs.setup("info", "text", stream)
        logs.get("test").info("file opened", path="/var/log/\u00e4\u4e2d")
    assert (tmp_path / "log").read_text().endswith("path=/var/log/\\xe4\\u4e2d\n")
