"""Places where a test makes this process die, hang or fail, to prove that nothing is lost or repeated there.

`COPYCAT_FAILPOINT=name[:nth][:kill|hang|stop|error]` acts when the process reaches `name` for the nth time (the first by default), with
`kill` by default. Every process of the agent counts for itself, also those that replace a killed one; with `COPYCAT_FAILPOINT_ONCE=FILE`
only the one that creates FILE acts. Unset, a place costs one call that does nothing (25 ns), so that the code that is killed in tests is
the code that runs in production.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from copycat_agent.errors import RetriableError

VARIABLE = "COPYCAT_FAILPOINT"
ONCE = "COPYCAT_FAILPOINT_ONCE"
"""Names a file that does not exist: the process that creates it acts, and writes its pid there; no other one does."""
NAMES: dict[str, str] = {
    "start": "W0: the agent holds its state directory; nothing is fenced yet",
    "fenced": "W1: a connector's lanes are fenced; their positions are not read yet",
    "claimed": "W2: the lanes are read and claimed; offsets are not saved, nothing is planned",
    "begun": "W2: a transaction is begun; nothing is sent in it",
    "sending": "W3: a run of records is acknowledged; more may follow, no position is sent",
    "positions-sent": "W4: positions and head are acknowledged; the commit is not asked for",
    "committing": "W5: the commit is asked for and not answered",
    "committed": "W6: the commit is acknowledged; the driver does not know",
    "answered": "W6: the driver knows; SQLite is not written",
    "saved": "W7: SQLite is written; spooled files are not moved",
    "moved": "W8: a spooled file is moved; its directories are not on disk",
    "cleaned": "W8: spooled files are moved; the store does not say so",
    "recovering": "W11: an outcome is unknown; the lane is not fenced yet",
    "files-uploaded": "W20: files of a range are in the store, under names that nobody reads; the range is not claimed",
    "files-claimed": "W21: the range is claimed; whether the claim came too late is not known",
    "files-checked": "W22: the claim counts; nothing is published",
    "files-published": "W23: the files are published; the driver does not know",
}
"""All places, with the window of `docs/exactly-once.md` that each belongs to; those of files are from W20 on."""

ACTIONS: dict[str, str] = {
    "kill": "SIGKILL to this process",
    "hang": "this thread stands still for an hour",
    "stop": "SIGSTOP to this process, which goes on once it gets SIGCONT",
    "error": "RetriableError, as from a network that fails",
}
"""What a process can do at a place."""

_HANG_SECONDS = 3600.0
_NUMBER = re.compile(r"[1-9]\d{0,8}", re.ASCII)


class _Armed(NamedTuple):
    name: str
    nth: int
    action: str


def _parse(text: str) -> _Armed | None:
    if not text:
        return None
    name, *rest = text.split(":")
    nth = rest.pop(0) if rest and _NUMBER.fullmatch(rest[0]) else "1"
    action = rest.pop(0) if rest else "kill"
    if name not in NAMES or action not in ACTIONS or rest:
        raise ValueError(f"{VARIABLE} is not name[:nth][:kill|hang|stop|error] with a name that copycat --failpoints lists")
    return _Armed(name, int(nth), action)


hit: Callable[[str], object] = str
"""`hit(name)`: called where this process reaches the place `name`. Raises RetriableError if the variable asks for an error.

While nothing is armed it is `str`, which does nothing with a name."""
_armed: _Armed | None = None
_problem = ""
_lock = threading.Lock()
_times = 0


def arm(text: str) -> None:
    """Arms the place in `text`, in the variable's format; "" for none. Raises ValueError, with the right format, for anything else."""
    global _armed, _times, hit  # noqa: PLW0603 - so that a place costs nothing while nothing is armed
    _armed, _times = _parse(text), 0
    hit = _hit if _armed is not None else str


@contextlib.contextmanager
def armed(text: str) -> Iterator[None]:
    """Arms this process within the block. For tests of one process."""
    arm(text)
    try:
        yield
    finally:
        arm("")


def problem() -> str:
    """Returns what is wrong with the variable, "" for nothing. The command line ends with it and starts no other process."""
    return _problem


def is_armed(name: str) -> bool:
    """Returns whether the place `name` is armed, for places that are expensive to reach."""
    return _armed is not None and _armed.name == name


def _hit(name: str) -> None:
    if _armed is not None and _armed.name == name:
        _act(_armed)


def _act(armed: _Armed) -> None:
    global _times  # noqa: PLW0603 - counted per process
    with _lock:
        _times += 1
        if _times != armed.nth or not _is_first():
            return
    if armed.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif armed.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif armed.action == "hang":
        threading.Event().wait(_HANG_SECONDS)
    else:
        raise RetriableError(f"failpoint {armed.name}", f"unset {VARIABLE}")


def _is_first() -> bool:
    """Returns whether this process may act, if only one may."""
    path = os.environ.get(ONCE)
    if not path:
        return True
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(fd, "w") as made:
        made.write(f"{os.getpid()}\n")
    return True


try:
    arm(os.environ.get(VARIABLE, ""))
except ValueError as error:  # importers need not handle it: the command line reports it
    _problem = str(error)
