"""Finding one's way in the option models: which class and which field a place in a definition belongs to."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from copycat_agent.options import FieldInfo, Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Loc = tuple[str | int, ...]
"""A place in a document: keys and list positions from the root."""


def key_of(name: str, field: FieldInfo) -> str:
    """The key of a field in YAML: its alias where it has one."""
    return field.alias or name


def fields_by_key(model: type[Options]) -> dict[str, tuple[str, FieldInfo]]:
    """The model's fields by their YAML keys, each with its name in Python."""
    return {key_of(name, field): (name, field) for name, field in model.model_fields.items()}


def models_in(annotation: object) -> Iterator[type[Options]]:
    """Every options class that `annotation` mentions, in order, without looking into them."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def all_models(roots: Sequence[type[Options]]) -> tuple[type[Options], ...]:
    """The classes and every options class reachable from them, each once, parents first."""
    found: dict[type[Options], None] = {}
    todo = list(reversed(roots))
    while todo:
        model = todo.pop()
        if model not in found:
            found[model] = None
            todo.extend(reversed([inner for field in model.model_fields.values() for inner in models_in(field.annotation)]))
    return tuple(found)


def model_at(root: type[Options], loc: Loc) -> type[Options] | None:
    """The options class of the map at `loc`; None inside free maps (headers, client settings)."""
    model: type[Options] | None = root
    in_map = False  # the next key is one of a free map, whose values may be options again
    for step in loc:
        if isinstance(step, int) or in_map:
            in_map = False
            continue
        found = fields_by_key(model).get(step) if model else None
        model = next(models_in(found[1].annotation), None) if found else None
        in_map = found is not None and _is_map(found[1].annotation)
    return None if in_map else model


def _is_map(annotation: object) -> bool:
    """Whether it is a free map, or one or nothing."""
    return dict in {get_origin(one) for one in (annotation, *get_args(annotation))}


def field_at(root: type[Options], loc: Loc) -> FieldInfo | None:
    """The field whose value, or part of it, stands at `loc`."""
    for length in range(len(loc), 0, -1):
        model, key = model_at(root, loc[: length - 1]), loc[length - 1]
        if model is not None and isinstance(key, str) and key in model.model_fields | fields_by_key(model):
            return fields_by_key(model)[key][1]
    return None


def markers(field: FieldInfo) -> Iterator[Any]:
    """The field's metadata and that of every part of its type: where a quantity's or a secret's marker is found."""
    yield from field.metadata
    yield from _annotated(field.annotation)


def _annotated(annotation: object) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())
    for argument in get_args(annotation):
        if argument is not NoneType:
            yield from _annotated(argument)
