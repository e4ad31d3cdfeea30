"""Lists a spool directory: the regular files that match its patterns, may be read, and have no name of an unfinished file."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, cast

from copycat_agent.sources.files.paths.discovery import Discovery, MatchedFile, PassedOver
from copycat_agent.sources.files.paths.partial_scan import PartialScan, ScannedFile
from copycat_agent.sources.files.paths.regular_files import Opener

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import SourceOptions
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions


_UNFINISHED = (".tmp", ".part", ".partial", ".filepart", ".crdownload", ".swp", ".processing", "~")
"""Suffixes, in lower case, that programs give to unfinished files (browsers, WinSCP, editors, Connect's spooldir). Prefixes are not needed:
rsync, scp of OpenSSH's sftp-server and most others begin such names with a dot."""
_NAME = "{name}"


def unfinished(name: str) -> str:
    """Returns why a file of this name is never read, as a message; "" if it may be."""
    if name.startswith("."):
        return "has a name that begins with a dot: such files are never read"
    if not name.lower().endswith(_UNFINISHED):
        return ""
    end = next(one for one in _UNFINISHED if name.lower().endswith(one))
    return f"has a name that ends with {end}: so programs name what is not finished"


def never_read(options: SourceOptions, path: str) -> str:
    """Returns why a connector with these options never reads a file of this name, as a message; "" if it may, or is not a spool_dir."""
    ready = getattr(options, "ready", None)
    if ready is None:
        return ""
    name = path.rpartition("/")[2]
    is_done_file = DoneFiles(cast("SpoolDirOptions", options)).is_one(name)
    return "is a done file: it says that another one is complete" if is_done_file else unfinished(name)


class DoneFiles:
    """Names of done files, which say that other files are complete, by `ready.done_file`; none if that is not given."""

    def __init__(self, options: SpoolDirOptions) -> None:
        self._template = options.ready.done_file or ""
        self._before, _, self._behind = self._template.partition(_NAME)

    def __bool__(self) -> bool:
        """Whether files have to wait for a done file."""
        return bool(self._template)

    @property
    def is_shared(self) -> bool:
        """Whether one done file is for all files of its directory, as `_SUCCESS` is."""
        return _NAME not in self._template

    def is_one(self, name: str) -> bool:
        """Returns whether a file of this name is a done file, of whatever file."""
        if not self._template:
            return False
        if self.is_shared:
            return name == self._template
        size = len(self._before) + len(self._behind)
        return len(name) > size and name.startswith(self._before) and name.endswith(self._behind)

    def of(self, path: str) -> str:
        """Returns the path of the done file that `path` waits for, "" if it waits for none."""
        directory, _, name = path.rpartition("/")
        return f"{directory}/{self._template.replace(_NAME, name)}" if self._template else ""

    def own(self, path: str) -> str:
        """Returns the path of the done file that belongs to `path` alone, and is cleaned up with it; "" if there is none."""
        return "" if self.is_shared else self.of(path)


def include_of(options: SpoolDirOptions) -> tuple[str, ...]:
    """Returns the patterns as whole paths."""
    below = "/**/" if options.recursive else "/"
    return tuple(f"{options.dir.rstrip('/')}{below}{pattern}" for pattern in options.pattern)


_LINK = "is a symbolic link; put the file itself there: links are not followed"


class Listing:
    """Scans for one connector, one call at a time, on request. No link below `dir` is followed; `dir` itself may be one.

    `looks`: how many scans were made. `is_asked`: a scan may find something, and should come soon.
    """

    def __init__(self, options: SpoolDirOptions, done_files: DoneFiles, log: Log) -> None:
        include = include_of(options)
        self.opener = Opener(include, follow_hard_links=options.follow_hard_links)
        self.passed_over = PassedOver(log)
        self._root = options.dir.rstrip("/") or "/"
        self._discovery = Discovery(include, options.exclude, self.opener)
        self._done_files = done_files
        self._partial_scan = PartialScan[ScannedFile]()
        self._unfinished: dict[str, str] = {}
        self.is_asked = True
        self.is_bounded = False
        """Whether this is a run to the end."""
        self.looks = 0

    @property
    def directories(self) -> set[str]:
        """The directories that the last scan walked."""
        return self._discovery.directories

    def ask(self) -> None:
        """Asks for a scan, even if no directory has changed."""
        self.is_asked = True

    @property
    def is_due(self) -> bool:
        """Whether a scan has to be made: it was asked for, or names may have changed since the last one."""
        if self.is_asked or self._discovery.unlisted or self.passed_over.unreadable:
            return True
        return not self._partial_scan.suffices()

    def look(self) -> list[MatchedFile]:
        """Returns every file that may be read, each inode once."""
        begun_ns, begun = time.time_ns(), time.monotonic()
        self.is_asked = False
        self.looks += 1
        self.passed_over.begin_scan()
        self._unfinished = {}
        found: dict[tuple[int, int], MatchedFile] = {}
        with self.opener.held_roots():
            for one in self._discovery.scan(self._warn):
                if self._is_data(one.path):
                    found.setdefault((one.stat.st_dev, one.stat.st_ino), one)
        if not (found or os.path.lexists(self._root)):
            self.passed_over.warn(self._root, "is not there; it is looked for every scan_interval")
        self._partial_scan.scanned(self._discovery.marks, begun_ns, time.monotonic() - begun)
        return list(found.values())

    def _warn(self, path: str, why: str) -> None:
        self.passed_over.warn(path, _LINK if "follow_symlinks" in why else why)

    def _is_data(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        if self._done_files.is_one(name):
            return False
        if why := unfinished(name):
            self._unfinished[path] = why
        return not why

    def may_find(self, path: str) -> bool:
        """Returns whether a scan may find something new at `path`: a file, or a done file."""
        name = path.rpartition("/")[2]
        if self._done_files.is_one(name):
            return True
        return path not in self.passed_over and not unfinished(name) and self._discovery.may_match(path)

    def reasons(self) -> Mapping[str, str]:
        """Returns why files that match the patterns are not read, by path."""
        return {**self._unfinished, **self.passed_over.reasons()}

    def is_missing(self, path: str, devices: Container[int]) -> bool:
        """Returns whether a file that the last scan did not find is really missing: its directory existed and was listed.

        `devices`: the numbers that its device may have. With any other number, its file system is taken as not mounted.
        """
        directory = path.rpartition("/")[0] or "/"
        while not os.path.isdir(directory) and len(directory) > len(self._root):  # noqa: PTH112 - names may be odd bytes
            directory = directory.rpartition("/")[0]
        if directory in self._discovery.unlisted or directory not in self._discovery.directories:
            return False
        if self.passed_over.is_unreadable(path):
            return False
        try:
            return os.stat(directory).st_dev in devices  # noqa: PTH116 - see above
        except OSError:
            return False
