"""A definition as Kafka Connect has configurations: one map of text to text, its keys dotted (`source.include`).

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


@lru_cache(maxsize=4096)  # masking takes half a millisecond, and clients ask for all connectors again and again
def flat_config(definition: Definition) -> Mapping[str, str]:
    """Connect's three keys, and what is not the default; the Kafka section with the agent's own under it. Secrets are masked.

    A list or a map that is no section is JSON, a section of defaults alone `{}`; items of a list of sections are numbered
    (`transforms.0.regex.pattern`).
    """
    own = {"name": definition.name, CONNECTOR_CLASS: definition.source.type, TASKS_MAX: str(definition.delivery.tasks_max)}
    return {**own, **_texts(definition, "")}


def flat_kafka(kafka: KafkaOptions) -> Mapping[str, str]:
    """What a definition shows of Kafka that says nothing of it itself; `kafka` is the agent's."""
    return _texts(kafka, "kafka.")


def _texts(options: Options, prefix: str) -> dict[str, str]:
    changed = _changed(options, options.masked(), prefix)
    return {THEIRS.get(key, key): as_text(without_named_secrets(value, key.rpartition(".")[2])) for key, value in changed}


def _changed(options: Options, shown: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    """Dotted key and value of all types below `options`, whose masked values are `shown`, and of all else that is not the default."""
    for name, field in type(options).model_fields.items():
        value, text = getattr(options, name), shown.get(name)
        default = field.get_default(call_default_factory=True)
        if text is None or (value == default and name != "type"):
            continue
        inner = list(_below(value, text, prefix + key_of(name, field)))
        yield from inner or ([] if isinstance(default, Options) else [(prefix + key_of(name, field), {})])


def _below(value: object, text: object, key: str) -> Iterator[tuple[str, object]]:
    """A value, or what stands in it where it is a section, a list of sections, or a map."""
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
    """A value of a map; of a section there, what is not the default."""
    return dict(_changed(value, text, "")) if isinstance(value, Options) and isinstance(text, dict) else text


def as_text(value: object) -> str:
    """A value of a definition as text; lists and maps as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
