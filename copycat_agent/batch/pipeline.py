"""A definition, compiled once per process: from framed bytes to what `produce` takes."""

from __future__ import annotations

import pickle
import re
import socket
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from copycat_agent.batch.window import BoundWindow, window_of
from copycat_agent.converters import CONVERTERS, Converter, Site, build_converter
from copycat_agent.errors import DataError
from copycat_agent.formats import Chunk, Parsed, Row, Unparsed
from copycat_agent.model import Record, Split
from copycat_agent.options import Definition
from copycat_agent.producer import Outgoing
from copycat_agent.sources import SOURCES
from copycat_agent.templates import SplitMeta, Template, compile_template
from copycat_agent.transforms import Draft, build_transform, columns_after, kind_of

Headers = tuple[tuple[str, bytes], ...]

_SPLIT_NAMES = frozenset({"@file.path", "@file.name", "@file.dir", "@file.inode", "@host", "@connector"})
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
ANY_PARTITION = -1
_TAKE_TEXT = ("string", "bytes")
"""Converters that take the bytes of a record that also has fields."""


@lru_cache(maxsize=256)
def compiled(pickled: bytes) -> Pipeline:
    """The pipeline of a pickled definition, kept by the definition's bytes. Called by `run_batch` in every process."""
    return Pipeline(pickle.loads(pickled))  # noqa: S301 - from the driver, over an authenticated socket


class Pipeline:
    """What a definition does to a record. Stateless after construction; shared by threads."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.source = SOURCES[definition.source.type]
        self.frames = self.source.framing(definition.source, raw=_is_raw(definition))
        self.transforms = tuple(build_transform(step, number) for number, step in enumerate(definition.transforms))
        self.changes_fields = not all(kind_of(step).is_filter for step in definition.transforms)
        self.window = window_of(definition, raw=_is_raw(definition))
        record = definition.record
        self.topic = compile_template(record.topic)
        self.key = None if record.key is None else compile_template(record.key)
        self.headers = {name: compile_template(text) for name, text in record.headers.items()}
        has_fields = bool(definition.transforms) or getattr(self.frames, "makes_fields", False)
        self.convert_key = _converter(definition, "key", has_fields=has_fields)
        self.convert_value = _converter(definition, "value", has_fields=has_fields)
        value = definition.converters.value
        self.wants_record = value is not None and CONVERTERS[value.type].wants_record
        self._wants_bytes = value is not None and CONVERTERS[value.type].is_identity
        self._wants_fields = value is not None and value.type not in _TAKE_TEXT

    def bind(
        self, split: Split, partitions: Callable[[str], int], run: int, host: str | None = None, window: BoundWindow | None = None
    ) -> Bound:
        """The pipeline for the records of one split. `partitions` gives a topic's partition count; `run` rotates sticky ones.

        `host` is the one with the file, None for this one. Raises DataError when a template cannot be rendered for any record of this file.
        """
        return Bound(self, split, partitions, run, host_name() if host is None else host, window)

    def takes_raw(self, *, as_is: bool) -> bool:
        """Whether the value of a record with fields is its raw bytes, as long as no step makes other fields of it; `as_is` see `Parsed`."""
        return self._wants_bytes or (as_is and not self._wants_fields)

    def literal_topics(self) -> tuple[str, ...]:
        """Topics known before any record is read."""
        return (self.topic.literal_prefix,) if self.topic.is_literal else ()


class Bound:
    """A pipeline and a split: makes messages of rows."""

    def __init__(
        self, pipeline: Pipeline, split: Split, partitions: Callable[[str], int], run: int, host: str, window: BoundWindow | None
    ) -> None:
        definition = pipeline.definition
        self._window = window
        self._pipeline = pipeline
        self._split = split
        self._partitions = partitions
        self._run = run
        self._record = definition.record
        self._allowed = frozenset(definition.record.allowed_topics)
        meta = SplitMeta(split.path, split.inode, host, definition.name, split.mtime_ms)
        self._steps = tuple(transform.bind(meta) for transform in pipeline.transforms)
        self._topic = pipeline.topic.bind(meta)
        self._key = pipeline.key.bind(meta) if pipeline.key else None
        self._headers = {name: template.bind(meta) for name, template in pipeline.headers.items()}
        self._timestamp = split.mtime_ms if definition.record.timestamp == "file" else 0
        self.bulk = self._bulk() if self._is_bulk() else None

    def _is_bulk(self) -> bool:
        pipeline = self._pipeline
        templates: list[Template] = [*pipeline.headers.values(), *([pipeline.key] if pipeline.key else [])]
        return (
            not pipeline.transforms
            and not pipeline.wants_record
            and self._window is None
            and pipeline.topic.is_literal
            and not self._record.origin_headers
            and all(template.fields <= _SPLIT_NAMES for template in templates)
        )

    def _bulk(self) -> Bulk:
        """All records of the split share everything but their value."""
        nothing = Record(b"", 0, 0, 0)
        topic = self._pipeline.topic.literal_prefix
        key, headers = self._key_of(nothing), self._headers_of(nothing, ())
        partition = self._partition_of(topic, key)
        plain = key is None and not headers and partition == ANY_PARTITION and not self._timestamp
        tail = () if plain else (key, partition, None, None, self._timestamp, list(headers) or None)
        return Bulk(topic, tail, self._pipeline.convert_value, self._pipeline.takes_raw)

    def message(self, row: Row, number: int, *, partial: bool = False, extra: Headers = ()) -> Outgoing | None:
        """What to send for one row, None when a transform dropped it. Raises `StageError` for a bad record."""
        if isinstance(row.value, Unparsed):
            raise StageError("parse", DataError(row.value.why, row.value.hint))
        draft = self._draft(row, number, partial=partial)
        stage: Literal["transform", "record", "convert"] = "transform"
        if self._window is not None:
            self._window.see(row)
        try:
            for step in self._steps:
                if not step(draft):
                    return None
            record = Record(draft.value, row.start, row.end, number, timestamp_ms=draft.timestamp_ms, partial=partial, schema=row.schema)
            if self._window is not None and not self._window.takes(record):
                return None
            stage = "record"
            topic = self._topic_of(record)
            key = self._key_of(record)
            headers = self._headers_of(record, extra)
            stage = "convert"
            value = self._value_of(record, row, topic)
        except DataError as error:
            raise StageError(stage, error) from None
        return topic, value, key, self._partition_of(topic, key), None, None, self._timestamp, list(headers) or None

    def _draft(self, row: Row, number: int, *, partial: bool) -> Draft:
        value = row.value
        assert not isinstance(value, Unparsed)
        own = dict(value) if self._pipeline.changes_fields and isinstance(value, dict) else value
        draft = Draft(own, row.start, row.end, number)
        draft.partial, draft.schema = partial, row.schema
        return draft

    def _value_of(self, record: Record, row: Row, topic: str) -> Any:  # noqa: ANN401 - what `produce` takes
        pipeline, value = self._pipeline, record.value
        if row.raw is not None and value is row.value and pipeline.takes_raw(as_is=row.as_is):
            value = row.raw
        if pipeline.wants_record:
            return pipeline.convert_value(value, topic, record.schema)  # type: ignore[misc]
        return pipeline.convert_value(value) if pipeline.convert_value else value

    def _topic_of(self, record: Record) -> str:
        topic = self._topic(record)
        if self._pipeline.topic.is_literal:
            return topic
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise DataError("the topic template yields a name that Kafka does not allow", "see record.topic")
        if self._allowed and topic not in self._allowed:
            raise DataError("the topic template yields a topic that is not in record.allowed_topics")
        return topic

    def _key_of(self, record: Record) -> bytes | None:
        return None if self._key is None else self._pipeline.convert_key(self._key(record))  # type: ignore[misc]

    def _headers_of(self, record: Record, extra: Headers) -> Headers:
        headers = tuple((name, render(record).encode()) for name, render in self._headers.items()) + extra
        if self._record.origin_headers:
            headers += origin_headers(self._split.path, record.start, record.end)
        return headers + ((("copycat.partial", b"true"),) if record.partial else ())

    def _partition_of(self, topic: str, key: bytes | None) -> int:
        wanted = self._record.partition
        if isinstance(wanted, int):
            return wanted
        if wanted == "file":
            return zlib.crc32(self._split.partition.key.encode()) % self._partitions(topic)
        return self._run % self._partitions(topic) if wanted == "sticky" and key is not None else ANY_PARTITION


@dataclass(frozen=True, slots=True)
class Bulk:
    """Everything but the values, for a split whose records differ in nothing else. `convert` None: values go as they are.

    `takes_raw` is `Pipeline.takes_raw`.
    """

    topic: str
    tail: Outgoing
    convert: Converter | None
    takes_raw: Callable[..., bool]

    def values(self, chunk: Chunk | Parsed) -> list[bytes]:
        """The chunk's records as Kafka gets them. Raises DataError when one of them is a bad one."""
        if self.convert is None and isinstance(chunk, Chunk):
            return chunk.values
        convert, values = self.convert, chunk.values
        kinds = set(map(type, values))
        if Unparsed in kinds:
            msg = "a record could not be read"
            raise DataError(msg)
        if isinstance(chunk, Parsed) and chunk.raw is not None and self.takes_raw(as_is=chunk.as_is):
            values, convert = chunk.raw, None if convert is _by_shape else convert
        elif convert is _by_shape and kinds == {dict}:
            convert = _json
        return list(values) if convert is None else [convert(value) for value in values]  # type: ignore[arg-type]


class StageError(Exception):
    """A bad record, and in which stage it showed: frame, parse, transform, record, convert or send."""

    def __init__(self, stage: str, error: DataError) -> None:
        super().__init__(stage, error)
        self.stage = stage
        self.error = error


def origin_headers(path: str, start: int, end: int) -> Headers:
    """Where a record came from: with these a consumer can drop repeats."""
    name = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return (("copycat.file", name.encode()), ("copycat.offset", b"%d" % start), ("copycat.end", b"%d" % end))


@lru_cache(maxsize=1)
def host_name() -> str:
    """This host, as `@host` names it."""
    return socket.gethostname()


def _is_raw(definition: Definition) -> bool:
    """Whether values go as the bytes that stand in the file: asked for by `converters: {value: bytes}`, without transforms."""
    value = definition.converters.value
    return not definition.transforms and value is not None and CONVERTERS[value.type].is_identity


def _converter(definition: Definition, part: Literal["key", "value"], *, has_fields: bool) -> Converter | None:
    """The converter of keys (never None) or values; None where bytes can go as they are."""
    options = getattr(definition.converters, part)
    site = Site(part, definition.converters.schema_registry, columns_after(definition.transforms, None) if part == "value" else None)
    if part == "key":
        return build_converter(options, site) if options else str.encode
    if options is None:
        return _by_shape if has_fields else None
    return None if CONVERTERS[options.type].is_identity and not has_fields else build_converter(options, site)


def _by_shape(value: bytes | str | dict[str, Any]) -> bytes:
    """The default: bytes as framed, JSON once a transform has made fields."""
    return value if isinstance(value, bytes) else _json(value)


_json: Converter = build_converter(CONVERTERS["json"].options(type="json"))
