"""Selects the records of a backfill by their time: those written at or after one moment and before another one.

A record's time is the one that a transform has set, else the one in its text, as `formats.timestamps` reads it. A line
without a time belongs to the line before. Records without any known time are sent, and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from copycat_agent.formats import Draft
from copycat_agent.formats.timestamps import HEAD_CHARACTERS, LineClock, recognise, time_of
from copycat_agent.options import Definition, Field, Options

LOOK_BYTES = 2**16
"""Bytes at the beginning of a file that show how it writes times, and the most to read back for the line that a line belongs to."""

Read = Callable[[int, int], bytes]


class WindowOptions(Options):
    """Times in epoch milliseconds; None: no bound. `time_field` names the field of records of fields that says when."""

    since_ms: int | None = Field(None, description="Not before.")
    until_ms: int | None = Field(None, description="Before.")
    time_field: str | None = Field(None, description="Field with the time.")


class WindowedDefinition(Definition):
    """A definition for one run, in which only records of a time count: the others are dropped. No YAML makes one."""

    window: WindowOptions = Field(description="The records that are wanted.")


def window_of(definition: Definition, *, raw: bool) -> Window | None:
    """Returns the window of a definition, None when it wants everything. `raw`: values are in the file's own encoding."""
    options = getattr(definition, "window", None)
    if options is None:
        return None
    encoding = getattr(definition.source, "encoding", "utf-8")
    encoding = "utf-8" if encoding == "auto" else encoding
    return Window(options, encoding, encoding if raw else "utf-8")


class Window:
    """The window of a definition. Stateless, one per definition and process."""

    def __init__(self, options: WindowOptions, file_encoding: str, encoding: str) -> None:
        self.options = options
        self.file_encoding = file_encoding
        self.encoding = encoding

    def bind(self, read: Read, position: int, mtime_ms: int) -> BoundWindow:
        """Returns the window for the records of one file from `position` on; `read` reads its uncompressed bytes by position."""
        return BoundWindow(self, read, position, mtime_ms / 1000)


class BoundWindow:
    """The window for one file. Sees each of its records once, in order."""

    def __init__(self, window: Window, read: Read, position: int, near: float) -> None:
        self._window = window
        self._read = read
        self._position = position
        self._near = near
        self._now: float | None = None
        self._before: float | None = None
        self._has_looked = False
        self._clock: LineClock | None = None
        self._undated = 0

    def see(self, record: Draft) -> None:
        """Takes note of the next record. Called before any transform."""
        framed = record.framed
        if isinstance(framed, dict):
            names = [column.name for column in record.schema.columns if column.type.startswith("timestamp")] if record.schema else []
            wanted = self._window.options.time_field
            self._now = time_of(framed, self._near, [wanted] if wanted else names)
        elif isinstance(framed, bytes):
            if not self._has_looked:
                self._look()
            found = self._of_line(framed.decode(self._window.encoding, "replace"))
            self._now = self._before = self._before if found is None else found

    def takes(self, record: Draft) -> bool:
        """Returns whether the last record that was seen is selected, as the transforms left it."""
        options = self._window.options
        at_ms = record.timestamp_ms
        if at_ms is None:
            if self._now is None:
                self._undated += 1
                return True
            at_ms = round(self._now * 1000)
        return (options.since_ms is None or at_ms >= options.since_ms) and (options.until_ms is None or at_ms < options.until_ms)

    def take_undated(self) -> int:
        """Returns the number of records without a time since the last call."""
        undated, self._undated = self._undated, 0
        return undated

    def _of_line(self, line: str) -> float | None:
        wanted = self._window.options.time_field
        if wanted is not None and line.lstrip().startswith("{"):
            try:
                return time_of(json.loads(line), self._near, [wanted])
            except (ValueError, RecursionError):
                return None
        return self._clock.read(line) if self._clock else None

    def _look(self) -> None:
        """Determines how this file writes times, and the time of the record before the position."""
        self._has_looked = True
        codec = self._window.file_encoding
        head = self._read(0, LOOK_BYTES).decode(codec, "replace").split("\n")
        whole = [line for line in head[:-1] or head if line]
        self._clock = recognise([line if line.lstrip().startswith("{") else line[:HEAD_CHARACTERS] for line in whole], self._near)
        if self._position:
            begin = max(0, self._position - LOOK_BYTES)
            lines = self._read(begin, self._position - begin).decode(codec, "replace").split("\n")
            times = (self._of_line(line) for line in reversed(lines[1 if begin else 0 :]))
            self._before = next((one for one in times if one is not None), None)
