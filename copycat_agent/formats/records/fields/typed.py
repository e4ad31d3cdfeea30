"""`types` of formats whose records are trees: some of their fields are read as other types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.fields.types import TypedOptions, TypeWord, field_type
from copycat_agent.options import Field

Value = dict[str, Any] | bytes | Unparsed
"""Fields; bytes of what has none; or a bad record."""


class TreeOptions(TypedOptions):
    """What those formats have in common."""

    types: dict[str, TypeWord] = Field(
        {}, description="Types of fields, by name: {price: decimal, paid.at: timestamp}. Dots lead into objects, and through lists."
    )


class Typing:
    """Reads the fields that have a type. What is missing or null stays so."""

    def __init__(self, options: TreeOptions) -> None:
        settings = options.type_settings()
        self._types = [(name, name.split("."), field_type(word, settings).read) for name, word in options.types.items()]

    @property
    def changes(self) -> bool:
        """Whether there are any."""
        return bool(self._types)

    def read(self, values: Sequence[Value]) -> Sequence[Value]:
        """The records with these types, changed in place; an `Unparsed` instead of one that has something else there."""
        return [self._one(value) if isinstance(value, dict) else value for value in values] if self._types else values

    def _one(self, fields: dict[str, Any]) -> Value:
        for name, keys, read in self._types:
            try:
                _convert(fields, keys, read)
            except ValueError as error:
                return Unparsed(f"field {name!r}: {error}", "see format.types")
        return fields


def _convert(fields: object, keys: list[str], read: Callable[[str], Any]) -> None:
    """Read what stands at the end of `keys`, everywhere in `fields`. Raises ValueError without its data."""
    first, *rest = keys
    if isinstance(fields, list):
        for item in fields:
            _convert(item, keys, read)
    elif isinstance(fields, dict) and fields.get(first) is not None:
        value = fields[first]
        if rest:
            _convert(value, rest, read)
        else:
            fields[first] = [_read(item, read) for item in value] if isinstance(value, list) else _read(value, read)


def _read(value: object, read: Callable[[str], Any]) -> Any:  # noqa: ANN401 - what the type makes
    if value is None:
        return None
    if isinstance(value, bool):
        return read("true" if value else "false")
    if isinstance(value, str | int | float | Decimal):
        return read(str(value))
    msg = "neither a text, a number nor a boolean"
    raise ValueError(msg)
