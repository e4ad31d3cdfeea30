"""Converts a definition to a configuration of Kafka Connect: a flat map of text to text with dotted keys (`source.include`).

Three options have Connect's own names: `connector.class` is `source.type`, `tasks.max` is `delivery.tasks_max`, `name` is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from copycat_agent.definitions.models import key_of
from copycat_agent.options import Definition, KafkaOptions, Options, without_named_secrets

CONNECTOR_CLASS, TASKS_MAX = "connector.class", "tasks.max"
THEIRS = {"source.type": CONNECTOR_CLASS, "delivery.tasks_max": TASKS_MAX}
"""Options with another name in Connect."""


@lru_cache(maxsize=4096)  # masking takes half a millisecond, and clients repeatedly ask for all connectors
def flat_config(definition: Definition) -> Mapping[str, str]:
    """Returns Connect's three keys, and all values that are not defaults, with secrets masked; `kafka` includes the agent's section.

    A list or map that is no section is JSON, a section with defaults only is `{}`; items of a list of sections are numbered
    (`transforms.0.regex.pattern`).
    """
    own = {"name": definition.name, CONNECTOR_CLASS: definition.source.type, TASKS_MAX: str(definition.delivery.tasks_max)}
    return {**own, **_texts(definition, "")}


def flat_kafka(kafka: KafkaOptions) -> Mapping[str, str]:
    """Returns the keys of a definition without a section `kafka` of its own; `kafka` is the agent's."""
    return _texts(kafka, "kafka.")


def _texts(options: Options, prefix: str) -> dict[str, str]:
    changed = _changed(options, options.masked(), prefix)
    return {THEIRS.get(key, key): as_text(without_named_secrets(value, key.rpartition(".")[2])) for key, value in changed}


def _changed(options: Options, shown: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    """Yields dotted key and masked value of each `type` below `options`, and of all values that are not defaults.

    `shown` are the masked values.
    """
    for key, value, text, default in _set_in(options, shown):
        inner = list(_below(value, text, prefix + key))
        yield from inner or ([] if isinstance(default, Options) else [(prefix + key, {})])


def _set_in(options: Options, shown: Mapping[str, Any]) -> Iterator[tuple[str, object, object, object]]:
    """Yields key, value, masked value and default of `type`, and of each value that is not the default."""
    for name, field in type(options).model_fields.items():
        value, text, default = getattr(options, name), shown.get(name), field.get_default(call_default_factory=True)
        if text is not None and (value != default or name == "type"):
            yield key_of(name, field), value, text, default


def _below(value: object, text: object, key: str) -> Iterator[tuple[str, object]]:
    """Yields a value under its key, or the values within a section, a list of sections, or a map."""
    if isinstance(value, Options) and isinstance(text, dict):
        yield from _changed(value, text, f"{key}.")
    elif isinstance(value, tuple) and value and isinstance(value[0], Options) and isinstance(text, list):
        for number, (item, one) in enumerate(zip(value, text, strict=True)):
            yield from _below(item, one, f"{key}.{number}")
    elif isinstance(value, dict) and value and isinstance(text, dict):
        yield from ((f"{key}.{name}", _said(value.get(name), one)) for name, one in text.items())
    else:
        yield key, text


def _said(value: object, text: object) -> object:
    """Returns a value of a map; of a section, and of the sections in it, the values that are not defaults."""
    if not isinstance(value, Options) or not isinstance(text, dict):
        return text
    return {key: _said(inner, one) for key, inner, one, _ in _set_in(value, text)}


def as_text(value: object) -> str:
    """Returns a value of a definition as text; lists and maps become JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
