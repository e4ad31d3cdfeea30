"""What each of avro, json_schema and protobuf knows of its schemas, and the types of columns that they make schemas of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from copycat_agent.model import Column

if TYPE_CHECKING:
    from copycat_agent.converters.schemas.registry_access import SchemaRegistry, Written


Scalar = Literal["string", "int", "double", "boolean", "bytes"]


class Key(NamedTuple):
    """What a schema takes of a key, which is a text: a value of this kind, by itself or, with `field`, as its only field."""

    kind: Scalar
    field: str = ""


class Writer(NamedTuple):
    """A schema, compiled. `write` makes the payload of a value, without the id before it; it raises `Unfit`.

    `name` is the schema's full name, "" where it has none. `key` says how a text fits, None where it does not.
    """

    write: Callable[[Any], bytes]
    name: str = ""
    key: Key | None = None


class SchemaForm(Protocol):
    """One kind of schema, with the options of one converter. Methods raise `BadSchemaError`."""

    def of_file(self, registry: SchemaRegistry, *, registers: bool) -> tuple[Written, Writer]:
        """The schema of the options' file. `registers` puts what it imports into the registry; else that has to be there."""

    def of_registry(self, schema: Written, registry: SchemaRegistry) -> Writer:
        """A schema that came from the registry, and may refer to others there."""

    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[Written, Writer]:
        """A schema made for these columns, `name` from the topic. `written` is the file's own, where it still holds; else ""."""

    def of_key(self, name: str) -> tuple[Written, Writer]:
        """A schema for texts."""


REFERENCES_MAX = 100
"""So many other schemas one may refer to, all in all."""


class BadSchemaError(Exception):
    """A schema that is none, or one that cannot be used. Its text says why and holds no data."""


class TooManyReferencesError(BadSchemaError):
    """More than `REFERENCES_MAX`."""

    def __init__(self) -> None:
        super().__init__(f"it refers to more than {REFERENCES_MAX} others")


_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),:])")
_OTHER_WORDS = {
    "long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float", "bool": "boolean", "dec": "decimal",
    "numeric": "decimal", "timestamp_ltz": "timestamp", "varchar": "string", "char": "string", "null": "void",
}  # fmt: skip
_DEPTH_MAX = 40


@dataclass(frozen=True, slots=True)
class SqlType:
    """One type. `numbers` are those in parentheses; `parts` the types within, of a struct with their names."""

    word: str
    numbers: tuple[int, ...] = ()
    parts: tuple[tuple[str, SqlType], ...] = ()


def parse_type(text: str) -> SqlType:
    """The type that `text` spells. Raises BadSchemaError."""
    tokens, position = [], 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadSchemaError(f"{text[:100]!r} is no type of Spark SQL")
        tokens.append(match[1])
        position = match.end()
    parser = _Parser([*tokens, ""])
    try:
        type_ = parser.type(0)
        parser.take("")
    except (IndexError, ValueError):
        raise BadSchemaError(f"{text[:100]!r} is no type of Spark SQL") from None
    return type_


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def _next(self) -> str:
        return self._tokens[self._place]

    def take(self, token: str | None = None) -> str:
        found = self._tokens[self._place]
        if token is not None and found != token:
            raise ValueError(found)
        self._place += 1
        return found

    def type(self, depth: int) -> SqlType:
        if depth > _DEPTH_MAX:
            raise ValueError(depth)
        word = self.take().lower()
        if not word.isidentifier():
            raise ValueError(word)
        word = _OTHER_WORDS.get(word, word)
        if self._next == "<":
            return SqlType(word, (), self._parts(word, depth))
        return SqlType(word, self._numbers() if self._next == "(" else ())

    def _numbers(self) -> tuple[int, ...]:
        self.take("(")
        found = [int(self.take())]
        while self._next == ",":
            self.take()
            found.append(int(self.take()))
        self.take(")")
        return tuple(found)

    def _parts(self, word: str, depth: int) -> tuple[tuple[str, SqlType], ...]:
        self.take("<")
        parts: list[tuple[str, SqlType]] = []
        while self._next != ">":
            if parts:
                self.take(",")
            parts.append((self._name() if word == "struct" else "", self.type(depth + 1)))
        self.take(">")
        return tuple(parts)

    def _name(self) -> str:
        name = self.take()
        if self._next == ":":
            self.take()
        return name[1:-1].replace("``", "`") if name.startswith("`") else name
