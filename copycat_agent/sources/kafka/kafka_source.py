"""Source `kafka`, on the public contract.

Each partition of a topic is a partition of the source, with the key `topic/number`. Its position is `{"offset": ..., "topic_id": ...}`: the
offset that is read next, and the id that Kafka gave the topic. A topic that was deleted and recreated under its name has another id, and
other records at the same offsets: the connector fails and leaves the choice to its operator. A position may also hold `record_bytes`, the
average size of a record, and `into`, where the records before the offset were written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from copycat_agent.extending import (
    BlockedError,
    CopycatError,
    EnvelopedRun,
    Envelopes,
    FatalError,
    Finding,
    Found,
    Gone,
    GroupPositions,
    KnownOffsets,
    KnownTopics,
    LostRecords,
    PartitionReader,
    Passed,
    PassedOffsets,
    Position,
    ReceivedRun,
    Removed,
    RetriableError,
    Stretch,
    TopicPlace,
    TopicRanges,
    Troubled,
    cut,
)
from copycat_agent.sources.kafka.deleted_topics import DeletedTopics
from copycat_agent.sources.kafka.kafka_options import KafkaSourceOptions
from copycat_agent.sources.kafka.rolling import Rolling

RECORD_BYTES = 200
"""Assumed size of a record, for the lag, until records of the partition have been read."""
RUN_BYTES = 2**20
"""Approximate size of the records that are handed on at once; a single record may be larger."""
CUT_SECONDS = 10.0
"""Time that a partition may end before its position until this is an error."""
COMMIT_SECONDS = 5.0
"""Least time between two commits of positions to the group."""
ANSWER_SECONDS, CLOSE_SECONDS = 3.0, 1.0
"""Time to wait for the answer to a commit of positions, and to the last one, in `close`."""


class KafkaSource:
    """A `copycat_agent.extending.OffsetSource`."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options
        committed = options.isolation == "read_committed"
        self._ranges = TopicRanges(options.cluster, committed=committed)
        self._group = _Group(options)
        self._reader = PartitionReader(options.cluster, committed=committed, if_cut=_if_anew(options))
        self._topics = KnownTopics({}, [], {})
        self._first: frozenset[tuple[str, int]] | None = None
        """Partitions at the first look, without those of topics of which others were read before. `start_at` is meant for them."""
        self._discovered_at = -options.discover_interval
        self._targets: dict[tuple[str, int], int] | None = None
        """Where a run to the end ends in each partition; None in any other run."""
        self._rolling = None if options.roll is None else Rolling(options.roll)
        self._deleted = DeletedTopics()
        self._record_bytes: dict[str, float] = {}
        """Average size of a record, by the key of partitions that were read in this process."""
        self._ends: dict[str, int] = {}
        """Where each partition with a position ended, at the last look that knew it."""
        self._read = options.values_reader()
        self._behind_since: dict[str, float] = {}
        """When a partition was first seen to end before its position (monotonic), by its key."""

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        self._group.commit_if_due()
        positions = {key: _checked(key, position) for key, position in saved.items()}
        self._discover(positions)
        yield from self._forgotten(positions)
        yield from self._troubles()
        places = [(name, number) for name, topic in self._topics.found.items() for number in topic.partitions]
        starts, ends = self._starts(places, saved), self._ranges.ends(places)
        if to_the_end:
            self._set_targets(ends.found, positions)
        self._hear({**starts.errors, **ends.errors}, is_all=not (starts.found or ends.found), to_the_end=to_the_end)
        for place, error in starts.errors.items():
            yield Troubled(_key(place), error.message)
        for place, error in ends.errors.items():
            if _key(place) in saved:
                yield Found(_key(place), name=_key(place), trouble=error.message)
        for place, offset in starts.found.items():
            yield Found(_key(place), start={"offset": offset, "topic_id": self._topics.found[place[0]].topic_id}, name=_key(place))
        yield from self._unread(ends.found, positions)

    def _unread(self, ends: Mapping[tuple[str, int], int], positions: Mapping[str, dict[str, Any]]) -> Iterator[Found]:
        """Yields partitions that have a position, with what is unread of them. Raises FatalError for positions of other records."""
        ids = self._ids({place[0] for place, end in ends.items() if end > positions.get(_key(place), {"offset": end})["offset"]})
        for place, end in ends.items():
            key, topic = _key(place), place[0]
            if self._rolling is not None:  # of new ones, too: records after this look are not older
                self._rolling.saw(key, end)
            if key not in positions or topic not in ids:
                continue
            offset, topic_id = positions[key]["offset"], positions[key].get("topic_id", "")
            if topic_id and ids[topic] not in ("", topic_id):
                raise _made_anew(topic, self._options)
            here = self._ends[key] = self._end(place, offset, end)
            target = here if self._targets is None else self._targets.get(place, here)
            yield Found(key, end=target, unread=int(max(0, target - offset) * _record_bytes(positions[key])), name=key)

    def _ids(self, unread: Collection[str]) -> dict[str, str]:
        """Returns the ids of topics. Those of `unread` topics are asked for after their ends, which are then of this id, or left out.

        Topics that go into files are not asked for: a task does that before it claims them (`verify`).
        """
        known = {name: topic.topic_id for name, topic in self._topics.found.items()}
        if self._options.roll is not None:
            return known
        present = self._ranges.ids(unread)
        if gone := set(unread) - present.keys():
            self._discovered_at = -self._options.discover_interval
        return {name: topic_id for name, topic_id in {**known, **present}.items() if name not in gone}

    def _troubles(self) -> Iterator[Troubled]:
        """Yields topics that are missing or refused, and why positions are not committed. A run to the end needs no group."""
        yield from (Troubled(name, f"topic {name} is not there") for name in self._topics.missing)
        yield from (Troubled(name, error.message) for name, error in self._topics.refused.items())
        if self._group.trouble and self._targets is None:
            yield Troubled(f"group {self._options.group_name}", self._group.trouble)

    def _discover(self, positions: Mapping[str, dict[str, Any]]) -> None:
        """Lists topics and partitions again once `discover_interval` is over. Raises the first error when every topic is refused."""
        if time.monotonic() < self._discovered_at + self._options.discover_interval:
            return
        unread = {_topic(key) for key, position in positions.items() if position["offset"] < self._ends.get(key, 0)}
        topics = self._ranges.topics(self._options.topics, self._options.exclude, unread)
        if topics.refused and not topics.found:
            raise next(iter(topics.refused.values()))
        self._topics, self._discovered_at = topics, time.monotonic()
        if self._rolling is not None:
            self._rolling.learn(topics.found, self._ranges.retention)
        unknown = {_topic(key) for key in positions if key not in self._ends}
        left = {_topic(key) for key in positions} - topics.found.keys() - unread - unknown
        self._deleted.saw(self._ranges.topics(sorted(left)).missing if left else ())

    def _forgotten(self, positions: Mapping[str, dict[str, Any]]) -> Iterator[Gone]:
        """Yields the partitions of topics that were deleted long ago. Another topic of that name is a new one, also for `start_at`."""
        old = self._deleted.old()
        for key in [key for key in positions if _topic(key) in old]:
            self._first = (self._first or frozenset()) - {tuple(_place(key))}
            if self._rolling is not None:
                self._rolling.forget(key, _topic(key))
            for known in (self._ends, self._record_bytes, self._behind_since):
                known.pop(key, None)
            yield Gone(key)

    def _hear(self, errors: Mapping[tuple[str, int], CopycatError], *, is_all: bool, to_the_end: bool) -> None:
        """Raises the first error if no partition answered or the run is to the end; otherwise the other partitions go on.

        Topics are listed again at the next look: one may be gone.
        """
        if not errors:
            return
        self._discovered_at = -self._options.discover_interval
        if is_all or to_the_end:
            raise next(iter(errors.values()))

    def _starts(self, places: list[tuple[str, int]], saved: Mapping[str, Position]) -> KnownOffsets:
        """Returns where to begin in partitions that are not in `saved`.

        With `start_at: end`, partitions created later begin at their beginning: records precede discovery.
        """
        if self._first is None:
            met = {_topic(key) for key in saved}  # of another source, where the definition has changed, it may have no number
            self._first = frozenset(place for place in places if place[0] not in met)
        unread, start_ms = [place for place in places if _key(place) not in saved], self._options.start_ms
        if start_ms is not None:
            return self._ranges.at_time(unread, start_ms)
        old = self._first.intersection(unread) if self._options.start_at == "end" else frozenset()
        new, known = self._ranges.begins(place for place in unread if place not in old), self._ranges.ends(old)
        return KnownOffsets({**new.found, **known.found}, {**new.errors, **known.errors})

    def _set_targets(self, ends: Mapping[tuple[str, int], int], positions: Mapping[str, dict[str, Any]]) -> None:
        """Sets where a run to the end ends, once for each partition: not at an end before its position, which a new leader may report."""
        here = {place: positions.get(_key(place), {"offset": 0})["offset"] for place in ends}
        self._targets = {**{place: end for place, end in ends.items() if end >= here[place]}, **(self._targets or {})}

    def _end(self, place: tuple[str, int], offset: int, end: int) -> int:
        """Returns the end, or `offset` where a transaction that is open before it ends the partition for readers.

        Raises FatalError for a partition that ends before its position for some seconds: its leader may have changed just now.
        """
        key = _key(place)
        if end < offset and self._options.isolation == "read_committed" and self._ranges.log_ends([place]).found.get(place, end) >= offset:
            end = offset
        if end >= offset:
            self._behind_since.pop(key, None)
            return end
        since = self._behind_since.setdefault(key, time.monotonic())
        if time.monotonic() - since < CUT_SECONDS:
            raise RetriableError(f"{key} ends at offset {end:,}, before offset {offset:,}, where reading goes on")
        raise cut(key, offset, _if_anew(self._options))

    def plan(self, found: Found, position: Position) -> Stretch | None:
        if found.end is None:
            return None
        topic, offset = _topic(found.key), position["offset"]
        end = found.end if found.end > offset and self._is_due(found, position) else offset
        if end == offset and not self._is_to_begin(position):
            return None
        known = self._topics.found.get(topic)  # a position set by hand has no topic id
        topic_id = position.get("topic_id") or (known.topic_id if known else "")
        return Stretch(found.key, found.key, offset, end, work=topic_id.encode())

    def _is_due(self, found: Found, position: Position) -> bool:
        """Returns whether the unread records of a partition are read now, rather than with more of them."""
        if self._rolling is None or found.end is None or self._targets is not None:
            return True
        return self._rolling.is_due(found.key, _topic(found.key), position["offset"], found.end, _record_bytes(position))

    def _is_to_begin(self, position: Position) -> bool:
        """Returns whether a files sink has to learn at once where the partition begins: without this position that would be elsewhere."""
        into, there = self._options.into, position.get("into")
        return into not in ("", there) and (there is not None or self._options.start_at != "beginning")

    def place(self, stretch: Stretch) -> TopicPlace:
        return _place(stretch.key)

    def read(self, stretch: Stretch) -> Iterator[tuple[EnvelopedRun | LostRecords | Passed, int]]:
        topic, number = self.place(stretch)
        records = size_bytes = 0
        for one in self._reader.read(topic, number, stretch.start, stretch.end):
            if isinstance(one, Removed):
                words = (
                    f"{one.end - one.start:,} records were deleted from {stretch.name} before they could be read: the topic keeps no older"
                )
                yield LostRecords(words, one.end - one.start), one.end
            elif isinstance(one, PassedOffsets):
                yield Passed(), one.end
            else:
                weight = _weight(one)
                records, size_bytes = records + len(one.values), size_bytes + weight
                self._record_bytes[stretch.key] = size_bytes / records
                for run in _parts(one, weight):
                    left = run
                    while left.values:
                        found = self._enveloped(left, weight if left is one else _weight(left))
                        yield found, found.ends[-1]
                        left = left.part(slice(len(found.ends), None))

    def verify(self, stretch: Stretch) -> None:
        """Asks for the topic's id, by a client of its own: nobody closes the source in a task. One that was only deleted is good."""
        topic, topic_id = self.place(stretch).topic, stretch.work.decode()
        if not topic_id:
            return
        ranges = TopicRanges(self._options.cluster, committed=True)
        try:
            present = ranges.ids([topic]).get(topic, "")
        finally:
            ranges.close()
        if present not in ("", topic_id):
            raise _made_anew(topic, self._options)

    def _enveloped(self, run: ReceivedRun, size_bytes: int) -> EnvelopedRun:
        """Returns the records with their decoded values; with the values' bytes where no converter reads them.

        Only the first ones if the converter takes long, up to the value that it did not read.
        """
        values, schemas, raw = run.values, None, None
        if self._read is not None:
            has_nulls = None in run.values
            given = [value for value in run.values if value is not None] if has_nulls else run.values
            values, schemas = self._read(cast("Sequence[bytes]", given))
            if len(values) < len(given):
                present = [index for index, value in enumerate(run.values) if value is not None]
                run = run.part(slice(present[len(values)]))
                size_bytes = _weight(run)
            if has_nulls:
                values, schemas = _with_nulls(run.values, values), None if schemas is None else _with_nulls(run.values, schemas)
            raw = run.values
        weight = size_bytes + sum(map(_headers_bytes, filter(None, run.headers)))
        envelopes = Envelopes(run.keys, run.headers, run.timestamps_ms)
        return EnvelopedRun(values, envelopes, [offset + 1 for offset in run.offsets], weight, raw, schemas)

    def apply(self, stretch: Stretch, position: int | None, *, finished: bool) -> Position:
        offset = stretch.end if finished else stretch.start if position is None else position
        found = {"offset": offset, "topic_id": stretch.work.decode(), **({"into": self._options.into} if self._options.into else {})}
        known = self._record_bytes.get(stretch.key)
        return found if known is None else {**found, "record_bytes": round(known)}

    def committed(self, positions: Mapping[str, Position]) -> None:
        for key, position in positions.items():
            self._group.waiting[_place(key)] = _checked(key, position)["offset"]

    def close(self) -> None:
        self._group.close()
        self._ranges.close()


class _Group:
    """Commits positions to the consumer group, for tools that show a lag. The connector resumes from its own saved positions."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._positions = GroupPositions(options.cluster, options.group_name) if options.group_name else None
        self._committed_at = 0.0
        self.waiting: dict[tuple[str, int], int] = {}
        self.trouble = ""
        """Why this user may not save positions for the group."""

    def commit_if_due(self) -> None:
        """Commits what waits, every `COMMIT_SECONDS`."""
        if time.monotonic() >= self._committed_at + COMMIT_SECONDS:
            self._commit(ANSWER_SECONDS)

    def _commit(self, seconds: float) -> None:
        if not self.waiting or self._positions is None:
            return
        self._committed_at = time.monotonic()
        taken, self.waiting = self.waiting, {}
        try:
            self._positions.commit(taken, seconds)
            self.trouble = ""
        except CopycatError as error:
            self.waiting = {**taken, **self.waiting}
            self.trouble = error.message if isinstance(error, BlockedError) else ""

    def close(self) -> None:
        """Commits what waits, and closes the client."""
        self._commit(CLOSE_SECONDS)
        if self._positions is not None:
            self._positions.close()


def _weight(run: ReceivedRun) -> int:
    """Returns the bytes of all values and keys."""
    return sum(map(len, filter(None, (*run.values, *run.keys))))


def _headers_bytes(headers: tuple[tuple[str, bytes | None], ...]) -> int:
    return sum(len(name) + len(content or b"") for name, content in headers)


def _parts(run: ReceivedRun, size_bytes: int) -> Iterator[ReceivedRun]:
    """Yields the run in parts of about `RUN_BYTES`, which bounds how much of large records is held while reading ahead."""
    total = len(run.values)
    count = max(1, total * RUN_BYTES // max(1, size_bytes))
    for begin in range(0, total, count):
        yield run if count >= total else run.part(slice(begin, begin + count))


def _with_nulls(values: Sequence[bytes | None], others: Sequence[Any]) -> list[Any]:
    """Returns `others` at the indexes of values that are not null, None elsewhere."""
    each = iter(others)
    return [None if value is None else next(each) for value in values]


def _record_bytes(position: Position) -> float:
    return float(position.get("record_bytes", RECORD_BYTES))


def _checked(key: str, position: Position) -> dict[str, Any]:
    """Returns the position. Raises FatalError for an invalid one, which may have been set by hand."""
    kinds = {"offset": int, "topic_id": str, "record_bytes": int, "into": str}
    is_map = isinstance(position, dict) and "offset" in position
    if is_map and all(type(value) is kinds.get(name) for name, value in position.items()) and position["offset"] >= 0:
        return cast("dict[str, Any]", position)
    words = f"the saved position of {key} is none of source kafka: {json.dumps(position):.200}"
    raise FatalError(words, f"say the offset to read next: copycat offsets set NAME --key {key} --position '{{\"offset\": 1200}}' --force")


def _key(place: tuple[str, int]) -> str:
    topic, number = place
    return f"{topic}/{number}"


def _topic(key: str) -> str:
    return key.rpartition("/")[0]


def _place(key: str) -> TopicPlace:
    topic, _, number = key.rpartition("/")
    return TopicPlace(topic, int(number))


def _made_anew(topic: str, options: KafkaSourceOptions) -> FatalError:
    words = f"topic {topic} is not the one that was read: it was deleted and made again, and its offsets are of other records"
    return FatalError(words, _if_anew(options))


def _if_anew(options: KafkaSourceOptions) -> str:
    """Returns the next step where a partition has other records than those that were read."""
    if options.into:
        return "give the connector another name, without renamed_from, and another uri or path: what its files hold decides what it writes"
    return "copycat offsets reset NAME reads what is there; copycat offsets set NAME goes on elsewhere"
