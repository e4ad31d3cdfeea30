"""Source `datasource`: a stream reader of PySpark on the author's contract.

It has one partition, whose position is the reader's offset: `{"offset": ...}`, or within a range that is sent in several batches also
its `end` and how many `records` of it are settled.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.model import Stretch
from copycat_agent.sources.contract import Found, Position, Record, as_text
from copycat_agent.sources.contract_kind import source_kind
from copycat_agent.sources.contract_source import ContractSource
from copycat_agent.sources.contract_stream import too_large
from copycat_agent.sources.datasource.faults import fault
from copycat_agent.sources.datasource.options import DataSourceOptions
from copycat_agent.sources.datasource.planner import ReaderProcess

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import DeliveryOptions
    from copycat_agent.sources.base import Offsets, Source
    from copycat_agent.sources.datasource.reader import StreamReader

KEY = "stream"
"""The partition."""
MOST_BYTES = 64 * 2**20
"""What lies between two offsets is at most this much, where the definition does not say less."""
_ROWS, _PLAN = b"r", b"p"
"""What `work` holds, by its first byte: records that were read where the reader plans, or its partitions."""


class DataSourceReader:
    """See `contract.AuthorSource`."""

    def __init__(self, options: DataSourceOptions, most_bytes: int = MOST_BYTES) -> None:
        self._options = options
        self._most_bytes = most_bytes
        self._planner: ReaderProcess | None = None
        self._is_prepared = False
        self._target: list[Any] = []
        self._lock = threading.Lock()
        self._reader: StreamReader | None = None
        self._closed = False

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Found]:
        """See `AuthorSource.look`. What lies behind the saved offset is planned with it: later that may be something else."""
        position = saved.get(KEY)
        planner = self._running()
        if position is None:
            return [self._found({"offset": planner.ask("initial").values["offset"]})]
        if not (isinstance(position, dict) and "offset" in position):
            words = f"the saved position of {self._options.class_} is none of a data source"
            raise FatalError(words, 'it looks like {"offset": ...}: copycat offsets show NAME, and copycat offsets set NAME --key stream')
        start = position["offset"]
        if "end" in position:
            work = _PLAN + planner.ask("plan", start=start, end=position["end"]).work
            return [self._found(position, {"start": start, "end": position["end"]}, work)]
        if to_the_end and self._is_over(planner, start):
            return [self._found(position)]
        answer, work = planner.ask("next", start=start, most_bytes=self._most_bytes)
        end = answer["offset"]
        if to_the_end and not (self._target or planner.made["knows_end"]):
            self._target = [end]  # what comes later is for the next run
        if end == start:
            return [self._found(position)]
        self._check_size(start, end)
        if answer.get("too_large"):
            if not self._options.replayable:
                raise FatalError(*too_large(self._stretch(position, end, b"")))
            work = planner.ask("plan", start=start, end=end).work
        return [self._found(position, {"start": start, "end": end}, (_ROWS if answer.get("rows") else _PLAN) + work)]

    def _check_size(self, start: Any, end: Any) -> None:  # noqa: ANN401 - the reader's offsets
        """Raises FatalError where a position that a batch comes to could not be saved: nothing of it is to be sent then."""
        as_text({"offset": start, "end": end, "records": 2**62} if self._options.replayable else {"offset": end})

    def _found(self, position: Position, end: Position = None, work: bytes = b"") -> Found:
        unread = len(work) if work[:1] == _ROWS else int(end is not None)  # how much a plan stands for nobody knows
        return Found(KEY, position, end, unread=unread, name=self._options.class_, work=work)

    def _running(self) -> ReaderProcess:
        if self._planner is not None and self._planner.is_gone:
            self._planner.close()
            self._planner = None
        if self._planner is None:
            planner = ReaderProcess(self._options.class_, dict(self._options.options), self._options.timeout)
            with self._lock:
                self._planner, self._is_prepared = planner, False
                if self._closed:
                    planner.kill()
        return self._planner

    def _is_over(self, planner: ReaderProcess, start: Any) -> bool:  # noqa: ANN401 - the reader's offset
        """In a run to the end: whether what was there when it began is read. The reader is told of it, where it wants to know."""
        if planner.made["knows_end"]:
            if not self._is_prepared:
                planner.ask("prepare")
                self._is_prepared = True
            return False
        if not self._target and planner.made["limit"]:
            self._target = [planner.ask("latest", start=start).values["offset"]]
        return bool(self._target) and self._target[0] == start

    def plan(self, found: Found, position: Position) -> Stretch | None:
        """See `AuthorSource.plan`."""
        if found.end is None or found.end["start"] != position["offset"] or position.get("end", found.end["end"]) != found.end["end"]:
            return None
        return self._stretch(position, found.end["end"], found.work)

    def _stretch(self, position: Position, end: Any, work: bytes) -> Stretch:  # noqa: ANN401 - the reader's offset
        options = self._options
        return Stretch(KEY, options.class_, position, end, work, whole=not options.replayable, most_bytes=self._most_bytes)

    def read(self, stretch: Stretch) -> Iterator[tuple[Record, Position]]:
        """See `AuthorSource.read`."""
        start, end = stretch.start["offset"], stretch.end
        settled = stretch.start.get("records", 0)
        words = ""
        try:
            for number, fields in enumerate(self._records(stretch), 1):
                if number > settled:
                    yield fields, None if stretch.whole else {"offset": start, "end": end, "records": number}
        except (CopycatError, MemoryError):
            self._forget_reader()
            raise
        except Exception as error:  # noqa: BLE001 - somebody else's code raises anything, and its text may hold data
            self._forget_reader()
            words = f"the reader {self._options.class_} failed (read): {fault(error, self._options.class_)}"
        if words:
            raise RetriableError(words, "it is tried again")

    def _records(self, stretch: Stretch) -> Iterator[dict[str, Any]]:
        if stretch.work[:1] == _ROWS:
            return iter(pickle.loads(stretch.work[1:]))  # noqa: S301 - from the process that plans, through the driver
        return self._made().read(stretch.start["offset"], stretch.end, stretch.work[1:])

    def _made(self) -> StreamReader:
        """The reader of this process, made once and anew after an error: as in Spark, its `read` keeps nothing."""
        from copycat_agent.sources.datasource.reader import StreamReader  # noqa: PLC0415 - SQL of pyspark, which nobody else needs

        with self._lock:
            self._reader = self._reader or StreamReader(self._options.class_, dict(self._options.options))
            return self._reader

    def _forget_reader(self) -> None:
        """Have it made anew for the next read: its schema may have changed. A process keeps a source as long as its definition."""
        with self._lock:
            self._reader = None

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        """See `AuthorSource.apply`."""
        assert finished or position is not None, "what goes as one is settled as one"
        return {"offset": stretch.end} if finished else position

    def committed(self, positions: Mapping[str, Position]) -> None:
        """See `AuthorSource.committed`. Between two offsets there is nothing to tell a reader."""
        position = positions[KEY]
        if "end" not in position:
            self._running().ask("commit", end=position["offset"])

    def close(self) -> None:
        """See `AuthorSource.close`."""
        with self._lock:
            self._closed = True
            if self._planner is not None:
                self._planner.kill()


def _make(connector: str, options: DataSourceOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
    reader = DataSourceReader(options, delivery.max_batch_bytes)
    return ContractSource(connector, options, delivery, offsets, log, reader)


DATASOURCE = replace(source_kind(DataSourceOptions, DataSourceReader), make=_make)
