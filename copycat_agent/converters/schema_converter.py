"""The converter for every kind of schema: finds the schema of a record once, then writes records without the network.

A payload is what Confluent's serializers write: a zero byte, the schema's id in four bytes, and the record.
"""

from __future__ import annotations

import re
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from copycat_agent.converters.base import BadSchemaError, RegistrySchema, Site, UnfitValueError
from copycat_agent.converters.registry_access import OfflineRegistry, RegisteredSchema, SchemaRegistry
from copycat_agent.converters.schema_forms import SchemaForm, Writer
from copycat_agent.converters.schema_options import SchemaOptions
from copycat_agent.errors import CopycatError, DataError, FatalError, RetriableError
from copycat_agent.model import Column, Schema

REFRESH_SECONDS = 60.0
"""How long the latest version of a subject is used before it is requested again."""
RECHECK_SECONDS = 5.0
"""A record that does not fit the latest version causes a request for a later one, but not more often than this."""
_KNOWN_MAX = 1024
"""The most schemas kept per converter: topics may be made from data."""
_FILES_MAX = 64
"""The most schemas of files that are found by identity; those with equal columns are found more slowly."""
_HINT = "correct it in transforms (convert, rename, default), or change the schema"
_UNKNOWN = "name a schema FILE, or declare the types: `types` of the format, or the schema of a sql transform"


class _SchemaInUse(NamedTuple):
    """A schema in use. `of` is the schema that it was made from, kept because it is found by identity."""

    prefix: bytes
    write: Callable[[Any], bytes]
    id: int
    subject: str
    asked_at: float
    of: Schema | None


class SchemaConverter:
    """Thread-safe. Called with value, topic and the file's schema."""

    def __init__(self, options: SchemaOptions, site: Site, form: SchemaForm, registry: SchemaRegistry) -> None:
        """Sends no request yet."""
        self._options = options
        self._site = site
        self._form = form
        self._registry = registry
        self._derives = options.derives and site.part == "value"
        self._is_latest = options.schema_ is None and not options.auto_register
        self._known: dict[Any, _SchemaInUse] = {}
        self._equal: dict[tuple[str, Schema | None], _SchemaInUse] = {}
        self._unheard_until = 0.0
        self._of_file: tuple[RegistrySchema, Writer] | None = None
        self._writers: dict[RegistrySchema, Writer] = {}
        self._lock = threading.Lock()
        self._failure: tuple[float, RetriableError] | None = None

    def offline(self) -> SchemaConverter:
        """Returns the same converter without the network: RetriableError if only the registry knows the schema."""
        assert self._site.registry is not None
        return SchemaConverter(self._options, self._site, self._form, OfflineRegistry(self._site.registry))

    def __call__(self, value: bytes | str | dict[str, Any], topic: str, schema: Schema | None = None) -> bytes:
        key = (topic, id(schema)) if self._derives else topic
        known = self._known.get(key) or self._find(key, topic, schema)
        if self._is_latest and time.monotonic() - known.asked_at > REFRESH_SECONDS:
            known = self._refreshed(key, topic, known, REFRESH_SECONDS)
        if type(value) is bytes:
            value = {"message": value.decode("utf-8", "replace")}
        try:
            return known.prefix + known.write(value)
        except UnfitValueError as unfit:
            if not self._is_latest or time.monotonic() - known.asked_at < RECHECK_SECONDS:
                raise unfit.as_data_error(_HINT) from None
        return self._once_more(key, topic, known, value)

    def examine(self, topic: str) -> str:
        """Describes what the registry has for the schema of a topic's records. Registers nothing.

        Raises what converting a record would, and DataError if the fields are only known from the files.
        """
        try:
            if not self._options.auto_register:
                subject, _, found = self._resolved(topic, None)
                return f"subject {subject!r}, {f'version {found.version}, ' if found.version else ''}id {found.id}"
            subject, written = self._wanted(topic)
        except BadSchemaError as error:
            raise self._unusable(topic, str(error)) from None
        if not self._registry.compatible(subject, written):
            raise FatalError(f"the schema cannot become the next version of subject {subject!r}", "correct it, or register it elsewhere")
        return f"subject {subject!r}, the schema can be registered"

    def _wanted(self, topic: str) -> tuple[str, RegistrySchema]:
        """Returns the subject and schema that would be registered."""
        if self._options.schema_ is not None:
            written, writer = self._form.of_file(self._registry, registers=False)
        else:
            written, writer = self._derived(topic, None)
        return self._subject(topic, writer.name), written

    def _once_more(self, key: Any, topic: str, known: _SchemaInUse, value: object) -> bytes:  # noqa: ANN401
        """Writes a value that does not fit what was the latest version some seconds ago."""
        known = self._refreshed(key, topic, known, RECHECK_SECONDS)
        try:
            return known.prefix + known.write(value)
        except UnfitValueError as unfit:
            raise unfit.as_data_error(_HINT) from None

    def _find(self, key: Any, topic: str, schema: Schema | None) -> _SchemaInUse:  # noqa: ANN401
        since = time.monotonic()
        with self._lock:
            if known := self._known.get(key):
                return known
            if self._failure is not None and self._failure[0] > since:
                raise self._failure[1]  # the error that the others who waited would get as well, one after the other
            equal = (topic, schema if self._derives else None)
            try:
                known = self._equal.get(equal) or self._asked(topic, schema)
            except RetriableError as error:
                self._failure = time.monotonic(), error
                raise
            if self._derives:
                _keep(self._equal, equal, known, _KNOWN_MAX)
            return _keep(self._known, key, known._replace(of=equal[1]), _FILES_MAX if self._derives else _KNOWN_MAX)

    def _refreshed(self, key: Any, topic: str, known: _SchemaInUse, age: float) -> _SchemaInUse:  # noqa: ANN401
        """Returns the latest version now, if the known one is older than `age`; the known one if the registry does not answer.

        After a failure it sends no requests for a while, whatever the topic: each request may take its whole time-out.
        """
        with self._lock:
            known = self._known.get(key, known)
            if time.monotonic() < max(known.asked_at + age, self._unheard_until):
                return known
            try:
                found = self._registry.latest(known.subject)
                fresh = known if found.id == known.id else self._asked(topic, None)
            except (RetriableError, FatalError):
                self._unheard_until = time.monotonic() + REFRESH_SECONDS
                fresh = known
            return _keep(self._known, key, fresh._replace(asked_at=time.monotonic()), _KNOWN_MAX)

    def _asked(self, topic: str, schema: Schema | None) -> _SchemaInUse:
        """Returns the schema of a topic's records, from any origin, with its id."""
        try:
            subject, writer, found = self._resolved(topic, schema)
        except BadSchemaError as error:
            raise self._unusable(topic, str(error)) from None
        write = writer.write if self._site.part == "value" else _of_text(writer)
        if write is None:
            raise FatalError(f"the schema of subject {subject!r} takes no text, and a key is one", "use a primitive type, or one field")
        return _SchemaInUse(b"\0" + struct.pack(">I", found.id), write, found.id, subject, time.monotonic(), schema)

    def _unusable(self, topic: str, why: str) -> CopycatError:
        if self._derives:  # a problem of a file's columns is that file's alone
            return DataError(f"no schema can be made for topic {topic!r}: {why}", _UNKNOWN)
        return FatalError(f"the schema for topic {topic!r} cannot be used: {why}", "correct the schema")

    def _resolved(self, topic: str, schema: Schema | None) -> tuple[str, Writer, RegisteredSchema]:
        if self._is_latest:
            subject = self._subject(topic, "")
            found = self._registry.latest(subject)
            return subject, self._writer(found.schema), found
        registers = self._options.auto_register
        if self._options.schema_ is not None:
            self._of_file = written, writer = self._of_file or self._form.of_file(self._registry, registers=registers)
        else:
            written, writer = self._derived(topic, schema)
        subject = self._subject(topic, writer.name)
        return subject, writer, (self._registry.register if registers else self._registry.find)(subject, written)

    def _writer(self, schema: RegistrySchema) -> Writer:
        """Returns a schema's writer, compiled once for all topics."""
        if (writer := self._writers.get(schema)) is None:
            writer = self._form.of_registry(schema, self._registry)
            if len(self._writers) >= _FILES_MAX:
                del self._writers[next(iter(self._writers))]
            self._writers[schema] = writer
        return writer

    def _derived(self, topic: str, schema: Schema | None) -> tuple[RegistrySchema, Writer]:
        name = record_name(topic)
        if self._site.part == "key":
            return self._form.of_key(f"{name}_key")
        columns, own = self._columns(schema)
        if columns is None:
            raise BadSchemaError("nothing says what fields the records have")
        return self._form.of_columns(columns, name, own)

    def _columns(self, schema: Schema | None) -> tuple[tuple[Column, ...] | None, str]:
        """Returns the fields of records, and the file's own schema if it has the same fields."""
        if schema is None:
            return self._site.columns, ""
        if self._site.after is None:
            return schema.columns, schema.avro
        left = self._site.after(schema.columns)
        return (self._site.columns if left is None else left), schema.avro if left == schema.columns else ""

    def _subject(self, topic: str, name: str) -> str:
        """Returns the subject by Kafka Connect's naming strategies. `name` is the schema's own."""
        options = self._options
        if options.subject is not None:
            return options.subject
        if options.subject_strategy == "topic":
            return f"{topic}-{self._site.part}"
        if not name:
            raise BadSchemaError(f"it has no name, and subject_strategy is {options.subject_strategy}")
        return name if options.subject_strategy == "record" else f"{topic}-{name}"


def _keep(known: dict[Any, _SchemaInUse], key: Any, one: _SchemaInUse, most: int) -> _SchemaInUse:  # noqa: ANN401
    """Adds an entry; removes the oldest when there are too many."""
    if key not in known and len(known) >= most:
        del known[next(iter(known))]
    known[key] = one
    return one


def record_name(topic: str) -> str:
    """Returns a name that schemas allow, made from a topic's: `shop.orders-eu` becomes `shop_orders_eu`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"_{name}" if name[:1].isdigit() else name


def _of_text(writer: Writer) -> Callable[[Any], bytes] | None:
    """Returns the writer of a key, which is a text; None if the schema does not accept one."""
    if writer.key is None:
        return None
    kind, field = writer.key
    write, read = writer.write, _FROM_TEXT[kind]
    return (lambda text: write({field: read(text)})) if field else (lambda text: write(read(text)))


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,20}", text):
        raise UnfitValueError("a whole number is needed, the key is none")
    return int(text)


def _number(text: str) -> float:
    if not re.fullmatch(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?", text):
        raise UnfitValueError("a number is needed, the key is none")
    return float(text)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise UnfitValueError("true or false is needed, the key is neither")
    return text == "true"


_FROM_TEXT: dict[str, Callable[[str], object]] = {
    "string": str, "int": _whole, "double": _number, "boolean": _boolean, "bytes": lambda text: text.encode("utf-8", "backslashreplace"),
}  # fmt: skip
