"""`set` and `default`: fields get values, always or where they have none."""

from __future__ import annotations

from dataclasses import dataclass

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.options import Field
from copycat_agent.templates import MISSING, SplitMeta
from copycat_agent.transforms.base import Columns, Step, StepOptions, Transform, TransformKind
from copycat_agent.transforms.columns import type_at, with_type
from copycat_agent.transforms.paths import FieldName, Find, Put, clash, finder, putter
from copycat_agent.transforms.values import FieldValue, Make, compile_value, type_of

_VALUES = (
    'A text is a template; one that is a single field, as in "{user.id}", copies it with its type. Numbers, booleans, null, lists and maps '
    "stay what they are, with templates for their texts."
)


class SetOptions(StepOptions):
    """Fields get values."""

    set: dict[FieldName, FieldValue] = Field(
        min_length=1, description=f'Fields and their values, as in {{env: prod, host: "{{@host}}"}}, all at once. {_VALUES}'
    )

    def model_post_init(self, context: object) -> None:
        """See `StepOptions`."""
        super().model_post_init(context)
        _refuse_clash(list(self.set))


class DefaultOptions(StepOptions):
    """Fields that are missing or null get values."""

    default: dict[FieldName, FieldValue] = Field(
        min_length=1, description=f"Fields and the values they get where they are missing or null, as in {{level: info}}. {_VALUES}"
    )

    def model_post_init(self, context: object) -> None:
        """See `StepOptions`."""
        super().model_post_init(context)
        _refuse_clash(list(self.default))


def _refuse_clash(names: list[str]) -> None:
    if twice := clash(names):
        msg = f"{twice!r} lies in another field that is set"
        raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class _Set:
    values: dict[str, object]

    def bind(self, meta: SplitMeta) -> Step:
        """See `Transform.bind`."""
        pairs = [(putter(path), compile_value(value)(meta)) for path, value in self.values.items()]
        if len(pairs) == 1:
            return _one(next(iter(self.values)), *pairs[0])

        def set_fields(draft: Draft) -> bool:
            draft.fields()
            return _put_all(draft, pairs)

        return set_fields


def _one(path: str, put: Put, make: Make) -> Step:
    def set_nested(draft: Draft) -> bool:
        put(draft.fields(), make(draft))
        return True

    def set_top(draft: Draft) -> bool:
        value = make(draft)
        draft.fields()[path] = value
        return True

    return set_nested if "." in path else set_top


def _put_all(draft: Draft, pairs: list[tuple[Put, Make]]) -> bool:
    """All values are made before the first is put; then the first that could not be made is told."""
    fields, bad = draft.fields(), None
    made: list[tuple[Put, object]] = []
    for put, make in pairs:
        try:
            made.append((put, make(draft)))
        except DataError as error:
            bad = bad or error
    for put, value in made:
        put(fields, value)
    if bad is not None:
        raise bad
    return True


@dataclass(frozen=True, slots=True)
class _Default:
    values: dict[str, object]

    def bind(self, meta: SplitMeta) -> Step:
        """See `Transform.bind`."""
        rules: list[tuple[Find, Put, Make]] = [
            (finder(path), putter(path), compile_value(value)(meta)) for path, value in self.values.items()
        ]

        def default(draft: Draft) -> bool:
            fields = draft.fields()
            absent = [(put, make) for find, put, make in rules if (value := find(fields)) is MISSING or value is None]
            return _put_all(draft, absent) if absent else True

        return default


def _set(options: SetOptions) -> Transform:
    return _Set(options.set)


def _default(options: DefaultOptions) -> Transform:
    return _Default(options.default)


def _after_set(options: SetOptions, before: Columns | None) -> Columns | None:
    if before is None:
        return None
    after = before
    for path, value in options.set.items():
        after = with_type(after, path, type_of(value, before))
    return after


def _after_default(options: DefaultOptions, before: Columns | None) -> Columns | None:
    if before is None:
        return None
    after = before
    for path, value in options.default.items():
        if type_at(before, path) is None:
            after = with_type(after, path, type_of(value, before))
    return after


SET = TransformKind(SetOptions, _set, _after_set)
DEFAULT = TransformKind(DefaultOptions, _default, _after_default)
