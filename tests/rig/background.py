"""A thread that works while a block runs, and whose error is seen where the block ends."""

from __future__ import annotations

import threading
from typing import Self


class Background:
    """Base class: `_work` runs on a thread until `_stop` is set, which the end of the block does; what it raises, the block raises then."""

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_safely, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._close()
        if self._error:
            raise self._error

    def _work(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        """Called once the thread has ended."""

    def _run_safely(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - `__exit__` raises it where it is seen
            self._error = error
