"""The layout of records that go into files: a directory below the store's root in place of a topic, and the value as the steps left it.

Directories are made from data, so fields are escaped as Hive does: characters with a meaning in paths become `%` and two hex digits, and so
does a leading `_` or `.`, since readers ignore files with such names. `/` only comes from the template.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from copycat_agent.converters.base import PREFIX_BYTES
from copycat_agent.converters.plain import dump
from copycat_agent.encoding.layout import ANY_PARTITION, Headers, MessageLayout, Outline, SplitLayout
from copycat_agent.errors import DataError, FileError
from copycat_agent.formats import Draft, Parsed
from copycat_agent.model import Schema, Split
from copycat_agent.producer import Message
from copycat_agent.templates import SplitMeta, bind, compile_template
from copycat_agent.transforms import kind_of

if TYPE_CHECKING:
    from copycat_agent.options import Definition
    from copycat_agent.sinks.files_options import FilesSinkOptions

NAME_BYTES = 200
"""Longest name of a directory: file systems take 255."""
PATH_BYTES = 700
"""Longest path of a directory, with that of `uri` in object stores, which take names of 1,024 bytes."""
DIRECTORIES_KNOWN = 4096
"""Most directories that are remembered for each split."""
_MEANS_SOMETHING = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^|<>&`$;!]")


class TypedValue(NamedTuple):
    """A value with its schema. Bytes are its Avro encoding, as in Kafka behind the schema's id."""

    value: bytes | dict[str, Any]
    schema: Schema


def shown_value(value: bytes | dict[str, Any] | TypedValue | None) -> bytes | None:
    """Returns the value of a message for display: bytes unchanged, fields as JSON."""
    bare = unshaped(value)
    try:
        return bare if bare is None or isinstance(bare, bytes) else dump(bare)
    except DataError as error:
        return error.message.encode()


def unshaped(value: Any) -> Any:  # noqa: ANN401 - any value
    """Returns the fields of a `TypedValue`; anything else unchanged."""
    if not isinstance(value, TypedValue):
        return value
    if isinstance(value.value, dict):
        return value.value
    from copycat_agent.formats.records.avro_format import read_alone, reading_of  # noqa: PLC0415 - imports fastavro

    return read_alone(value.value, reading_of(value.schema.avro))


class FilesLayout(MessageLayout):
    """The sink's `path`, compiled; it takes the place of the topic (`with_implied`). Nothing else in a message matters for a file."""

    def __init__(self, definition: Definition, *, has_fields: bool, has_envelopes: bool = False) -> None:
        del has_fields
        self.definition = definition
        self.has_envelopes = has_envelopes
        self.topic = compile_template(definition.record.topic.strip("/"))
        self.is_steady = self.topic.is_of_split
        self.literal_topic = directory(self.topic.literal_prefix, definition.sink.prefix_bytes) if self.topic.is_literal else ""
        self.value = self.key = self.convert_value = None
        value = definition.converters.value
        self.wants_record = value is not None and value.type == "avro" and not changes_fields(definition)
        self.same_tail = ()

    def bind(self, split: Split, meta: SplitMeta, partitions: Callable[[str], int], run: int) -> SplitLayout:
        del split, partitions, run
        return cast("SplitLayout", _SplitFilesLayout(self, meta))

    @property
    def keeps_encoding(self) -> bool:
        """Returns whether values go from Kafka into files as they are encoded: anew, a union could get another of its types."""
        return self.wants_record and cast("FilesSinkOptions", self.definition.sink).format == "avro"

    def takes_raw(self, schema: Schema | None, *, as_is: bool) -> bool:
        del as_is
        return self.keeps_encoding and schema is not None


class _SplitFilesLayout:
    """A `SplitLayout` of the records of one split."""

    tail: Message = ()

    def __init__(self, layout: FilesLayout, meta: SplitMeta) -> None:
        """Raises FileError if the records of this split have the same directory, and it is too long."""
        parts = [one if isinstance(one, str) else bind([one], meta, meta.clock) for one in layout.topic.parts]
        self._parts = parts
        self._made = [one for one in parts if not isinstance(one, str)]
        self._known: dict[tuple[str, ...], str] = {}
        """Directories by the rendered parts of their paths."""
        self.is_steady = layout.is_steady
        self._has_schema, self._keeps_encoding = layout.wants_record, layout.keeps_encoding
        self._is_of_second, self._prefix_bytes = layout.topic.is_of_second, layout.definition.sink.prefix_bytes
        self.literal_topic = ""
        if layout.is_steady:
            try:
                self.literal_topic = self._directory(Draft(b""))
            except DataError as error:
                raise FileError(error.message, "leave the topic out (source.exclude), or see sink.path") from None

    def value(self, draft: Draft, _topic: str) -> Any:  # noqa: ANN401 - bytes, text or fields
        """Returns the value as the steps left it, with its schema if that still describes it."""
        if not self._has_schema or draft.schema is None:
            return draft.value
        return TypedValue(draft.value[PREFIX_BYTES:] if isinstance(draft.value, bytes) else draft.value, draft.schema)

    def outline(self, draft: Draft, extra: Headers = ()) -> Outline:
        del extra
        return self.literal_topic or self._directory(draft), None, ANY_PARTITION, 0, None

    def messages(self, chunk: Parsed) -> list[Any] | None:
        """Returns the messages of records whose values are not changed. None if directories depend on more than records' times."""
        values = chunk.values
        if self._has_schema and chunk.schema is not None:
            same = [value[PREFIX_BYTES:] for value in chunk.raw] if self._keeps_encoding and chunk.raw is not None else values
            values = [TypedValue(value, chunk.schema) for value in same]
        if self.is_steady:
            return list(values)
        times = None if chunk.envelopes is None or not self._is_of_second else chunk.envelopes.timestamps_ms
        if times is None or None in times:
            return None
        seconds, found, draft = [cast("int", time) // 1000 for time in times], dict[int, str](), Draft(b"")
        try:
            for second in set(seconds):
                draft.timestamp_ms = second * 1000
                found[second] = self._directory(draft)
        except DataError:
            return None
        nothing, directories = repeat(None), [found[second] for second in seconds]
        return list(zip(directories, values, nothing, repeat(ANY_PARTITION), nothing, nothing, repeat(0), nothing))

    def _directory(self, draft: Draft) -> str:
        """Returns the record's directory. Raises DataError when a field is missing, or the path is too long."""
        made = tuple([one(draft) for one in self._made])
        found = self._known.get(made)
        if found is None:
            texts = iter(made)
            path = "".join([one if isinstance(one, str) else escaped(next(texts)) for one in self._parts])
            found = directory(path, self._prefix_bytes)
            if len(self._known) >= DIRECTORIES_KNOWN:
                self._known.clear()
            self._known[made] = found
        return found


def changes_fields(definition: Definition) -> bool:
    """Returns whether a step may change a record, whose schema then no longer describes it."""
    return not all(kind_of(step).is_filter for step in definition.transforms)


def escaped(text: str) -> str:
    """Returns a text escaped as part of a name in a path."""
    return _MEANS_SOMETHING.sub(lambda found: f"%{ord(found[0]):02X}", text)


def directory(path: str, above: int = 0) -> str:
    """Returns the directory of a path without slashes at its ends, with a trailing one. `above` bytes are taken by the path before it.

    Raises DataError for one that stores do not take, or readers of tables: Spark refuses a whole table for one directory `NAME=`.
    """
    names = path.split("/")
    if not all("" not in name.split("=", 1) for name in names):
        raise DataError("the path of the record's file has an empty part", "see sink.path; set: with an if gives an empty field a value")
    names = [f"%{ord(name[0]):02X}{name[1:]}" if name[0] in "_." else name for name in names]
    found = "/".join(names) + "/"
    if any(len(name.encode()) > NAME_BYTES for name in names) or len(found.encode()) > PATH_BYTES - above:
        words = f"the path of the record's file is too long: {NAME_BYTES} bytes a name, {PATH_BYTES - above} in all"
        raise DataError(words, "see sink.path")
    return found
