"""Dead letters: reads back what `encoding.letters` wrote, and replays it through the present definition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from copycat_agent.dlq.letter import DeadLetter, parse, record_of
from copycat_agent.dlq.survey import LetterCount, ReplayProgress, Survey, group_of, latest, saved_progress, survey
from copycat_agent.encoding import letters
from copycat_agent.encoding.encoder import Encoder, SplitEncoder, StageError
from copycat_agent.encoding.record_parts import PartOfRecord
from copycat_agent.errors import BlockedError, DataError, FatalError
from copycat_agent.formats import Draft
from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.options import Definition
from copycat_agent.producer import Message, RefusedRecordError, TaskProducer
from copycat_agent.producer.topic_reader import TopicReader
from copycat_agent.sources.files.identity import Identity
from copycat_agent.templates import RecordLike
from copycat_agent.templates.metadata import UNKNOWN, RecordOrigin, TopicPlace
from copycat_agent.transforms.sql import sql_at

__all__ = [
    "DeadLetter",
    "LetterCount",
    "LetterPlace",
    "Replay",
    "ReplayProgress",
    "ReplayReport",
    "Survey",
    "group_of",
    "latest",
    "parse",
    "saved_progress",
    "survey",
]


GROUP_LETTERS = 200
"""Most letters that are sent before their acknowledgement is awaited and saved: a crash repeats this many at most."""
GROUP_BYTES = 8 * 2**20
"""A group ends with the letter that reaches this size, since it is held in memory."""
NAMED_MAX = 100
"""Most letters left that a report names; all are counted."""


class LetterPlace(NamedTuple):
    """The position of a letter in its dead-letter topic."""

    partition: int
    offset: int


class SkippedLetter(NamedTuple):
    """A letter that was left in the topic, and the reason."""

    letter: DeadLetter
    why: str


@dataclass(slots=True)
class ReplayReport:
    """The outcome of a replay of a connector's dead letters.

    `sent` were acknowledged (in a dry run: would be sent); `dropped` by a transform of the definition; `left` stay in the
    topic, the first `NAMED_MAX` of them are in `named`. `foreign` records of the topic are no dead letters. `missed` of those that
    were asked for are no letters of this connector, or were replayed before.
    """

    connector: str
    topic: str
    sent: int = 0
    dropped: int = 0
    left: int = 0
    foreign: int = 0
    missed: int = 0
    named: list[SkippedLetter] = field(default_factory=list)
    stopped: bool = False

    @property
    def tried(self) -> int:
        """Letters that were looked at."""
        return self.sent + self.dropped + self.left


class PartitionOrigin(RecordOrigin):
    """The origin of records of a Kafka partition, which letters name `topic/number`."""

    def __init__(self, name: str) -> None:
        topic, _, number = name.rpartition("/")
        self._place = TopicPlace(topic, int(number)) if number.isdecimal() else None

    def place(self) -> TopicPlace | None:
        return self._place

    def offset_of(self, record: RecordLike) -> int:
        return record.end - 1


class Replay:
    """One replay of a connector's dead letters. `run` once, from one thread."""

    def __init__(self, definition: Definition, stopping: Callable[[], bool] = lambda: False, *, dry_run: bool = False) -> None:
        """A dry run sends nothing, saves nothing, creates no topic. Raises FatalError for a definition with a query, which needs Spark."""
        assert definition.errors.dlq is not None
        if sql_at(definition.transforms) is not None:
            msg = f"definition {definition.name} has a sql step, and a replay runs without Spark"
            hint = f"ship them as a file: copycat dlq show {definition.name} --raw --limit 100000 > FILE; copycat backfill DEFINITION FILE"
            raise FatalError(msg, hint)
        self._definition = definition
        self._encoder = Encoder(definition)
        self._names = frozenset((definition.name, *definition.renamed_from))
        self._stopping = stopping
        self._dry_run = dry_run
        self._progress: dict[int, ReplayProgress] = {}
        self._bound: tuple[tuple[object, ...], SplitEncoder] | None = None
        self._first_part = ("", ""), Draft(b"")
        self.report = ReplayReport(definition.name, definition.errors.dlq.topic)

    def run(
        self,
        *,
        limit: int | None = None,
        everything: bool = False,
        only: Collection[LetterPlace] = (),
        on_progress: Callable[[ReplayReport], None] = lambda _: None,
    ) -> ReplayReport:
        """Replays letters that were not replayed yet or, with `everything`, all; at most `limit`, and those at `only` if places are given.

        `on_progress` is called with the report after each group. Raises RetriableError if Kafka cannot be reached, BlockedError if it
        refuses access; the groups before that are saved.
        """
        kafka = self._encoder.kafka
        if self._dry_run:
            kafka = kafka.model_copy(update={"create_topics": None})
        with TopicReader(kafka, self.report.topic, group_of(self._definition.name)) as reader:
            self._progress = saved_progress(reader, self._definition)
            producer = self._producer = TaskProducer(kafka, group_of(self._definition.name))
            try:
                producer.begin(self._stopping)
                found = self._asked_for(reader, only, everything=everything) if only else self._mine(reader, everything=everything)
                mine = islice(found, limit)
                while letters := _group(mine):
                    self._replay(letters)
                    self._save(reader)
                    on_progress(self.report)
                    if self._stopping():
                        self.report.stopped = True
                        break
                else:
                    self._save(reader)
            finally:
                producer.close()
        return self.report

    def _mine(self, reader: TopicReader, *, everything: bool) -> Iterator[DeadLetter]:
        """Yields the connector's letters to replay, and marks the records between them as done."""
        starts = {} if everything else {number: progress.begin for number, progress in self._progress.items()}
        for record in reader.records(starts):
            progress, letter = self._progress[record.partition], parse(record)
            if letter is not None and letter.connector in self._names:
                if everything or not progress.is_done(letter.offset):
                    yield letter
            else:
                self.report.foreign += letter is None
                progress.done(record.offset)

    def _asked_for(self, reader: TopicReader, only: Collection[LetterPlace], *, everything: bool) -> Iterator[DeadLetter]:
        """Yields the connector's letters at these places. Earlier letters that are not done keep waiting."""
        waiting = set(only)
        starts = {number: end for number, (_, end) in reader.ranges.items()}
        for number, offset in waiting:
            starts[number] = min(offset, starts.get(number, offset))
        for record in reader.records(starts):
            place = LetterPlace(record.partition, record.offset)
            if place in waiting:
                waiting.remove(place)
                progress, letter = self._progress[record.partition], parse(record)
                if letter is None or letter.connector not in self._names or (progress.is_done(letter.offset) and not everything):
                    self.report.missed += 1
                else:
                    progress.pass_to(letter.offset)
                    yield letter
            if not waiting:
                return
        self.report.missed += len(waiting)

    def _save(self, reader: TopicReader) -> None:
        if not self._dry_run:
            reader.save({number: progress.saved() for number, progress in self._progress.items()})

    def _replay(self, letters: list[DeadLetter]) -> None:
        """Encodes and sends a group of letters, and waits for the outcome."""
        going: list[tuple[DeadLetter, Message]] = []
        for letter in letters:
            try:
                message = self._message(letter)
            except StageError as bad:
                self._leave(letter, f"stage {bad.stage}: {bad.error}")
            except (BlockedError, DataError) as error:
                self._leave(letter, str(error))
            else:
                if message is None:
                    self.report.dropped += 1
                    self._done(letter)
                else:
                    going.append((letter, message))
        if self._dry_run:
            self.report.sent += len(going)
        else:
            self._send(going)

    def _message(self, letter: DeadLetter) -> Message | None:
        """Returns the definition's message for a letter. Raises StageError, DataError when it is not whole, BlockedError for its topic."""
        if not letter.is_whole:
            raise DataError(f"its bytes are not all there ({letter.said})", f"see what is lost: copycat losses {self._definition.name}")
        draft = record_of(letter, self._encoder.frames)
        messages = self._messages_of_part(letter, draft) if letter.part else self._bind(letter).encode(draft)
        if not messages:
            return None
        (message,) = messages
        self._producer.topics.partitions(message[0])
        return message

    def _messages_of_part(self, letter: DeadLetter, draft: Draft) -> tuple[Message, ...]:
        """Returns the messages of a part of a record. Its first part comes before it, a dead letter too when the record was bad."""
        record = (letter.host, letter.part_of)
        if letter.part == 1:
            self._first_part = record, draft.anew()
        known, first = self._first_part

        def read_first() -> Draft:
            if known == record:
                return first.anew()
            if not self._definition.transforms:
                return draft.anew()
            words = f"it is part {letter.part} of a record, and its fields are those of the first part, which is no letter before it"
            raise DataError(words, f"if the first part was replayed: copycat dlq replay {self._definition.name} --all sends both again")

        first_end = first.end if known == record else letter.end
        part = PartOfRecord(draft, letter.part, (letter.part_start, first_end), read_first, letter.part_of.encode())
        headers = letters.part_headers(letter.part, part.record, is_last=letter.is_last)
        return self._bind(letter).encode_part(part, headers)

    def _bind(self, letter: DeadLetter) -> SplitEncoder:
        """Returns the encoder for the letter's file, cached for the letters that follow: those of one file mostly lie together."""
        origin = (letter.path, letter.file_key, letter.file_time_ms, letter.host)
        if self._bound is None or self._bound[0] != origin:
            partition = SourcePartition(self._definition.name, letter.file_key)
            split = Split(partition, letter.path, "", SourceOffset(0), 0, inode=_inode(letter.file_key), mtime_ms=letter.file_time_ms)
            known = UNKNOWN if letter.envelope is None else PartitionOrigin(letter.path)
            self._bound = origin, self._encoder.bind(split, self._producer.topics.partitions, 0, letter.host or None, origin=known)
        return self._bound[1]

    def _send(self, going: list[tuple[DeadLetter, Message]]) -> None:
        while going:
            sent, refused = len(going), None
            try:
                self._producer.send_each([message for _, message in going])
            except RefusedRecordError as refusal:
                sent, refused = refusal.sent, refusal.reason
            self._settle(going[:sent])
            going = going[sent:]
            if refused is not None:
                self._leave(going.pop(0)[0], f"stage send: {refused}")

    def _settle(self, sent: list[tuple[DeadLetter, Message]]) -> None:
        """Waits for acknowledgements. If Kafka refuses a record, sends each letter again by itself, which may duplicate the others."""
        try:
            self._producer.flush()
        except DataError as refused:
            if len(sent) == 1:
                self._leave(sent[0][0], f"stage send: {refused}")
            else:
                for one in sent:
                    self._send([one])
            return
        for letter, _ in sent:
            self.report.sent += 1
            self._done(letter)

    def _done(self, letter: DeadLetter) -> None:
        self._progress[letter.partition].done(letter.offset)

    def _leave(self, letter: DeadLetter, why: str) -> None:
        self._progress[letter.partition].leave(letter.offset)
        self.report.left += 1
        if len(self.report.named) < NAMED_MAX:
            self.report.named.append(SkippedLetter(letter, why))


def _group(letters: Iterator[DeadLetter]) -> list[DeadLetter]:
    """Returns the next letters, up to the limits of a group."""
    group: list[DeadLetter] = []
    size_bytes = 0
    for letter in islice(letters, GROUP_LETTERS):
        group.append(letter)
        size_bytes += len(letter.raw or b"")
        if size_bytes >= GROUP_BYTES:
            break
    return group


def _inode(file_key: str) -> int:
    """The inode of a partition's key, which may be that of a file's range; 0 for a letter that has none."""
    try:
        return Identity.parse(":".join(file_key.split(":")[:4]))[0].inode
    except ValueError:
        return 0
