"""Reads keys from a terminal, one at a time, while something else is drawn on it."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from enum import Enum, auto
from typing import IO, Any, Self


class KeyPress(Enum):
    """The commands that keys stand for."""

    UP = auto()
    DOWN = auto()
    PAGE_UP = auto()
    PAGE_DOWN = auto()
    FIRST = auto()
    LAST = auto()
    OPEN = auto()
    BACK = auto()
    QUIT = auto()


_KEYS = {
    b"\x1b[A": KeyPress.UP, b"\x1bOA": KeyPress.UP, b"k": KeyPress.UP,
    b"\x1b[B": KeyPress.DOWN, b"\x1bOB": KeyPress.DOWN, b"j": KeyPress.DOWN,
    b"\x1b[5~": KeyPress.PAGE_UP, b"b": KeyPress.PAGE_UP,
    b"\x1b[6~": KeyPress.PAGE_DOWN, b" ": KeyPress.PAGE_DOWN,
    b"\x1b[H": KeyPress.FIRST, b"\x1bOH": KeyPress.FIRST, b"\x1b[1~": KeyPress.FIRST, b"g": KeyPress.FIRST,
    b"\x1b[F": KeyPress.LAST, b"\x1bOF": KeyPress.LAST, b"\x1b[4~": KeyPress.LAST, b"G": KeyPress.LAST,
    b"\r": KeyPress.OPEN, b"\n": KeyPress.OPEN, b"\x1b[C": KeyPress.OPEN, b"\x1bOC": KeyPress.OPEN,
    b"\x1b": KeyPress.BACK, b"\x7f": KeyPress.BACK, b"\x1b[D": KeyPress.BACK, b"\x1bOD": KeyPress.BACK,
    b"q": KeyPress.QUIT,
}  # fmt: skip
"""The sequences of terminals: arrows as CSI or, in application mode, as SS3."""
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?")
_REST_SECONDS = 0.05
"""A sequence comes in one piece, or nearly so: an escape without more for this long is the key Esc."""
_READ_BYTES = 1024


class Keyboard:
    """The keys of stdin if it is a terminal; else there are none. A context manager, which restores the terminal at the end."""

    def __init__(self, stream: IO[str] = sys.stdin) -> None:
        self._descriptor = stream.fileno() if stream.isatty() else None
        self._bytes = b""
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        """Makes keys come without Enter and without echo; Ctrl-C stays a signal."""
        if self._descriptor is not None:
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None and self._before is not None:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    @property
    def is_there(self) -> bool:
        """Whether keys can come."""
        return self._descriptor is not None

    def wait(self, seconds: float) -> KeyPress | None:
        """Returns the next key; None if none came within `seconds`, or an unknown one. Raises EOFError if the terminal is gone."""
        if not self._bytes:
            self._read(seconds)
        while self._bytes and _BEGUN.fullmatch(self._bytes) and self._read(_REST_SECONDS):
            pass
        sequence = _SEQUENCE.match(self._bytes)
        key = sequence[0] if sequence else self._bytes[:1]
        self._bytes = self._bytes[len(key) :]
        return _KEYS.get(key)

    def _read(self, seconds: float) -> bool:
        """Reads input. Returns whether any came. Raises EOFError."""
        sources = [] if self._descriptor is None else [self._descriptor]
        if not select.select(sources, [], [], seconds)[0]:
            return False
        try:
            came = os.read(sources[0], _READ_BYTES)
        except OSError:  # EIO: its other end was closed
            came = b""
        if not came:
            raise EOFError
        self._bytes += came
        return True
