"""Determines topic, key, headers, partition, timestamp and value of a message, after the steps have worked on its record."""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from copycat_agent.converters import CONVERTERS, Converter, Site, build_converter
from copycat_agent.errors import DataError
from copycat_agent.formats import Draft, Parsed
from copycat_agent.producer import Message
from copycat_agent.sources import declared_columns
from copycat_agent.templates import MISSING, SplitMeta, compile_path, compile_template
from copycat_agent.transforms import columns_after

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from copycat_agent.model import Schema, Split
    from copycat_agent.options import Definition

Headers = tuple[tuple[str, bytes], ...]
Outline = tuple[str, bytes | None, int, int, list[tuple[str, bytes]] | None]
"""Topic, key, partition, timestamp (0: when it is sent) and headers of a message."""

ANY_PARTITION = -1
TOPICS_KEPT = 1000
"""Most checked topics of a split that are remembered. There are seldom more than a few, but data may name any number."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTIAL = ("copycat.partial", b"true")
_NOTHING = Draft(b"")
_TAKE_TEXT = ("string", "bytes")
"""Converters that take the bytes of a record that also has fields."""


class MessageLayout:
    """The compiled `record` and `converters` sections of a definition. Stateless after construction; shared by threads.

    `convert_value` is None if bytes are sent unchanged. `wants_record`, `key_wants_record`: the converter is called with the topic and
    the schema of the record's file beside the value. `has_same_headers`: all complete records of a split have the same headers.
    `same_tail`: what follows the value in every message, as in `SplitLayout.tail`, if it is the same for all files; else None.
    """

    def __init__(self, definition: Definition, *, has_fields: bool, has_envelopes: bool = False) -> None:
        """`has_fields`: the value of a record may be fields, from its format or from a step. `has_envelopes`: records come in envelopes."""
        self.definition = definition
        record, value = definition.record, definition.converters.value
        self.topic = compile_template(record.topic)
        self.key = None if record.key is None else compile_template(record.key)
        self.headers = {name: compile_template(text) for name, text in record.headers.items()}
        self.value = None if record.value is None else compile_template(record.value)
        self.literal_topic = self.topic.literal_prefix if self.topic.is_literal else ""
        self.has_envelopes = has_envelopes
        has_own_headers = record.origin_headers or has_envelopes
        self.has_same_headers = not has_own_headers and all(template.is_of_split for template in self.headers.values())
        has_same_key = self.key is None or self.key.is_of_split
        self.is_steady = bool(self.literal_topic) and has_same_key and self.has_same_headers and record.timestamp != "event"
        self.same_tail = self._same_tail()
        self.convert_key = _key_converter(definition)
        self.convert_value = _value_converter(definition, has_fields=has_fields or self.value is not None)
        self.wants_record = value is not None and CONVERTERS[value.type].wants_record
        self._wants_bytes = value is not None and CONVERTERS[value.type].is_identity
        self._wants_fields = value is not None and value.type not in _TAKE_TEXT

    @property
    def key_wants_record(self) -> bool:
        """Returns whether the key's converter needs topic and schema, see `wants_record`."""
        key = self.definition.converters.key
        return key is not None and CONVERTERS[key.type].wants_record

    def _same_tail(self) -> Message | None:
        record = self.definition.record
        depends = self.key or self.headers or record.origin_headers or record.timestamp in {"event", "file"} or record.partition == "file"
        if depends or self.has_envelopes or not self.literal_topic:
            return None
        return _tail(None, record.partition if isinstance(record.partition, int) else ANY_PARTITION, 0, None)

    def bind(self, split: Split, meta: SplitMeta, partitions: Callable[[str], int], run: int) -> SplitLayout:
        """Returns the layout of the messages of one split. Arguments and DataError as of `SplitLayout`."""
        return SplitLayout(self, split, meta, partitions, run)

    def takes_raw(self, schema: Schema | None, *, as_is: bool) -> bool:
        """Returns whether a record with fields is sent as its raw bytes, as long as no step changes its fields; `as_is` see `Parsed`."""
        del schema
        return self.value is None and (self._wants_bytes or (as_is and not self._wants_fields))

    def rows(self, batch: RecordBatch) -> list[bytes] | None:
        """Returns the values of all rows, made at once; None if each row has to be converted by itself."""
        value = self.definition.converters.value
        is_json = self.value is None and (value is None or CONVERTERS[value.type].is_json)
        make = _rows_as_json() if is_json else None
        return None if make is None else make(batch)

    def asks_for(self, names: Sequence[str]) -> list[str]:
        """Returns the fields among `names` that topic, key or headers are made from."""
        asked = {field for template in (self.topic, self.key, *self.headers.values()) if template for field in template.fields}
        return [name for name in names if any(field == name or field.startswith(f"{name}.") for field in asked)]

    @property
    def convert_fields(self) -> Converter | None:
        """Returns the converter of fields if `convert_value` depends on the type of the value, and sends bytes unchanged; else None."""
        return _json if self.convert_value is _by_kind else None


class DataTopics:
    """The topics that a template makes from the records of one split, each checked once."""

    def __init__(self, layout: MessageLayout, meta: SplitMeta) -> None:
        record, dlq = layout.definition.record, layout.definition.errors.dlq
        self._render = layout.topic.bind(meta)
        self._allowed = frozenset(record.allowed_topics)
        self._dead_letters = None if dlq is None else dlq.topic
        self._checked: set[str] = set()

    def of(self, draft: Draft) -> str:
        """Returns the record's topic. Raises DataError for one that is not allowed."""
        topic = self._render(draft)
        if topic not in self._checked:
            self._check(topic)
            if len(self._checked) >= TOPICS_KEPT:
                self._checked.clear()
            self._checked.add(topic)
        return topic

    def _check(self, topic: str) -> None:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise DataError("the topic template yields a name that Kafka does not allow", "see record.topic")
        if self._allowed:
            if topic not in self._allowed:
                raise DataError("the topic template yields a topic that is not in record.allowed_topics")
        elif topic == self._dead_letters:
            raise DataError("the topic template yields the dead-letter topic", "see record.topic and errors.dlq.topic")
        elif topic.startswith("__"):
            raise DataError("the topic template yields a name that begins with __, as Kafka's own topics do", "see record.topic")


class SplitLayout:
    """The layout of the messages of one split. Parts that are equal in all messages are made once.

    `literal_topic` is "" where the topic is made from data. `is_steady`: messages differ in their values only. `value` returns a
    record's value as `produce` takes it, for the record and its topic; it raises DataError, or what its converter raises.
    """

    def __init__(self, layout: MessageLayout, split: Split, meta: SplitMeta, partitions: Callable[[str], int], run: int) -> None:
        """`partitions` returns a topic's partition count; `run` rotates sticky partitions.

        Raises DataError when a template cannot be rendered for any record of this file.
        """
        record = layout.definition.record
        self._layout, self._split, self._record = layout, split, record
        self._partitions, self._run = partitions, run
        self.literal_topic = layout.literal_topic
        self._topic_of = DataTopics(layout, meta).of
        self._key = layout.key.bind(meta) if layout.key else None
        self._headers = [(name, template.bind(meta)) for name, template in layout.headers.items()]
        self._same_headers = self._headers_of(_NOTHING, ()) if layout.has_same_headers else None
        place = meta.origin.place()
        self._source_partition = ANY_PARTITION if place is None else place.partition
        self._is_event = record.timestamp == "event"
        self._timestamp = split.mtime_ms if record.timestamp == "file" else 0
        self.is_steady = layout.is_steady
        self.value = self._value(meta)

    def outline(self, draft: Draft, extra: Headers = ()) -> Outline:
        """Returns everything but the value. Raises DataError for a record that it cannot be made from."""
        topic = self.literal_topic or self._topic_of(draft)
        if self._key is not None:
            key: bytes | None = self._key_bytes(self._key(draft), topic, draft)
        else:
            key = None if draft.envelope is None else draft.envelope.key
        headers = self._same_headers
        if headers is None or extra or draft.partial:
            headers = self._headers_of(draft, extra)
        timestamp = self._timestamp
        if self._is_event and draft.timestamp_ms is not None:
            timestamp = draft.timestamp_ms if draft.timestamp_ms > 0 else _early_time(draft, draft.timestamp_ms)
        return topic, key, self._partition_of(topic, key), timestamp, headers or None

    def messages(self, _chunk: Parsed) -> list[Any] | None:
        """Returns the messages of records that no step works on, made at once; None where each is made by itself."""
        return None

    def outline_of_part(self, first: Draft, draft: Draft, extra: Headers, spread: bytes) -> Outline:
        """Returns the outline of `draft`, a part of a record with the first part `first`, which determines topic, key, partition and time.

        If the definition does not determine the partition of a record, all its parts go to one, chosen by `spread`.
        """
        topic, key, partition, timestamp, _ = self.outline(first)
        if self._record.partition == "sticky" or (partition == ANY_PARTITION and key is None):
            partition = zlib.crc32(spread) % self._partitions(topic)
        return topic, key, partition, timestamp, self._headers_of(draft, extra)

    @cached_property
    def tail(self) -> Message:
        """Returns what follows the value in every message, if `is_steady`, for `TaskProducer.send`. Raises DataError as `outline`."""
        return _tail(*self.outline(_NOTHING)[1:])

    def _key_bytes(self, text: str, topic: str, draft: Draft) -> bytes:
        convert: Callable[..., bytes] = self._layout.convert_key
        return convert(text, topic, draft.schema) if self._layout.key_wants_record else convert(text)

    def _headers_of(self, draft: Draft, extra: Headers) -> list[tuple[str, bytes]]:
        headers: list[tuple[str, Any]] = [] if draft.envelope is None else list(draft.envelope.headers)
        headers += [(name, render(draft).encode()) for name, render in self._headers]
        headers += extra
        if self._record.origin_headers:
            headers += origin_headers(self._split.path, draft.first, draft.end)
        return [*headers, _PARTIAL] if draft.partial else headers

    def _partition_of(self, topic: str, key: bytes | None) -> int:
        wanted = self._record.partition
        if wanted == "key":
            return ANY_PARTITION
        if isinstance(wanted, int):
            return wanted
        if wanted == "source":
            return self._source_partition
        if wanted == "file":
            return zlib.crc32(self._split.partition.key.encode()) % self._partitions(topic)
        return self._run % self._partitions(topic) if key is not None else ANY_PARTITION

    def _value(self, meta: SplitMeta) -> Callable[[Draft, str], Any]:
        """Returns the function `value`, with only the steps that this definition needs. A null stays null."""
        make = self._value_of_data(meta)
        if not self._layout.has_envelopes:
            return make

        def value_or_null(draft: Draft, topic: str) -> Any:  # noqa: ANN401 - as `value`
            value: Any = draft.value
            return None if value is None else make(draft, topic)

        return value_or_null

    def _value_of_data(self, meta: SplitMeta) -> Callable[[Draft, str], Any]:
        layout, template = self._layout, self._layout.value
        convert = layout.convert_value
        if template is None:
            if convert is None:
                return lambda draft, _: draft.value
            if layout.wants_record:
                return lambda draft, topic: convert(draft.value, topic, draft.schema)
            fields = layout.convert_fields or convert
            return lambda draft, _: fields(draft.value) if type(draft.value) is dict else convert(draft.value)
        assert convert is not None
        select = template.bind(meta) if template.single_field is None else _field(template.single_field)

        if layout.wants_record:
            return lambda draft, topic: convert(select(draft), topic, draft.schema)
        return lambda draft, _: convert(select(draft))


def _tail(key: bytes | None, partition: int, timestamp: int, headers: list[tuple[str, bytes]] | None) -> Message:
    is_plain = (key, partition, timestamp, headers) == (None, ANY_PARTITION, 0, None)
    return () if is_plain else (key, partition, None, None, timestamp, headers)


def _early_time(draft: Draft, timestamp_ms: int) -> int:
    """Returns an event's time that is not after 1970 as a client takes it. Raises DataError for a time before 1970, unless Kafka has it."""
    if timestamp_ms == 0:
        return 1  # for a client 0 means now
    if draft.envelope is None or draft.envelope.timestamp_ms != timestamp_ms:
        raise DataError("the event time is before 1970: Kafka has no timestamp for it", "see record.timestamp")
    return timestamp_ms  # brokers take it from some clients


def origin_headers(path: str, start: int, end: int) -> Headers:
    """Returns headers that say where a record came from, with which a consumer can drop repeats."""
    name = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return (("copycat.file", name.encode()), ("copycat.offset", b"%d" % start), ("copycat.end", b"%d" % end))


@lru_cache(maxsize=1)
def host_name() -> str:
    """Returns this host's name, the value of `@host`."""
    return socket.gethostname()


def _field(path: str) -> Callable[[Draft], Any]:
    """Returns a function that returns a record's field unchanged, and raises DataError when it is missing or null.

    Null would be a tombstone, which deletes a key's record in a compacted topic: no log line may do that by accident.
    """
    find = compile_path(path)

    def found(draft: Draft) -> object:
        value = find(draft)
        if value is MISSING or value is None:
            msg = f"field {path!r} is {'missing' if value is MISSING else 'null'}, so there is no value to send"
            raise DataError(msg, "see record.value; default: gives a field a value, drop_if: drops such records")
        return value

    return found


def _key_converter(definition: Definition) -> Converter:
    options = definition.converters.key
    site = Site("key", definition.converters.schema_registry)
    return build_converter(options, site) if options else str.encode


def _value_converter(definition: Definition, *, has_fields: bool) -> Converter | None:
    """Returns the converter of values; None if bytes are sent unchanged."""
    options = definition.converters.value
    if options is None:
        return _by_kind if has_fields else None
    site = _site(definition)
    return None if CONVERTERS[options.type].is_identity and not has_fields else build_converter(options, site)


def _site(definition: Definition) -> Site:
    """Returns the description of the converter's values. A value made by a template has no declared fields."""
    steps, registry = definition.transforms, definition.converters.schema_registry
    if definition.record.value is not None:
        return Site("value", registry, None, lambda _: None)
    after = (lambda columns: columns_after(steps, columns)) if steps else None
    return Site("value", registry, columns_after(steps, declared_columns(definition.source)), after)


@cache
def _rows_as_json() -> Callable[[RecordBatch], list[bytes] | None] | None:
    try:
        from copycat_agent.encoding.json_columns import rows_as_json  # noqa: PLC0415 - imports pyarrow and numpy, an extra
    except ImportError:
        return None
    return rows_as_json


def _by_kind(value: bytes | str | dict[str, Any]) -> bytes:
    """The default converter: sends bytes and text unchanged, and fields as JSON."""
    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "backslashreplace") if isinstance(value, str) else _json(value)


_json: Converter = build_converter(CONVERTERS["json"].options(type="json"))
