"""A document as the text of a definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from copycat_agent.definitions.formatting import format_text, quoted, written
from copycat_agent.importing.model import Made

_WIDTH = 100


def text_of(made: Made, origin: str) -> str:
    """The definition's text, as `fmt` leaves it. `origin` is what it was imported from, for the comment above it."""
    head = [f"# Imported from {origin}: read what the import said, then try it on a log: copycat try FILE -d THIS", ""]
    return format_text("\n".join([*head, *_map(made.document, 0)]).encode() + b"\n")


def _map(document: Mapping[str, Any], indent: int) -> Iterator[str]:
    blanks = " " * indent
    for key, value in document.items():
        flow = _flow(value)
        name = written(str(key))
        if not isinstance(value, dict | list) or not value or (len(flow) + len(name) + indent < _WIDTH and _is_flat(value)):
            yield f"{blanks}{name}: {flow}"
        elif isinstance(value, dict):
            yield f"{blanks}{name}:"
            yield from _map(value, indent + 2)
        else:
            yield f"{blanks}{name}:"
            yield from _list(value, indent + 2)


def _list(values: Sequence[Any], indent: int) -> Iterator[str]:
    for value in values:
        if isinstance(value, dict) and value:
            first, *rest = _map(value, indent + 2)
            yield f"{' ' * indent}- {first.lstrip()}"
            yield from rest
        else:
            yield f"{' ' * indent}- {_flow(value)}"


def _is_flat(value: Any) -> bool:  # noqa: ANN401 - any part of a document
    """Whether it reads well on one line."""
    inner = value.values() if isinstance(value, dict) else value
    return all(
        not isinstance(one, dict | list) or (isinstance(one, dict) and all(not isinstance(each, dict | list) for each in one.values()))
        for one in inner
    )


def _flow(value: Any) -> str:  # noqa: ANN401 - any part of a document
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(getattr(value, "text", value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(str(name))}: {_flow(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(inner) for inner in value) + "]"
    text = str(value)
    return quoted(text) if "\\" in text else written(text)
