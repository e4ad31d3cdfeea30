"""Checks a spool directory: whether the agent's user may read its files and remove them, and has room where they go."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from copycat_agent import logs
from copycat_agent.mountinfo import Mount
from copycat_agent.options import Definition
from copycat_agent.small_files import is_directory, is_there
from copycat_agent.sources.files.paths.discovery import MatchedFile
from copycat_agent.sources.files.paths.matching import normalise
from copycat_agent.sources.spool_dir.listing import DoneFiles, Listing
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.workbench.doctor.file_checks import FILES_CHECKED, PatternResult, examine_events
from copycat_agent.workbench.doctor.steps import Notes, names
from copycat_agent.workbench.doctor.users import User, how_to_open, mount_of

_MOVES = ("move", "move_by_date")


def examine_spool(notes: Notes, definition: Definition, user: User, mounted: list[Mount]) -> PatternResult:
    """Adds the steps of one connector's spool directory. Reads only directories."""
    source = definition.source
    assert isinstance(source, SpoolDirOptions)
    if not _examine_directory(notes, source, user):
        return PatternResult()
    listing = Listing(source, DoneFiles(source), logs.get("doctor"))
    files = tuple(listing.look())
    directories = frozenset(listing.directories)
    _examine_below(notes, source, directories, user)
    _examine_files(notes, source, listing, files, user)
    _examine_taking(notes, source, directories, user, mounted)
    for option, path in _targets(source).items():
        _examine_target(notes, _Target(option, path, source, files), user, mounted)
    examine_events(notes, source, [source.dir], mounted)
    return PatternResult(files, directories, source.watch == "auto")


def _targets(source: SpoolDirOptions) -> dict[str, str]:
    moves = source.cleanup.policy in _MOVES
    named = {"to": source.cleanup.to if moves else None, "failed_to": source.cleanup.failed_to}
    return {option: normalise(path) for option, path in named.items() if path}


def _examine_directory(notes: Notes, source: SpoolDirOptions, user: User) -> bool:
    """Checks the directory itself. Returns whether its content can be checked."""
    path = source.dir
    if above := user.closed_parent(path):
        notes.fail("directory", f"user {user.name} may not pass through {above}", f"setfacl -m u:{user.name}:x {shlex.quote(above)}")
    elif not is_there(path):
        notes.warn("directory", f"{path} is not there; the agent looks again every {source.scan_interval:g} s", _make(path, user))
    elif not is_directory(path):
        notes.fail("directory", f"{path} is not a directory", "name a directory in source.dir")
    elif not user.may(path, "rx"):
        notes.fail("directory", f"user {user.name} may not list {path}", how_to_open(user, path, "rx"))
    else:
        return True
    return False


def _examine_below(notes: Notes, source: SpoolDirOptions, directories: frozenset[str], user: User) -> None:
    closed = sorted(path for path in directories if not user.may(path, "rx"))
    if closed:
        notes.fail("directory", f"user {user.name} may not list {names(closed)}", how_to_open(user, closed[0], "rx"))
    else:
        notes.ok("directory", source.dir + (f" and {len(directories) - 1:,} below" if len(directories) > 1 else ""))


def _examine_files(notes: Notes, source: SpoolDirOptions, listing: Listing, files: tuple[MatchedFile, ...], user: User) -> None:
    closed = [found.path for found in files[:FILES_CHECKED] if not user.may(found.path, "r")]
    if closed:
        notes.fail("files", f"user {user.name} cannot read {names(closed)}", how_to_open(user, closed[0], "r"))
    else:
        size = sum(found.stat.st_size for found in files)
        notes.ok("files", f"{len(files):,} {'file' if len(files) == 1 else 'files'} there now, {size:,} bytes")
    for path, why in list(listing.reasons().items())[:3]:
        notes.warn("passed over", f"{path}: {why}", f"check source.pattern ({', '.join(source.pattern)}), or leave it: it is passed over")


def _examine_taking(notes: Notes, source: SpoolDirOptions, directories: frozenset[str], user: User, mounted: list[Mount]) -> None:
    """Checks that files may be moved or deleted: that depends on their directories, and with the sticky bit on their owner."""
    if source.cleanup.policy == "none" and source.cleanup.failed_to is None:
        notes.ok("cleanup", "files stay where they are, and are read once")
        return
    closed = sorted(path for path in directories if not user.may(path, "wx"))
    mount = mount_of(source.dir, mounted)
    if mount is not None and "ro" in mount.options:
        fix = f"mount -o remount,rw {shlex.quote(mount.point)}, or cleanup: {{policy: none}}"
        notes.fail("cleanup", f"{source.dir} is on a read-only file system ({mount.point}): files cannot be taken away", fix)
    elif closed:
        notes.fail("cleanup", f"user {user.name} may not take files out of {names(closed)}", _write(user, closed[0]))
    elif sticky := [path for path in sorted(directories) if _is_sticky_for(path, user)]:
        text = f"{names(sticky)}: only the owner of a file may take it away (sticky bit), and {user.name} does not own those of others"
        notes.fail("cleanup", text, f"chmod -t {shlex.quote(sticky[0])}, or drop files there as {user.name}")
    else:
        words = {"none": "bad files are set aside", "delete": "delivered files are deleted"}
        notes.ok("cleanup", words.get(source.cleanup.policy, f"delivered files are moved to {source.cleanup.to}"))


def _is_sticky_for(path: str, user: User) -> bool:
    try:
        info = os.stat(path)  # noqa: PTH116 - as the others here
    except OSError:
        return False
    return bool(info.st_mode & stat.S_ISVTX) and user.uid not in (0, info.st_uid)


class _Target:
    """A directory that files are moved to: the option that names it, and the files that are to go there."""

    def __init__(self, option: str, path: str, source: SpoolDirOptions, files: tuple[MatchedFile, ...]) -> None:
        self.option = option
        self.path = path
        self.source = source
        self.waiting_bytes = sum(found.stat.st_size for found in files)
        self.base = path
        while not os.path.lexists(self.base):
            self.base = os.path.dirname(self.base)  # noqa: PTH120 - as the others here

    @property
    def is_there(self) -> bool:
        return self.base == self.path


def _examine_target(notes: Notes, target: _Target, user: User, mounted: list[Mount]) -> None:
    path, base = target.path, target.base
    mount = mount_of(base, mounted)
    if target.is_there and Path(path).is_symlink():
        fix = f"name the real directory: {target.option}: {os.path.realpath(path)}"
        notes.fail(target.option, f"{path} is a symbolic link, which is not followed", fix)
    elif not is_directory(base):
        notes.fail(target.option, f"{base} is not a directory", f"name a directory in cleanup.{target.option}")
    elif above := user.closed_parent(path):
        notes.fail(target.option, f"user {user.name} may not pass through {above}", f"setfacl -m u:{user.name}:x {shlex.quote(above)}")
    elif mount is not None and "ro" in mount.options:
        notes.fail(
            target.option, f"{path} is on a read-only file system ({mount.point})", f"mount -o remount,rw {shlex.quote(mount.point)}"
        )
    elif not user.may(base, "wx"):
        fix = _write(user, path) if target.is_there else _make(path, user)
        what = "write to it" if target.is_there else f"make it in {base}"
        notes.fail(target.option, f"{path}: user {user.name} may not {what}", fix)
    elif is_there(path) and Path(path).samefile(target.source.dir):
        notes.fail(target.option, f"{path} is the directory that files are read from", "name another directory on the same file system")
    else:
        _examine_device(notes, target)


def _examine_device(notes: Notes, target: _Target) -> None:
    other = Path(target.base).stat().st_dev != Path(target.source.dir).stat().st_dev
    room = os.statvfs(target.base)
    free = room.f_bavail * room.f_frsize
    made = "" if target.is_there else ", which will be made"
    if other and target.source.cleanup.across_devices != "copy":
        text = f"{target.path} is on another file system than {target.source.dir}: files would have to be copied"
        notes.fail(target.option, text, "cleanup: {across_devices: copy}, or a directory on the same file system")
    elif other and free < target.waiting_bytes:
        text = f"{target.path}: {free:,} bytes are free, and {target.waiting_bytes:,} bytes wait to be copied there"
        notes.warn(target.option, text, f"make room: df -h {shlex.quote(target.base)}")
    elif room.f_files and not room.f_favail:
        notes.warn(target.option, f"{target.path}: no inodes are free", f"make room: df -i {shlex.quote(target.base)}")
    else:
        notes.ok(target.option, f"{target.path}{made}, {free:,} bytes free" + (", files are copied there" if other else ""))


def _write(user: User, path: str) -> str:
    return f"setfacl -m u:{user.name}:rwx {shlex.quote(path)}"


def _make(path: str, user: User) -> str:
    return f"install -d -o {user.name} {shlex.quote(path)}"
