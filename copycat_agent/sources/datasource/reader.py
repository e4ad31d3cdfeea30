"""Wraps the stream reader of a PySpark data source: finds its class, plans with it, and converts its schema and rows.

Used in the planning process and in tasks.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import pickle
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row, types
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from copycat_agent.errors import FatalError
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.model import Column, Schema
from copycat_agent.registry import described
from copycat_agent.sources.contract import same_position
from copycat_agent.sources.contract_threads import weight
from copycat_agent.sql_types import element_of, map_of, struct_fields
from copycat_agent.transforms.sql import plain_type

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader


PLAN_BYTES_MAX = 16 * 2**20
"""Largest size of a range's partitions, pickled: they go through the driver to a task."""

_COMMENT = re.compile(r"""\s+comment\s+(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.IGNORECASE)
_NOT_NULL = re.compile(r"\s+not\s+null\s*$", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_PLAIN: dict[str, types.DataType] = {
    "string": types.StringType(),
    "boolean": types.BooleanType(),
    "tinyint": types.ByteType(),
    "smallint": types.ShortType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "binary": types.BinaryType(),
}

Fields = dict[str, Any]
Offset = Any
"""A reader's offset: a JSON value, usually a map."""


class UnusableSourceError(FatalError):
    """A definition names, as its option `class`, something that is no data source, or one that cannot be streamed."""


def find_class(name: str) -> type[DataSource]:
    """Returns the class of `package.module:Class`. Raises UnusableSourceError, and whatever the import of the module raises."""
    module_name, _, class_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        words = f"there is no module {error.name}" if error.name else f"module {module_name} cannot be imported"
        raise UnusableSourceError(words, "install its package for the Python that runs the agent, or correct the name") from None
    found = getattr(module, class_name, None)
    if found is None:
        kinds = {one: value for one, value in vars(module).items() if isinstance(value, type) and value is not DataSource}
        near = [one for one, value in kinds.items() if issubclass(value, DataSource)]
        hint = f"data sources in it: {', '.join(sorted(near))}" if near else "correct the name"
        raise UnusableSourceError(f"module {module_name} has no {class_name}", hint)
    if not (isinstance(found, type) and issubclass(found, DataSource)):
        hint = "name a class derived from pyspark.sql.datasource.DataSource"
        raise UnusableSourceError(f"{class_name} of {module_name} is no data source", hint)
    if found.streamReader is DataSource.streamReader and found.simpleStreamReader is DataSource.simpleStreamReader:
        words = f"{class_name} of {module_name} cannot be streamed: it has neither streamReader nor simpleStreamReader"
        raise UnusableSourceError(words, "name a data source with one of them")
    return found


def schema_of(planned: bytes) -> Schema:
    """Returns the reader's schema at the time that `StreamReader.plan` returned `planned`."""
    schema: Schema = pickle.loads(planned)[0]  # noqa: S301 - from the process that plans, through the driver
    return schema


class StreamReader:
    """The reader of a data source, of either of PySpark's two kinds."""

    def __init__(self, name: str, options: dict[str, str]) -> None:
        """Raises FatalError, and whatever the data source raises."""
        kind = find_class(name)
        source = kind(CaseInsensitiveDict(options))
        struct = struct_of(source.schema())
        self.schema = columns_of(struct)
        self.names = struct.fieldNames()
        self.is_simple = kind.streamReader is DataSource.streamReader
        self._simple: SimpleDataSourceStreamReader | None = source.simpleStreamReader(struct) if self.is_simple else None
        self._reader: DataSourceStreamReader | None = None if self.is_simple else source.streamReader(struct)
        self._takes_limit = not self.is_simple and bool(inspect.signature(self._planned.latestOffset).parameters)

    @property
    def _planned(self) -> DataSourceStreamReader:
        assert self._reader is not None, "not a simple reader"
        return self._reader

    @property
    def _any(self) -> Any:  # noqa: ANN401 - either kind
        return self._simple or self._reader

    @property
    def knows_its_end(self) -> bool:
        """Whether it can be told to come to an end, as for Spark's trigger `availableNow`."""
        return isinstance(self._any, SupportsTriggerAvailableNow)

    def prepare_end(self) -> None:
        """Tells the reader to end where its data ends now."""
        self._any.prepareForTriggerAvailableNow()

    def initial(self) -> Offset:
        """Returns the offset at which a first start begins."""
        return _checked(self._any.initialOffset(), "initialOffset")

    def latest(self, start: Offset, *, everything: bool) -> Offset:
        """Returns the end of the next range; with `everything` the end of the data, whatever the limit. Not for simple readers."""
        if not self._takes_limit:
            return _checked(self._planned.latestOffset(), "latestOffset")  # type: ignore[call-arg]
        limit = ReadAllAvailable() if everything else self._planned.getDefaultReadLimit()
        return _checked(self._planned.latestOffset(start, limit), "latestOffset")

    @property
    def has_limit(self) -> bool:
        """Whether its ranges are limited by default."""
        return self._takes_limit and not isinstance(self._planned.getDefaultReadLimit(), ReadAllAvailable)

    def read_on(self, start: Offset, most_bytes: int) -> tuple[Offset, list[Fields] | None]:
        """Reads from a simple reader. Returns the end offset and the records, None if these exceed `most_bytes`."""
        assert self._simple is not None, "a simple reader"
        given, end = self._simple.read(start)
        found, size_bytes = list[Fields](), 0
        for fields in chain.from_iterable(one if isinstance(one, ArrowRows) else (one,) for one in records_of(given, self.names)):
            found.append(fields)
            size_bytes += weight(fields)
            if size_bytes > most_bytes:
                return _checked(end, "read"), None
        if found and same_position(start, end):
            raise FatalError("read() gives records, and the same offset as before", "the offset it returns has to lie behind them")
        return _checked(end, "read"), found

    def plan(self, start: Offset, end: Offset) -> bytes:
        """Returns the partitions between two offsets, pickled, for `read`. Raises FatalError if they exceed `PLAN_BYTES_MAX`."""
        planned, size_bytes = list[bytes](), 0
        for one in () if self.is_simple else self._planned.partitions(start, end):
            planned.append(cloudpickle.dumps(one))  # type: ignore[no-untyped-call]
            size_bytes += len(planned[-1])
            if size_bytes > PLAN_BYTES_MAX:
                words = f"partitions() returns more than {PLAN_BYTES_MAX:,} bytes, pickled, after {len(planned):,} partitions"
                raise FatalError(words, "return fewer partitions, or what names the records instead of the records themselves")
        return pickle.dumps((self.schema, planned))

    def commit(self, end: Offset) -> None:
        """Tells the reader that everything before `end` is delivered and saved."""
        self._any.commit(end)

    def stop(self) -> None:
        """Stops the reader. Ignores errors."""
        with contextlib.suppress(Exception):
            getattr(self._any, "stop", lambda: None)()

    def read(self, start: Offset, end: Offset, planned: bytes) -> Iterator[Fields | ArrowRows]:
        """Yields the records of all partitions in order; those of a simple reader are between the two offsets."""
        if self._simple is not None:
            yield from records_of(self._simple.readBetweenOffsets(start, end), self.names, "readBetweenOffsets")
            return
        for partition in pickle.loads(planned)[1]:  # noqa: S301 - from the process that plans, through the driver
            yield from records_of(self._planned.read(pickle.loads(partition)), self.names)  # noqa: S301 - as above


def _checked(offset: Offset, what: str) -> Offset:
    """Returns an offset as it is after a round trip through JSON. Raises FatalError if it is no JSON value."""
    try:
        return json.loads(json.dumps(offset, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise FatalError(f"the offset that {what}() returns is no JSON value", "offsets are maps of texts, numbers and booleans") from None


def records_of(given: Iterable[Any] | None, names: list[str], what: str = "read") -> Iterator[Fields | ArrowRows]:
    """Converts what the reader's method `what` has returned into records.

    Raises FatalError for None and for values that do not fit the schema, and whatever the reader raises.
    """
    if given is None:
        raise FatalError(f"{what}() returned nothing", "return an iterator, or an empty list")
    for one in given:
        yield _of_batch(one, names) if isinstance(one, pa.RecordBatch) else _of_row(one, names)


def _of_batch(batch: pa.RecordBatch, names: list[str]) -> ArrowRows:
    if sorted(batch.schema.names) != sorted(names):
        raise FatalError(f"the reader gives Arrow columns {_listed(batch.schema.names)}, and its schema has {_listed(names)}")
    return ArrowRows(batch.select(names))


def _of_row(row: Any, names: list[str]) -> Fields:  # noqa: ANN401 - whatever a reader yields
    if not isinstance(row, list | tuple):
        kind = type(row).__name__
        raise FatalError(f"the reader gives a {kind} as a record", "it has to yield tuples, lists, Rows or Arrow RecordBatches")
    if len(row) != len(names):
        raise FatalError(f"the reader gives a record of {len(row)} values, and its schema has {len(names)}: {_listed(names)}")
    if isinstance(row, Row) and hasattr(row, "__fields__"):
        if set(row.__fields__) != set(names):
            raise FatalError(f"the reader gives a Row of {_listed(row.__fields__)}, and its schema has {_listed(names)}")
        return {name: _plain(row[name]) for name in names}
    return {name: _plain(value) for name, value in zip(names, row, strict=True)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a record holds
    """Returns a value with PySpark's Rows replaced by dicts."""
    if isinstance(value, Row) and hasattr(value, "__fields__"):
        return {name: _plain(one) for name, one in zip(value.__fields__, value, strict=True)}
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def fault(error: BaseException, name: str) -> str:
    """Returns an exception's type and place, in the package of class `name` if possible, without its text, which may contain data."""
    package, place, trace = name.partition(":")[0].partition(".")[0], "", error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            place = f"{type(error).__name__} at {Path(frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place or described(error)


def struct_of(schema: Any) -> types.StructType:  # noqa: ANN401 - whatever a data source returns
    """Returns a StructType for what `DataSource.schema` has returned: a StructType, or DDL such as `id INT, name STRING NOT NULL`.

    Spark's own DDL parser runs in the JVM, and readers plan and read without one. Raises FatalError.
    """
    if isinstance(schema, types.StructType):
        return schema
    if not isinstance(schema, str):
        msg = f"the schema of the data source is a {type(schema).__name__}"
        raise FatalError(msg, "schema() returns a StructType, or DDL text such as 'id INT, name STRING'")
    try:
        return _struct(_COMMENT.sub("", schema.strip()))
    except ValueError as error:
        raise FatalError(f"the schema of the data source is not understood: {error}", "return a StructType from schema()") from None


def columns_of(struct: types.StructType) -> Schema:
    """Returns the schema of records with these fields."""
    return Schema(tuple(Column(field.name, field.dataType.simpleString(), field.nullable) for field in struct.fields))


def _struct(ddl: str) -> types.StructType:
    """Parses the fields of a struct. Raises ValueError."""
    whole = struct_fields(ddl)
    fields = struct_fields(f"struct<{ddl}>") if whole is None else whole
    if not fields:
        raise ValueError("it names no column")
    return types.StructType([_field(name, kind) for name, kind in fields])


def _field(name: str, kind: str) -> types.StructField:
    nullable = not _NOT_NULL.search(kind)
    return types.StructField(name, _type(_NOT_NULL.sub("", kind)), nullable)


def _type(text: str) -> types.DataType:
    word = text.strip()
    if (element := element_of(word)) is not None:
        return types.ArrayType(_type(element))
    if (pair := map_of(word)) is not None:
        return types.MapType(_type(pair[0]), _type(pair[1]))
    if struct_fields(word):
        return _struct(word)
    plain = plain_type(word)
    if match := _DECIMAL.fullmatch(plain):
        return types.DecimalType(int(match[1]), int(match[2]))
    return _PLAIN[plain]
