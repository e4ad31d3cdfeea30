"""Keys of a terminal, one at a time, while something else is drawn on it."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from enum import Enum, auto
from typing import IO, Any, Self


class Key(Enum):
    """What somebody wants, by whichever key."""

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
    b"\x1b[A": Key.UP, b"\x1bOA": Key.UP, b"k": Key.UP,
    b"\x1b[B": Key.DOWN, b"\x1bOB": Key.DOWN, b"j": Key.DOWN,
    b"\x1b[5~": Key.PAGE_UP, b"b": Key.PAGE_UP,
    b"\x1b[6~": Key.PAGE_DOWN, b" ": Key.PAGE_DOWN,
    b"\x1b[H": Key.FIRST, b"\x1bOH": Key.FIRST, b"\x1b[1~": Key.FIRST, b"g": Key.FIRST,
    b"\x1b[F": Key.LAST, b"\x1bOF": Key.LAST, b"\x1b[4~": Key.LAST, b"G": Key.LAST,
    b"\r": Key.OPEN, b"\n": Key.OPEN, b"\x1b[C": Key.OPEN, b"\x1bOC": Key.OPEN,
    b"\x1b": Key.BACK, b"\x7f": Key.BACK, b"\x1b[D": Key.BACK, b"\x1bOD": Key.BACK,
    b"q": Key.QUIT,
}  # fmt: skip
"""What terminals send: arrows as CSI or, in application mode, as SS3."""
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
_BEGUN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?")
_REST_SECONDS = 0.05
"""A sequence comes in one piece, or nearly so: an escape that stays alone so long is the key Esc."""
_READ_BYTES = 1024


class Keyboard:
    """The keys of stdin while it is a terminal; without one there are none. A context manager: the terminal is as before afterwards."""

    def __init__(self, stream: IO[str] = sys.stdin) -> None:
        self._descriptor = stream.fileno() if stream.isatty() else None
        self._bytes = b""
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        """Keys come without Enter and are not echoed; Ctrl-C stays a signal."""
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

    def wait(self, seconds: float) -> Key | None:
        """The next key; None when none came within `seconds`, or one that means nothing. EOFError when the terminal is gone."""
        if not self._bytes:
            self._read(seconds)
        while self._bytes and _BEGUN.fullmatch(self._bytes) and self._read(_REST_SECONDS):
            pass
        sequence = _SEQUENCE.match(self._bytes)
        key = sequence[0] if sequence else self._bytes[:1]
        self._bytes = self._bytes[len(key) :]
        return _KEYS.get(key)

    def _read(self, seconds: float) -> bool:
        """Whether something came."""
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
