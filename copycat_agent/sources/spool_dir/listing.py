"""What lies in a spool directory now: the regular files that its patterns name, that may be read, and that nobody is still writing."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, cast

from copycat_agent.sources.files.paths.discovery import Discovery, Found, PassedOver
from copycat_agent.sources.files.paths.opening import Opener
from copycat_agent.sources.files.paths.partial_scan import PartialScan, Watched

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import SourceOptions
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions


_UNFINISHED = (".tmp", ".part", ".partial", ".filepart", ".crdownload", ".swp", ".processing", "~")
"""Ends of names, in lower case, that programs give to what they have not finished (browsers, WinSCP, editors, Connect's spooldir).
rsync, scp of OpenSSH's sftp-server and most others begin such names with a dot."""
_NAME = "{name}"


def unfinished(name: str) -> str:
    """Why a file of this name is never read, for people; "" when it may be."""
    if name.startswith("."):
        return "has a name that begins with a dot: such files are never read"
    if not name.lower().endswith(_UNFINISHED):
        return ""
    end = next(one for one in _UNFINISHED if name.lower().endswith(one))
    return f"has a name that ends with {end}: so programs name what is not finished"


def never_read(options: SourceOptions, path: str) -> str:
    """Why a connector with these options reads no file of this name, for people; "" when it may, or is no spool directory's."""
    ready = getattr(options, "ready", None)
    if ready is None:
        return ""
    name = path.rpartition("/")[2]
    is_done_file = DoneFiles(cast("SpoolDirOptions", options)).is_one(name)
    return "is a done file: it says that another one is complete" if is_done_file else unfinished(name)


class DoneFiles:
    """Names of the files that say that others are complete, by `ready.done_file`; none when it is not given."""

    def __init__(self, options: SpoolDirOptions) -> None:
        self._template = options.ready.done_file or ""
        self._before, _, self._behind = self._template.partition(_NAME)

    def __bool__(self) -> bool:
        """Whether files have to wait for one."""
        return bool(self._template)

    @property
    def is_shared(self) -> bool:
        """Whether one file speaks for all of its directory, as `_SUCCESS` does."""
        return _NAME not in self._template

    def is_one(self, name: str) -> bool:
        """Whether a file of this name is a done file, whosever."""
        if not self._template:
            return False
        if self.is_shared:
            return name == self._template
        size = len(self._before) + len(self._behind)
        return len(name) > size and name.startswith(self._before) and name.endswith(self._behind)

    def of(self, path: str) -> str:
        """Path of the done file that `path` waits for, "" when it waits for none."""
        directory, _, name = path.rpartition("/")
        return f"{directory}/{self._template.replace(_NAME, name)}" if self._template else ""

    def own(self, path: str) -> str:
        """The same, when it is nobody else's: then it is cleaned up with its file."""
        return "" if self.is_shared else self.of(path)


def include_of(options: SpoolDirOptions) -> tuple[str, ...]:
    """The patterns as whole paths."""
    below = "/**/" if options.recursive else "/"
    return tuple(f"{options.dir.rstrip('/')}{below}{pattern}" for pattern in options.pattern)


_LINK = "is a symbolic link; put the file itself there: links are not followed"


class Listing:
    """Looks for one connector, one call at a time, when it is asked to. No link is followed below `dir`, which itself may be one.

    `looks`: how often it has looked. `is_asked`: a look may find something, and should come soon.
    """

    def __init__(self, options: SpoolDirOptions, done_files: DoneFiles, log: Log) -> None:
        include = include_of(options)
        self.opener = Opener(include, follow_hard_links=options.follow_hard_links)
        self.passed_over = PassedOver(log)
        self._root = options.dir.rstrip("/") or "/"
        self._discovery = Discovery(include, options.exclude, self.opener)
        self._done_files = done_files
        self._partial_scan = PartialScan[Watched]()
        self._unfinished: dict[str, str] = {}
        self.is_asked = True
        self.is_bounded = False
        """Whether this is a run to the end."""
        self.looks = 0

    @property
    def directories(self) -> set[str]:
        """Directories that the last look walked."""
        return self._discovery.directories

    def ask(self) -> None:
        """A look may find something, though no directory need have changed."""
        self.is_asked = True

    @property
    def is_due(self) -> bool:
        """Whether a scan has to look: it was asked for, or names may have changed since the last look."""
        if self.is_asked or self._discovery.unlisted or self.passed_over.unreadable:
            return True
        return not self._partial_scan.suffices()

    def look(self) -> list[Found]:
        """Every file that may be read, each inode once."""
        begun_ns, begun = time.time_ns(), time.monotonic()
        self.is_asked = False
        self.looks += 1
        self.passed_over.begin_scan()
        self._unfinished = {}
        found: dict[tuple[int, int], Found] = {}
        with self.opener.held_roots():
            for one in self._discovery.scan(self._warn):
                if self._is_data(one.path):
                    found.setdefault((one.stat.st_dev, one.stat.st_ino), one)
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
        """Whether a look may find something new at `path`: a file, or the word that one is complete."""
        name = path.rpartition("/")[2]
        if self._done_files.is_one(name):
            return True
        return path not in self.passed_over and not unfinished(name) and self._discovery.may_match(path)

    def reasons(self) -> Mapping[str, str]:
        """What matches and is not read, and why."""
        return {**self._unfinished, **self.passed_over.reasons()}

    def is_missing(self, path: str, devices: Container[int]) -> bool:
        """Whether a file that the last look did not find was really missing from where it was: its directory was there and listed.

        `devices`: numbers that its device may have. With any other its file system is not mounted, for all that is known.
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
