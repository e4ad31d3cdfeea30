"""Where lines go: a file descriptor whose reader may be slow, stuck or gone, which must not hold up the agent."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable
from typing import TextIO

PATIENCE_SECONDS = 1.0
"""How long a line waits for a reader that does not read. Once one waited in vain, the next ones do not wait until one gets through."""
_CHUNK_BYTES = 4096
"""PIPE_BUF of Linux: a pipe that says it is writable takes this much without waiting."""


class Sink:
    """Writes whole lines to a stream's descriptor; to the stream itself when it has none (`io.StringIO`), to nowhere when it is None.

    Not thread-safe: the handler's lock is held.
    """

    def __init__(self, stream: TextIO | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._fd = _descriptor(stream)
        self._waits = self._fd is not None and not stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._stuck = False
        self._torn = False

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads along."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # closed
            return False

    @property
    def is_journal(self) -> bool:
        """Whether journald reads: systemd names the socket it has made in $JOURNAL_STREAM, see systemd.exec(5)."""
        named = os.environ.get("JOURNAL_STREAM", "")
        if self._fd is None or not named:
            return False
        info = os.fstat(self._fd)
        return named == f"{info.st_dev}:{info.st_ino}"

    def write(self, line: str) -> bool:
        """Write `line` and its end. False when it could not be written, or not all of it; raises nothing."""
        try:
            if self._fd is None:
                return self._write_stream(line)
            return self._write_all((line + "\n").encode(self._encoding, "backslashreplace"))
        except (OSError, ValueError):
            return False

    def _write_stream(self, line: str) -> bool:
        if self._stream is None:
            return False
        self._stream.write(line + "\n")
        self._stream.flush()
        return True

    def _write_all(self, data: bytes) -> bool:
        assert self._fd is not None
        if self._torn:  # half a line stands there: it ends here
            data = b"\n" + data
        deadline = self._clock() + (0.0 if self._stuck else PATIENCE_SECONDS)
        view = memoryview(data)
        while view:
            if self._waits and not self._is_writable(deadline):
                self._stuck = True
                self._torn = self._torn or len(view) < len(data)
                return False
            try:
                view = view[os.write(self._fd, view[:_CHUNK_BYTES] if self._waits else view) :]
            except BlockingIOError:  # somebody has made it non-blocking
                if self._clock() >= deadline:
                    self._stuck = True
                    self._torn = self._torn or len(view) < len(data)
                    return False
                self._is_writable(deadline)
        self._stuck = self._torn = False
        return True

    def _is_writable(self, deadline: float) -> bool:
        assert self._fd is not None
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(max(0.0, deadline - self._clock()) * 1000))


def _descriptor(stream: TextIO | None) -> int | None:
    """The stream's descriptor, as long as it is open."""
    try:
        number = stream.fileno() if stream is not None else None
        if number is not None:
            os.fstat(number)
    except (OSError, ValueError, AttributeError):
        return None
    return number
