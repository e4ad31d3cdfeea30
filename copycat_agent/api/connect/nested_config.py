"""Converts a flat configuration, which may be wrong, back to the nested values of a definition: the inverse of `flat_config`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from copycat_agent.api.connect.config_keys import ConfigKey, part_keys
from copycat_agent.api.connect.flat_config import THEIRS
from copycat_agent.converters import CONVERTERS
from copycat_agent.formats.records import FORMATS
from copycat_agent.registry import Registry, UnusablePart
from copycat_agent.transforms import TRANSFORMS

OURS = {theirs: ours for ours, theirs in THEIRS.items()}
"""Our names of options, by Connect's."""
_TYPED: tuple[tuple[str, Registry[Any]], ...] = (
    ("converters.key", CONVERTERS),
    ("converters.value", CONVERTERS),
    ("source.format", FORMATS),
)
"""Sections whose keys depend on their `type`."""
_JSON_TYPES = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_ITEM = "transforms."
SAID_TWICE = "it is said as a whole and in parts; say it in one way"


def keys_below(config: Mapping[str, str]) -> Iterator[ConfigKey]:
    """Yields the keys of the steps, converters and formats that the configuration names, with their prefixes."""
    for section, registry in _TYPED:
        yield from _moved(registry, config.get(f"{section}.type") or config.get(section, ""), f"{section}.")
    actions: dict[str, str] = {}
    for key in config:
        number, _, rest = key.removeprefix(_ITEM).partition(".")
        if key.startswith(_ITEM) and number.isdecimal() and (action := rest.split(".")[0]) in TRANSFORMS.built_in:
            actions.setdefault(number, action)
    for number, action in actions.items():
        yield from _moved(TRANSFORMS, action, f"{_ITEM}{number}.")


def _moved(registry: Registry[Any], name: str, prefix: str) -> Iterator[ConfigKey]:
    part = registry.find(name) if name else None
    if part is not None and not isinstance(part, UnusablePart):
        group = prefix.partition(".")[0]
        yield from (key._replace(name=prefix + key.name, group=group, required=False) for key in part_keys(part.options))


def nested(config: Mapping[str, str], known: Mapping[str, ConfigKey]) -> dict[str, Any]:
    """Returns the values of a definition. Required sections are always there, so that missing keys are reported one by one."""
    found: dict[str, Any] = {"source": {}, "record": {}}
    for key, text in config.items():
        name = OURS.get(key, key)
        if key == name and key in THEIRS:
            continue  # only its Connect name is valid
        steps, value = _way(name, known), _value(text, known.get(key))
        if name in dict(_TYPED) and isinstance(value, str):
            steps = [*steps, "type"]
        _put(found, steps, value)
    items = found.get("transforms")
    if isinstance(items, dict):
        found["transforms"] = [items[number] for number in sorted(items, key=lambda text: (not text.isdecimal(), len(text), text))]
    return found


def said_twice(config: Mapping[str, str], known: Mapping[str, ConfigKey]) -> list[str]:
    """Returns keys that are given both as a whole and in parts, which is ambiguous; a map is merged with its parts."""
    ways = {_steps(key, known): key for key in config}
    in_parts = {above for way in ways for above in _above(way)}
    whole = (key for way, key in ways.items() if way in in_parts and key not in dict(_TYPED))
    return [key for key in whole if not isinstance(_value(config[key], known.get(key)), dict)]


def without_parts_of(whole: Iterable[str], config: Mapping[str, str], known: Mapping[str, ConfigKey]) -> dict[str, str]:
    """Returns the configuration without parts of the keys in `whole`; Connect's own keys stay."""
    ways = {_steps(key, known) for key in whole}
    return {key: value for key, value in config.items() if key in OURS or ways.isdisjoint(_above(_steps(key, known)))}


def _steps(key: str, known: Mapping[str, ConfigKey]) -> tuple[str, ...]:
    return tuple(_way(OURS.get(key, key), known))


def _above(way: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return (way[:length] for length in range(1, len(way)))


def _way(name: str, known: Mapping[str, ConfigKey]) -> list[str]:
    """Returns the steps from the root to a value. After a map of any keys, the rest of the name is one key: `kafka.client` `linger.ms`."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        above = known.get(".".join(parts[:length]))
        if above is not None and "object" in above.kinds and not any(one.startswith(f"{above.name}.") for one in known):
            return [*parts[:length], ".".join(parts[length:])]
    return parts


def _value(text: str, key: ConfigKey | None) -> object:
    """Parses a text as the JSON type that the key wants, and returns it unchanged if it is not of that type.

    Lists may be separated by commas, as in Connect. In a map of any keys only lists and maps are parsed.
    """
    kinds = key.kinds if key is not None else {"array", "object"}
    if key is not None and kinds == {"array"} and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    kind = _JSON_TYPES.get(type(value), "")
    return value if kind in kinds or (kind == "integer" and "number" in kinds) else text


def _put(root: dict[str, Any], steps: list[str], value: object) -> None:
    """Sets a value. If a section is given both a scalar and keys, the keys are kept."""
    place = root
    for step in steps[:-1]:
        inner = place.get(step)
        place[step] = inner if isinstance(inner, dict) else {}
        place = place[step]
    if not isinstance(place.get(steps[-1]), dict) or isinstance(value, dict):
        place[steps[-1]] = value
