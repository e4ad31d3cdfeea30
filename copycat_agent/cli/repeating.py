"""Doing the same again whenever one of a few files is saved, until Ctrl-C."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from rich.console import Console

from copycat_agent.watch import Wake, Watcher

_LOOK_SECONDS = 1.0
"""Files are looked at so often without an event too: not every file system has events."""
_SAVING_SECONDS = 0.05
"""Editors save in several steps."""

Mark = tuple[int, int, int] | None


def repeat(work: Callable[[], object], paths: Sequence[Path], console: Console) -> None:
    """Do `work` now, and again whenever one of `paths` is another file than before. On a terminal the screen is cleared before."""
    watcher, wake = Watcher(), Wake()
    watcher.watch(wake, {str(path.absolute().parent) for path in paths})
    try:
        while True:
            seen = _marks(paths)
            if console.is_terminal:
                console.clear()
            work()
            names = " or ".join(path.name for path in paths)
            typer.echo(f"{time.strftime('%H:%M:%S')}  waiting for {names} to be saved; Ctrl-C ends", err=True)
            while _marks(paths) == seen:
                wake.wait(_LOOK_SECONDS)
                wake.take()
            time.sleep(_SAVING_SECONDS)
    except KeyboardInterrupt:
        return  # it is how one leaves
    finally:
        watcher.close()


def _marks(paths: Sequence[Path]) -> list[Mark]:
    return [_mark(path) for path in paths]


def _mark(path: Path) -> Mark:
    """What tells one version of a file from the next; None while there is none."""
    try:
        info = os.stat(path)  # noqa: PTH116 - as everywhere in this package
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns
