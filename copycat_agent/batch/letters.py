"""What a dead letter looks like: the raw bytes as its value, and where they come from and why as its headers.

`docs/errors.md` lists the headers; `copycat_agent.dlq` reads them back.
"""

from __future__ import annotations

from copycat_agent.batch.pipeline import host_name, origin_headers
from copycat_agent.errors import DataError
from copycat_agent.formats import Row
from copycat_agent.model import Split
from copycat_agent.options import Definition
from copycat_agent.producer import Outgoing

CONNECTOR = "copycat.connector"
HOST = "copycat.host"
FILE = "copycat.file"
FILE_KEY = "copycat.file_key"
FILE_TIME = "copycat.file_time"
OFFSET = "copycat.offset"
END = "copycat.end"
LENGTH = "copycat.length"
RECORD = "copycat.record"
STAGE = "copycat.stage"
ERROR = "copycat.error"
MESSAGE = "copycat.message"
PARTIAL = "copycat.partial"
RAW = "copycat.raw"
"""What became of the raw bytes; absent when the value is all of them."""

OMITTED = b"omitted: refused by the topic"


def dead_letter(
    definition: Definition, split: Split, row: Row, number: int, stage: str, error: DataError, *, partial: bool
) -> Outgoing:  # fmt: skip
    """The dead letter of one bad record, without its raw bytes: see `with_raw`. The definition has a dead-letter topic."""
    dlq = definition.errors.dlq
    assert dlq is not None
    headers = [
        (CONNECTOR, definition.name.encode()),
        (HOST, host_name().encode("utf-8", "backslashreplace")),
        *origin_headers(split.path, row.start, row.end),
        (LENGTH, b"%d" % (row.end - row.start)),
        (RECORD, b"%d" % number),
        (FILE_KEY, split.partition.key.encode()),
        (FILE_TIME, b"%d" % split.mtime_ms),
        *(((PARTIAL, b"true"),) if partial else ()),
        (STAGE, stage.encode()),
        (ERROR, type(error).__name__.encode()),
        (MESSAGE, error.message.encode("utf-8", "backslashreplace")),
    ]
    return dlq.topic, None, None, -1, None, None, 0, headers


def with_raw(letter: Outgoing, raw: bytes | None, said: bytes | None) -> Outgoing:
    """The letter with these raw bytes; `said` explains why they are not all, None when they are."""
    topic, _, *rest, headers = letter
    others = [pair for pair in headers if pair[0] != RAW]
    return topic, raw, *rest, [*others, *([(RAW, said)] if said is not None else [])]
