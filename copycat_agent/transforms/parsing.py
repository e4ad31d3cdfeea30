"""The part that all parsing steps share: which field they parse, and where they put the result.

`field` is parsed and removed from the record; the found fields go to the top level, or into one field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.options import Field, Options
from copycat_agent.sql_types import struct_of
from copycat_agent.templates import MISSING, compile_path
from copycat_agent.transforms.base import Step
from copycat_agent.transforms.paths import Columns, putter, taker, with_type, without_field

Parse = Callable[[Any], dict[str, Any]]
"""Makes fields of a text (or of bytes, for a parser that `takes_bytes`): a new dict each time. Raises DataError, without the text."""

Dated = Callable[[str], tuple[dict[str, Any], int | None]]
"""Like `Parse`, but also returns the record's time in epoch milliseconds, or None."""

_MESSAGE = "message"


class ParseOptions(Options):
    """Base of the options of a step that parses."""

    field: str = Field(_MESSAGE, description="The field that is parsed. A raw line has one field, message.")
    into: str | None = Field(
        None, description="A field that gets what was found, as an object. Without it the found fields go to the top level."
    )
    keep_source: bool = Field(False, description="true keeps the parsed field; else it is gone once it is parsed.")

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for an invalid field name; pydantic reports it with its place."""
        for name in (self.field, self.into or self.field):
            compile_path(name)


def parse_step(options: ParseOptions, parse: Parse, *, takes_bytes: bool = False) -> Step:
    """Returns the step of a parser, with the options that all of them share. `takes_bytes`: a raw line is passed as bytes."""
    if options.field != _MESSAGE or options.into is not None or options.keep_source:
        return _any_field(options, parse, takes_bytes=takes_bytes)
    slowly = _any_field(options, parse, takes_bytes=takes_bytes)

    def parse_line(draft: Draft) -> bool:
        value = draft.value
        if isinstance(value, bytes):
            draft.value = parse(value if takes_bytes else value.decode("utf-8", "replace"))
            return True
        return slowly(draft)

    return parse_line


def dated_step(options: ParseOptions, parse: Dated) -> Step:
    """Returns the step of a parser that also finds the record's time."""
    source, put = _source(options, takes_bytes=False), _putter(options)
    is_plain = options.field == _MESSAGE and options.into is None and not options.keep_source

    def parse_dated(draft: Draft) -> bool:
        value = draft.value
        if is_plain and isinstance(value, bytes):
            draft.value, at_ms = parse(value.decode("utf-8", "replace"))
        else:
            found, at_ms = parse(source(draft))
            put(draft, found)
        if at_ms is not None:
            draft.timestamp_ms = at_ms
        return True

    return parse_dated


def _any_field(options: ParseOptions, parse: Parse, *, takes_bytes: bool) -> Step:
    source, put = _source(options, takes_bytes=takes_bytes), _putter(options)

    def parse_field(draft: Draft) -> bool:
        put(draft, parse(source(draft)))
        return True

    return parse_field


def _source(options: ParseOptions, *, takes_bytes: bool) -> Callable[[Draft], Any]:
    """Returns a function that finds the text to parse."""
    find, name = compile_path(options.field), options.field

    def source(draft: Draft) -> str | bytes:
        raw = draft.value
        text = raw if takes_bytes and isinstance(raw, bytes) and name == _MESSAGE else _text(find(draft), name)
        return text if takes_bytes or isinstance(text, str) else text.decode("utf-8", "replace")

    return source


def _putter(options: ParseOptions) -> Callable[[Draft, dict[str, Any]], None]:
    """Returns a function that puts the found fields into the record."""
    take = None if _stays(options) else taker(options.field)
    add = putter(options.into) if options.into else dict.update

    def put(draft: Draft, found: dict[str, Any]) -> None:
        fields = draft.fields()
        if take is not None:
            take(fields)
        add(fields, found)

    return put


def _stays(options: ParseOptions) -> bool:
    """Returns whether the parsed field is not removed: it is kept, or the result replaces it."""
    return options.keep_source or options.into == options.field


def _text(value: object, field: str) -> str | bytes:
    if isinstance(value, str | bytes):
        return value
    what = "is missing" if value is MISSING else "is null" if value is None else "is not a text"
    raise DataError(f"field {field!r} {what}, so there is nothing to parse")


def parsed_columns(options: ParseOptions, found: Columns, before: Columns | None) -> Columns | None:
    """Returns the columns after a step that finds these: `TransformKind.columns` of a parsing step."""
    if before is None:
        return None
    after = before if _stays(options) else without_field(before, options.field)
    if options.into is not None:
        return with_type(after, options.into, struct_of([(column.name, column.type) for column in found]))
    names = {column.name for column in found}
    return (*(column for column in after if column.name not in names), *found)
