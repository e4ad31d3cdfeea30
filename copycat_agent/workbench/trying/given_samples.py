"""Samples of a source that reads no files: its records in a file, one a line, as JSON objects or, for topics, as the values in Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from copycat_agent.converters.decoded_value import ValuesReader, json_objects
from copycat_agent.errors import FatalError, FileError
from copycat_agent.formats.draft import Envelopes
from copycat_agent.model import SourceOffset, SourcePartition, Split, Stretch
from copycat_agent.sources.contract import ENDLESS, EnvelopedRun, Position, Record
from copycat_agent.sources.contract_offsets import OffsetRecords, OffsetStream
from copycat_agent.sources.contract_stream import RecordStream, SourceFraming
from copycat_agent.templates.metadata import TopicPlace
from copycat_agent.workbench.trying.results import SampleContext, likely_path
from copycat_agent.workbench.trying.tracing import TracedEncoder

_KEY = "sample"
_NOUN = "the sample"
RECORD_KEY = b"key"
"""The key of each sample record of a topic."""


def give(encoder: TracedEncoder, content: bytes | Path, where: SampleContext) -> Split:
    """Returns a split of the sample, and has the encoder read it in place of the source. Raises FileError."""
    try:
        lines = content if isinstance(content, bytes) else content.read_bytes()
    except OSError as error:
        raise FileError(f"{str(content)!r} cannot be read: {error.strerror}") from None
    definition, name = encoder.definition, where.path or likely_path(encoder.definition)
    if getattr(encoder.frames, "makes_envelopes", False):
        frames, stream = cast("Any", OffsetRecords(_GivenRuns(encoder), _NOUN)), cast("Any", OffsetStream)
    else:
        frames, stream = cast("Any", SourceFraming(_GivenLines(), _NOUN)), RecordStream
        name = where.path or (str(content.absolute()) if isinstance(content, Path) else name)
    encoder.frames, encoder.source = frames, replace(encoder.source, open=stream)
    stretch = Stretch(_KEY, name, 0, len(lines.splitlines()), work=lines)
    return Split(SourcePartition(definition.name, _KEY), name, "", SourceOffset(0, path=name), ENDLESS, stretch=stretch)


def nothing(*_: object, **__: object) -> None:
    """Does nothing, in place of methods that nobody calls, or whose result nobody reads."""


class _GivenLines:
    """An `AuthorSource` that reads the lines in the stretch's `work`; only `read` is called."""

    look = plan = apply = committed = close = verify = cast("Any", nothing)

    def read(self, stretch: Stretch) -> Iterator[tuple[Record, Position]]:
        for number, line in _lines(stretch):
            yield _fields(line, number), number


class _GivenRuns(_GivenLines):
    """An `OffsetSource`, as `_GivenLines`: the `number`-th line has offset `number - 1`. A line is a value as it is in Kafka.

    Where a converter reads values, it is JSON, whatever the converter: the schema is in a registry, which samples do not ask.
    """

    def __init__(self, encoder: TracedEncoder) -> None:
        self._read: ValuesReader | None = lambda values: (json_objects(values), None)
        make = getattr(encoder.definition.source, "values_reader", None)
        if make is not None and ((read := make()) is None or not encoder.has_schema):
            self._read = read

    def place(self, stretch: Stretch) -> TopicPlace:
        """Returns the partition that the name looks like, partition 0 of a topic for another name."""
        topic, _, number = stretch.name.rpartition("/")
        return TopicPlace(topic, int(number)) if topic and number.isdecimal() else TopicPlace(stretch.name, 0)

    def read(self, stretch: Stretch) -> Iterator[tuple[Any, int]]:
        for number, line in _lines(stretch):
            values = [line] if self._read is None else self._read([line])[0]
            yield EnvelopedRun(values, Envelopes([RECORD_KEY], [()], [None]), [number], len(line), [line]), number


def _lines(stretch: Stretch) -> Iterator[tuple[int, bytes]]:
    """Yields the lines with their numbers, from 1, without empty ones and those that `start` has passed."""
    for number, line in enumerate(stretch.work.splitlines(), 1):
        if number > stretch.start and line.strip():
            yield number, line


def _fields(line: bytes, number: int) -> dict[str, Any]:
    """Parses a line. Raises FatalError if it is no JSON object."""
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise FatalError(f"line {number} of the sample is no JSON object", "a record of this source is written as one, on a line")
    return fields
