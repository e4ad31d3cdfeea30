"""`regex`: the named groups of a regular expression become fields, as texts.

A group that took no part in the match is null, so that records of one pattern have the same fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from copycat_agent.errors import DataError
from copycat_agent.model import Column
from copycat_agent.options import BeforeValidator, Field, Regex, WithJsonSchema
from copycat_agent.patterns import Pattern, compile_pattern
from copycat_agent.templates import compile_path
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.parsing import Parse, ParseOptions, parse_step, parsed_columns

_NO_MATCH = "the pattern does not match"
_NONE_MATCHES = "none of the {} patterns matches"
_HINT = "copycat try shows where it stops"


def as_tuple(value: object) -> object:
    """One pattern stands for a list of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Expressions = Annotated[
    tuple[Regex, ...],
    BeforeValidator(as_tuple),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class RegexOptions(ParseOptions):
    """A pattern, or several, and what is done with what they find."""

    pattern: Expressions = Field(
        description="A regular expression in Python's spelling, looked for anywhere in the text; or a list of them: the first that matches "
        "counts. Each named group (?P<name>...) becomes a field, null when it took no part.",
    )

    def model_post_init(self, context: object) -> None:
        """Raise ValueError for a pattern that would make no field; pydantic reports it with its place."""
        super().model_post_init(context)
        if not self.pattern:
            msg = "needs a pattern"
            raise ValueError(msg)
        for text in self.pattern:
            check_groups(compile_pattern(text))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - pydantic's door is elsewhere
        """A text stands for the pattern alone."""
        return {"anyOf": [{"type": "string"}, {**handler(schema)}]}


def as_pattern(value: object) -> object:
    """`regex: RE` and `regex: [RE, RE]` as the map they stand for."""
    return {"pattern": value} if isinstance(value, str | list | tuple) else value


class RegexStepOptions(StepOptions):
    """Parses text with a regular expression."""

    regex: Annotated[RegexOptions, BeforeValidator(as_pattern)] = Field(
        description="Parses text by a regular expression: its named groups become fields. A pattern, or {pattern, field, into, "
        "keep_source}."
    )


def check_groups(pattern: Pattern) -> None:
    """Raise ValueError for a pattern without named groups."""
    if not pattern.groupindex:
        msg = "has no named group, so it makes no field: write (?P<name>...)"
        if pattern.groups:
            msg += f"; its {pattern.groups} unnamed {'group is' if pattern.groups == 1 else 'groups are'} not used"
        raise ValueError(msg)
    for name in pattern.groupindex:
        compile_path(name)


def first_match(patterns: list[Pattern], take: Callable[[int, Any], dict[str, Any]]) -> Parse:
    """Fields of the first pattern that matches: what `take` makes of its number and the match. DataError when none does."""
    if len(patterns) == 1:
        (search,) = (each.search for each in patterns)

        def parse_one(text: str) -> dict[str, Any]:
            match = search(text)
            if match is None:
                raise DataError(_NO_MATCH, _HINT)
            return take(0, match)

        return parse_one
    searches = [(number, each.search) for number, each in enumerate(patterns)]

    def parse(text: str) -> dict[str, Any]:
        for number, search in searches:
            if (match := search(text)) is not None:
                return take(number, match)
        raise DataError(_NONE_MATCHES.format(len(searches)), _HINT)

    return parse


def _parser(options: RegexOptions) -> Parse:
    return first_match([compile_pattern(text) for text in options.pattern], lambda _, match: match.groupdict())


def _build(options: RegexStepOptions) -> Transform:
    return Steady(parse_step(options.regex, _parser(options.regex)))


def _columns(options: RegexStepOptions, before: Columns | None) -> Columns | None:
    found = [tuple(compile_pattern(text).groupindex) for text in options.regex.pattern]
    names = dict.fromkeys(name for each in found for name in each)
    return parsed_columns(options.regex, tuple(Column(name) for name in names), before)


REGEX = TransformKind(RegexStepOptions, _build, _columns)
