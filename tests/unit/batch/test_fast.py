"""The quick way through the steps makes exactly what looking at each row makes, whatever stands in a chunk and whatever Kafka refuses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.batch.policy import ErrorPolicy, StopAt
from copycat_agent.batch.progress import SplitProgress
from copycat_agent.batch.sending import ChunkSender, EndCheck, Sender, Tap
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.encoding.layout import MessageLayout
from copycat_agent.errors import BlockedError, DataError, RetriableError
from copycat_agent.formats import Chunk, Parsed, Text, Unparsed
from copycat_agent.model import Column, Schema, SourceOffset, SourcePartition, Split
from copycat_agent.producer import Message, RefusedRecordError
from copycat_agent.transforms import Draft, Steady
from copycat_agent.transforms.base import GuardedTransform
from tests.unit.batch.rig import definition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from copycat_agent.transforms.base import OnError

START, BEFORE = 1000, 40
SPLIT = Split(SourcePartition("app", "f"), "/log/f", "/log/f", SourceOffset(START, BEFORE), 10**6, mtime_ms=1_700_000_000_000)
WORDS = ["plain", "", "drop", "bad", "keep", "keep, then bad", "shed", "refuse", "far", "outage"]
RECORDS: list[dict[str, Any]] = [
    {},
    {"timestamp": "file", "headers": {"host": "{@host}"}},
    {"key": "{word}", "timestamp": "event"},
    {"headers": {"at": "{@offset}-{@record.number}"}},
    {"origin_headers": True},
    {"topic": "t.{word}"},
    {"value": "{word}"},
    {"value": "<{word}>", "key": "{@offset}"},
]


class Kafka:
    """Stands in for a producer: takes messages, refuses values with `refuse` on the spot, and has no topic `t.far`."""

    tracked = broken = False

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.topics = self

    def partitions(self, topic: str) -> int:
        if topic == "t.far":
            raise BlockedError("no such topic")
        return 3

    def send(self, topic: str, values: list[Any], tail: Message) -> None:
        self.send_each((topic, value, *tail) for value in values)

    def send_each(self, messages: Iterable[Message]) -> None:
        for number, message in enumerate(messages):
            if b"refuse" in (message[1] or b"") and message[0] != "dlq":
                raise RefusedRecordError(number, DataError("refused"))
            self.messages.append(message + (None, -1, None, None, 0, None)[len(message) - 2 :])


def word(draft: Draft) -> bool:
    """A step that makes fields, and fails or drops by what the line says."""
    fields = draft.fields()
    text = str(fields.pop("message", fields.get("word", "")))
    fields |= {"word": text, "size": len(text)}
    if text == "plain":
        draft.timestamp_ms = 5
    if text == "bad":
        raise DataError("a bad word")
    if text == "outage":
        raise RetriableError("nobody answers")
    return text != "drop"


def failing(pattern: str, on_error: OnError | None) -> GuardedTransform:
    """A step that cannot handle words that match."""

    def step(draft: Draft) -> bool:
        if re.fullmatch(pattern, draft.fields()["word"]):
            raise DataError("not this one")
        return True

    return GuardedTransform(Steady(step), f"transforms[1] {on_error}", None, on_error)


def encoder(record: dict[str, Any], errors: dict[str, Any], *, with_steps: bool) -> Encoder:
    made = Encoder(definition("127.0.0.1:9", "t", record=record, errors=errors, steps=[{"set": {"x": "y"}}] if with_steps else []))
    if with_steps:
        made.transforms = (
            GuardedTransform(Steady(word), "word", None, None),
            failing("keep.*", "keep"),
            failing("shed", "drop"),
            failing(".*bad", None),
        )
    return made


def chunk_of(words: list[str], delimiter: bytes, *, skip_empty: bool) -> Chunk:
    raw = [one.encode() for one in words]
    values = [one for one in raw if one or not skip_empty]
    end = START + sum(map(len, raw)) + len(delimiter) * len(raw)
    return Chunk(raw, raw if len(values) == len(raw) else values, START, end, delimiter, Text(), skip_empty, b"".join(raw)[-256:])


def parsed_of(words: list[str], *, has_raw: bool) -> Parsed:
    values: list[Any] = [Unparsed("unreadable") if one == "" else {"word": one} for one in words]
    places = [START + 10 * number for number in range(len(words) + 1)]
    raw = [b'{"word": "%s"}' % one.encode() for one in words] if has_raw else None
    return Parsed(values, places, places[-1] - START, raw, b"", Schema((Column("word"),)), as_is=has_raw)


def outcome(made: Encoder, chunk: Chunk | Parsed, *, quickly: bool) -> tuple[Any, ...]:
    """Everything that sending the chunk leaves behind."""
    kafka, progress = Kafka(), SplitProgress(SPLIT)
    policy = ErrorPolicy(made.definition, "dlq")
    chunks = ChunkSender(kafka, policy, Sender(kafka, policy), Tap(0, [progress]), EndCheck(lambda: False))  # type: ignore[arg-type]
    bound = made.bind(SPLIT, kafka.partitions, 0, "host")
    if not quickly:
        bound.bulk = None
    stop: tuple[Any, ...] = ()
    records = -1
    try:
        records = chunks.send(progress, bound, chunk)
    except StopAt as found:
        stop = (found.draft.start, str(found.error), type(found.error))
    position = (progress.sent_position, progress.sent_records, progress.sent.size_bytes)
    named = (sorted(progress.sent.rejections), progress.sent.step_failures) if not stop else ()
    return (
        kafka.messages,
        records,
        stop,
        position,
        progress.sent.counts,
        named,
        [one._replace(at_ms=0) for one in progress.sent.losses],
    )


LINES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12)
RECORD = st.sampled_from(RECORDS)
POLICIES: list[dict[str, Any]] = [{}, {"tolerance": "all"}, {"tolerance": "all", "dlq": {"topic": "dlq"}}]
ERRORS = st.sampled_from(POLICIES)
EVERYTHING = ["plain", "keep", "keep, then bad", "x", "", "drop", "shed", "bad", "bad", "x", "refuse", "drop", "keep", "outage", "x"]


@given(LINES, RECORD, ERRORS, st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.booleans())
def test_lines(
    words: list[str], record: dict[str, Any], errors: dict[str, Any], delimiter: bytes, skip_empty: bool, with_steps: bool
) -> None:
    if not with_steps:  # a line has but one field then
        record = {name: value.replace("{word}", "{message}") if isinstance(value, str) else value for name, value in record.items()}
    made, chunk = encoder(record, errors, with_steps=with_steps), chunk_of(words, delimiter, skip_empty=skip_empty)
    assert outcome(made, chunk, quickly=True) == outcome(made, chunk, quickly=False)


@given(LINES, RECORD, ERRORS, st.booleans(), st.booleans())
def test_parsed_records(words: list[str], record: dict[str, Any], errors: dict[str, Any], has_raw: bool, with_steps: bool) -> None:
    made, chunk = encoder(record, errors, with_steps=with_steps), parsed_of(words, has_raw=has_raw)
    made.layout = MessageLayout(made.definition, has_fields=True)  # as of a source whose format makes fields
    before = [dict(value) if isinstance(value, dict) else value for value in chunk.values]
    assert outcome(made, chunk, quickly=True) == outcome(made, chunk, quickly=False)
    assert list(chunk.values) == before, "the format's own fields are nobody's to change"


@pytest.mark.parametrize("errors", POLICIES, ids=str)
@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_some_of_everything(record: dict[str, Any], errors: dict[str, Any]) -> None:
    made = encoder(record, errors, with_steps=True)
    taken = [one for one in EVERYTHING if one not in ("refuse", "outage")]
    for words in (EVERYTHING, taken, ["plain", "keep", "x"] * 3, ["bad", "x"] * 40):
        chunk = chunk_of(words, b"\n", skip_empty=True)
        assert outcome(made, chunk, quickly=True) == outcome(made, chunk, quickly=False)


@pytest.mark.parametrize("quickly", [True, False])
def test_no_line_writes_into_the_dead_letter_topic(quickly: bool) -> None:
    made = encoder({"topic": "d{word}"}, {"tolerance": "all", "dlq": {"topic": "dlq"}}, with_steps=True)
    messages, *_, counts, _, _ = outcome(made, chunk_of(["lq", "rest"], b"\n", skip_empty=False), quickly=quickly)
    assert (counts.acknowledged, counts.dead_lettered) == (1, 1)
    headers = dict(messages[0][7])
    assert headers["copycat.message"] == b"the topic template yields the dead-letter topic"
    assert messages[1][0] == "drest"


def test_what_stands_before_an_outage_goes_and_what_follows_waits() -> None:
    made = encoder({}, {}, with_steps=True)
    messages, _, stop, position, counts, *_ = outcome(
        made, chunk_of(["plain", "drop", "outage", "plain"], b"\n", skip_empty=False), quickly=True
    )
    assert [message[1] for message in messages] == [b'{"word":"plain","size":5}']
    assert (stop[0], stop[2]) == (START + 11, RetriableError)
    assert (position[:2], counts.acknowledged, counts.dropped) == ((START + 11, BEFORE + 2), 1, 1)


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_it_is_taken(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of two ways that compared one with itself would show nothing."""
    made = encoder(record, {"tolerance": "all"}, with_steps=True)
    rows: list[int] = []
    outcomes = ErrorPolicy.outcomes

    def counted(self: ErrorPolicy, progress: SplitProgress, bound: Any, those: Any, until: float) -> Any:
        found = outcomes(self, progress, bound, those, until)
        rows.append(len(found[0]))
        return found

    monkeypatch.setattr(ErrorPolicy, "outcomes", counted)
    chunk = chunk_of(["plain", "bad", "plain", "keep", "shed", "bad"], b"\n", skip_empty=False)
    quick = outcome(made, chunk, quickly=True)
    assert rows == [1, 1], "only bad records are looked at by themselves"
    assert quick[4].kept == 1
    assert quick[5][1][0].reason == "transforms[1] keep: not this one"
    assert [(one.kept, one.record) for one in quick[5][1]] == [(True, BEFORE + 4), (False, BEFORE + 5)]
