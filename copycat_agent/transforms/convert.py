"""`convert`: fields of other types. What is missing or null stays so; all fields that can be converted are, before a bad one is named."""

from __future__ import annotations

from typing import Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.formats.records.fields.types import TypeSettings, TypeWord, ZoneName, field_type
from copycat_agent.options import Field
from copycat_agent.transforms.base import Columns, Steady, Step, StepOptions, Transform, TransformKind
from copycat_agent.transforms.casting import FAST_DIGITS, Cast, caster
from copycat_agent.transforms.paths import FieldName, changing, type_at, with_type

_HINT = "correct the type in convert, say with `null` which texts stand for nothing, or set on_error"


class ConvertOptions(StepOptions):
    """Fields of other types."""

    convert: dict[FieldName, TypeWord] = Field(
        min_length=1,
        description="Types of fields, by their names: {status: int, user.age: int}. Types are those of csv: string, int, bigint, double "
        "(or float), decimal, decimal(10,2), bool, bool:YES/NO, date, time, timestamp, json, binary; date, time and timestamp with a "
        "format as in timestamp:%d.%m.%Y %H:%M, or timestamp:unix. A missing field stays missing, null stays null.",
    )
    null: str | tuple[str, ...] = Field((), description='Text, or texts, that become null, such as "-". None by default.')
    timestamp_zone: ZoneName | None = Field(
        None, description="Time zone of timestamps that do not say theirs, such as UTC or Europe/Berlin. Absent: they stay without one."
    )
    decimal_point: str = Field(".", pattern="^[.,]$", description='"," for texts such as 3,50.')

    @property
    def settings(self) -> TypeSettings:
        """What these options mean for types."""
        return TypeSettings(self.timestamp_zone or "", self.decimal_point)


def _build(options: ConvertOptions) -> Transform:
    nulls = frozenset((options.null,) if isinstance(options.null, str) else options.null)
    casts = {name: _with_nulls(caster(word, options.settings), nulls) for name, word in options.convert.items()}
    if any("." in name for name in casts):
        return Steady(changing({name: _named(name, cast) for name, cast in casts.items()}))
    whole = frozenset(name for name, word in options.convert.items() if word in ("int", "bigint") and not any(map(str.isdecimal, nulls)))
    return Steady(_flat(casts, whole))


def _with_nulls(cast: Cast, nulls: frozenset[str]) -> Cast:
    if not nulls:
        return cast

    def cast_or_null(value: object) -> Any:  # noqa: ANN401 - what a type makes
        return None if isinstance(value, str) and value in nulls else cast(value)

    return cast_or_null


def _flat(casts: dict[str, Cast], whole: frozenset[str]) -> Step:
    """Fields at the top level. `whole` are those that become whole numbers, whose digits are read here: an access log has many."""
    items = [(name, cast, name in whole) for name, cast in casts.items()]

    def convert(draft: Draft) -> bool:
        fields = draft.value
        if type(fields) is not dict:
            fields = draft.fields()
        bad = None
        for name, cast, is_whole in items:
            value = fields.get(name)
            if is_whole and type(value) is str and len(value) <= FAST_DIGITS and value.isdecimal() and value.isascii():
                fields[name] = int(value)
            elif value is not None:
                try:
                    fields[name] = cast(value)
                except ValueError as error:
                    bad = bad or _bad(name, error)
        if bad is not None:
            raise bad
        return True

    return convert


def _named(name: str, cast: Cast) -> Cast:
    """The cast of one field, whose errors name the field."""

    def named(value: object) -> Any:  # noqa: ANN401 - what a type makes
        try:
            return cast(value)
        except ValueError as error:
            raise _bad(name, error) from None

    return named


def _bad(name: str, error: ValueError) -> DataError:
    return DataError(f"field {name!r}: {error}", _HINT)


def _columns(options: ConvertOptions, before: Columns | None) -> Columns | None:
    for name, word in options.convert.items():
        if before is not None and type_at(before, name) is not None:
            before = with_type(before, name, field_type(word, options.settings).sql)
    return before


CONVERT = TransformKind(ConvertOptions, _build, _columns)
