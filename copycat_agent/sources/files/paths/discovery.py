"""Finds the files that match the patterns, and the matching paths that cannot be read, each logged once."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from copycat_agent.logs import Log
from copycat_agent.sources.files.paths.matching import is_wild, name_regex, path_regex, split_pattern
from copycat_agent.sources.files.paths.regular_files import LinkError, Opener, why_not


class PassedOver:
    """Remembers what is wrong with which path, in this scan and the one before."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._now: dict[str, str] = {}
        self._before: dict[str, str] = {}
        self.unreadable = 0
        """How many paths matched and could not be opened, listed or read: the number of `paths`."""

    def __contains__(self, path: str) -> bool:
        return path in self._now

    def is_unreadable(self, path: str) -> bool:
        """Returns whether it is one of `paths`: it exists, and its content is not known."""
        return self._now.get(path, "").startswith("cannot be")

    def paths(self) -> list[str]:
        """Returns the paths that `unreadable` counts."""
        return [path for path in self._now if self.is_unreadable(path)]

    def reasons(self) -> dict[str, str]:
        """Returns the reasons why matching paths are not read, by path."""
        return dict(self._now)

    def begin_scan(self) -> None:
        """Begins a scan: later warnings belong to it."""
        self._before, self._now, self.unreadable = self._now, {}, 0

    def warn(self, path: str, why: str) -> None:
        """Logs what is wrong with a path; repeats it only after a scan without it, or with another reason."""
        if self._before.get(path) != why and self._now.get(path) != why:
            self._log.warning("path passed over", path=path, why=why)
        was_unreadable = self.is_unreadable(path)
        self._now[path] = why
        self.unreadable += self.is_unreadable(path) - was_unreadable


Mark = tuple[int, int, int, int] | None
"""The result of `mark` for a directory; None if it cannot be determined."""
Warn = Callable[[str, str], None]
"""`warn(path, why)`; the receiver logs each only once."""
_Todo = list[tuple[str, tuple[str, ...]]]
"""Directories still to be walked, and the rest of the pattern below each."""
_LINK = "is a symbolic link; set follow_symlinks: true to read what it points to"
NO_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE))


class MatchedFile(NamedTuple):
    """One matching file: its name and its stat."""

    path: str
    stat: os.stat_result


class NamedEntry:
    """A name that a pattern spells out, with the interface of `os.DirEntry`. Its directory, however large, is not listed for it."""

    __slots__ = ("_directory", "_info", "name")

    def __init__(self, name: str, directory: int) -> None:
        """`directory` is the descriptor of an open one, and stays open. Raises OSError if there is no such name."""
        self.name = name
        self._directory = directory
        self._info = os.stat(name, dir_fd=directory, follow_symlinks=False)

    def is_symlink(self) -> bool:
        """Returns whether the name is a symbolic link."""
        return stat.S_ISLNK(self._info.st_mode)

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        """Returns the stat of what the name leads to, or of the link itself. Raises OSError for a link that leads to nothing."""
        if not (follow_symlinks and self.is_symlink()):
            return self._info
        return os.stat(self.name, dir_fd=self._directory)

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        """Returns whether it leads to a directory. Raises OSError for errors other than a link that leads to nothing."""
        try:
            return stat.S_ISDIR(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except FileNotFoundError:
            return False


Entry = os.DirEntry[str] | NamedEntry


class Discovery:
    """Finds files by glob patterns: `*`, `?`, `[...]` within one name, `**` for any number of directories.

    As in a shell, a wildcard does not match a leading dot. An exclude pattern without a slash is matched against the file's name, one with
    a slash against its whole path. The opener decides which links are followed; a directory is opened by it and listed through its
    descriptor, so no swap of names leads a scan astray.
    """

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...], opener: Opener) -> None:
        self._include = {pattern: split_pattern(pattern) for pattern in include}
        self._include_paths = [path_regex(pattern) for pattern in include]
        self._exclude_names = [name_regex(pattern) for pattern in exclude if "/" not in pattern]
        self._exclude_paths = [path_regex(pattern) for pattern in exclude if "/" in pattern]
        self._opener = opener
        self._follow = opener.follow_symlinks
        self._visited: set[tuple[object, tuple[str, ...]]] = set()
        self.directories: set[str] = set()
        self.marks: dict[str, Mark] = {}
        self.has_dangling = False
        self.unlisted: set[str] = set()
        self.unmatched: set[str] = set()
        self.starved = False
        """Whether the last scan failed to list a directory because the process may open no more."""

    def scan(self, warn: Warn) -> Iterator[MatchedFile]:
        """Yields every matching regular file once. Calls `warn` for what cannot be read or is not a regular file.

        Afterwards `directories` are those to watch, `marks` are their marks before they were listed, `unlisted` those that exist but could
        not be listed (nothing is known about the files in them), and `unmatched` the patterns that matched nothing. `has_dangling`: a link
        leads to nothing now; its later target shows in no directory that was walked.
        """
        self.directories, self.unlisted, self.unmatched = set(), set(), set()
        self.marks, self.has_dangling = {}, False
        self.starved = False
        self._visited.clear()
        seen: set[str] = set()
        for pattern, (root, parts) in self._include.items():
            matched, unlisted = False, len(self.unlisted)
            todo = [(root, parts)]
            while todo:
                for found in self._walk(root, *todo.pop(), todo, warn):
                    matched = True
                    if found is not None and found.path not in seen:
                        seen.add(found.path)
                        yield found
            if not matched and len(self.unlisted) == unlisted:
                self.unmatched.add(pattern)

    def may_match(self, path: str) -> bool:
        """Returns whether a scan might find a file at `path`; False is certain."""
        return any(regex.match(path) for regex in self._include_paths) and not self.excludes(path)

    def excludes(self, path: str) -> bool:
        """Returns whether an exclude pattern matches `path`: then nothing may be read there, whatever else is known of the file."""
        name = path.rpartition("/")[2]
        return any(regex.match(name) for regex in self._exclude_names) or any(regex.match(path) for regex in self._exclude_paths)

    def _walk(self, root: str, directory: str, parts: tuple[str, ...], todo: _Todo, warn: Warn) -> Iterator[MatchedFile | None]:
        """Yields files of one directory below `root`, None for each excluded one; adds directories that the pattern leads to to `todo`."""
        if self._been_there(directory, parts):
            return
        fd = self._open(directory, root, warn)
        if fd < 0:
            return
        deep = parts[0] == "**"
        part, rest = (parts[1] if deep else parts[0]), parts[2 if deep else 1 :]
        try:
            for entry, path in self._entries(fd, directory, part, warn, deep=deep):
                if deep and not entry.name.startswith(".") and self._is_directory(entry, path):
                    todo.append((path, parts))
                if not name_regex(part).match(entry.name):
                    continue
                if rest:
                    self._go_down(entry, path, rest, todo, None if part == "*" else warn)
                elif self.excludes(path):
                    yield None
                elif found := self._file(entry, path, warn, told=part != "*" and not deep):
                    yield found
        finally:
            os.close(fd)

    def _open(self, directory: str, root: str, warn: Warn) -> int:
        """Returns the descriptor of a directory, -1 if it cannot be listed. Existing and missing directories are both watched."""
        fd = -1
        try:
            fd = self._opener.open_directory(directory, root)
        except LinkError as error:
            warn(directory, why_not(error))
            return -1
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note_unlisted(directory, error, warn)
        self.directories.add(directory)
        self.marks.setdefault(directory, mark(directory))
        return fd

    def _entries(self, fd: int, directory: str, part: str, warn: Warn, *, deep: bool) -> list[tuple[Entry, str]]:
        """Returns the entries of a directory that may match, each with its path; none if it cannot be listed."""
        regex, above = name_regex(part), directory if directory == "/" else f"{directory}/"
        try:
            if not deep and not is_wild(part):
                return [(NamedEntry(part, fd), above + part)]
            with os.scandir(fd) as listing:
                return [(entry, above + entry.name) for entry in listing if deep or regex.match(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._note_unlisted(directory, error, warn)
            return []

    def _note_unlisted(self, directory: str, error: OSError, warn: Warn) -> None:
        self.unlisted.add(directory)
        self.starved = self.starved or error.errno in NO_DESCRIPTORS
        warn(directory, f"cannot be listed: {error.strerror}")

    def _been_there(self, directory: str, parts: tuple[str, ...]) -> bool:
        """Returns whether a directory was walked before with this rest of a pattern: links may lead in circles."""
        place: object = directory
        if self._follow:
            try:
                info = Path(directory).stat()
            except OSError:
                return False
            place = (info.st_dev, info.st_ino)
        known = (place, parts) in self._visited
        self._visited.add((place, parts))
        return known

    def _is_directory(self, entry: Entry, path: str) -> bool:
        try:
            is_directory = entry.is_dir(follow_symlinks=self._follow)
        except OSError:
            is_directory = False
        if self._follow and not is_directory and entry.is_symlink() and not os.path.exists(path):  # noqa: PTH110 - a hot path
            self.has_dangling = True
        return is_directory

    def _go_down(self, entry: Entry, path: str, rest: tuple[str, ...], todo: _Todo, warn: Warn | None) -> None:
        """Continues the pattern below `path`. Calls `warn` if nothing can be there."""
        if self._is_directory(entry, path):
            todo.append((path, rest))
        elif warn and not entry.is_symlink():
            warn(path, "is not a directory; the pattern expects one")
        elif warn and not self._follow:
            warn(path, _LINK)

    def _file(self, entry: Entry, path: str, warn: Warn, *, told: bool) -> MatchedFile | None:
        """Returns what the pattern leads to, if it is a regular file. `told`: a directory there causes a warning."""
        try:
            info = entry.stat(follow_symlinks=self._follow)
            if self._follow and entry.is_symlink():
                self._opener.check(path)
        except FileNotFoundError:
            self.has_dangling = True
            return None  # it went away, or is a link to nothing: the next scan finds out
        except LinkError as error:
            warn(path, why_not(error))
            return None
        except OSError as error:
            warn(path, f"cannot be looked at: {error.strerror}")
            return None
        if stat.S_ISREG(info.st_mode):
            return MatchedFile(path, info)
        if stat.S_ISLNK(info.st_mode):
            warn(path, _LINK)
        elif not stat.S_ISDIR(info.st_mode):
            warn(path, "is not a regular file")
        elif told:
            warn(path, "is a directory; the pattern expects a file")
        return None


def mark(directory: str) -> Mark:
    """Returns a mark that changes with the directory's entries, and if another directory replaces it; None if there is none."""
    try:
        info = os.stat(directory)  # noqa: PTH116 - a hot path
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns
