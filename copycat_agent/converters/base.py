"""What a converter is, and how the dict of converters lists one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from copycat_agent.model import Column

if TYPE_CHECKING:
    from copycat_agent.options import ConverterOptions, SchemaRegistryOptions

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
    `problems` is what `check` says of them, without the network either.
    """

    options: type[ConverterOptions]
    build: Callable[[Any, Site], Converter]
    is_identity: bool = False
    wants_record: bool = False
    problems: Callable[[Any, Site], Iterable[ConverterProblem]] = _none
