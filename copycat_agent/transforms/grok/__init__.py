"""`grok`: fields by named patterns, `%{IP:client} %{NUMBER:bytes:int}`; the public sets are built in.

Only named groups make fields. A field whose group took no part is left out, as the sets expect; of a field that stands in several
places the first that took part counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from copycat_agent.errors import DataError
from copycat_agent.model import Column
from copycat_agent.options import BeforeValidator, Field, WithJsonSchema
from copycat_agent.patterns import Pattern, compile_pattern
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.casting import caster
from copycat_agent.transforms.grok.expanding import Expanded, GrokReference, check_names, expand, pattern_set
from copycat_agent.transforms.parsing import Parse, ParseOptions, parse_step, parsed_columns
from copycat_agent.transforms.paths import clash, with_type
from copycat_agent.transforms.regex_ import as_pattern, as_tuple, first_match

__all__ = ["GROK", "GrokOptions", "GrokStepOptions", "translated"]

_SPARK_TYPES = {"int": "bigint", "float": "double", "string": "string"}

GrokPatterns = Annotated[
    tuple[str, ...],
    BeforeValidator(as_tuple),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class GrokOptions(ParseOptions):
    """Patterns by name, and what is done with what they find."""

    pattern: GrokPatterns = Field(
        description="A pattern with %{NAME}, %{NAME:field} and %{NAME:field:int|float}, looked for anywhere in the text; or a list of "
        "them: the first that matches counts. A field may be nested: %{IP:client.ip}, %{IP:[client][ip]}.",
    )
    definitions: dict[str, str] = Field({}, description="Patterns by name, to be used as %{NAME}. They come before those of the set.")
    set: Literal["ecs-v1", "legacy"] = Field(
        "ecs-v1", description="The public set of patterns: its fields named by the Elastic Common Schema, or as they were before it."
    )

    def model_post_init(self, context: object) -> None:
        """Raise ValueError for patterns that do not work; pydantic reports it with its place."""
        super().model_post_init(context)
        check_names(self.definitions)
        if not self.pattern:
            msg = "needs a pattern"
            raise ValueError(msg)
        for each in _expanded(self):
            _check(each)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - pydantic's door is elsewhere
        """A text stands for the pattern alone."""
        return {"anyOf": [{"type": "string"}, {**handler(schema)}]}


class GrokStepOptions(StepOptions):
    """Parses text by named patterns."""

    grok: Annotated[GrokOptions, BeforeValidator(as_pattern)] = Field(
        description="Parses text by named patterns, such as %{HTTPD_COMBINEDLOG}. A pattern, or {pattern, definitions, set, field, into, "
        "keep_source}."
    )


def translated(options: GrokOptions) -> tuple[str, ...]:
    """The patterns as regular expressions in Python's spelling; their groups have names of their own."""
    return tuple(each.pattern for each in _expanded(options))


def _expanded(options: GrokOptions) -> list[Expanded]:
    library = {**pattern_set(options.set), **options.definitions}
    return [expand(text, library) for text in options.pattern]


def _check(expanded: Expanded) -> None:
    compile_pattern(expanded.pattern)
    if not expanded.fields:
        msg = "has no field: write %{NAME:field} or (?<field>...)"
        raise ValueError(msg)
    paths = list(dict.fromkeys(found.path for found in expanded.fields.values()))
    if twice := clash(paths):
        msg = f"{twice!r} lies in another field of the pattern"
        raise ValueError(msg)


Take = Callable[[Any], dict[str, Any]]


def _taker(pattern: Pattern, expanded: Expanded) -> Take:
    """What makes fields of a match."""
    groups = [expanded.fields[name] for name in sorted(pattern.groupindex, key=pattern.groupindex.__getitem__)]
    flat = all("." not in found.path for found in groups) and len({found.path for found in groups}) == len(groups)
    if flat and all(found.type == "string" for found in groups):
        names = [found.path for found in groups]
        return lambda match: {name: text for name, text in zip(names, match.groups(), strict=True) if text is not None}
    makers = [(found.path, tuple(found.path.split(".")[:-1]), found.path.split(".")[-1], _reader(found)) for found in groups]

    def take(match: Any) -> dict[str, Any]:  # noqa: ANN401 - a match
        fields: dict[str, Any] = {}
        for (path, above, name, read), text in zip(makers, match.groups(), strict=True):
            if text is None:
                continue
            inner = fields
            for each in above:
                inner = inner.setdefault(each, {})
            if name not in inner:
                inner[name] = text if read is None else _read(read, text, path)
        return fields

    return take


def _reader(found: GrokReference) -> Callable[[Any], Any] | None:
    return None if found.type == "string" else caster(found.type)


def _read(read: Callable[[Any], Any], text: str, path: str) -> Any:  # noqa: ANN401 - of any type
    try:
        return read(text)
    except ValueError as error:
        why = str(error)
    msg = f"field {path!r}: {why}"
    raise DataError(msg)


def _parser(options: GrokOptions) -> Parse:
    expanded = _expanded(options)
    patterns = [compile_pattern(each.pattern) for each in expanded]
    takes = [_taker(pattern, each) for pattern, each in zip(patterns, expanded, strict=True)]
    if len(takes) == 1:
        (take,) = takes
        return first_match(patterns, lambda _, match: take(match))
    return first_match(patterns, lambda number, match: takes[number](match))


def _build(options: GrokStepOptions) -> Transform:
    return Steady(parse_step(options.grok, _parser(options.grok)))


def _columns(options: GrokStepOptions, before: Columns | None) -> Columns | None:
    found: tuple[Column, ...] = ()
    for each in _expanded(options.grok):
        for field in each.fields.values():
            found = with_type(found, field.path, _SPARK_TYPES[field.type])
    return parsed_columns(options.grok, found, before)


GROK = TransformKind(GrokStepOptions, _build, _columns)
