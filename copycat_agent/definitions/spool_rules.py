"""What holds for a spool directory in one definition."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from copycat_agent.sources.files.paths.matching import normalise
from copycat_agent.sources.spool_dir.listing import include_of
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.definitions.models import Loc
    from copycat_agent.definitions.reading import Reader
    from copycat_agent.options import SourceOptions

_CLEANUP: Loc = ("source", "cleanup")
_MOVES = ("move", "move_by_date")


def check_spool(reader: Reader, source: SourceOptions) -> None:
    """Paths are absolute, a policy has what it needs, and what is put away is not read again. Other sources are no matter."""
    if not isinstance(source, SpoolDirOptions):
        return
    _check_path(reader, ("source", "dir"), source.dir)
    if any(char in source.dir for char in "*?["):
        hint = "name one directory; wildcards belong into pattern, and recursive: true reads the directories below"
        reader.report(("source", "dir"), "bad-value", "a directory has no wildcards", hint)
    _check_policy(reader, source)
    for name in ("to", "failed_to"):
        target = getattr(source.cleanup, name)
        if target is not None:
            _check_path(reader, (*_CLEANUP, name), target)
            if name == "failed_to" or source.cleanup.policy in _MOVES:
                _check_place(reader, (*_CLEANUP, name), target, source)


def _check_path(reader: Reader, loc: Loc, path: str) -> None:
    if not path.startswith("/"):
        reader.report(loc, "bad-value", "a directory must be an absolute path", "start it with /")
    elif ".." in path.split("/"):
        reader.report(loc, "bad-value", "a directory is named without ..", f"write {os.path.normpath(path)}, if that is what it means")


def _check_policy(reader: Reader, source: SpoolDirOptions) -> None:
    cleanup = source.cleanup
    if cleanup.policy in _MOVES and cleanup.to is None:
        reader.report((*_CLEANUP, "policy"), "bad-value", f"{cleanup.policy} needs a directory to move files to", "to: /DIR")
    if cleanup.to is not None and cleanup.policy not in _MOVES:
        hint = "set policy: move or move_by_date, or delete to"
        reader.report((*_CLEANUP, "to"), "bad-value", f"has no effect with policy: {cleanup.policy}", hint, on_key=True)
    targets = cleanup.failed_to is not None or (cleanup.to is not None and cleanup.policy in _MOVES)
    if cleanup.retain is not None and not targets:
        hint = "it is about files in to and failed_to; name one of them, or delete retain"
        reader.report((*_CLEANUP, "retain"), "bad-value", "has no effect without a directory that files are moved to", hint, on_key=True)


def _check_place(reader: Reader, loc: Loc, target: str, source: SpoolDirOptions) -> None:
    """Not where this connector would read it again."""
    own, there = normalise(source.dir), normalise(target)
    if own == there:
        hint = "name another directory on the same file system"
        reader.report(loc, "bad-value", "is the directory that files are read from: they would be read again", hint)
    elif source.recursive and _is_below(there, own):
        hint = "name a directory outside dir, or set recursive: false"
        reader.report(loc, "bad-value", "lies in dir, which is read with all directories below: files would be read again", hint)
    elif source.recursive and _is_below(own, there):
        hint = "name a directory that dir does not lie in, or set recursive: false"
        reader.report(loc, "bad-value", "is a directory around dir: files of subdirectories may come back into it, and be read again", hint)


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def patterns_of(source: SourceOptions) -> tuple[Sequence[str], Sequence[str]]:
    """What a source reads, as patterns of whole paths: (include, exclude)."""
    exclude = getattr(source, "exclude", ())
    if isinstance(source, SpoolDirOptions):
        return include_of(source), exclude
    return getattr(source, "include", ()), exclude
