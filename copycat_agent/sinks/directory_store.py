"""A store in a directory of this host, or of a file system that several hosts have mounted.

link(2) creates a name or fails if it exists, so it serves as put-if-absent and as a rename that overwrites nothing. What one process has
seen must survive a power failure, since others build on it: every method returns after the fsync of what it reports.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from copycat_agent.errors import BlockedError, CopycatError, FatalError, RetriableError
from copycat_agent.sinks.file_names import CONTROL, tree_parts
from copycat_agent.sinks.scratch import scratch_below

SCRATCH = f"{CONTROL}/scratch"
"""Directory of files that are later renamed or linked to their keys. It is below the root, since neither works across file systems."""

SYNCED_AT_ONCE = 16
"""Threads that call fsync at the same time."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_MISNAMED = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class DirectoryStore:
    """A `SinkStore` of files below `root`, which the first write creates."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def shown(self, key: str = "") -> str:
        return f"file://{self._at(key)}"

    def scratch(self) -> Path:
        with self._translating("make a directory", SCRATCH):
            return scratch_below(self._root / SCRATCH)

    def has_conditional_put(self) -> bool:
        with self._translating("link files", SCRATCH), tempfile.TemporaryDirectory(dir=self.scratch()) as directory:
            one, other = Path(directory, "one"), Path(directory, "other")
            one.touch()
            try:
                os.link(one, other)
                os.link(one, other)
            except FileExistsError:
                return other.samefile(one)
            except OSError as error:
                if error.errno in _NO_LINKS:
                    return False
                raise
            return False

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._translating("write", key):
            path = self._at(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.scratch() / uuid.uuid4().hex
            try:
                with beside.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(beside, path)
                is_new = True
            except FileExistsError:
                is_new = False
            finally:
                beside.unlink(missing_ok=True)
            self._sync_all(path.parent)
            return is_new

    def get(self, key: str) -> bytes | None:
        with self._translating("read", key):
            path = self._at(key)
            try:
                data = path.read_bytes()
                self._sync_all(path.parent)
            except FileNotFoundError:
                return None
            return data

    def upload(self, files: Mapping[str, Path]) -> None:
        with self._translating("write", CONTROL):
            for key, path in files.items():
                self._at(key).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(path, self._at(key))
            _sync(*map(self._at, files))
            self._sync_all(*(self._at(key).parent for key in files))

    def publish(self, moves: Mapping[str, str]) -> None:
        with self._translating("publish", ""):
            there = {temporary: self._at(final) for temporary, final in moves.items() if self._at(temporary).exists()}
            for final in there.values():
                final.parent.mkdir(parents=True, exist_ok=True)
            published = [temporary for temporary, final in there.items() if self._link(self._at(temporary), final)]
            self._sync_all(*(there[one].parent for one in published))
        self.delete(published)

    def _link(self, temporary: Path, final: Path) -> bool:
        """Links a pending file to its final name. Returns False if it is no longer pending."""
        try:
            os.link(temporary, final)
        except FileNotFoundError:
            if temporary.exists():  # the directory of the final name was removed
                raise
            return False
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # the pending name, removed by the writer that made this link
                if not temporary.samefile(final):
                    hint = "let no two connectors write a topic to one directory"
                    raise FatalError(f"{final} is not this connector's file", hint) from None
        return True

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        with self._translating("list", directory):
            found = sorted(_files_below(self._at(directory) if directory else self._root), key=os.fsencode)
        skipped = len(f"{self._root}/")
        for one in found:
            if os.fsencode(one[skipped:]) > os.fsencode(after):
                yield one[skipped:]

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes files, and directories below `CONTROL` that become empty."""
        for key in keys:
            with self._translating("delete", key):
                path = self._at(key)
                path.unlink(missing_ok=True)
                if key.startswith(f"{CONTROL}/"):
                    with contextlib.suppress(OSError):
                        path.parent.rmdir()

    def _sync_all(self, *directories: Path) -> None:
        """Syncs directories and their parents, which another process may have created and not synced yet."""
        above = set(self._root.parent.parents)
        _sync(*{one for directory in directories for one in (directory, *directory.parents)} - above)

    def _at(self, key: str) -> Path:
        return self._root.joinpath(*tree_parts(key))

    @contextlib.contextmanager
    def _translating(self, what: str, key: str) -> Iterator[None]:
        """Translates OSError into the error that tells the caller what to do."""
        try:
            yield
        except CopycatError:
            raise
        except OSError as error:
            raise _as_ours(error, f"cannot {what} {self._root / key}: {os.strerror(error.errno or errno.EIO)}") from None


def _as_ours(error: OSError, msg: str) -> CopycatError:
    if error.errno in _NO_SPACE:
        return BlockedError(msg, "make room there")
    if error.errno in _REFUSED:
        return BlockedError(msg, "give this user the right to write there")
    if error.errno == errno.EEXIST and isinstance(error.filename, str) and not os.path.exists(error.filename):  # noqa: PTH110 - a name
        return BlockedError(f"{error.filename} is a link to a directory that is not there", "mount it, or make it")
    if error.errno in _MISNAMED:
        return FatalError(msg, "look at sink.uri and sink.path")
    return RetriableError(msg, "look at the file system")


def _sync(*paths: Path) -> None:
    """Syncs files and directories, on several threads: the file system then writes its journal once for many of them."""
    if len(paths) > 1:
        with ThreadPoolExecutor(min(len(paths), SYNCED_AT_ONCE)) as pool:
            list(pool.map(_sync, paths))
        return
    for path in paths:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _files_below(directory: Path) -> Iterator[str]:
    """Yields the regular files below a directory. Links are not followed; a directory that disappears meanwhile has no files."""
    found: list[os.DirEntry[str]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        found = list(entries)
    for one in found:
        with contextlib.suppress(FileNotFoundError):
            mode = one.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                yield from _files_below(Path(one.path))
            elif stat.S_ISREG(mode):
                yield one.path
