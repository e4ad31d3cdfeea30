"""Checks the state directory: whether it exists, is private and writable, which process holds it, and which version wrote it."""

from __future__ import annotations

import os
import shlex
import stat
import struct
from contextlib import suppress
from pathlib import Path

from copycat_agent import __version__
from copycat_agent.api import AgentClient
from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.mountinfo import Mount
from copycat_agent.offsets import agent_identity
from copycat_agent.offsets.schema import APPLICATION_ID, VERSION
from copycat_agent.small_files import is_there
from copycat_agent.workbench.doctor.steps import CheckStep, Notes
from copycat_agent.workbench.doctor.users import User, mount_of

SOCKET_BYTES = 107
"""Longest path of a unix socket (sockaddr_un less its final zero)."""
_ROOM_BYTES = 256 * 2**20
_LEAST_BYTES = 16 * 2**20
_HEADER_BYTES = 100


def examine_state(state_dir: Path, socket: Path, user: User, mounted: list[Mount]) -> list[CheckStep]:
    """Returns the steps of section `state`. Takes no lock and changes nothing."""
    notes = Notes("state")
    if not is_there(state_dir):
        _examine_parent(notes, state_dir, user)
    else:
        _examine_directory(notes, state_dir, user)
        _examine_store(notes, state_dir)
        _examine_identity(notes, state_dir)
        _examine_holder(notes, state_dir)
    _examine_room(notes, state_dir)
    _examine_mount(notes, state_dir, mounted)
    _examine_socket(notes, socket)
    return notes.steps


def agent_uuid(state_dir: Path) -> str:
    """Returns the uuid of the agent with this state directory, "" when it has none yet or it cannot be read."""
    try:
        kept = agent_identity.load(state_dir)
    except FatalError:
        return ""
    return "" if kept is None else kept.uuid


def holder(state_dir: Path) -> int | None:
    """Returns the pid of the process that holds the directory's lock, None without one. Reads /proc/locks, which takes no lock."""
    try:
        info = (state_dir / "lock").lstat()
        table = Path("/proc/locks").read_text("ascii", "replace")
    except OSError:
        return None
    place = f"{os.major(info.st_dev):02x}:{os.minor(info.st_dev):02x}:{info.st_ino}"
    for line in table.splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == place:  # noqa: PLR2004 - proc(5)
            return _written_pid(state_dir) or int(fields[4])
    return None


def _written_pid(state_dir: Path) -> int:
    """Returns the pid that the holder wrote into its lock, 0 without one: right also from another pid namespace."""
    with suppress(OSError, ValueError):
        return int((state_dir / "lock").read_text("ascii").strip() or 0)
    return 0


def nearest(path: Path) -> Path:
    """Returns `path`, or the first directory above it that exists."""
    return next(one for one in (path, *path.parents) if is_there(one))


def _examine_parent(notes: Notes, state_dir: Path, user: User) -> None:
    parent = nearest(state_dir)
    if user.may(str(parent), "wx") and not user.closed_parent(str(parent)):
        notes.ok("directory", f"{state_dir} is not there yet; the agent makes it")
        return
    fix = f"install -d -m 700 -o {user.name} {shlex.quote(str(state_dir))}"
    notes.fail("directory", f"{state_dir} is not there, and user {user.name} cannot make it in {parent}", fix)


def _examine_directory(notes: Notes, state_dir: Path, user: User) -> None:
    path = shlex.quote(str(state_dir))
    info = state_dir.lstat()
    if not stat.S_ISDIR(info.st_mode):
        notes.fail("directory", f"{state_dir} is a link or no directory", "name the directory itself with --state-dir")
    elif info.st_uid != user.uid:
        notes.fail("directory", f"{state_dir} belongs to user {info.st_uid}, the agent runs as {user.name}", f"chown -R {user.name} {path}")
    elif info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        notes.fail("directory", f"others can write to {state_dir} (mode {stat.S_IMODE(info.st_mode):04o})", f"chmod 700 {path}")
    elif not user.may(str(state_dir), "rwx"):
        notes.fail("directory", f"user {user.name} cannot write to {state_dir}", f"chmod u+rwx {path}")
    elif closed := user.closed_parent(str(state_dir)):
        notes.fail("directory", f"user {user.name} may not pass through {closed}", f"setfacl -m u:{user.name}:x {shlex.quote(closed)}")
    else:
        notes.ok("directory", str(state_dir))


def _examine_store(notes: Notes, state_dir: Path) -> None:
    """Checks the header of the offset store, without opening it as a database: an agent may be using it.

    Must not run in the agent's own process: closing the file there would release SQLite's locks on it.
    """
    store = state_dir / "offsets.db"
    marker = state_dir / "offsets.db.quarantined"
    if is_there(marker):
        notes.fail(
            "offsets", f"a damaged offset store was moved aside and nobody has decided yet; see {marker}",
            f"restore a backup as {store} and rm {shlex.quote(str(marker))}; or only rm it, to read every file from its start_at again",
        )  # fmt: skip
        return
    try:
        with store.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
    except FileNotFoundError:
        notes.ok("offsets", "none saved yet")
        return
    except OSError as error:
        notes.warn("offsets", f"{store} cannot be looked at: {error.strerror}", "run doctor as root")
        return
    if len(header) < _HEADER_BYTES or struct.unpack_from(">I", header, 68)[0] != APPLICATION_ID:  # SQLite's header
        notes.fail("offsets", f"{store} is not an offset store", "the agent moves it aside at its next start and says what to do")
        return
    (version,) = struct.unpack_from(">I", header, 60)
    if version > VERSION:
        text = f"{store} was written by a newer copycat-agent (schema {version}, this one knows up to {VERSION})"
        notes.fail("offsets", text, "install that version again, or restore the state directory from before the upgrade")
    else:
        notes.ok("offsets", f"schema {version}" + (f", this version makes {VERSION} of it" if version < VERSION else ""))


def _examine_identity(notes: Notes, state_dir: Path) -> None:
    """Checks the agent's identity in Kafka. It has none before its first start."""
    try:
        kept = agent_identity.load(state_dir)
    except FatalError as error:
        notes.fail("identity", error.message, error.hint)
        return
    if kept is not None:
        notes.ok("identity", f"agent {kept.uuid}")


def _examine_holder(notes: Notes, state_dir: Path) -> None:
    pid = holder(state_dir)
    notes.ok("lock", f"held by the agent with pid {pid}, which runs" if pid else "free: no agent uses this directory")


def _examine_room(notes: Notes, state_dir: Path) -> None:
    where = nearest(state_dir)
    try:
        found = os.statvfs(where)
    except OSError as error:
        notes.warn("disk", f"{where} cannot be asked for its free space: {error.strerror}")
        return
    free = found.f_bavail * found.f_frsize
    text = f"{free // 2**20:,} MiB free at {where}"
    fix = f"make room: df -h {shlex.quote(str(where))}, or name another place with --state-dir"
    if free < _LEAST_BYTES or (found.f_files and not found.f_favail):
        notes.fail("disk", text + ("" if free < _LEAST_BYTES else ", but no inode"), fix)
    elif free < _ROOM_BYTES:
        notes.warn("disk", text, fix)
    else:
        notes.ok("disk", text)


def _examine_mount(notes: Notes, state_dir: Path, mounted: list[Mount]) -> None:
    mount = mount_of(str(state_dir), mounted)
    if mount is None:
        return
    if "ro" in mount.options:
        notes.fail("mount", f"{mount.point} is mounted read-only", f"mount -o remount,rw {shlex.quote(mount.point)}")
    elif "noexec" in mount.options:
        text = f"{mount.point} is mounted noexec: Spark keeps native libraries in the state directory's run/tmp and cannot load them"
        notes.warn("mount", text, f"mount -o remount,exec {shlex.quote(mount.point)}, or name another place with --state-dir")
    elif mount.is_silent and mount.kind != "overlay":
        text = f"{mount.point} is {mount.kind}: locks and fsync of the offset store are only as good as its server's"
        notes.warn("mount", text, "keep the state directory on a local disk: --state-dir")
    else:
        notes.ok("mount", f"{mount.kind} at {mount.point}")


def _examine_socket(notes: Notes, socket: Path) -> None:
    length = len(os.fsencode(socket))
    if length > SOCKET_BYTES:
        text = f"the path of the agent's socket has {length} bytes, the kernel takes {SOCKET_BYTES}: {socket}"
        notes.fail("socket", text, "set api.socket in agent.yaml to a shorter path, such as /run/copycat/agent.sock")
    elif not is_there(socket):
        notes.ok("socket", f"{socket} (no agent listens there)")
    else:
        _examine_running(notes, socket)


def _examine_running(notes: Notes, socket: Path) -> None:
    """Checks the version of the agent that answers: after an upgrade the old one may still run."""
    try:
        version = AgentClient(socket).get("/v1").get("version")
    except CopycatError as error:
        notes.warn("socket", f"{socket} is there, but: {error.message}", error.hint)
        return
    if version == __version__:
        notes.ok("socket", f"{socket}: an agent of version {version} answers")
    else:
        text = f"the agent that answers at {socket} is version {version}, installed is {__version__}"
        notes.warn("socket", text, "systemctl restart copycat, or stop and start it")
