"""Types as Spark SQL spells them, taken apart: `array<struct<a: int, b: decimal(10,2)>>`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from copycat_agent.converters.schemas.form import BadSchemaError

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
