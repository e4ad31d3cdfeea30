"""`mask`: what matches a pattern in a field is made unreadable, but for the groups of the pattern.

It never fails open: what is not text is masked as its text, objects and lists with all that is in them, and a field that cannot be
masked is replaced as a whole before the record counts as a bad one, so that `on_error: keep` shows nothing of it either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from copycat_agent.options import BeforeValidator, Field, Options, Regex
from copycat_agent.patterns import Match, compile_pattern
from copycat_agent.templates import scalar_text
from copycat_agent.transforms.base import Columns, Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.columns import element_of, struct_fields, struct_of, type_at, with_type
from copycat_agent.transforms.hiding import hiding
from copycat_agent.transforms.paths import Change, FieldName, clash

_Mask = Callable[[str], str]


class MaskRule(Options):
    """What is hidden, and by what."""

    pattern: Regex = Field(description="A regular expression. All that it matches is hidden, but for what its groups match.")
    with_: str | None = Field(
        None, alias="with", description="The text that stands for each stretch that is hidden. Absent: a * for each of its characters."
    )


def _as_rule(value: object) -> object:
    return {"pattern": value} if isinstance(value, str) else value


_Rule = Annotated[MaskRule, BeforeValidator(_as_rule, json_schema_input_type=str | MaskRule)]


def _as_rules(value: object) -> object:
    """Refuse what reads as the mask of one field and would mask fields named `field` and `pattern`, and nothing that is there."""
    if isinstance(value, dict) and {"field", "pattern"} <= value.keys() and not any(isinstance(each, dict) for each in value.values()):
        msg = "needs fields and their patterns, as in {card: RE}, or {card: {pattern: RE, with: TEXT}}"
        raise ValueError(msg)
    return value


class MaskOptions(StepOptions):
    """Parts of values are made unreadable."""

    mask: Annotated[dict[FieldName, _Rule], BeforeValidator(_as_rules, json_schema_input_type=dict[FieldName, _Rule])] = Field(
        min_length=1,
        description="Fields and what is hidden in them: a pattern, or {pattern, with}. {card: '\\b\\d{12}(\\d{4})\\b'} leaves the last "
        "four digits. Numbers become texts; every value in a list or an object is masked, and a path leads into the objects of a list. A "
        "field may be missing.",
    )

    def model_post_init(self, context: object) -> None:
        """See `StepOptions`."""
        super().model_post_init(context)
        if twice := clash(list(self.mask)):
            msg = f"{twice!r} lies in another field that is masked"
            raise ValueError(msg)


def _build(options: MaskOptions) -> Transform:
    return Steady(hiding({path: _change(_masking(rule)) for path, rule in options.mask.items()}, "masked"))


def _change(masked: _Mask) -> Change:
    return lambda value: masked(value) if isinstance(value, str) else _inside(value, masked)


def _inside(value: Any, masked: _Mask) -> object:  # noqa: ANN401 - any value of a record
    """A value that is no text, with everything in it masked. ValueError for an int of more digits than Python turns into text."""
    if isinstance(value, dict):
        return {name: _inside(inner, masked) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_inside(inner, masked) for inner in value]
    if value is None:
        return None
    text = scalar_text(value)
    return masked(str(value) if text is None else text)


def _masking(rule: MaskRule) -> _Mask:
    pattern, instead = compile_pattern(rule.pattern), rule.with_

    def hidden(match: Match) -> str:
        text, first = match.group(), match.start()
        parts, begin = [], 0
        for start, end in _kept(match, pattern.groups):
            parts += [_veil(start - first - begin, instead), text[start - first : end - first]]
            begin = end - first
        return "".join([*parts, _veil(len(text) - begin, instead)])

    if not pattern.groups:
        return lambda text: pattern.sub(lambda match: _veil(match.end() - match.start(), instead), text)
    return lambda text: pattern.sub(hidden, text)


def _kept(match: Match, groups: int) -> list[tuple[int, int]]:
    """What the groups matched, in order, as stretches that do not overlap."""
    kept: list[tuple[int, int]] = []
    for start, end in sorted((match.start(number), match.end(number)) for number in range(1, groups + 1)):
        if start < match.start() or end > match.end():
            continue  # -1 for a group that took no part; one in a look-around is not in the match
        if kept and start <= kept[-1][1]:
            kept[-1] = (kept[-1][0], max(end, kept[-1][1]))
        elif end > start:
            kept.append((start, end))
    return kept


def _veil(length: int, instead: str | None) -> str:
    if instead is None:
        return "*" * length
    return instead if length else ""


def _columns(options: MaskOptions, before: Columns | None) -> Columns | None:
    for path in options.mask if before is not None else ():
        type_ = type_at(before or (), path)
        if type_ is not None:
            before = with_type(before or (), path, _texts(type_))
    return before


def _texts(type_: str) -> str:
    """The same type with texts for every value."""
    inner, element = struct_fields(type_), element_of(type_)
    if inner is not None:
        return struct_of([(name, _texts(one)) for name, one in inner])
    return "string" if element is None else f"array<{_texts(element)}>"


MASK = TransformKind(MaskOptions, _build, _columns)
