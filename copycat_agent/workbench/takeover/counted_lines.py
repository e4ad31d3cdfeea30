"""Converts positions of Kafka Connect's SpoolDir, which are numbers of lines, to bytes, if every line is a record.

Its offsets remain when a file is finished, and identify it only by name. So a file that was changed since, or that has the name of a
finished one, is another file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from copycat_agent.errors import DataError
from copycat_agent.formats import Reader
from copycat_agent.options import Definition
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.paths.regular_files import open_regular
from copycat_agent.workbench.takeover.peer_state import PeerPosition

_BLOCK = 2**20
_ENCODINGS = frozenset({"utf-8", "utf8", "ascii", "us-ascii", "latin-1", "iso-8859-1", "windows-1252", "cp1252"})
"""Encodings in which the byte of a line feed, or of a quote, is never part of another character."""


def in_bytes(position: PeerPosition, path: str, definition: Definition, saved_ns: int) -> PeerPosition:
    """Returns the position in bytes of the file at `path`, or with `unusable` set. `saved_ns` is when the peer saved it."""
    source = definition.source.model_dump()
    try:
        quote = _quote(source.get("format"))
        _check_unfinished(Path(path).name, source.get("cleanup"))
        return position._replace(position=_behind(path, position.position, quote, saved_ns), in_lines=False)
    except DataError as error:
        return position._replace(unusable=error.message)
    except OSError as error:
        return position._replace(unusable=f"it cannot be read: {error.strerror}")


def _quote(layout: Any) -> bytes:  # noqa: ANN401 - as the definition has it
    """Returns the quote within which a line feed ends no record, b"" for none. Raises DataError if records may be anything but lines."""
    kind = layout.get("type") if isinstance(layout, dict) else layout
    is_other = kind not in ("lines", "csv") or layout.get("encoding") not in _ENCODINGS
    if is_other or layout.get("skip_lines") or (kind == "lines" and layout.get("multiline")):
        words = "only lines can be counted here: formats lines and csv, in UTF-8, without skip_lines or multiline"
        raise DataError(f"SpoolDir counts records of it, and {words}")
    return (layout.get("quote") or "").encode() if kind == "csv" else b""


def _check_unfinished(name: str, cleanup: Any) -> None:  # noqa: ANN401 - as the definition has it
    """Raises DataError if a file of this name was finished, and OSError."""
    to = cleanup.get("to") if isinstance(cleanup, dict) else None
    if not to or not os.path.isdir(to):  # noqa: PTH112 - a name out of the definition
        return
    with os.scandir(to) as listing:
        directories = [to, *(entry.path for entry in listing if entry.is_dir(follow_symlinks=False))]
    if found := next((one for one in directories if os.path.lexists(Path(one, name))), ""):
        raise DataError(f"{found} has a finished file of this name, and the position may be of that one")


def _behind(path: str, lines: int, quote: bytes, saved_ns: int) -> int:
    """Returns the position after the first `lines` lines. Raises DataError and OSError."""
    fd, info = open_regular(path, follow_symlinks=True)
    try:
        if info.st_mtime_ns > saved_ns:
            raise DataError("it was changed after the peer last saved where it was")
        return _behind_line(fingerprint.reader(fd), lines, quote)
    finally:
        os.close(fd)


def _behind_line(read: Reader, lines: int, quote: bytes) -> int:
    """Returns the position after the first `lines` lines. Raises DataError if there are fewer, or they may not be records, and OSError."""
    at = seen = 0
    while seen < lines and (block := read(at, _BLOCK)):
        wanted = lines - seen
        last = block.split(b"\n", wanted)[-1] if block.count(b"\n") >= wanted else b""
        part = block[: len(block) - len(last)]
        if (quote and quote in part) or part.count(b"\r") != part.count(b"\r\n"):
            raise DataError(
                "SpoolDir counts its lines, and not every one of them is surely a record: quotes, or carriage returns, are before it"
            )
        seen, at = seen + part.count(b"\n"), at + len(part)
    if seen < lines:
        msg = f"it holds {seen:,} lines and the peer had read {lines:,}: it was cut, written anew, or has no line feed at its end"
        raise DataError(msg)
    return at
