"""The pulse: whether what every connector needs still answers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

BEAT_SECONDS = 1.0
"""From one round to the next."""


class Pulse:
    """A thread that asks each of `questions` again and again. One that hangs stops it; one that raises has answered.

    A connector that hangs in its own files is none of its business: the service manager would restart the whole agent for one bad mount.
    """

    def __init__(self, questions: Sequence[Callable[[], object]]) -> None:
        self._questions = questions
        self._beat_at = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    @property
    def age(self) -> float:
        """Seconds since everything had answered. For any thread."""
        return time.monotonic() - self._beat_at

    def start(self) -> None:
        """Begin. Called once."""
        self._thread.start()

    def close(self) -> None:
        """No question is asked from now on; one that hangs is left behind."""
        self._closing.set()
        self._thread.join(BEAT_SECONDS)

    def _run(self) -> None:
        while not self._closing.wait(BEAT_SECONDS):
            for question in self._questions:
                with contextlib.suppress(Exception):  # an error is an answer, too
                    question()
            self._beat_at = time.monotonic()
