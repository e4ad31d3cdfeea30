"""Rules for `source` beyond the type of each option. Each rule reports to the `Reader` and raises nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime

from copycat_agent.definitions.models import Loc
from copycat_agent.definitions.options_reader import Reader
from copycat_agent.formats import encoding_problem, split_problem
from copycat_agent.formats.records import FORMATS, build_format
from copycat_agent.options import DeliveryOptions, RecordOptions, SourceOptions
from copycat_agent.sources.files.paths.matching import normalise
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.sources.spool_dir.listing import include_of
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions


def check_source(reader: Reader, source: SourceOptions) -> None:
    """Checks that globs are absolute, and `start_at` is a word or a time with its zone. Ignores options that a source lacks."""
    include = getattr(source, "include", ())
    for number, glob in enumerate(include):
        if not glob.startswith("/"):
            reader.report(("source", "include", number), "bad-value", "a glob must be an absolute path", "start it with /")
    if "include" in type(source).model_fields and not include:
        reader.report(("source", "include"), "bad-value", "names no file", "list at least one path or glob")
    _check_symlink_roots(reader, source)
    _check_encoding(reader, source)
    check_format(reader, source)
    check_spool(reader, source)
    if isinstance(source, LogFileOptions) and source.cleanup.policy == "delete" and not source.reads_all:
        why = "deletes what start_at or ignore_older has passed over, which nobody has read"
        reader.report((*_CLEANUP, "policy"), "bad-value", why, "keep start_at: beginning and ignore_older: off with it")
    start_at = getattr(source, "start_at", None)
    if isinstance(start_at, str) and start_at not in {"beginning", "end"} and not _is_rfc3339(start_at):
        reader.report(("source", "start_at"), "bad-value", "needs beginning, end, or a time", 'as in "2026-11-21T05:00:00Z"')


def _check_symlink_roots(reader: Reader, source: SourceOptions) -> None:
    roots = getattr(source, "symlink_roots", ())
    for number, root in enumerate(roots):
        if not root.startswith("/"):
            reader.report(("source", "symlink_roots", number), "bad-value", "a directory must be an absolute path", "start it with /")
    if roots and not getattr(source, "follow_symlinks", False):
        hint = "set follow_symlinks: true, or delete symlink_roots"
        reader.report(("source", "symlink_roots"), "bad-value", "has no effect while no links are followed", hint, on_key=True)


def _check_encoding(reader: Reader, source: SourceOptions) -> None:
    encoding, line = getattr(source, "encoding", None), getattr(source, "line", None)
    if isinstance(encoding, str) and line is not None:
        problem = encoding_problem(encoding, line.delimiter) or (split_problem(encoding) if _splits(source) else None)
        if problem:
            reader.report(("source", "encoding"), "encoding", *problem)


def _splits(source: SourceOptions) -> bool:
    """Returns whether records over the limit are sent in parts; for records of several lines by their own option."""
    limits = getattr(source, "multiline", None) or getattr(source, "line", None)
    return getattr(limits, "on_too_long", "") == "split"


def check_format(reader: Reader, source: SourceOptions) -> None:
    """Reports options of a format that contradict each other."""
    options = getattr(source, "format", None)
    kind = FORMATS.get(getattr(options, "type", ""))
    for place, why, hint in kind.problems(options) if kind else ():
        reader.report(("source", "format", *place), "format", why, hint)
    unpack = getattr(source, "unpack", None)
    if unpack is not None and unpack.archives and _counts_records(source):
        why = f"files of format {getattr(options, 'type', '')} cannot be read in archives"
        reader.report(("source", "unpack", "archives"), "bad-value", why, "delete it, or take the files out before they get here")


def check_ordering(reader: Reader, source: SourceOptions, delivery: DeliveryOptions, record: RecordOptions) -> None:
    """Checks `delivery.ordering`: only whole files can be read in any order, and records before a range of a file are not counted."""
    if delivery.ordering == "file":
        return
    loc: Loc = ("delivery", "ordering")
    if source.type == "log_file":
        hint = "delete it; ordering: none is for source spool_dir"
        reader.report(loc, "bad-value", "a log file is always read in order, while it grows", hint)
    elif not _counts_records(source) and any(
        "@record.number" in text for text in (record.topic, record.key or "", *record.headers.values())
    ):
        hint = "set ordering: file, or take {@offset}, which is the file's own"
        reader.report(loc, "bad-value", "@record.number would count within a range of the file only", hint)


def _counts_records(source: SourceOptions) -> bool:
    """Returns whether its format knows the number of each record wherever it begins to read."""
    form = getattr(source, "format", None)
    return form is not None and build_format(form).counts_records


def _is_rfc3339(text: str) -> bool:
    try:
        return re.match(r"\d{4}-\d\d-\d\d[Tt ]", text) is not None and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


_CLEANUP: Loc = ("source", "cleanup")
_MOVES = ("move", "move_by_date")
_BRACES = re.compile(r"\{[^{}]*\}")


def check_spool(reader: Reader, source: SourceOptions) -> None:
    """Checks that paths are absolute, a policy is complete, and moved files are not read again. Ignores other sources."""
    if not isinstance(source, SpoolDirOptions):
        return
    _check_path(reader, ("source", "dir"), source.dir)
    if any(char in source.dir for char in "*?["):
        hint = "name one directory; wildcards belong into pattern, and recursive: true reads the directories below"
        reader.report(("source", "dir"), "bad-value", "a directory has no wildcards", hint)
    _check_names(reader, source)
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


def _check_names(reader: Reader, source: SpoolDirOptions) -> None:
    """Checks that names have no slash: files are in `dir`, and with a slash they could be anywhere."""
    if any("/" in pattern for pattern in source.pattern):
        hint = "name the directory in dir; recursive: true reads all directories below, and exclude may hold a slash"
        reader.report(("source", "pattern"), "bad-value", "names of files have no slash", hint)
    if (done_file := source.ready.done_file) is not None and ("/" in done_file or done_file in {"", ".", ".."}):
        hint = 'it lies beside its file: write "{name}.done", or _SUCCESS'
        reader.report(("source", "ready", "done_file"), "bad-value", "is no name of a file", hint)
    elif unknown := set(_BRACES.findall(done_file or "")) - {"{name}"}:
        hint = 'only {name} stands for the name of the file it belongs to, as in "{name}.done"'
        reader.report(("source", "ready", "done_file"), "bad-value", f"{min(unknown)} stands for nothing", hint)


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
    """Checks that this connector would not read the target again."""
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
    """Returns the patterns of whole paths that a source reads and leaves out: (include, exclude)."""
    exclude = getattr(source, "exclude", ())
    if isinstance(source, SpoolDirOptions):
        return include_of(source), exclude
    return getattr(source, "include", ()), exclude


def places_of(source: SourceOptions) -> tuple[str, ...]:
    """Returns patterns of all paths that a source touches in mounted file systems, cleanup targets included; empty if there are none."""
    include = patterns_of(source)[0]
    named = include if isinstance(include, tuple) else ()  # another package's source may have any option of this name
    cleanup = getattr(source, "cleanup", None)
    targets = [f"{target}/*" for name in ("to", "failed_to") if (target := getattr(cleanup, name, None))]
    return tuple(one for one in (*named, *targets) if isinstance(one, str) and one.startswith("/"))
