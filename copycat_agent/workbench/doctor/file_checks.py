"""Checks the files that a definition names: whether they exist, the agent's user may read them, and the kernel reports their changes."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from copycat_agent.mountinfo import Mount
from copycat_agent.options import Definition
from copycat_agent.small_files import is_directory, is_there
from copycat_agent.sources.files.paths.discovery import Discovery, MatchedFile
from copycat_agent.sources.files.paths.regular_files import Opener
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.sources.log_file.rotation import log_of
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.workbench.doctor.steps import Notes, names
from copycat_agent.workbench.doctor.users import User, how_to_open, mount_of

_COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".sz", ".zip")
_UNPACKED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".sz")
"""Suffixes of files that `compression: auto` unpacks; not archives of several files."""
_REFERENCE = re.compile(r"\$\{file:(/[^}]*)\}|\$\{cred:([A-Za-z0-9_.-]+)\}")
FILES_CHECKED = 20_000
"""Most files of a connector whose permissions are checked."""


@dataclass(frozen=True, slots=True)
class PatternResult:
    """The files and directories that one connector's patterns match."""

    files: tuple[MatchedFile, ...] = ()
    directories: frozenset[str] = frozenset()
    watched: bool = False
    max_open_files: int = 0


@dataclass(slots=True)
class PatternWalk:
    """One scan of the patterns. `odd` holds the paths that it complained about, with the reason."""

    options: LogFileOptions
    discovery: Discovery
    files: list[MatchedFile] = field(default_factory=list)
    odd: dict[str, str] = field(default_factory=dict)

    def warn(self, path: str, why: str) -> None:
        """Notes what is odd about a path; the first reason stays."""
        self.odd.setdefault(path, why)


def examine_files(notes: Notes, definition: Definition, user: User, mounted: list[Mount]) -> PatternResult:
    """Adds the steps of one connector's source. Reads only directories; takes as long as a scan of the agent."""
    source = definition.source
    if not isinstance(source, LogFileOptions):
        notes.skip("files", f"source {source.type} is not looked at")
        return PatternResult()
    opener = Opener(source.include, follow_symlinks=source.follow_symlinks, symlink_roots=source.symlink_roots)
    discovery = Discovery(source.include, source.exclude, opener)
    look = PatternWalk(source, discovery)
    look.files.extend(discovery.scan(look.warn))
    _examine_directories(notes, look, user)
    _examine_patterns(notes, look)
    _examine_reading(notes, look, user)
    _examine_deleting(notes, look, user)
    _examine_odd(notes, look)
    _examine_compressed(notes, look)
    _examine_rotated(notes, look)
    examine_events(notes, source, discovery.directories, mounted)
    return PatternResult(tuple(look.files), frozenset(discovery.directories), source.watch == "auto", source.max_open_files)


def examine_secrets(notes: Notes, path: Path, definition: Definition, user: User, credentials: str | None) -> None:
    """Checks that the agent's user may read the definition, the files that `${file:}` and `${cred:}` name, and those of TLS.

    Credentials only if this process runs as that user: for another one, systemd reads them as root and passes them on.
    """
    wanted = {"the definition": str(path)}
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    for match in _REFERENCE.finditer(text):
        if match[1]:
            wanted[f"${{file:{match[1]}}}"] = match[1]
        elif credentials and user.is_current:
            wanted[f"${{cred:{match[2]}}}"] = os.path.join(credentials, match[2])  # noqa: PTH118 - as the loader joins them
    security = definition.kafka.security
    wanted |= {name: value for name in ("ca_file", "cert_file", "key_file") if (value := getattr(security, name))}
    closed = [(what, where) for what, where in wanted.items() if not user.may(where, "r") or user.closed_parent(where)]
    for what, where in closed:
        closed_above = user.closed_parent(where)
        fix = _passage(user, closed_above) if closed_above else f"setfacl -m u:{user.name}:r {shlex.quote(where)}"
        state = f"user {user.name} cannot read it" if is_there(where) else "it is not there"
        notes.fail("secrets", f"{what} is {where}: {state}", fix if is_there(where) else "")
    if not closed:
        notes.ok("secrets", f"{user.name} can read {names(list(wanted))}")


def examine_shared(seen: dict[str, tuple[Definition, PatternResult]], notes: dict[str, Notes]) -> None:
    """Checks for files that two connectors read: intended for two topics, a warning for one."""
    readers: dict[tuple[int, int], list[str]] = {}
    example: dict[tuple[int, int], str] = {}
    for name, (_, one) in seen.items():
        for found in one.files:
            key = found.stat.st_dev, found.stat.st_ino
            example.setdefault(key, found.path)
            if name not in readers.setdefault(key, []):
                readers[key].append(name)
    shared: dict[tuple[str, str], list[str]] = {}
    for key, who in readers.items():
        for other in who[1:]:
            shared.setdefault((other, who[0]), []).append(example[key])
    for (name, other), paths in shared.items():
        same = seen[name][0].record.topic == seen[other][0].record.topic
        text = f"{names(paths, 2)} {'is' if len(paths) == 1 else 'are'} read by {other} too"
        if same:
            notes[name].warn("shared", f"{text}, into the same topic: every record arrives twice", "delete or narrow one of the two")
        else:
            notes[name].ok("shared", f"{text}, into {seen[other][0].record.topic}")


def _examine_directories(notes: Notes, look: PatternWalk, user: User) -> None:
    closed: dict[str, str] = {}
    missing = sorted(path for path in look.discovery.directories if not is_there(path))
    listed = sorted(path for path in look.discovery.directories if path not in missing)
    for path in listed:
        if above := user.closed_parent(path):
            closed.setdefault(above, _passage(user, above))
        elif not user.may(path, "rx"):
            closed.setdefault(path, how_to_open(user, path, "rx"))
    for path, fix in list(closed.items())[:3]:
        what = "list" if path in listed else "pass through"
        notes.fail("directories", f"user {user.name} may not {what} {path}", fix)
    for path in missing:
        if above := user.closed_parent(path):
            notes.fail("directories", f"user {user.name} may not pass through {above}, so {path} cannot be seen", _passage(user, above))
        else:
            notes.warn("directories", f"{path} is not there", "check source.include; the agent looks again every scan_interval")
    if not closed and not missing:
        notes.ok("directories", names(listed))


def _passage(user: User, directory: str) -> str:
    return f"setfacl -m u:{user.name}:x {shlex.quote(directory)}"


def _examine_patterns(notes: Notes, look: PatternWalk) -> None:
    unmatched = sorted(pattern for pattern in look.discovery.unmatched if is_directory(_fixed(pattern)))
    if unmatched and not look.discovery.unlisted:
        notes.warn("patterns", f"no file matches {names(unmatched)}", "check source.include, or wait for the first file")
    size = sum(found.stat.st_size for found in look.files)
    if look.files:
        notes.ok("files", f"{len(look.files):,} {'file' if len(look.files) == 1 else 'files'}, {size:,} bytes")


def _fixed(pattern: str) -> str:
    """Returns the directory above the pattern's first wildcard."""
    return re.split(r"[*?\[]", pattern)[0].rpartition("/")[0] or "/"


def _examine_reading(notes: Notes, look: PatternWalk, user: User) -> None:
    checked = look.files[:FILES_CHECKED]
    closed = [found.path for found in checked if not user.may(found.path, "r")]
    if closed:
        text = f"user {user.name} cannot read {names(closed)}"
        notes.fail("reading", text, how_to_open(user, closed[0], "r"))
    elif checked:
        notes.ok(
            "reading", f"user {user.name} may read " + ("all of them" if len(checked) == len(look.files) else f"the first {len(checked):,}")
        )


def _examine_deleting(notes: Notes, look: PatternWalk, user: User) -> None:
    """Checks that files may be deleted: that depends on their directories, and on the right to ask whether a program writes to them."""
    if look.options.cleanup.policy == "none":
        return
    checked = look.files[:FILES_CHECKED]
    closed = [path for path in sorted({found.path.rpartition("/")[0] for found in checked}) if not user.may(path or "/", "wx")]
    foreign = [found.path for found in checked if user.uid not in (0, found.stat.st_uid)]
    if closed:
        fix = f"setfacl -m u:{user.name}:rwx {shlex.quote(closed[0])}; in the service, name it in ReadWritePaths="
        notes.fail("cleanup", f"user {user.name} may not delete files in {names(closed)}", fix)
    elif foreign:
        text = f"user {user.name} does not own {names(foreign)}: whether a program writes to them can be told only with CAP_LEASE"
        notes.warn("cleanup", text, "AmbientCapabilities=CAP_LEASE in the service, or cleanup: {policy: none}")
    else:
        notes.ok("cleanup", "files that are read are deleted")


def _examine_odd(notes: Notes, look: PatternWalk) -> None:
    """Warns of links, pipes and sockets that match, which are passed over. Links that lead out are reported once, by the first."""
    by_reason: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for path, why in look.odd.items():
        if path not in look.discovery.unlisted:
            what, _, fix = why.rpartition("; ") if "; " in why else (why, "", "")
            by_reason.setdefault(("" if why.startswith("leads to ") else what, fix), []).append((path, what))
    for (_, fix), odd in by_reason.items():
        text = f"{names([path for path, _ in odd])}: {odd[0][1]}"
        notes.warn("passed over", text, fix or "exclude it, or leave it: it is passed over")


def _examine_compressed(notes: Notes, look: PatternWalk) -> None:
    """Warns of compressed files that match and are not unpacked: they are sent as if they were text."""
    unpacked = _UNPACKED if look.options.compression == "auto" else ()
    found = [one.path for one in look.files if one.path.endswith(_COMPRESSED) and not _is_unpacked(one.path, unpacked)]
    if found:
        suffixes = sorted({Path(path).suffix for path in found})
        fix = f"exclude: [{', '.join(repr('*' + suffix) for suffix in suffixes)}]"
        notes.warn("compressed", f"{names(found)}: compressed, and sent as the bytes they are", fix)


def _is_unpacked(path: str, suffixes: tuple[str, ...]) -> bool:
    return path.endswith(suffixes) and not path.rpartition(".")[0].endswith(".tar")


def _examine_rotated(notes: Notes, look: PatternWalk) -> None:
    """Reports older generations beside the files that match: they are not read, but files rotated later are."""
    matched = {found.path for found in look.files}
    families = {log_of(path) for path in matched}
    beside = [
        entry.path
        for directory in sorted({os.path.dirname(path) for path in matched})  # noqa: PTH120 - many thousand paths
        for entry in _entries(directory)
        if entry.path not in matched and log_of(entry.path) in families and not entry.path.endswith(_COMPRESSED)
    ]
    if beside:
        text = (
            f"{names(beside)}: rotated already and outside the patterns, not read; files that are rotated from now on are read to their end"
        )
        notes.ok("rotated", text)


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as listing:
            return sorted((entry for entry in listing if entry.is_file(follow_symlinks=False)), key=lambda entry: entry.name)
    except OSError:
        return []


def examine_events(notes: Notes, source: LogFileOptions | SpoolDirOptions, directories: Iterable[str], mounted: list[Mount]) -> None:
    """Checks that the kernel reports changes in the directories."""
    found = ((path, mount_of(path, mounted)) for path in sorted(directories)[:1000])
    silent = next(((path, mount) for path, mount in found if mount is not None and mount.is_silent), None)
    if source.watch == "poll":
        notes.ok("events", f"watch: poll, every {source.scan_interval:g} s")
    elif silent:
        path, mount = silent
        text = f"{path} is on {mount.kind}, where the kernel may not tell of changes: they are found every {source.scan_interval:g} s"
        notes.warn("events", text, "say so in the definition: watch: poll, and scan_interval as short as you need")
    else:
        notes.ok("events", "the kernel tells of changes")
