r"""`replace`: what matches a pattern in a field becomes another text, in which `\1` and `\g<name>` stand for groups of the match."""

from __future__ import annotations

import re
from collections.abc import Callable

from copycat_agent.errors import DataError
from copycat_agent.options import Field, Options, Regex
from copycat_agent.patterns import Match, Pattern, compile_pattern
from copycat_agent.templates import scalar_text
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.paths import FieldName, changing, clash, type_at, with_type

_REFERENCE = re.compile(r"\\(?:(?P<number>[1-9][0-9]?)|g<(?P<name>[A-Za-z_][A-Za-z0-9_]*|[0-9]{1,2})>|(?P<literal>\\))")


class ReplaceRule(Options):
    """What is replaced, and by what."""

    pattern: Regex = Field(description="A regular expression. Every place where it matches is replaced.")
    with_: str = Field(
        alias="with",
        description="The new text. \\1 stands for the first group of the pattern, \\g<name> for a named one, \\\\ for a backslash.",
    )

    def model_post_init(self, _: object) -> None:
        """Refuse references to groups that are not there."""
        _expanding(self)


class ReplaceOptions(StepOptions):
    """Parts of values become other texts."""

    replace: dict[FieldName, ReplaceRule] = Field(
        min_length=1,
        description="Fields and what is replaced in them, as in {name: {pattern: '^app-(.*)$', with: 'logs.\\1'}}. Numbers become texts; "
        "a field that is missing or null stays so; an object or a list is a bad record.",
    )

    def model_post_init(self, context: object) -> None:
        """See `StepOptions`."""
        super().model_post_init(context)
        if twice := clash(list(self.replace)):
            msg = f"{twice!r} lies in another field that is replaced"
            raise ValueError(msg)


def _build(options: ReplaceOptions) -> Transform:
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
        msg = f"field {path!r} is not a text or a number"
        raise DataError(msg)
    return text


def _expanding(rule: ReplaceRule) -> Callable[[Match], str]:
    """From a match to the new text. ValueError for a reference to a group that the pattern does not have.

    A function, since a text given to `sub` could name groups that nobody checked.
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
        msg = f"the pattern has no group {reference}: \\1 is what its first pair of brackets matches"
        raise ValueError(msg)
    return number


def _columns(options: ReplaceOptions, before: Columns | None) -> Columns | None:
    for path in options.replace if before is not None else ():
        if type_at(before or (), path) is not None:
            before = with_type(before or (), path, "string")
    return before


REPLACE = TransformKind(ReplaceOptions, _build, _columns)
