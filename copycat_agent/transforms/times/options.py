"""Zones and formats of times as options."""

from __future__ import annotations

from typing import Annotated

from copycat_agent.options import BeforeValidator
from copycat_agent.transforms.times.reading import compile_times
from copycat_agent.transforms.times.zones import find_zone


def _zone(word: object) -> object:
    if isinstance(word, str):
        find_zone(word)
    return word


def _format(text: object) -> object:
    if isinstance(text, str):
        compile_times((text,))
    return text


ZoneWord = Annotated[str, BeforeValidator(_zone)]
"""`local`, a time zone by its name, or an offset such as +02:00."""
TimeFormat = Annotated[str, BeforeValidator(_format)]
"""See `compile_times`."""
