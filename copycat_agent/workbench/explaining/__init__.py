"""Explains whether and how connectors read a path, what keeps a file from being read, and what options mean.

It inspects files, stores and saved offsets, without an agent, and changes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from copycat_agent.definitions.source_rules import patterns_of
from copycat_agent.errors import RetriableError
from copycat_agent.logs import Log
from copycat_agent.model import Loss, SavedRow, SourceOffset, SourcePartition, offsets_in
from copycat_agent.offsets.store_reader import offsets_of
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES, LooksLater, Source, create_source
from copycat_agent.sources.base import FileDetail
from copycat_agent.sources.contract import PolledOptions
from copycat_agent.sources.contract_files import FilesOptions
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.paths.matching import excluded_by, fixed_depth, mismatch
from copycat_agent.sources.files.paths.regular_files import NotRegularError, open_regular
from copycat_agent.sources.files.reading.address import is_remote
from copycat_agent.sources.log_file.beginning.manual_position import is_file_key
from copycat_agent.sources.spool_dir.listing import never_read
from copycat_agent.workbench.doctor.users import find_user, how_to_open
from copycat_agent.workbench.explaining.keys import OptionKey, all_keys, find_keys, near_keys

__all__ = ["OptionKey", "PathAnswer", "Refusal", "all_keys", "asked", "find_keys", "near_keys"]


_NOT_NEXT = "it is none of the objects that are to be read next: it is not there, its name is left out, it was read, or others come first"
_FOLLOW = "set follow_symlinks: true to read what it points to"
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}
Saved = Mapping[SourcePartition, SourceOffset]


class Refusal(NamedTuple):
    """Why a connector does not read a path, and what to do about it, "" if nothing."""

    why: str
    hint: str = ""


def obstacle(path: str, fixed: int, *, follow_symlinks: bool) -> Refusal | None:
    """Returns the first obstacle on the way to the file at `path`; None if it can be read.

    The first `fixed` directories are named without a wildcard, and may be links whatever `follow_symlinks` says.
    """
    parts = path.strip("/").split("/")
    for number in range(1, len(parts)):
        directory = "/" + "/".join(parts[:number])
        if refusal := _directory(directory, follow_symlinks=follow_symlinks or number <= fixed):
            return refusal
    return _file(path, follow_symlinks=follow_symlinks)


def _directory(path: str, *, follow_symlinks: bool) -> Refusal | None:
    try:
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            if not follow_symlinks:
                return Refusal(f"the directory {path} is a symbolic link", _FOLLOW)
            info = os.stat(path)  # noqa: PTH116 - names may be odd bytes; texts stay texts
    except FileNotFoundError:
        return Refusal(f"there is no directory {path}", "the agent looks again every scan_interval")
    except OSError as error:
        return _closed(path, error)
    if not stat.S_ISDIR(info.st_mode):
        return Refusal(f"{path} is not a directory")
    return None


def _file(path: str, *, follow_symlinks: bool) -> Refusal | None:
    """Returns why the file cannot be opened as the source would open it; None if it can."""
    try:
        info = os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116 - see above
        if not stat.S_ISREG(info.st_mode):
            kind = _KINDS.get(stat.S_IFMT(info.st_mode), "no regular file")
            return Refusal(f"it is {kind}, and only regular files are read", _FOLLOW if stat.S_ISLNK(info.st_mode) else "")
        os.close(open_regular(path, follow_symlinks=follow_symlinks)[0])
    except NotRegularError:
        return Refusal("it is not a regular file")
    except FileNotFoundError:
        if os.path.islink(path):  # noqa: PTH114 - see above
            return Refusal("it is a symbolic link that leads nowhere")
        return Refusal("there is no such file now", "it is taken when it comes: the pattern names it")
    except OSError as error:
        return _closed(path, error)
    return None


def _closed(path: str, error: OSError) -> Refusal:
    """Returns the kernel's reason, and how this user can get access."""
    if error.errno not in (errno.EACCES, errno.EPERM):
        return Refusal(f"{path} cannot be opened: {error.strerror}")
    user = find_user(None)
    above = user.closed_parent(path)
    where, wanted = (above, "x") if above else (path, "r")
    return Refusal(f"user {user.name} may not {'pass through' if above else 'read'} {where}", how_to_open(user, where, wanted))


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """A connector's answer about `path`. If it does not read the file, `closeup` is None and `refusal` says why.

    `name` is the name under which it finds the file. `pattern` is the pattern that matches, "" if none does (any more). `saved` is the
    saved offset. `former` are saved offsets of other files that had this name. `losses` would be entered at the next scan.
    """

    definition: Definition
    path: str
    name: str
    closeup: FileDetail | None = None
    refusal: Refusal | None = None
    pattern: str = ""
    saved: SourceOffset | None = None
    former: tuple[SourceOffset, ...] = ()
    losses: tuple[Loss, ...] = ()

    @property
    def takes(self) -> bool:
        """Whether a run would read the file by this definition."""
        return self.closeup is not None and self.definition.enabled


@contextmanager
def asked(
    definition: Definition, saved: Mapping[SourcePartition, SavedRow], path: str, log: Log, *, most_bytes: int
) -> Iterator[PathAnswer]:
    """Yields the answer about the absolute `path`; its split can be read within the context. `saved` are the rows of all connectors.

    If a pattern may match the path, this scans the connector's directories.
    """
    rows = offsets_of(definition, saved)
    offsets = offsets_in(rows)
    if is_remote(path):
        yield _about_object(definition, rows, path, log, most_bytes)
        return
    names = list(dict.fromkeys((path, os.path.realpath(path))))
    if all(_by_patterns(definition, name) for name in names) and not _was_read(path, offsets):
        yield PathAnswer(definition, path, path, refusal=_by_patterns(definition, path), former=_former(path, "", offsets))
        return
    kind = SOURCES[definition.source.type]
    with closing(create_source(kind.make, definition, rows, log, only_looks=True)) as source:
        losses = tuple(source.scan().losses)
        yield _answer(definition, source, offsets, names, losses, most_bytes)


def _about_object(definition: Definition, rows: Mapping[SourcePartition, SavedRow], path: str, log: Log, most_bytes: int) -> PathAnswer:
    """Returns the answer about an object, as found by a look at the store."""
    if not isinstance(definition.source, FilesOptions):
        return PathAnswer(definition, path, path, refusal=Refusal(f"source {definition.source.type} reads no objects"))
    with closing(create_source(SOURCES[definition.source.type].make, definition, rows, log, only_looks=True)) as source:
        try:
            if isinstance(source, LooksLater):
                source.look_now()
        except RetriableError as error:
            return PathAnswer(definition, path, path, refusal=Refusal(error.message, error.hint))
        closeup = source.look_closely(path, most_bytes)
    if closeup is None:
        return PathAnswer(definition, path, path, refusal=Refusal(_NOT_NEXT))
    saved = offsets_in(rows).get(SourcePartition(definition.name, closeup.view.key))
    return PathAnswer(definition, path, path, closeup, saved=saved)


def _answer(
    definition: Definition,
    source: Source,
    offsets: Saved,
    names: list[str],
    losses: tuple[Loss, ...],
    most_bytes: int,
) -> PathAnswer:
    closeup, name = _find(source, names, most_bytes)
    path = names[0]
    if closeup is None:
        refusal = _by_patterns(definition, path) or _by_source(definition, source, path)
        return PathAnswer(definition, path, path, refusal=refusal, former=_former(path, "", offsets), losses=losses)
    key = closeup.view.key
    saved = offsets.get(SourcePartition(definition.name, key))
    return PathAnswer(definition, path, name, closeup, None, _pattern(definition, name), saved, _former(name, key, offsets), losses)


def _find(source: Source, names: list[str], most_bytes: int) -> tuple[FileDetail | None, str]:
    """Finds the file under one of its names, or under the name it is followed by although no pattern matches any more."""
    for name in names:
        if closeup := source.look_closely(name, most_bytes):
            return closeup, name
    inode = _inode_key(names[0])
    for view in source.files() if inode else ():
        if view.key and _inode_key(view.path) == inode:
            return source.look_closely(view.path, most_bytes), view.path
    return None, ""


def _by_patterns(definition: Definition, path: str) -> Refusal | None:
    """Returns why no pattern matches the path, None if one does."""
    if isinstance(definition.source, PolledOptions):
        return Refusal(f"source {definition.source.type} reads no files")
    include, exclude = patterns_of(definition.source)
    far = mismatch(include, path)
    if far is not None:
        near = (
            f"none of its {len(include)} patterns names it, the nearest is {far.pattern}"
            if len(include) > 1
            else f"{far.pattern} does not name it"
        )
        return Refusal(f"{near}: {far.why}")
    if pattern := excluded_by(exclude, path):
        return Refusal(f"source.exclude leaves it out, by {pattern}")
    why = never_read(definition.source, path)
    return Refusal(f"it {why}") if why else None


def _by_source(definition: Definition, source: Source, path: str) -> Refusal:
    """Returns why the source did not take a path that a pattern matches."""
    reasons = source.passed_over()
    follow = getattr(definition.source, "follow_symlinks", False)
    found = obstacle(path, fixed_depth(_pattern(definition, path) or path), follow_symlinks=follow)
    said = next((where for where in _up_from(path) if where in reasons), None)
    if said is not None:
        why, _, hint = reasons[said].partition("; ")
        where = "it " if said == path else f"{said} "
        return Refusal(f"{where}{why}", hint or (found.hint if found else ""))
    return found or Refusal("it changed while it was looked at", "ask again")


def _up_from(path: str) -> Iterator[str]:
    """Yields the path, then its parent directories."""
    while path not in ("/", ""):
        yield path
        path = os.path.dirname(path)  # noqa: PTH120 - names may be odd bytes; texts stay texts


def _pattern(definition: Definition, path: str) -> str:
    return next((one for one in patterns_of(definition.source)[0] if mismatch((one,), path) is None), "")


def _inode_key(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)  # noqa: PTH116 - see above
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _was_read(path: str, offsets: Saved) -> bool:
    """Returns whether an offset of this file may be saved, although no pattern matches it now."""
    _, inode = _inode_key(path) or (0, 0)  # device numbers may change, so only inodes are compared; the caller checks further
    return any(is_file_key(one.key) and Identity.parse(one.key)[0].inode == inode for one in offsets)


def _former(path: str, key: str, offsets: Saved) -> tuple[SourceOffset, ...]:
    """Returns saved offsets of other files that had this name. A key that begins with the file's belongs to one of its ranges."""
    others = (one for one in offsets.items() if one[1].path == path and one[0].key != key)
    return tuple(offset for partition, offset in others if not (key and partition.key.startswith(f"{key}:")))
