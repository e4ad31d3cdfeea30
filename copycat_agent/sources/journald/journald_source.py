"""The source of `journald`. It has one partition, the journal.

A position is `{"cursor": ...}`, the cursor of the last entry read; before the first entry it is `{}`, the journal's beginning, or
`{"since": ...}`, a time in microseconds. `upto` is the newest entry at the time the journal was read to its end, if that is another one.
`said` holds journalctl's messages about damaged journals, so that each is reported once.

journalctl is asked for entries from the cursor on, including the entry at the cursor. If the first one is another, the entry at the
position is gone, and perhaps later ones as well. `--after-cursor` would silently go on after the nearest entry.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from copycat_agent.extending import FatalError, Found, LostRecords, Position, Record, RetriableError, Stretch, Unparsed, source_kind
from copycat_agent.sources.journald.cursors import are_same, distance, is_before
from copycat_agent.sources.journald.export_format import CURSOR, LargeEntry
from copycat_agent.sources.journald.journalctl import Journalctl, JournalRun, journal_files
from copycat_agent.sources.journald.journald_options import JournaldOptions
from copycat_agent.sources.journald.journald_probe import probe_journal

ASK_SECONDS = 30.0
"""How long journalctl is not run while no file of the journal changes."""
MOVE_SECONDS = 300.0
"""Interval at which the position moves over entries that the options exclude. Otherwise journald would delete the entry at the position."""
ENTRY_BYTES = 600
"""Assumed size of an entry, for the lag."""
_OPEN_TRIES = 5
"""Most starts of journalctl in a row because journals were renamed while it opened them."""
_SAID_MOST = 16
"""Most messages about damage that a position keeps."""

_SAMPLE = """\
type: journald
# units: [nginx.service, "app-*.service"] # default: all
# priority: warning                       # and more important ones
# match: [_TRANSPORT=kernel]              # as journalctl takes it
start_at: end                             # or beginning, or a time, "2026-11-21T05:00:00Z"
# directory: /var/log/journal/remote      # journals that are not this host's own
"""


class JournaldSource:
    """A `copycat_agent.extending.AuthorSource`."""

    def __init__(self, options: JournaldOptions) -> None:
        self._options = options
        self._journalctl = Journalctl(options)
        self._key = _key(options)
        self._name = options.directory or (f"journal {options.namespace}" if options.namespace else "journal")
        self._seen: tuple[Any, ...] = ()
        self._end: str | None = None
        self._asked_at = self._moved_at = time.monotonic()
        self._target: str | None = None
        """The cursor at which a run to the end stops; "" for an empty journal."""

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Found]:
        position = saved.get(self._key)
        if position is None:
            yield Found(self._key, start=self._beginning(), name=self._name)
            return
        _checked(position)
        seen = journal_files(self._options), position, to_the_end
        if seen != self._seen or time.monotonic() > self._asked_at + ASK_SECONDS:
            self._end = self._newest(position, to_the_end=to_the_end)
            self._seen, self._asked_at = seen, time.monotonic()
        yield Found(self._key, end=self._end, unread=self._unread_bytes(position), name=self._name)

    def _unread_bytes(self, position: Position) -> int:
        """Returns about how many bytes are unread, excluded entries included."""
        if self._end is None or not position.get("cursor"):
            return int(self._end is not None)
        return max(1, distance(position["cursor"], self._end)) * ENTRY_BYTES

    def _beginning(self) -> Position:
        start_at = self._options.start_at
        if start_at == "beginning":
            return {}
        if start_at == "end":
            cursor = self._journalctl.tail()
            return {"cursor": cursor} if cursor else {}
        return {"since": int(datetime.fromisoformat(start_at).timestamp() * 1_000_000)}

    def _newest(self, position: Position, *, to_the_end: bool) -> str | None:
        """Returns the cursor up to which there may be entries to read; None if there are none but excluded ones."""
        if to_the_end:
            self._target = self._target if self._target is not None else self._journalctl.tail()
            return self._target or None
        is_late = time.monotonic() > self._moved_at + MOVE_SECONDS
        if self._journalctl.is_filtered and not is_late and not self._has_more(position):
            return None
        self._moved_at = time.monotonic()
        return self._journalctl.tail() or None

    def _has_more(self, position: Position) -> bool:
        cursor = position.get("cursor", "")
        return any(not are_same(one, cursor) for one in self._journalctl.cursors("--lines=2", *_from(position)))

    def plan(self, found: Found, position: Position) -> Stretch | None:
        if found.end is None or found.end in (position.get("cursor"), position.get("upto")):
            return None
        return Stretch(found.key, self._name, position, found.end)

    def read(self, stretch: Stretch) -> Iterator[tuple[Record, Position]]:
        """Reads to the journal's end at the time of the call."""
        run = self._opened(_whole(stretch.start))
        with run:
            yield from self._records(stretch, run)
            run.check()
            if run.entries.is_torn:
                raise RetriableError("journalctl ended within an entry", "it is started again")

    def _opened(self, start: Position) -> JournalRun:
        """Starts journalctl so that it has all journals open: it may miss one that journald renames at the same time."""
        for _ in range(_OPEN_TRIES):
            names = journal_files(self._options).keys()
            run = self._journalctl.run(*_from(start))
            try:
                run.entries.peek()
                if journal_files(self._options).keys() == names:
                    return run
            except BaseException:
                run.close()
                raise
            run.close()
        raise RetriableError("the journal's files are renamed again and again", "it is tried again")

    def _records(self, stretch: Stretch, run: JournalRun) -> Iterator[tuple[Record, Position]]:
        """Yields the entries after the start. Lost ones are reported first, damage when journalctl reports it."""
        start = _whole(stretch.start)
        position: Position = start
        kept: dict[str, Any] = {name: start[name] for name in ("said",) if name in start}
        is_first, reported = "cursor" in start, 0
        for entry in run.entries:
            if len(run.damage) > reported:
                reported, new = len(run.damage), _new(run.damage, kept)
                kept, position = _with(kept, new), _with(_whole(position), new)
                yield from ((LostRecords(one, damaged=True), position) for one in new)
            cursor = entry.cursor if isinstance(entry, LargeEntry) else entry[CURSOR]
            if is_first:
                is_first = False
                if are_same(cursor, start["cursor"]):
                    continue
                yield from ((one, position) for one in self._lost(start["cursor"], cursor))
            position = {"cursor": cursor, **kept} if kept else cursor  # a text is cheaper than a map for each entry
            yield self._unread(entry) if isinstance(entry, LargeEntry) else entry, position
        new = _new(run.damage, kept)
        yield from ((LostRecords(one, damaged=True), _with(_whole(position), new)) for one in new)
        if is_first:  # no entry at or after the position: a later one may be inserted before it
            yield from ((one, _with({"cursor": stretch.end, **kept}, new)) for one in self._lost(start["cursor"], ""))

    def _unread(self, entry: LargeEntry) -> Unparsed:
        most = self._options.max_bytes
        words = f"an entry of {entry.size_bytes:,} bytes, by its field {entry.field}, where {most:,} are the most"
        return Unparsed(words, f"raise source.max_bytes; journalctl --cursor='{entry.cursor}' --lines=1 shows it")

    def _lost(self, cursor: str, first: str) -> list[LostRecords]:
        """Returns what was lost after `cursor`. `first` is the cursor of the first entry that is not excluded, "" for none."""
        if self._journalctl.is_filtered or not first:
            first = next(iter(self._journalctl.cursors("--lines=1", f"--cursor={cursor}", filtered=False)), "")
        if are_same(first, cursor):
            return []
        if not first:
            return [LostRecords("the journal ends before the entry that was read last: it is another one, or its clock was set back")]
        count = distance(cursor, first)
        if count == 1:  # only the entry that was read is gone
            return []
        if count < 1:
            return [
                LostRecords("the entry that was read last is gone, and perhaps some behind it: their numbers are from another sequence")
            ]
        words = f"{count - 1:,} entries were removed from the journal before they could be read"
        if self._journalctl.is_filtered:
            return [LostRecords(f"{words}, some of which the definition may have left out")]
        return [LostRecords(words, count - 1)]

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        at = _whole(stretch.start if position is None else position)
        if not finished:
            return at
        at.pop("upto", None)
        if "since" in at or (at.get("cursor") and not is_before(at["cursor"], stretch.end)):
            return {**at, "upto": stretch.end} if at.get("cursor") != stretch.end else at
        return {**at, "cursor": stretch.end}

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Does nothing: the journal keeps no positions."""

    def close(self) -> None:
        """Does nothing: journalctl ends with the read that started it."""


def _whole(position: Position) -> dict[str, Any]:
    """Returns a position as it is saved. `read` yields a bare cursor if there is nothing else in it."""
    return {"cursor": position} if isinstance(position, str) else dict(position)


def _checked(position: Position) -> dict[str, Any]:
    """Returns the position. Raises FatalError if it is invalid: a person may have set it."""
    kinds = {"cursor": str, "upto": str, "since": int, "said": list}
    if isinstance(position, dict) and all(isinstance(value, kinds.get(name, ())) for name, value in position.items()):
        return position
    words = "the saved position is none of a journal"
    raise FatalError(
        words, 'it looks like {"cursor": "s=..."}, or {"since": MICROSECONDS}, or {} for the beginning: copycat offsets set NAME'
    )


def _from(position: Position) -> list[str]:
    """Returns arguments for journalctl to begin at a position, with the entry that was read last."""
    if position.get("cursor"):
        return [f"--cursor={position['cursor']}"]
    if "since" in position:
        return [f"--since=@{position['since'] // 1_000_000}.{position['since'] % 1_000_000:06d}"]
    return []


def _new(damage: list[str], kept: Mapping[str, Any]) -> list[str]:
    return [one for one in damage if one not in kept.get("said", ())]


def _with(position: dict[str, Any], new: list[str]) -> dict[str, Any]:
    return {**position, "said": [*position.get("said", ()), *new][-_SAID_MOST:]} if new else position


def _key(options: JournaldOptions) -> str:
    """Returns the partition's key, which names the journal: a cursor is meaningless in another one."""
    place = options.directory or ""
    if not re.fullmatch(r"[!-~]{0,120}", place):
        place = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return ":".join(one for one in ("journal", place, options.namespace) if one)


JOURNALD = source_kind(
    JournaldOptions,
    JournaldSource,
    probe=probe_journal,
    sample=_SAMPLE,
    only_here="each task would read the journal of the host that it runs on",
)
