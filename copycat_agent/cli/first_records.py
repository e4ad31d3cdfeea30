"""The next records of one file as they would be sent: read by the real pipeline, kept instead of sent."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Literal, NamedTuple

from copycat_agent.delivery.tasks import run_batch
from copycat_agent.encoding import letters
from copycat_agent.errors import CopycatError
from copycat_agent.model import Batch, Rejection, SourceOffset, Split, SplitResult, TaskId
from copycat_agent.options import Definition, LimitsOptions
from copycat_agent.producer import Message
from copycat_agent.samples import StandIn, StandIns
from copycat_agent.sources.spool.spool_stream import ENDLESS

MOST_BYTES = 4 * 2**20
"""Of a file that are looked at, at most, however few records they make."""
_SECONDS = 5.0
_ORIGIN = ("copycat.file", "copycat.offset", "copycat.end")

Fate = Literal["sent", "dead-lettered", "dropped", "rejected", "no record"]


class FirstRecord(NamedTuple):
    """A record, or a stretch that yields none: bytes (or record numbers) `start` up to `end` of the file. `why`: what is wrong with it.

    `timestamp_ms` is 0 where the time of sending counts. A dropped stretch has no topic.
    """

    fate: Fate
    start: int
    end: int
    topic: str = ""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp_ms: int = 0
    why: str = ""


class FirstRecords(NamedTuple):
    """The next records of a file.

    `end` is where they end, and `open_bytes` how many bytes behind that are no whole record yet, as far as is known. `error` is what
    would stop the connector, or hold it up, behind them. Of a packed file: `origin` is the file that it is the rest of, None for
    none, and `damage` says why it cannot be unpacked.
    """

    records: tuple[FirstRecord, ...]
    end: int
    open_bytes: int
    error: CopycatError | None = None
    origin: SourceOffset | None = None
    damage: str = ""


def first_records(definition: Definition, split: Split, count: int) -> FirstRecords:
    """About `count` records from the split's offset on; a split of at most `MOST_BYTES` is read no further than needed."""
    keeper = StandIn()
    keepers = StandIns(lambda _: keeper)
    told = definition.record.model_copy(update={"origin_headers": True})
    harmless = definition.model_copy(update={"record": told, "limits": LimitsOptions()})
    batch = Batch(TaskId(definition.name, 0), pickle.dumps(harmless), (split,), MOST_BYTES, _SECONDS, max_records=count)
    (result,) = run_batch(batch, keepers, lambda: False)
    keepers.close()
    origin = split.origins[result.origin] if result.origin >= 0 else None
    begin = split.offset.position if origin is None else origin.position
    mask = definition.mask
    records = tuple(map(mask.value, _in_order(result, begin, [_record(one, definition) for one in keeper.kept])))
    end, is_packed = result.offset.position, bool(split.offset.compression)
    # where a packed file ends, or one whose positions are record numbers, who has not read it does not know
    is_rest = result.at_end and result.error is None and not is_packed and split.end < ENDLESS
    return FirstRecords(records[:count], end, split.end - end if is_rest else 0, result.error, origin, result.damage)


def _in_order(result: SplitResult, position: int, sent: list[FirstRecord]) -> Iterator[FirstRecord]:
    """Everything from `position` up to the result's offset: what is sent, and between that what is not."""
    rejected = [_rejected(one) for one in result.rejections if not any(one.start == letter.start for letter in sent)]
    for one in sorted([*sent, *rejected], key=lambda record: record.start):
        if one.start > position:
            yield _passed(position, one.start, result)
        yield one
        position = max(position, one.end)
    if result.offset.position > position:
        yield _passed(position, result.offset.position, result)


def _passed(start: int, end: int, result: SplitResult) -> FirstRecord:
    if result.counts.dropped:
        return FirstRecord("dropped", start, end, why="dropped by the definition")
    return FirstRecord("no record", start, end, why="a header, comments, empty lines, marks or holes")


def _rejected(one: Rejection) -> FirstRecord:
    return FirstRecord("rejected", one.start, one.end, why=f"stage {one.stage}: {one.reason}")


def _record(message: Message, definition: Definition) -> FirstRecord:
    topic, value, key, partition, _, _, timestamp_ms, headers = message + (None,) * (8 - len(message))
    said: dict[str, bytes] = dict(reversed(list(headers or ())))
    start, end = int(said.get("copycat.offset", b"0")), int(said.get("copycat.end", b"0"))
    is_letter = letters.STAGE in said
    keep_origin = is_letter or definition.record.origin_headers
    shown = tuple(pair for pair in headers or () if keep_origin or pair[0] not in _ORIGIN)
    why = f"stage {_word(said, letters.STAGE)}: {_word(said, letters.MESSAGE)}" if is_letter else ""
    chosen = definition.record.partition if isinstance(definition.record.partition, int) and not is_letter else None
    del partition  # without Kafka it is known only where the definition names it
    return FirstRecord("dead-lettered" if is_letter else "sent", start, end, topic, key, value, shown, chosen, timestamp_ms or 0, why)


def _word(said: dict[str, bytes], name: str) -> str:
    return said.get(name, b"").decode("utf-8", "replace")
