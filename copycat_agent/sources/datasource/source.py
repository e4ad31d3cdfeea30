"""Source `datasource`: runs a stream reader of PySpark on the authors' contract.

It has one partition. Its position is `{"offset": ...}`, the reader's offset; within a range that is sent in several batches it also has the
range's `end`, and the number of its `records` that are settled.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.model import Schema, SourcePartition, Stretch
from copycat_agent.options import DeliveryOptions, Duration, Field, ScalarText, without_named_secrets
from copycat_agent.sources.contract import Found, PolledOptions, Position, Probed, Record, RunsAs, as_text, same_position
from copycat_agent.sources.contract_partitions import RecordPartitions
from copycat_agent.sources.contract_source import ContractSource
from copycat_agent.sources.contract_stream import source_kind, too_large
from copycat_agent.sources.datasource.reader_process import ReaderFaultError, ReaderProcess

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.base import Offsets, Source
    from copycat_agent.sources.datasource.reader import StreamReader

KEY = "stream"
"""Key of the partition."""
MOST_BYTES = 64 * 2**20
"""Default of the most bytes between two offsets."""
_ROWS, _PLAN = b"r", b"p"
"""First byte of `work`: the records of a simple reader, or the partitions of any other."""


class DataSourceOptions(PolledOptions):
    """Any stream reader that implements PySpark's `pyspark.sql.datasource`.

    Its records have the fields of its schema. What it has between two of its offsets goes as one batch, and with exactly_once as one
    transaction; after a failure it is asked for anew.
    """

    type: Literal["datasource"] = Field("datasource", description="A stream reader of PySpark's data source interface.")
    class_: str = Field(
        alias="class",
        pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,200}:[A-Za-z_][A-Za-z0-9_]{0,100}$",
        description="Module and class, as in package.module:Class, derived from pyspark.sql.datasource.DataSource. Installed for the "
        "Python that runs the agent.",
    )
    options: dict[str, ScalarText] = Field({}, description="Options of the data source, as `.option(name, value)` gives them in Spark.")
    replayable: bool = Field(
        False,
        description="true: the reader gives the same records in the same order for the same two offsets, always. Then what lies between "
        "them may be sent in several batches.",
    )
    timeout: Duration = Field(
        60.0, ge=1, le=3600, description="What plans the reads (initialOffset, latestOffset, partitions, commit) is killed after so long."
    )

    def masked(self) -> dict[str, Any]:
        """As `Options.masked`, and values in `options` with a name like a password are hidden: nothing else marks secrets there."""
        shown = super().masked()
        return {**shown, "options": without_named_secrets(shown["options"])}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yields names and values for repr and str, with secrets hidden as by `masked`."""
        for name, value in super().__repr_args__():
            yield name, without_named_secrets(value) if name == "options" else value


class DataSourceReader:
    """A `contract.AuthorSource`."""

    def __init__(self, options: DataSourceOptions, most_bytes: int = MOST_BYTES, saved_by: str = "") -> None:
        """`saved_by` is the class whose offset is saved; "" if none is, or if a person has set it."""
        self._options = options
        self._saved_by = saved_by
        self._most_bytes = most_bytes
        self._planner: ReaderProcess | None = None
        self._is_prepared = False
        self._target: list[Any] = []
        self._lock = threading.Lock()
        self._reader: StreamReader | None = None
        self._closed = False

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Found]:
        """Plans the range after the saved offset at once: a later plan may differ.

        Raises FatalError for a position that does not belong to this class.
        """
        self._check_class()
        position = saved.get(KEY)
        planner = self._running()
        if position is None:
            return [self._found({"offset": planner.ask("initial").values["offset"]})]
        if not (isinstance(position, dict) and "offset" in position):
            words = f"the saved position of {self._options.class_} is none of a data source"
            raise FatalError(words, 'it looks like {"offset": ...}: copycat offsets show NAME, and copycat offsets set NAME --key stream')
        start = position["offset"]
        if "end" in position:
            return [self._planned(planner, position, position["end"])]
        if to_the_end and not planner.made["simple"] and not planner.made["knows_end"]:
            return [self._planned(planner, position, self._end_of_step(planner, start))]
        if to_the_end and self._target:
            return [self._planned(planner, position, self._target[0])]
        return [self._next(planner, position, to_the_end=to_the_end)]

    def _next(self, planner: ReaderProcess, position: Position, *, to_the_end: bool) -> Found:
        """Returns what the reader has after `position`; for a simple reader with the records themselves."""
        if to_the_end and planner.made["knows_end"] and not self._is_prepared:
            planner.ask("prepare")
            self._is_prepared = True
        start = position["offset"]
        answer, work = planner.ask("next", start=start, most_bytes=self._most_bytes)
        end = answer["offset"]
        if to_the_end and not planner.made["knows_end"]:
            self._target = [end]  # later records are left to the next run
        if same_position(start, end):
            return self._found(position)
        self._check_size(start, end)
        if answer.get("too_large"):
            if not self._options.replayable:
                raise FatalError(*too_large(self._stretch(position, end, b"")))
            return self._planned(planner, position, end)
        return self._found(position, {"start": start, "end": end}, (_ROWS if answer.get("rows") else _PLAN) + work)

    def _check_class(self) -> None:
        wanted = self._options.class_
        if self._saved_by not in ("", wanted):
            words = f"the saved offset is one of {self._saved_by}, and source.class is {wanted}: an offset means nothing to another class"
            hint = f"copycat offsets reset NAME begins anew with {wanted}, copycat offsets set NAME --key {KEY} says where it goes on"
            raise FatalError(words, f"{hint}; or set source.class back to {self._saved_by}")

    def _end_of_step(self, planner: ReaderProcess, start: Any) -> Any:  # noqa: ANN401 - the reader's offsets
        """Returns the end of the range after `start` in a run to the end. Its target is the end of the data at its first look.

        Only the reader can compare offsets. So its own limit is used only while the data still ends at the target; otherwise the rest up to
        the target is one range, as in Spark for such a reader.
        """
        if not self._target:
            self._target = [planner.ask("latest", start=start).values["offset"]]
        (target,) = self._target
        if planner.made["limit"] and not same_position(start, target):
            end = planner.ask("latest", start=start, everything=False).values["offset"]
            if same_position(planner.ask("latest", start=start).values["offset"], target):
                return end
        return target

    def _planned(self, planner: ReaderProcess, position: Position, end: Any) -> Found:  # noqa: ANN401 - the reader's offset
        start = position["offset"]
        if same_position(start, end):
            return self._found(position)
        self._check_size(start, end)
        work = _PLAN + planner.ask("plan", start=start, end=end).work
        return self._found(position, {"start": start, "end": end}, work)

    def _check_size(self, start: Any, end: Any) -> None:  # noqa: ANN401 - the reader's offsets
        """Raises FatalError if a position within the range would be too large to save, before anything of it is sent."""
        as_text({"offset": start, "end": end, "records": 2**62} if self._options.replayable else {"offset": end})

    def _found(self, position: Position, end: Position = None, work: bytes = b"") -> Found:
        unread = len(work) if work[:1] == _ROWS else int(end is not None)  # the size of planned partitions is unknown
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

    def plan(self, found: Found, position: Position) -> Stretch | None:
        if found.end is None or not same_position(found.end["start"], position["offset"]):
            return None
        if not same_position(position.get("end", found.end["end"]), found.end["end"]):
            return None
        return self._stretch(position, found.end["end"], found.work)

    def _stretch(self, position: Position, end: Any, work: bytes) -> Stretch:  # noqa: ANN401 - the reader's offset
        options = self._options
        return Stretch(KEY, options.class_, position, end, work, whole=not options.replayable, most_bytes=self._most_bytes)

    def read(self, stretch: Stretch) -> Iterator[tuple[Record, Position]]:
        start, end = stretch.start["offset"], stretch.end
        settled = stretch.start.get("records", 0)
        words = ""

        def behind(number: int) -> Position:
            return None if stretch.whole else {"offset": start, "end": end, "records": number}

        try:
            number = 0
            for record in self._records(stretch):
                first, number = number, number + (len(record) if isinstance(record, ArrowRows) else 1)
                if number <= settled:
                    continue
                if isinstance(record, ArrowRows):
                    first = max(first, settled)
                    yield record[first - number :], [behind(one) for one in range(first + 1, number + 1)]
                else:
                    yield record, behind(number)
        except (CopycatError, MemoryError):
            self._forget_reader()
            raise
        except Exception as error:  # noqa: BLE001 - third-party code may raise anything, and its text may hold data
            self._forget_reader()
            from copycat_agent.sources.datasource.reader import fault  # noqa: PLC0415 - see `_made`

            words = f"the reader {self._options.class_} failed (read): {fault(error, self._options.class_)}"
        if words:
            raise RetriableError(words, "it is tried again")

    def _records(self, stretch: Stretch) -> Iterator[dict[str, Any] | ArrowRows]:
        if stretch.work[:1] == _ROWS:
            return iter(pickle.loads(stretch.work[1:]))  # noqa: S301 - from the process that plans, through the driver
        return self._made_for(stretch.work[1:]).read(stretch.start["offset"], stretch.end, stretch.work[1:])

    def _made_for(self, planned: bytes) -> StreamReader:
        """Returns the reader. Raises FatalError if its schema differs from the one it was planned with."""
        from copycat_agent.sources.datasource.reader import schema_of  # noqa: PLC0415 - see `_made`

        wanted = schema_of(planned)
        if self._made().schema != wanted:
            self._forget_reader()
        if (found := self._made().schema) != wanted:
            words = f"the schema of {self._options.class_} was ({_listed(wanted)}) when its connector began, and is ({_listed(found)}) now"
            raise FatalError(words, "copycat ctl restart NAME goes on with the new one")
        return self._made()

    def _made(self) -> StreamReader:
        """Returns this process's reader, which is created once, and again after an error. As in Spark, its `read` must be stateless."""
        from copycat_agent.sources.datasource.reader import StreamReader  # noqa: PLC0415 - imports pyspark's SQL, which nothing else needs

        with self._lock:
            self._reader = self._reader or StreamReader(self._options.class_, dict(self._options.options))
            return self._reader

    def _forget_reader(self) -> None:
        """Makes the next read create it anew: its schema may have changed, and a process keeps a source as long as its definition."""
        with self._lock:
            self._reader = None

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        assert finished or position is not None, "what goes as one is settled as one"
        return {"offset": stretch.end} if finished else position

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Commits the end of a range; positions within one are ignored. Raises FatalError for a position of another class."""
        self._check_class()
        position = positions[KEY]
        if "end" not in position:
            self._running().ask("commit", end=position["offset"])

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._planner is not None:
                self._planner.kill()


def _listed(schema: Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema.columns)


def _make(connector: str, options: DataSourceOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
    saved = offsets.get(SourcePartition(connector, KEY))
    saved_by = "" if saved is None or saved.path == KEY else saved.path
    reader = DataSourceReader(options, delivery.max_batch_bytes, saved_by)
    return ContractSource(connector, options, delivery, offsets, log, reader, RecordPartitions(reader))


def _probe(options: DataSourceOptions, user: RunsAs) -> Iterator[Probed]:
    """Asks the reader for its schema and offsets, without reading. A simple reader is not asked for its end: it would have to read."""
    del user  # the agent's Python finds its modules, whatever the user
    name = "reader"
    try:
        with closing(ReaderProcess(options.class_, dict(options.options), options.timeout)) as planner:
            columns = ", ".join(f"{column} {kind}" for column, kind in planner.made["columns"])
            is_simple = planner.made["simple"]
            yield Probed(name, f"{options.class_}: {'a simple reader' if is_simple else 'a reader that plans'} of {columns}")
            name = "offsets"
            begin = planner.ask("initial").values["offset"]
            end = "" if is_simple else f", it goes to {planner.ask('latest', start=begin).values['offset']} now"
            yield Probed(name, f"a first start begins at {begin}{end}")
    except CopycatError as error:
        said = f": {error.text}" if isinstance(error, ReaderFaultError) and error.text else ""
        yield Probed(name, error.message + said, "fail", error.hint)


DATASOURCE = replace(source_kind(DataSourceOptions, DataSourceReader, probe=_probe), make=_make)
