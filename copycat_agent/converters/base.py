"""What a converter is, how the dict of converters lists one, and what it says of a schema or a value that does not do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.model import Column

if TYPE_CHECKING:
    from copycat_agent.options import ConverterOptions, SchemaRegistryOptions

_NAME_CHARACTERS = 100

Converter = Callable[..., bytes]
"""Makes the bytes that Kafka gets of a value (framed bytes or a dict of fields) or of a key (a rendered text).

Called with the value alone, or, where its kind `wants_record`, with the value, the topic and the file's `model.Schema` or None.
Thread-safe. Raises `DataError`, without the data in its message, for a value that it cannot carry; `RetriableError` when something
outside (a schema registry) does not answer, and `FatalError` when that refuses for good.
"""


class Reference(NamedTuple):
    """What a schema imports: under which name, and where the registry has it."""

    name: str
    subject: str
    version: int


class Written(NamedTuple):
    """A schema as the registry has it. `kind` is AVRO, JSON or PROTOBUF."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class BadSchemaError(Exception):
    """A schema that is none, or one that cannot be used. Its text says why and holds no data."""


class Unfit(ValueError):  # noqa: N818 - an outcome, which becomes a DataError with its place
    """A value does not fit. `reason` never holds it; `path` is where it lies, outermost name first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def within(self, name: str) -> Unfit:
        """The same, seen from outside of the field `name`."""
        self.path.insert(0, name[:_NAME_CHARACTERS])
        return self

    def as_data_error(self, hint: str) -> DataError:
        """In words, for a dead letter or a person."""
        path = ".".join(self.path[:20]).replace(".[", "[")
        return DataError(f"field {path!r}: {self.reason}" if path else self.reason, hint)


def kind(value: object) -> str:  # noqa: PLR0911 - a table of kinds
    """What a value is, in words for people, without it."""
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


def wanted(what: str, value: object) -> Unfit:
    """`what` is needed, and `value` is something else."""
    return Unfit(f"{what} is needed, not {kind(value)}")


class Site(NamedTuple):
    """Where a converter works. `columns` are the fields of its values as far as the definition declares them, None where it does not.

    `after` says which fields are left of a file's own columns behind all transforms, None where nobody can know; itself None where
    there are no transforms.
    """

    part: Literal["key", "value"] = "value"
    registry: SchemaRegistryOptions | None = None
    columns: tuple[Column, ...] | None = None
    after: Callable[[tuple[Column, ...]], tuple[Column, ...] | None] | None = None


class ConverterProblem(NamedTuple):
    """What options cannot mean: where (names of options below `converters`), why, the next step, and under which code that is told."""

    place: tuple[str, ...]
    why: str
    hint: str
    code: str = "converter"


def _none(options: Any, site: Site) -> Iterable[ConverterProblem]:  # noqa: ANN401 - options of any converter
    del options, site
    return ()


@dataclass(frozen=True, slots=True)
class ConverterKind:
    """An entry of `CONVERTERS`. `is_identity`: bytes come back as they are, so for bytes the call can be left out.

    `build` is called once per definition and process; it may raise ValueError for options that cannot work, and must not ask the network.
    `problems` is what `check` says of them, without the network either. `is_json`: of fields it makes what `plain.dump` does.
    """

    options: type[ConverterOptions]
    build: Callable[[Any, Site], Converter]
    is_identity: bool = False
    wants_record: bool = False
    problems: Callable[[Any, Site], Iterable[ConverterProblem]] = _none
    is_json: bool = False
