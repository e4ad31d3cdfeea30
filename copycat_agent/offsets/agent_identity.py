"""The agent's identity in Kafka: `identity.json` beside the store, so that a lost store can be rebuilt from Kafka.

::

    {"version": 1, "uuid": "...", "former": ["..."], "nonces": ["..."], "partitions": {"CLUSTER": 25}, "checksum": 123}

Each start of the agent adds a nonce, which is durable before Kafka sees it. A nonce in Kafka that is not among these shows that another
state directory has the same uuid: one of the two is a copy. `former` are uuids that this agent had before. `partitions` is the number of
partitions that the offsets topic of a cluster had at first use, so that a connector's partition is found again.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.offsets.state_dir import StateDir

NAME = "identity.json"
VERSION = 1
KEPT = 4096
"""Most nonces kept, the newest: those of three days for an agent that starts every minute. Nonces that lanes name are kept for ever."""
_MOST_BYTES = 2**20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class AgentIdentity(NamedTuple):
    """The identity. `nonce` is that of this start, "" for a command; `nonces` are those of all known starts, this one included."""

    uuid: str
    nonce: str
    nonces: frozenset[str]


@dataclass(frozen=True, slots=True)
class StoredIdentity:
    """The contents of the file. `nonces` are ordered from the oldest to the newest."""

    uuid: str
    former: tuple[str, ...] = ()
    nonces: tuple[str, ...] = ()
    partitions: Mapping[str, int] = field(default_factory=dict)

    @property
    def identity(self) -> AgentIdentity:
        """The identity for a command, without the nonce of a start."""
        return AgentIdentity(self.uuid, "", frozenset(self.nonces))


def is_uuid(text: str) -> bool:
    """Returns whether a text has the form of an agent's uuid."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def fresh() -> StoredIdentity:
    """Returns a new identity."""
    return StoredIdentity(str(uuid.uuid4()))


def another(kept: StoredIdentity) -> StoredIdentity:
    """Returns a new identity for an agent that is a copy, which remembers the uuid it had."""
    return StoredIdentity(fresh().uuid, former=(*kept.former, kept.uuid))


def load(directory: Path) -> StoredIdentity | None:
    """Reads `identity.json`. Returns None if there is none. Raises FatalError if it is damaged, or written by a newer version."""
    path = directory / NAME
    try:
        text = _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FatalError(f"{path} cannot be read: {error.strerror}", "it has to be a file of the agent's user") from error
    try:
        return parse(path, text)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise FatalError(f"{path} is damaged: it does not say who this agent is in Kafka", recovery_hint(path)) from None


def recovery_hint(path: Path) -> str:
    """Returns a hint what to do about a damaged file."""
    return (
        f"restore it from a backup; or move it away: the agent goes by the uuid in offsets.db then, and when that is gone as well,"
        f" begins as a new one (mv {path} {path}.damaged)"
    )


def _read(path: Path) -> bytes:
    descriptor = os.open(path, _FLAGS)
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FatalError(f"{path} is not a regular file", "move it away")
        return stream.read(_MOST_BYTES)


def parse(path: Path | str, text: str | bytes) -> StoredIdentity:
    """Parses a text of `text_of` that was read at `path`. Raises FatalError for a newer version, another error for damage."""
    document: dict[str, Any] = json.loads(text)
    if document["version"] != VERSION:
        msg = f"{path} was written by a newer copycat-agent (version {int(document['version'])}; this one knows up to {VERSION})"
        raise FatalError(msg, "install that version again")
    kept = StoredIdentity(document["uuid"], tuple(document["former"]), tuple(document["nonces"]), dict(document["partitions"]))
    if document["checksum"] != _checksum(kept) or not is_uuid(kept.uuid):
        raise ValueError("checksum")
    return kept


def text_of(kept: StoredIdentity) -> str:
    """Returns the contents of the file."""
    return json.dumps({"version": VERSION, **asdict(kept), "checksum": _checksum(kept)})


def started(kept: StoredIdentity, named: Iterable[str]) -> tuple[StoredIdentity, AgentIdentity]:
    """Returns the identity for a new start, with a fresh nonce; save it before Kafka sees it. `named` are nonces that must be kept."""
    nonce = secrets.token_hex(8)
    newest = kept.nonces[-(KEPT - 1) :]
    older = [one for one in dict.fromkeys((*kept.nonces, *named)) if one and one not in set(newest) and one in set(named)]
    now = replace(kept, nonces=(*older, *newest, nonce))
    return now, AgentIdentity(now.uuid, nonce, frozenset(now.nonces))


def save(directory: StateDir, kept: StoredIdentity) -> None:
    """Replaces the file atomically, also with regard to a power cut. Raises RetriableError if it cannot be written now."""
    try:
        directory.replace(NAME, text_of(kept) + "\n")
    except OSError as error:
        msg = f"{directory.path / NAME} cannot be written: {error.strerror}"
        raise RetriableError(msg, "make room, or see what the disk says (dmesg)") from error


def _checksum(kept: StoredIdentity) -> int:
    return zlib.crc32(json.dumps(asdict(kept), sort_keys=True).encode())


def agree(directory: Path, kept: StoredIdentity | None, stored: str) -> StoredIdentity:
    """Returns the agent's identity by its file and by the uuid in the store. Raises FatalError if these are two agents."""
    if kept is None:
        return StoredIdentity(stored)
    if stored != kept.uuid and stored not in kept.former:
        path = directory / NAME
        msg = f"offsets.db in {directory} is agent {stored}'s, and {NAME} says that this is agent {kept.uuid}"
        raise FatalError(
            msg,
            "put the right offsets.db back; or, to go on as the agent whose store it is, and only if that one never starts again: "
            f"mv {path} {path}.old",
        )
    return kept
