"""Finds the file of a sink that has the record at an offset of a Kafka partition."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from copycat_agent.options import Definition
from copycat_agent.producer.topic_ranges import stands_for
from copycat_agent.sinks.claims import Claims
from copycat_agent.sinks.file_names import parse_name
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.sink_stores import store_at

_ASKED = re.compile(r"([A-Za-z0-9._-]{1,249})/(\d{1,9})@(\d{1,19})")


class OffsetPlace(NamedTuple):
    """A place in Kafka, written as `orders/3@1200`."""

    topic: str
    partition: int
    offset: int


class ConnectorAnswer(NamedTuple):
    """A connector's answer. `files` (addresses) hold the records of offsets `first` to `last`, those that were kept.

    Offsets below `end` are written, None if nothing is.
    """

    connector: str
    files: tuple[str, ...]
    end: int | None
    first: int | None = None
    last: int | None = None


def place_in(text: str) -> OffsetPlace | None:
    """Parses a place; returns None for any other text."""
    found = _ASKED.fullmatch(text)
    return OffsetPlace(found[1], int(found[2]), int(found[3])) if found else None


def written(definition: Definition, asked: OffsetPlace) -> ConnectorAnswer | None:
    """Returns which files may have the record; None if the definition writes no files of that topic. Raises what a store raises."""
    sink = definition.sink
    if not isinstance(sink, FilesSinkOptions):
        return None
    store = store_at(sink.uri)
    claims = Claims(store, definition.name)
    chain = claims.chain(asked.topic, asked.partition)
    if chain is None:
        source: Any = definition.source  # kafka: no other one goes into files
        return ConnectorAnswer(definition.name, (), None) if stands_for(asked.topic, source.topics, source.exclude) else None
    files = claims.files_with(*asked) or []
    name = parse_name(files[0].key) if files else None
    span = (name.first, name.last) if name else (None, None)
    return ConnectorAnswer(definition.name, tuple(store.shown(one.key) for one in files), chain.end, *span)
