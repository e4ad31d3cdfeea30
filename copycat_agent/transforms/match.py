"""Matchers select records: `{field: value | [values] | {matches: RE} | {lt|le|gt|ge: n} | {exists: bool} | {not: ..}}`.

Fields are dotted paths; a raw line has the one field `message`. All fields have to match, and all parts of a condition.

- Values: texts compare as texts. A text in the record and a number in the definition (or the reverse) compare as numbers,
  when the text reads as one: fields that a regex made are texts. `true` is true and the text `true`, never 1. Dates and times
  compare as the texts that they are in a message.
- `matches` searches anywhere in a text, number, boolean, date or time as it is written; `lt le gt ge` compare numbers and texts that
  read as numbers. Everything else, and a missing field, does not match.
- `exists: true` is also true for null.
- `not` is true if its condition is false, also for a missing field. With it, one of several conditions on several fields can be
  asked for: drop the records that match neither.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from copycat_agent.options import AfterValidator, Field, Options
from copycat_agent.patterns import Pattern, compile_pattern
from copycat_agent.templates import MISSING, RecordLike, compile_path, scalar_text

Predicate = Callable[[RecordLike], bool]
_Test = Callable[[Any], bool]

_NUMBER = re.compile(r"[-+]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,3})?")
_VALUE_SCHEMA = {"type": ["string", "number", "boolean", "null"]}


def _spelled_out(value: object) -> object:
    """Returns `value` and `[values]` in their long form; a map as it is."""
    if isinstance(value, dict | Options):
        return value
    return {"any_of": tuple(value) if isinstance(value, list | tuple) else (value,)}


class PlainCondition(Options, defer_build=False):  # pydantic loses the function below where it builds the model as a part of another
    """What one field has to be, or, behind `not`, must not be. In a definition, a value or a list of values stands for `any_of`."""

    any_of: tuple[str | bool | int | float | None, ...] | None = Field(None, min_length=1, description="Equal to one of these values.")
    matches: str | None = Field(None, description="A regular expression that is found in the value.")
    lt: int | float | None = Field(None, description="Less than.", allow_inf_nan=False)
    le: int | float | None = Field(None, description="Less than or equal to.", allow_inf_nan=False)
    gt: int | float | None = Field(None, description="Greater than.", allow_inf_nan=False)
    ge: int | float | None = Field(None, description="Greater than or equal to.", allow_inf_nan=False)
    exists: bool | None = Field(None, description="Whether the field is there, be it null.")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - pydantic's door is elsewhere
        """Lets a value or a list stand for a condition."""
        function = {"type": "no-info", "function": _spelled_out}
        return {"type": "function-before", "function": function, "schema": handler(source)}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - as above
        """Describes the same in the JSON Schema."""
        written = {**handler(schema)}
        return {"anyOf": [_VALUE_SCHEMA, {"type": "array", "items": _VALUE_SCHEMA, "minItems": 1}, written]}

    def model_post_init(self, _: object) -> None:
        """Raises ValueError, when the definition is loaded, for what could not be compiled. pydantic reports it with its place."""
        if all(value is None for _, value in self):
            raise ValueError(f"needs a value, a list of values, or one of {', '.join(_keys(type(self)))}")
        if self.matches is not None:
            compile_pattern(self.matches)


def _keys(model: type[Options]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items() if name != "any_of"]


class Condition(PlainCondition):
    """What one field has to be. Separate from `PlainCondition`, since `explain` would not end on a model that contains itself."""

    not_: PlainCondition | None = Field(None, alias="not", description="A value, a list of values, or a condition that must not hold.")


def compile_matcher(matcher: Mapping[str, Condition]) -> Predicate:
    """Returns a predicate over records. Raises ValueError for an invalid field name."""
    checks = [(compile_path(field), _test(condition)) for field, condition in matcher.items()]
    if len(checks) == 1:
        ((find, test),) = checks
        return lambda record: test(find(record))

    def matches(record: RecordLike) -> bool:  # a generator in `all` would take twice as long
        for find, test in checks:  # noqa: SIM110
            if not test(find(record)):
                return False
        return True

    return matches


def _test(condition: PlainCondition) -> _Test:
    tests = [_compare(name, bound) for name in ("lt", "le", "gt", "ge") if (bound := getattr(condition, name)) is not None]
    if condition.any_of is not None:
        tests.append(_equal(condition.any_of))
    if condition.matches is not None:
        tests.append(_search(compile_pattern(condition.matches)))
    if condition.exists is not None:
        wanted = condition.exists
        tests.append(lambda value: (value is not MISSING) is wanted)
    if isinstance(condition, Condition) and condition.not_ is not None:
        inner = _test(condition.not_)
        tests.append(lambda value: not inner(value))
    return tests[0] if len(tests) == 1 else lambda value: all(test(value) for test in tests)


def _equal(expected: tuple[str | bool | float | None, ...]) -> _Test:
    texts = frozenset(text for value in expected if isinstance(value, str | bool) and (text := scalar_text(value)) is not None)
    numbers = frozenset(value for value in expected if isinstance(value, int | float) and not isinstance(value, bool))
    either = numbers | {number for text in texts if (number := _number(text)) is not None}
    has_null = None in expected

    def test(value: object) -> bool:
        if isinstance(value, str):
            return value in texts or (bool(numbers) and _number(value) in numbers)
        if isinstance(value, bool):
            return ("true" if value else "false") in texts
        if value is None:
            return has_null
        if (number := _number(value)) is not None:
            return number in either
        return isinstance(value, date | time) and scalar_text(value) in texts

    return test


def _search(pattern: Pattern) -> _Test:
    search = pattern.search

    def test(value: object) -> bool:
        try:
            text = value if isinstance(value, str) else scalar_text(value)
        except ValueError:  # an int of more digits than Python turns into text
            return False
        return text is not None and search(text) is not None

    return test


def _compare(name: str, bound: float) -> _Test:
    holds: Callable[[float, float], bool] = getattr(operator, name)

    def test(value: object) -> bool:
        number = _number(value)
        return number is not None and holds(number, bound)

    return test


def _number(value: object) -> float | None:
    """Returns a number, or a text that reads as one, as a number; None for everything else, booleans too.

    Decimals become floats, since the definition holds floats: 1.10 is 1.1, whose float is not exact.
    """
    if isinstance(value, str):
        if _NUMBER.fullmatch(value) is None:
            return None
        return int(value) if value.lstrip("+-").isdigit() else float(value)
    if isinstance(value, Decimal):
        return None if value.is_nan() else float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


M = TypeVar("M", bound=Mapping[str, Condition] | None)


def _compiled(matcher: M) -> M:
    if matcher is not None:
        compile_matcher(matcher)
    return matcher


Matcher = Annotated[M, AfterValidator(_compiled)]
"""Fields and their conditions, or None; refused if they cannot be compiled."""
