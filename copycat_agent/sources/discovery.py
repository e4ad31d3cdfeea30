"""What is there: the regular files that match include and exclude patterns. A scan is the truth; events only hasten it."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

Mark = tuple[int, int, int, int] | None
"""See `mark`."""
Warn = Callable[[str, str], None]
"""`warn(path, why)`; the caller says each only once."""
NO_DESCRIPTORS = frozenset((errno.EMFILE, errno.ENFILE))


class Found(NamedTuple):
    """One matching file: its name and what stat said."""

    path: str
    stat: os.stat_result


class Discovery:
    """Finds files by glob patterns: `*`, `?`, `[...]` within one name, `**` for any number of directories.

    As in a shell, a wildcard does not match a leading dot. An exclude pattern without a slash is matched against the file's
    name, one with a slash against its whole path. Symbolic links below a pattern's fixed part are followed only on request.
    """

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...], *, follow_symlinks: bool) -> None:
        self._include = {pattern: _parts(pattern) for pattern in include}
        self._include_paths = [_path_regex(pattern) for pattern in include]
        self._exclude_names = [_name_regex(pattern) for pattern in exclude if "/" not in pattern]
        self._exclude_paths = [_path_regex(pattern) for pattern in exclude if "/" in pattern]
        self._follow = follow_symlinks
        self._visited: set[tuple[object, tuple[str, ...]]] = set()
        self.directories: set[str] = set()
        self.marks: dict[str, Mark] = {}
        self.has_dangling = False
        self.unlisted: set[str] = set()
        self.unmatched: set[str] = set()
        self.starved = False
        """Whether the last scan failed to list a directory because the process may open no more."""

    def scan(self, warn: Warn) -> Iterator[Found]:
        """Every matching regular file once. What cannot be read or is no regular file goes to `warn` and is passed over.

        Afterwards `directories` are those to watch, `marks` theirs before they were listed, `unlisted` those that are there but
        could not be listed (nothing is known about the files in them), and `unmatched` the patterns that matched nothing.
        `has_dangling`: a link leads to nothing now; what it leads to later shows in no directory that was walked.
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
                for found in self._walk(*todo.pop(), todo, warn):
                    matched = True
                    if found.path not in seen and not self._excluded(found.path):
                        seen.add(found.path)
                        yield found
            if not matched and len(self.unlisted) == unlisted:
                self.unmatched.add(pattern)

    def may_match(self, path: str) -> bool:
        """Whether a scan might find a file at `path`; False is certain."""
        return any(regex.match(path) for regex in self._include_paths) and not self._excluded(path)

    def _excluded(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return any(regex.match(name) for regex in self._exclude_names) or any(regex.match(path) for regex in self._exclude_paths)

    def _walk(self, directory: str, parts: tuple[str, ...], todo: list[tuple[str, tuple[str, ...]]], warn: Warn) -> Iterator[Found]:
        """Files of one directory; the directories below it that the pattern leads to go to `todo`."""
        if self._been_there(directory, parts):
            return
        self.directories.add(directory)
        self.marks.setdefault(directory, mark(directory))
        deep = parts[0] == "**"
        part, rest = (parts[1] if deep else parts[0]), parts[2 if deep else 1 :]
        for entry in self._entries(directory, part, warn, deep=deep):
            if deep and not entry.name.startswith(".") and self._is_directory(entry):
                todo.append((entry.path, parts))
            if not _name_regex(part).match(entry.name):
                continue
            if not rest:
                found = self._file(entry, warn)
                if found is not None:
                    yield found
            elif self._is_directory(entry):
                todo.append((entry.path, rest))
            elif part != "*" and not entry.is_symlink():
                warn(entry.path, "is not a directory; the pattern expects one")

    def _entries(self, directory: str, part: str, warn: Warn, *, deep: bool) -> list[os.DirEntry[str]]:
        regex = _name_regex(part)
        try:
            with os.scandir(directory) as listing:
                return [entry for entry in listing if deep or regex.match(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            self.unlisted.add(directory)
            self.starved = self.starved or error.errno in NO_DESCRIPTORS
            warn(directory, f"cannot be listed: {error.strerror}")
            return []

    def _been_there(self, directory: str, parts: tuple[str, ...]) -> bool:
        """Links may lead in circles: a directory is walked once per rest of a pattern."""
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

    def _is_directory(self, entry: os.DirEntry[str]) -> bool:
        try:
            is_directory = entry.is_dir(follow_symlinks=self._follow)
        except OSError:
            is_directory = False
        if self._follow and not is_directory and entry.is_symlink() and not os.path.exists(entry.path):  # noqa: PTH110 - a hot path
            self.has_dangling = True
        return is_directory

    def _file(self, entry: os.DirEntry[str], warn: Warn) -> Found | None:
        try:
            info = entry.stat(follow_symlinks=self._follow)
        except FileNotFoundError:
            self.has_dangling = True
            return None  # it went away, or is a link to nothing: the next scan knows
        except OSError as error:
            warn(entry.path, f"cannot be looked at: {error.strerror}")
            return None
        if stat.S_ISREG(info.st_mode):
            return Found(entry.path, info)
        if stat.S_ISLNK(info.st_mode):
            warn(entry.path, "is a symbolic link; set follow_symlinks: true to read what it points to")
        elif not stat.S_ISDIR(info.st_mode):
            warn(entry.path, "is not a regular file")
        return None


def mark(directory: str) -> Mark:
    """What changes with every change of its entries, and when another directory is there; None when there is none."""
    try:
        info = os.stat(directory)  # noqa: PTH116 - a hot path
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_mtime_ns, info.st_ctime_ns


def normalise(pattern: str) -> str:
    """`pattern` with doubled slashes and `.` parts removed; `..` is left alone, it means what the kernel says."""
    return "/" + "/".join(part for part in pattern.split("/") if part not in ("", "."))


def _parts(pattern: str) -> tuple[str, tuple[str, ...]]:
    """The directory to begin at, and the pattern of each level below it. `**` never stands last, nor twice in a row."""
    parts = normalise(pattern)[1:].split("/")
    fixed = 0
    while fixed < len(parts) - 1 and not _is_wild(parts[fixed]):
        fixed += 1
    levels = [part for part, before in zip(parts[fixed:], ["", *parts[fixed:]], strict=False) if (part, before) != ("**", "**")]
    if levels[-1] == "**":
        levels.append("*")
    return "/" + "/".join(parts[:fixed]), tuple(levels)


def _is_wild(part: str) -> bool:
    return any(char in part for char in "*?[")


@lru_cache(maxsize=1024)
def _name_regex(pattern: str) -> re.Pattern[str]:
    """One name. A wildcard at the beginning does not match a dot there."""
    guard = r"(?!\.)" if pattern[:1] in ("*", "?", "[") else ""
    return re.compile(guard + _translate(pattern) + r"\Z", re.DOTALL)


def _path_regex(pattern: str) -> re.Pattern[str]:
    """A whole path. Here wildcards match dots too: excluding too little is the worse surprise."""
    parts = normalise(pattern)[1:].split("/")
    pieces = ["(?:/[^/]+)*" if part == "**" else "/" + _translate(part) for part in parts]
    if parts[-1] == "**":
        pieces[-1] = "(?:/[^/]+)+"
    return re.compile("".join(pieces) + r"\Z", re.DOTALL)


def _translate(part: str) -> str:
    """One level of a pattern as a regular expression that never crosses a slash."""
    pieces, index = [], 0
    while index < len(part):
        char = part[index]
        close = part.find("]", index + 2) if char == "[" else -1
        if close > 0:
            inside = part[index + 1 : close].replace("\\", r"\\").replace("[", r"\[")
            pieces.append(f"(?!/)[{'^' + inside[1:] if inside[0] in '!^' else inside}]")
            index = close
        else:
            pieces.append({"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char))
        index += 1
    return "".join(pieces)
