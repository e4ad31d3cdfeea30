"""An input directory, its targets, and a `Cleaner` that can be killed between any two things it does to the file system."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest import mock

from copycat_agent import logs
from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.spool_dir.cleanup import moves
from copycat_agent.sources.spool_dir.cleanup.cleaner import Cleaner, CleanupOutcome, FinishedFile
from copycat_agent.sources.spool_dir.spool_options import CleanupOptions

if TYPE_CHECKING:
    from pathlib import Path

DAY = 1_704_153_600
"""2024-01-02T00:00:00Z."""
CHANGING = ("rename", "link", "unlink", "mkdir", "rmdir", "fsync", "fdatasync", "write", "replace", "open", "utime")
"""What of `os` changes something, or may be the last thing before a change."""


class KilledError(BaseException):
    """The process is gone: nothing of it runs any more but what Python insists on."""


class Spool:
    """`root/in`, and wherever the options lead."""

    def __init__(self, root: Path, **cleanup: Any) -> None:
        self.root = root
        self.input = root / "in"
        self.input.mkdir(exist_ok=True)
        self.options = CleanupOptions.model_validate(cleanup)
        self.recursive = False
        self.now = 1_800_000_000.0
        self.cleaner = self.restarted()

    def restarted(self) -> Cleaner:
        """A new process. What the one before had open below the root is closed, as the kernel does it."""
        for descriptor in _descriptors_below(self.root):
            os.close(descriptor)
        log = logs.get("test")
        self.cleaner = Cleaner("orders", str(self.input), self.options, log, recursive=self.recursive, clock=lambda: self.now)
        return self.cleaner

    def drop(self, name: str = "a.csv", content: str = "1\n", *, mtime: float = DAY) -> Path:
        """A file as somebody leaves it."""
        path = self.input / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (mtime, mtime))
        return path

    def clean(self, *files: FinishedFile) -> list[CleanupOutcome]:
        """Until nothing asks to be called at once."""
        for _ in range(1000):
            outcomes = self.cleaner.clean(files)
            if not any(one.state == "kept" and one.retry_seconds == 0 for one in outcomes):
                return outcomes
        raise AssertionError(outcomes)

    def tree(self, *, hidden: bool = False) -> dict[str, str]:
        """Every file below the root, by its path, with what is in it; explanations without their text."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and (hidden or not path.name.startswith(".")):
                found[str(path.relative_to(self.root))] = "" if path.name.endswith(".error.json") else path.read_text()
        return found


def finished(path: Path, **over: Any) -> FinishedFile:
    """The file as it is now, read to its end."""
    fd = os.open(path, os.O_RDONLY)
    try:
        info = os.fstat(fd)
        return FinishedFile(str(path), identify(fd, info), info.st_size, info.st_mtime_ns, **over)
    finally:
        os.close(fd)


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """The process dies before the `step`th call (from 0) that changes something: the block ends there. Yields the calls that were made.

    What it had open is closed by `Spool.restarted`.
    """
    made: list[str] = []
    dying = threading.get_ident()

    def guard(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != dying:  # another test's thread
                return call(*args, **kwargs)
            if len(made) >= step:
                raise KilledError(name)
            made.append(name)
            return call(*args, **kwargs)

        return guarded

    with suppress(KilledError), ExitStack() as patched:
        for name in CHANGING:
            patched.enter_context(mock.patch.object(os, name, guard(name, getattr(os, name))))
        if renameat2 := moves._renameat2():
            guarded = guard("renameat2", renameat2)
            patched.enter_context(mock.patch.object(moves, "_renameat2", return_value=guarded))
        yield made


def _descriptors_below(root: Path) -> list[int]:
    """Those that this process has of files and directories there. Threads of other tests have others, which are not ours to close."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are numbers
        with suppress(FileNotFoundError):  # the one that listed them
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{root}/"):  # noqa: PTH115 - a deleted file's has more than its name
                found.append(int(name))
    return found


@contextmanager
def without_renameat2() -> Iterator[None]:
    """A file system that cannot rename without overwriting, as NFS."""
    with mock.patch.object(moves, "_renameat2", return_value=None):
        yield
