"""The order of keys: that of the options in the models, which is that of the documentation.

Only keys of sections move. In maps whose keys are the user's own (headers, types) the order is the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions.models import fields_by_key, models_in
from copycat_agent.formats.records import FORMATS, FormatOptions
from copycat_agent.options import ConverterOptions, Options, SourceOptions, TransformOptions
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS
from copycat_agent.workbench.formatting.tree import YamlBlock, YamlEntry, YamlScalar

_STEP = ("if", "on_error")


def sort_keys(block: YamlBlock, model: type[Options]) -> None:
    """Put the keys of `block`, a section that `model` describes, and of all sections below it in order."""
    if not block.is_map:
        for entry in block.entries:
            _sort_value(entry, [model])
        return
    places = {key: number for number, key in enumerate(_order(model))}
    block.entries.sort(key=lambda entry: places.get(_name(entry), len(places)))
    fields = fields_by_key(model)
    for entry in block.entries:
        field = fields.get(_name(entry))
        if field is not None:
            _sort_value(entry, list(models_in(field[1].annotation)), is_free=_is_free(field[1].annotation))


def _sort_value(entry: YamlEntry, models: list[type[Options]], *, is_free: bool = False) -> None:
    value = entry.value
    if not isinstance(value, YamlBlock) or not models:
        return
    if is_free and value.is_map:
        for inner in value.entries:
            _sort_value(inner, models)
        return
    if not value.is_map:
        for inner in value.entries:
            _sort_value(inner, models)
        return
    known = [model for one in models if (model := _actual(one, value)) is not None]
    names = {_name(inner) for inner in value.entries}
    if known:
        sort_keys(value, max(known, key=lambda model: len(names & fields_by_key(model).keys())))


def _is_free(annotation: object) -> bool:
    """Whether it is a map with keys of the user's own, of sections: such as matchers, field by field."""
    return getattr(annotation, "__origin__", None) is dict or any(_is_free(part) for part in getattr(annotation, "__args__", ()))


def _actual(model: type[Options], block: YamlBlock) -> type[Options] | None:
    """The class of a source, transform, converter or format, which its keys tell; others are what they are."""
    if model in _BY_TYPE:
        entry = _BY_TYPE[model]().get(_text(block, "type"))
        return None if entry is None else entry
    if model is TransformOptions:
        names = [_name(entry) for entry in block.entries if _name(entry) in TRANSFORMS]
        return TRANSFORMS[names[0]].options if names else None
    return model


_BY_TYPE: Mapping[type[Options], Callable[[], Mapping[str, type[Options]]]] = {
    SourceOptions: lambda: {name: entry.options for name, entry in SOURCES.items()},
    ConverterOptions: lambda: {name: entry.options for name, entry in CONVERTERS.items()},
    FormatOptions: lambda: {name: entry.options for name, entry in FORMATS.items()},
}


def _order(model: type[Options]) -> list[str]:
    """`type` first, then what the class itself says, then what it has in common with others; `if` and `on_error` behind the action."""
    keys = list(fields_by_key(model))
    own = [key for key in keys if fields_by_key(model)[key][0] in model.__annotations__]
    ordered = [*(key for key in keys if key == "type"), *own, *keys]
    if issubclass(model, TransformOptions):
        ordered = [*(key for key in ordered if key not in _STEP), *_STEP]
    return list(dict.fromkeys(ordered))


def _name(entry: YamlEntry) -> str:
    return entry.key.text if entry.key is not None else ""


def _text(block: YamlBlock, key: str) -> str:
    values: Iterable[object] = (entry.value for entry in block.entries if _name(entry) == key)
    return next((value.text for value in values if isinstance(value, YamlScalar)), "")
