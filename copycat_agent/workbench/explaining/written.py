"""Finds the file of a sink that has the record at an offset of a Kafka partition."""

from __future__ import annotations

import re
from typing import NamedTuple

from copycat_agent.options import Definition
from copycat_agent.sinks.claims import Claims
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.sink_stores import store_at

_ASKED = re.compile(r"([A-Za-z0-9._-]{1,249})/(\d{1,9})@(\d{1,19})")


class OffsetPlace(NamedTuple):
    """A place in Kafka, written as `orders/3@1200`."""

    topic: str
    partition: int
    offset: int


class Answered(NamedTuple):
    """A connector's answer. One of `files` (addresses) has the record; offsets below `end` are written, None if nothing is."""

    connector: str
    files: tuple[str, ...]
    end: int | None


def place_in(text: str) -> OffsetPlace | None:
    """Parses a place; returns None for any other text."""
    found = _ASKED.fullmatch(text)
    return OffsetPlace(found[1], int(found[2]), int(found[3])) if found else None


def written(definition: Definition, asked: OffsetPlace) -> Answered | None:
    """Returns which files may have the record; None if the definition writes no files. Raises what a store raises."""
    sink = definition.sink
    if not isinstance(sink, FilesSinkOptions):
        return None
    store = store_at(sink.uri)
    claims = Claims(store, definition.name)
    chain = claims.chain(asked.topic, asked.partition)
    if chain is None:
        return Answered(definition.name, (), None)
    files = claims.files_with(*asked) or []
    return Answered(definition.name, tuple(store.shown(one.key) for one in files), chain.end)
