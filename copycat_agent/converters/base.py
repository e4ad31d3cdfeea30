"""The types of converters: a converter, its entry in the dict of converters, and errors for schemas and values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.model import Column
from copycat_agent.options import ConverterOptions, SchemaRegistryOptions

PREFIX_BYTES = 5
"""Length of what precedes a value with a schema in a registry: a zero byte and the schema's id."""
_NAME_CHARACTERS = 100

Converter = Callable[..., bytes]
"""Makes Kafka's bytes of a value (framed bytes or a dict of fields) or of a key (a rendered text).

Called with the value alone, or, if its kind `wants_record`, with the value, the topic and the file's `model.Schema` or None. Thread-safe.
Raises `DataError`, without the data in its message, for a value that it cannot convert; `RetriableError` when an external service (a schema
registry) does not answer, and `FatalError` when that refuses for good."""


class Reference(NamedTuple):
    """An import of a schema: its name there, and its subject and version in the registry."""

    name: str
    subject: str
    version: int


class RegistrySchema(NamedTuple):
    """A schema in the registry's form. `kind` is AVRO, JSON or PROTOBUF."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class BadSchemaError(Exception):
    """The schema is invalid or cannot be used. Its text says why and holds no data."""


class UnfitValueError(ValueError):
    """A value does not fit. `reason` never holds it; `path` is its position, outermost name first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def within(self, name: str) -> UnfitValueError:
        """Adds the name of the enclosing field to the path."""
        self.path.insert(0, name[:_NAME_CHARACTERS])
        return self

    def as_data_error(self, hint: str) -> DataError:
        """Returns it as an error, for a dead letter or a person."""
        path = ".".join(self.path[:20]).replace(".[", "[")
        return DataError(f"field {path!r}: {self.reason}" if path else self.reason, hint)


def kind(value: object) -> str:  # noqa: PLR0911 - a table of kinds
    """Returns the kind of a value in words, without the value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number with a point"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def wanted(what: str, value: object) -> UnfitValueError:
    """Returns the error for a value of a wrong kind; `what` is needed."""
    return UnfitValueError(f"{what} is needed, not {kind(value)}")


class Site(NamedTuple):
    """The context of a converter. `columns` are the fields of its values if the definition declares them, else None.

    `after` returns the fields that are left of a file's own columns after all transforms, None if they are not known; it is None itself if
    there are no transforms.
    """

    part: Literal["key", "value"] = "value"
    registry: SchemaRegistryOptions | None = None
    columns: tuple[Column, ...] | None = None
    after: Callable[[tuple[Column, ...]], tuple[Column, ...] | None] | None = None


class ConverterProblem(NamedTuple):
    """A problem of options: its place (names of options below `converters`), the reason, the next step, and its code."""

    place: tuple[str, ...]
    why: str
    hint: str
    code: str = "converter"


def _none(options: Any, site: Site) -> Iterable[ConverterProblem]:  # noqa: ANN401 - options of any converter
    del options, site
    return ()


@dataclass(frozen=True, slots=True)
class ConverterKind:
    """An entry of `CONVERTERS`. `is_identity`: bytes are returned unchanged, so for bytes the call can be left out.

    `build` is called once per definition and process; it may raise ValueError for options that cannot work, and must not use the network.
    `problems` yields the problems that `check` reports, also without the network. `is_json`: it converts fields as `plain.dump` does.
    """

    options: type[ConverterOptions]
    build: Callable[[Any, Site], Converter]
    is_identity: bool = False
    wants_record: bool = False
    problems: Callable[[Any, Site], Iterable[ConverterProblem]] = _none
    is_json: bool = False
