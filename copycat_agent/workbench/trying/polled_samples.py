"""Samples of a source that has no files: what it gives next, or records that somebody wrote down, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copycat_agent import logs
from copycat_agent.errors import FatalError, FileError
from copycat_agent.model import SourceOffset, SourcePartition, Split, Stretch
from copycat_agent.sources import SOURCES, LooksLater, only_looking
from copycat_agent.sources.contract import ENDLESS
from copycat_agent.sources.contract_stream import Records

if TYPE_CHECKING:
    from copycat_agent.options import Definition
    from copycat_agent.sources.contract import Found, Position, Record

KEY = "sample"


class Given:
    """See `contract.AuthorSource`: only `read` is asked, for the lines in the stretch's `work`."""

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Found]:
        """See `AuthorSource.look`."""
        del saved, to_the_end
        return ()

    def plan(self, found: Found, position: Position) -> Stretch | None:
        """See `AuthorSource.plan`."""
        del found, position
        return None

    def read(self, stretch: Stretch) -> Iterator[tuple[Record, Position]]:
        """See `AuthorSource.read`. Raises FatalError for a line that is no JSON object."""
        for number, line in enumerate(stretch.work.splitlines(), 1):
            if line.strip():
                yield _fields(line, number), number

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        """See `AuthorSource.apply`."""
        del stretch, finished
        return position

    def committed(self, positions: Mapping[str, Position]) -> None:
        """See `AuthorSource.committed`."""

    def close(self) -> None:
        """See `AuthorSource.close`."""


def _fields(line: bytes, number: int) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise FatalError(f"line {number} of the sample is no JSON object", "a record of this source is written as one, on a line")
    return fields


def given(definition: Definition, content: bytes | Path, name: str) -> tuple[Split, Records]:
    """Lines of JSON as what a task of the source would be given. Raises FileError."""
    try:
        lines = content if isinstance(content, bytes) else content.read_bytes()
    except OSError as error:
        raise FileError(f"{str(content)!r} cannot be read: {error.strerror}") from None
    stretch = Stretch(KEY, name, 0, work=lines)
    split = Split(SourcePartition(definition.name, KEY), name, "", SourceOffset(0, path=name), ENDLESS, stretch=stretch)
    return split, Records(Given(), "the sample")


def upcoming(definition: Definition) -> Split:
    """What a task of the source would be given first, had it never run. Raises what the source does; FatalError where nothing is there."""
    kind, log = SOURCES[definition.source.type], logs.get("try")
    source = kind.make(definition.name, only_looking(definition.source), definition.delivery, {}, log)
    try:
        if isinstance(source, LooksLater):
            source.look_now()
        splits = source.plan(1).splits
    finally:
        source.close()
    if not splits:
        raise FatalError("the source has nothing to read", "give a file with sample records, a JSON object a line")
    return splits[0]
