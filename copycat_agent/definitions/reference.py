"""Makes `docs/definitions.md`, every option in one page, from the models. `python -m copycat_agent.definitions.reference` prints it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

from copycat_agent.converters import CONVERTERS
from copycat_agent.definitions.models import default_of, key_of, models_in
from copycat_agent.formats.records import FORMATS, FormatOptions
from copycat_agent.options import (
    AgentOptions,
    ConverterOptions,
    Definition,
    FieldInfo,
    Options,
    SinkOptions,
    SourceOptions,
    TransformOptions,
)
from copycat_agent.registry import Registry
from copycat_agent.sinks import SINKS
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS

_BASES = (SourceOptions, TransformOptions, SinkOptions, ConverterOptions, FormatOptions)
_PREFACE = """# Definitions

Generated from the models by `python -m copycat_agent.definitions.reference`: change the descriptions there.

One connector per file, `connectors.d/*.yaml` or `*.yml`; hidden files and `*.disabled` are skipped.

- Keys that are not listed here are errors, and so are duplicate keys, tabs, tags and a second document.
- `true` and `false` are the only booleans; `yes`, `no`, `010` and `12:30:45` are texts.
- Durations and sizes have a unit: `500ms` `5s` `2m` `1h` `7d`, `64KiB` `10MiB` `1GB`.
- `${env:NAME}`, `${env:NAME:-default}`, `${file:/path}` and `${cred:NAME}` (a file in `$CREDENTIALS_DIRECTORY`) stand for a
  value wherever a value stands, also within a longer text; `$${` is a literal `${`. They are resolved after parsing, so a value never
  becomes YAML. A resolved value is text where text is wanted; where a number or a boolean is wanted it is read as if it stood there
  unquoted. What comes from a file or a credential, and every password, is shown as `********` everywhere; so it cannot be a name, a
  topic, a broker's address or a pattern of files, which show in logs: `${env:NAME}` can.
- `copycat check DIR` says what is wrong with definitions, `copycat schema` prints their JSON Schema for editors.
"""


def reference() -> str:
    """Returns the whole page, Markdown."""
    parts = [_PREFACE, "## A definition\n", *_rows(Definition, "")]
    registries: tuple[Registry[Any], ...] = (SOURCES, FORMATS, TRANSFORMS, SINKS, CONVERTERS)
    for registry in registries:
        title = registry.noun.capitalize()
        for name, entry in registry.items():
            origin = registry.origin(name)
            whose = f" Of {origin.text}." if origin else ""
            parts += [f"\n## {title}: {name}\n", f"{_summary(entry.options)}{whose}\n", *_rows(entry.options, "")]
    parts += ["\n## agent.yaml\n", "Beside `connectors.d/`, or named by `--config`. Everything has a default.\n", *_rows(AgentOptions, "")]
    return "\n".join(parts) + "\n"


def _summary(model: type[Options]) -> str:
    return (model.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")


def _rows(model: type[Options], prefix: str) -> Iterator[str]:
    if not prefix:
        yield "| option | default | meaning |"
        yield "| --- | --- | --- |"
    for name, field in model.model_fields.items():
        key = prefix + key_of(name, field)
        inner = [part for part in models_in(field.annotation) if part not in _BASES]
        # a section's default is the defaults of its options
        default = "" if inner and isinstance(field.get_default(), Options) else _default(model, name, field)
        yield f"| `{key}` | {default} | {_cell(field.description or '')}{_choices(field)} |"
        for part in inner:
            yield from _rows(part, f"{key}.")


def _default(model: type[Options], name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = default_of(model, name)
    return "none" if default is None else f"`{_cell(default if isinstance(default, str) else json.dumps(default))}`"


def _cell(text: str) -> str:
    return text.replace("\n", "\\n").replace("|", "\\|")


def _choices(field: FieldInfo) -> str:
    words = [word for word in _literals(field.annotation) if isinstance(word, str)]
    return f" One of {', '.join(f'`{word}`' for word in words)}." if len(words) > 1 else ""


def _literals(annotation: object) -> Iterator[Any]:
    for argument in get_args(annotation):
        yield from _literals(argument) if get_args(argument) or isinstance(argument, type) else (argument,)


if __name__ == "__main__":
    sys.stdout.write(reference())
