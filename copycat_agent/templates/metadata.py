r"""The names that begin with `@`: what is known of a record beside its fields. Each is declared here, once.

- `@file.path` `@file.name` `@file.dir`: bytes of a name that are not UTF-8 appear as backslash escapes (`caf\xe9.log`)
- `@file.inode` `@host` `@connector`
- `@file.owner` `@file.group` `@file.mode`: of a file on this host, when it was opened; missing for all others
- `@file.member`: the name of the file within an archive, "" outside of archives
- `@offset`: the record's first byte, or its offset if it comes from Kafka; `@record.number`: counts from 1 within the file
- `@topic` `@partition` `@key`: the record's partition in Kafka, and its key as text (U+FFFD for what is not UTF-8); missing for all others
- `@read_time`: when the template is rendered; `@timestamp`: the record's event time, or the read time when it has none
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from copycat_agent.templates.record_like import RecordLike
from copycat_agent.templates.texts import readable


class Access(NamedTuple):
    """Owner, group and mode of a file: names, or numbers as texts, and four octal digits."""

    owner: str
    group: str
    mode: str


class TopicPlace(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class RecordOrigin:
    """The origin of a split's records, looked up only when a template asks. This base class knows nothing."""

    def access(self) -> Access | None:
        """Returns owner, group and mode of the file when it was opened; None if it is not a file on this host."""
        return None

    def member(self, position: int) -> str:
        """Returns the name of the archive member at this position; "" outside of archives."""
        del position
        return ""

    def place(self) -> TopicPlace | None:
        """Returns the partition of Kafka that the records come from; None if they come from elsewhere."""
        return None

    def offset_of(self, record: RecordLike) -> int:
        """Returns the position of the record: its first byte, or its offset in Kafka."""
        return record.start


UNKNOWN = RecordOrigin()


@dataclass(frozen=True, slots=True)
class SplitMeta:
    """The metadata that is the same for every record of a split. `path` may hold surrogate escapes.

    `mtime_ms` is when the file was last changed, 0 if unknown: times without a year are resolved near it. `clock` gives epoch seconds.
    """

    path: str
    inode: int
    host: str
    connector: str
    mtime_ms: int = 0
    clock: Callable[[], float] = time.time
    origin: RecordOrigin = UNKNOWN


def _of_access(name: str) -> Callable[[SplitMeta], str | None]:
    def value(meta: SplitMeta) -> str | None:
        access = meta.origin.access()
        return None if access is None else str(getattr(access, name))

    return value


def _of_place(name: str) -> Callable[[SplitMeta], str | int | None]:
    def value(meta: SplitMeta) -> str | int | None:
        place = meta.origin.place()
        return None if place is None else getattr(place, name)

    return value


OF_SPLIT: dict[str, Callable[[SplitMeta], str | int | None]] = {
    "@file.path": lambda meta: readable(meta.path),
    "@file.name": lambda meta: readable(meta.path).rpartition("/")[2],
    "@file.dir": lambda meta: readable(meta.path).rpartition("/")[0] or "/",
    "@file.inode": lambda meta: meta.inode,
    "@file.owner": _of_access("owner"),
    "@file.group": _of_access("group"),
    "@file.mode": _of_access("mode"),
    "@host": lambda meta: readable(meta.host),
    "@connector": lambda meta: meta.connector,
    "@topic": _of_place("topic"),
    "@partition": _of_place("partition"),
}
"""Names that have one value for all records of a split, with the functions that return it; None if it is missing."""

NUMBERS = frozenset({"@file.inode", "@offset", "@partition", "@record.number"})
"""Names with numbers as values; all others have texts."""

TIME_NAMES = ("@timestamp", "@read_time")

METADATA = frozenset({*OF_SPLIT, *NUMBERS, *TIME_NAMES, "@file.member", "@key"})
"""Every metadata name, the `@` included."""
