r"""`regex` makes fields of the groups of a regular expression, and `replace` replaces its matches.

A group of `regex` that did not match is null, so that records of one pattern have the same fields. In the new text of `replace`, `\1` and
`\g<name>` are groups of the match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from copycat_agent.errors import DataError
from copycat_agent.model import Column
from copycat_agent.options import Field, OneOrMore, Options, Regex
from copycat_agent.patterns import Match, Pattern, compile_pattern
from copycat_agent.templates import compile_path, scalar_text
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind, in_short, known
from copycat_agent.transforms.parsing import Parse, ParseOptions, parse_step, parsed_columns
from copycat_agent.transforms.paths import FieldName, apart, changing, type_at, with_type

_NO_MATCH = "the pattern does not match"
_NONE_MATCHES = "none of the {} patterns matches"
_HINT = "copycat try shows where it stops"


class RegexOptions(ParseOptions):
    """A pattern, or several, and what is done with what they find."""

    pattern: OneOrMore[Regex] = Field(
        description="A regular expression in Python's spelling, looked for anywhere in the text; or a list of them: the first that matches "
        "counts. Each named group (?P<name>...) becomes a field, null when it took no part.",
    )

    def model_post_init(self, context: object) -> None:
        """Raises ValueError for a pattern that would make no field; pydantic reports it with its place."""
        super().model_post_init(context)
        if not self.pattern:
            raise ValueError("needs a pattern")
        for text in self.pattern:
            check_groups(compile_pattern(text))


class RegexStepOptions(StepOptions):
    """Parses text with a regular expression."""

    regex: Annotated[RegexOptions, in_short("pattern", str | list | tuple, str | RegexOptions)] = Field(
        description="Parses text by a regular expression: its named groups become fields. A pattern, or {pattern, field, into, "
        "keep_source}."
    )


def check_groups(pattern: Pattern) -> None:
    """Raises ValueError for a pattern without named groups."""
    if not pattern.groupindex:
        msg = "has no named group, so it makes no field: write (?P<name>...)"
        if pattern.groups:
            msg += f"; its {pattern.groups} unnamed {'group is' if pattern.groups == 1 else 'groups are'} not used"
        raise ValueError(msg)
    for name in pattern.groupindex:
        compile_path(name)


def first_match(patterns: list[Pattern], take: Callable[[int, Any], dict[str, Any]]) -> Parse:
    """Returns a parser by the first pattern that matches: `take` gets its number and the match. It raises DataError when none does."""
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


def _columns(options: RegexStepOptions, before: Columns | None) -> Columns | None:
    found = [tuple(compile_pattern(text).groupindex) for text in options.regex.pattern]
    names = dict.fromkeys(name for each in found for name in each)
    return parsed_columns(options.regex, tuple(Column(name) for name in names), before)


REGEX = TransformKind(RegexStepOptions, lambda options: Steady(parse_step(options.regex, _parser(options.regex))), _columns)


_REFERENCE = re.compile(r"\\(?:(?P<number>[1-9][0-9]?)|g<(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9]{1,2})>|(?P<literal>\\))")


class ReplaceRule(Options):
    """What is replaced, and by what."""

    pattern: Regex = Field(description="A regular expression. Every place where it matches is replaced.")
    with_: str = Field(
        alias="with",
        description="The new text. \\1 stands for the first group of the pattern, \\g<name> for a named one, \\\\ for a backslash.",
    )

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for references to groups that do not exist."""
        _expanding(self)


class ReplaceOptions(StepOptions):
    """Parts of values become other texts."""

    replace: Annotated[dict[FieldName, ReplaceRule], apart("replaced")] = Field(
        min_length=1,
        description="Fields and what is replaced in them, as in {name: {pattern: '^app-(.*)$', with: 'logs.\\1'}}. Numbers become texts; "
        "a field that is missing or null stays so; an object or a list is a bad record.",
    )


def _build_replace(options: ReplaceOptions) -> Transform:
    return Steady(changing({path: _replacing(path, rule) for path, rule in options.replace.items()}))


def _replacing(path: str, rule: ReplaceRule) -> Callable[[object], str]:
    pattern, expand = compile_pattern(rule.pattern), _expanding(rule)
    return lambda value: pattern.sub(expand, value if isinstance(value, str) else _text(value, path))


def _text(value: object, path: str) -> str:
    try:
        text = scalar_text(value)
    except ValueError:  # an int of more digits than Python turns into text
        text = None
    if text is None:
        raise DataError(f"field {path!r} is not a text or a number")
    return text


def _expanding(rule: ReplaceRule) -> Callable[[Match], str]:
    """Returns a function from match to new text. Raises ValueError for a reference to a group that the pattern does not have.

    It is a function, since a text given to `sub` could name groups that were not checked.
    """
    compiled, parts, begin = compile_pattern(rule.pattern), list[str | int](), 0
    for found in _REFERENCE.finditer(rule.with_):
        parts += [rule.with_[begin : found.start()], "\\" if found["literal"] else _group(compiled, found["number"] or found["name"])]
        begin = found.end()
    parts.append(rule.with_[begin:])
    if not any(isinstance(part, int) for part in parts):
        text = "".join(map(str, parts))
        return lambda _: text
    return lambda match: "".join([part if isinstance(part, str) else match.group(part) or "" for part in parts])


def _group(pattern: Pattern, reference: str) -> int:
    number = int(reference) if reference.isdigit() else pattern.groupindex.get(reference, -1)
    if not 0 <= number <= pattern.groups:
        raise ValueError(f"the pattern has no group {reference}: \\1 is what its first pair of brackets matches")
    return number


def _replaced(options: ReplaceOptions, before: Columns) -> Columns:
    for path in options.replace:
        if type_at(before, path) is not None:
            before = with_type(before, path, "string")
    return before


REPLACE = TransformKind(ReplaceOptions, _build_replace, known(_replaced))
