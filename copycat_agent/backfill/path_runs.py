"""Backfills of PATHs: expands PATHs to files, and keeps each run on disk, in a directory with its own store until it is finished.

::

    <state_dir>/backfill/<run>/run.json       what was asked for, and how it stands
                               offsets.db     offsets and accounts, while it is not finished (see `offsets`)
                               account.json   the summary of a finished run
                               rows.json      how far it came in each file: what a later run need not send again
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from copycat_agent import logs
from copycat_agent.backfill.delivered import identity_of
from copycat_agent.encoding.window import WindowOptions
from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.model import SourceOffset, SourcePartition, offsets_in
from copycat_agent.offsets.document import saved_rows, to_documents
from copycat_agent.offsets.store_reader import saved_offsets
from copycat_agent.sources.files.identity import Identity, identify_by_name
from copycat_agent.sources.files.paths.matching import excluded_by
from copycat_agent.sources.files.reading.address import is_remote, parse_address

DIRECTORY = "backfill"
"""Directory of the runs, below the state directory."""
KEPT_SECONDS = 30 * 86_400.0
"""How long a finished run is kept: what it delivered is not sent again, and its account can be read."""

_WILD = "*?["

_log = logs.get("backfill")

State = Literal["begun", "finished", "given_up"]


class PathSelection(NamedTuple):
    """The files, absolute, each once, in the order of their PATHs; those of a pattern or a directory by name.

    `remote` are addresses, which their own source lists. `nothing` are PATHs without a file, each with the reason. `excluded` are
    files that the definition excludes, even if given by name.
    """

    files: tuple[str, ...]
    remote: tuple[str, ...]
    nothing: tuple[str, ...]
    excluded: tuple[str, ...] = ()


def choose(paths: Iterable[str], exclude: Sequence[str] = ()) -> PathSelection:
    """Returns the files that `paths` stand for now, without those that match `exclude`.

    A directory stands for the regular files in it that are not hidden, without its subdirectories: for these there is `DIR/**/*`. A
    pattern stands for regular files. A full name is taken as it is: the account says if it cannot be read. Raises FatalError for an
    address that cannot be used.
    """
    files: dict[str, None] = {}
    excluded: dict[str, None] = {}
    remote, nothing = [], []
    for path in paths:
        if is_remote(path):
            remote.append(parse_address(path).uri)  # before it is saved anywhere: it must hold no secret
            continue
        found, why = _expand(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links, whose names are shown
        left_out = {one for one in found if excluded_by(exclude, one)}
        files.update(dict.fromkeys(one for one in found if one not in left_out))
        excluded.update(dict.fromkeys(sorted(left_out)))
        if why:
            nothing.append(f"{path}: {why}")
    return PathSelection(tuple(files), tuple(remote), tuple(nothing), tuple(excluded))


def _expand(path: str) -> tuple[list[str], str]:
    """Returns the files of one PATH, or why there are none."""
    try:
        info = os.stat(path)  # noqa: PTH116 - names are text with escapes
    except OSError as error:
        if any(sign in path for sign in _WILD):
            found = sorted(one for one in glob.iglob(path, recursive=True) if _is_file(one))  # noqa: PTH207 - as above
            return found, "" if found else "no file matches"
        return [], f"it cannot be found: {error.strerror}"
    if not stat.S_ISDIR(info.st_mode):
        return [path], ""
    try:
        found = sorted(_inside(path))
    except OSError as error:
        return [], f"the directory cannot be listed: {error.strerror}"
    return found, "" if found else "there is no file in this directory (for those below it: DIR/**/*)"


def _inside(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_file():
                yield entry.path


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - as above
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class PathRun:
    """One run. `asked` are its absolute PATHs, `files` what they stood for at its start. Times in epoch milliseconds; None: no limit.

    `shape` identifies how the definition finds records in a file: the meaning of an offset depends on it.
    """

    directory: Path
    connector: str
    asked: tuple[str, ...]
    files: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    time_field: str | None = None
    again: bool = False
    shape: str = ""
    begun_ms: int = 0
    ended_ms: int = 0
    state: State = "begun"

    @property
    def name(self) -> str:
        """Returns the name of the run."""
        return self.directory.name

    @property
    def window(self) -> WindowOptions | None:
        """Returns the wanted times, None for all."""
        if self.since_ms is None and self.until_ms is None:
            return None
        return WindowOptions(since_ms=self.since_ms, until_ms=self.until_ms, time_field=self.time_field)

    def has_sent(self, wanted: WindowOptions | None) -> bool:
        """Returns whether it has sent all records of `wanted` that it has passed. Of other times it has dropped them."""
        if self.window is None:
            return True
        if wanted is None or wanted.time_field != self.time_field:
            return False
        begins_before = self.since_ms is None or (wanted.since_ms is not None and self.since_ms <= wanted.since_ms)
        ends_after = self.until_ms is None or (wanted.until_ms is not None and self.until_ms >= wanted.until_ms)
        return begins_before and ends_after

    def save(self) -> None:
        """Writes it to disk atomically."""
        values = {name: value for name, value in asdict(self).items() if name != "directory"}
        write_json(self.directory / "run.json", {"version": 1, **values})


class PathRuns:
    """All runs below one state directory. Hold `held` while looking for a run and until the store of the new one is locked.

    Else two processes may begin the same run, or runs of the same file.
    """

    def __init__(self, state_dir: Path) -> None:
        self._home = state_dir / DIRECTORY

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Locks the runs against other processes that use `held`. Raises FatalError."""
        try:
            self._home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._home.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._home / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            msg = f"{self._home} cannot be used: {error.strerror}"
            raise FatalError(msg, "make it writable for this user, or name another directory with --state-dir") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def all(self) -> list[PathRun]:
        """Returns every run that can be read, the oldest first."""
        try:
            names = sorted(entry.name for entry in self._home.iterdir() if entry.is_dir())
        except OSError:
            return []
        return [run for name in names if (run := _read(self._home / name))]

    def unfinished(self, connector: str, asked: tuple[str, ...]) -> PathRun | None:
        """Returns the latest unfinished run of this connector over these PATHs, None without one."""
        found = [run for run in self.all() if run.state == "begun" and run.connector == connector and sorted(run.asked) == sorted(asked)]
        return found[-1] if found else None

    def begin(self, run: PathRun) -> PathRun:
        """Writes a new run to disk and returns it, with `run.directory` set."""
        now = time.time()
        name = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{secrets.token_hex(2)}"
        directory = self._home / name
        directory.mkdir(mode=0o700)
        made = replace(run, directory=directory, begun_ms=int(now * 1000))
        made.save()
        return made

    def prune(self) -> None:
        """Removes old finished runs, and the stores of finished ones that a crash left. Raises nothing."""
        oldest_ms = (time.time() - KEPT_SECONDS) * 1000
        for run in self.all():
            if run.state == "begun":
                continue
            if run.ended_ms < oldest_ms:
                shutil.rmtree(run.directory, ignore_errors=True)
            elif (run.directory / "rows.json").exists():
                _drop_store(run.directory)

    def rows(self, connector: str, wanted: WindowOptions | None = None) -> Iterator[tuple[SourcePartition, SourceOffset, str]]:
        """Yields the offset of each file of the connector's runs that dropped no record of `wanted`, with the run in words."""
        for run in self.all():
            if run.connector == connector and run.has_sent(wanted):
                for partition, offset in rows_of(run).items():
                    yield partition, offset, f"backfill {run.name}"


def is_worked_on(run: PathRun) -> bool:
    """Returns whether a process works on the run now: then it must not be ended."""
    try:
        descriptor = os.open(run.directory / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def shared_file(run: PathRun, files: Iterable[str]) -> str | None:
    """Returns the first of `files` that the run has not finished, under that name or another one; None without one."""
    rows = rows_of(run)
    names = set(run.files).difference(offset.path for offset in rows.values() if offset.done)
    unfinished = {found.lasting for one, offset in rows.items() if not offset.done and (found := identity_of(one.key))}
    return next((file for file in files if file in names or _lasting(file) in unfinished), None)


def _lasting(path: str) -> Identity | None:
    """Returns the lasting identity of the file with this name, None if it cannot be known."""
    try:
        found = identify_by_name(path, os.stat(path), follow_symlinks=True)  # noqa: PTH116 - names are text with escapes
    except OSError:
        return None
    return found.lasting if found else None


def finish(run: PathRun, summary: Mapping[str, Any], rows: Mapping[SourcePartition, SourceOffset]) -> None:
    """Saves the account and offsets of a finished run, and removes its closed store. Raises OSError, after which it can be resumed."""
    write_json(run.directory / "rows.json", to_documents(rows))
    write_json(run.directory / "account.json", summary)
    replace(run, state="finished", ended_ms=int(time.time() * 1000)).save()
    _drop_store(run.directory)


def give_up(run: PathRun) -> None:
    """Ends an unfinished run that is replaced by a new one. What it delivered stays known."""
    rows = rows_of(run)
    write_json(run.directory / "rows.json", to_documents(rows))
    replace(run, state="given_up", ended_ms=int(time.time() * 1000)).save()
    _drop_store(run.directory)


def rows_of(run: PathRun) -> dict[SourcePartition, SourceOffset]:
    """Returns the run's offset in each file, nothing if its store cannot be read. Takes no lock."""
    try:
        kept = json.loads((run.directory / "rows.json").read_text("utf-8"))
    except FileNotFoundError:
        try:
            return stored_rows(run)
        except CopycatError as error:
            _log.warning("what an earlier backfill has delivered is not known, and may be sent again", run=run.name, why=error.message)
            return {}
    except (OSError, ValueError):
        return {}
    return offsets_in(saved_rows(run.connector, kept))


def stored_rows(run: PathRun) -> dict[SourcePartition, SourceOffset]:
    """Returns the offsets in the run's store. Raises CopycatError if it cannot be read: then it must not be removed."""
    return {one: offset for one, offset in offsets_in(saved_offsets(run.directory)).items() if one.connector == run.connector}


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON file atomically and durably. Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(values, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(directory: Path) -> PathRun | None:
    """Returns the run in a directory, None for anything else or an incomplete one."""
    try:
        values = json.loads((directory / "run.json").read_text("utf-8"))
        known = {one.name for one in fields(PathRun)} - {"directory"}
        lists = {name: tuple(values[name]) for name in ("asked", "files", "remote")}
        return PathRun(directory, **{name: value for name, value in values.items() if name in known} | lists)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _drop_store(directory: Path) -> None:
    for entry in directory.glob("offsets.db*"):
        with contextlib.suppress(OSError):
            entry.unlink()
    shutil.rmtree(directory / "run", ignore_errors=True)
