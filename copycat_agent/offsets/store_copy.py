"""The state directory of an agent whose state is in Kafka: its files are only a copy, which each start makes anew.

A file beside the store marks the copy with the agent's id, so that commands and agents without the log do not change it.
"""

from __future__ import annotations

import functools
import sqlite3
from contextlib import closing
from pathlib import Path

from copycat_agent import logs
from copycat_agent.errors import FatalError
from copycat_agent.offsets import agent_identity, state_log
from copycat_agent.offsets.state_dir import DATABASE, StateDir, marker_of
from copycat_agent.offsets.state_log import Entries
from copycat_agent.offsets.store_file import create, find_damage, read_only

NAME = "agent_id"

_log = logs.get("offsets")


def refuse_copy(directory: StateDir) -> None:
    """Raises FatalError if the directory holds only a copy: changes to it would be lost at the next start."""
    if whose := copy_of(directory.path):
        words = f"the state in {directory.path} is a copy: agent {whose} keeps its own in Kafka"
        way = f"set agent_id: {whose} in agent.yaml; its state is changed while it runs: stop the connector (copycat ctl stop NAME) first. "
        raise FatalError(words, f"{way}To go on without Kafka, and only when no agent {whose} runs any more: rm {directory.path / NAME}")


def copy_of(path: Path) -> str:
    """Returns the id of the agent whose state is copied here; "" if the directory is no copy."""
    try:
        return (path / NAME).read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def restore(directory: StateDir, agent_id: str, there: Entries) -> None:
    """Makes the files from the log's entries `there`; without entries the files stay as they are.

    Raises FatalError if the directory belongs to another agent, or `there` cannot be read; OSError and sqlite3.Error.
    """
    path, place = directory.path, f"the state of agent {agent_id} in Kafka"
    if (whose := copy_of(path)) and whose != agent_id:
        raise FatalError(f"{path} is the state directory of agent {whose}, not of {agent_id}", "give each its own: --state-dir DIR")
    database = path / DATABASE
    if not there:
        if whose and database.exists():
            _log.warning("Kafka has no state of this agent any more; what this host has of it is put there", agent=agent_id)
        directory.replace(NAME, f"{agent_id}\n")
        return
    kept = state_log.identity(there, place)
    if database.exists() and _has_other_state(path, {kept.uuid, *kept.former}, is_copy=bool(whose)):
        words = f"{path} has state that is not in Kafka: agent {agent_id} has another one there"
        way = "give this one a directory of its own with --state-dir, or another agent_id; or move what is there away; to go on with it,"
        raise FatalError(words, f"{way} stop all processes of the agent, delete its state topic, and start this one first")
    directory.replace(NAME, f"{agent_id}\n")
    files = (Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm"))
    for leftover in (*files, marker_of(database), path / agent_identity.NAME):
        leftover.unlink(missing_ok=True)
    create(directory, database, functools.partial(state_log.fill, entries=there, place=place))
    agent_identity.save(directory, kept)


def _has_other_state(path: Path, known: set[str], *, is_copy: bool) -> bool:
    """Returns whether the directory has the state of an agent with none of the uuids `known`, which would be lost.

    A directory that is marked as a copy may have its own state still: its process ended before that was in Kafka.
    """
    if not is_copy:
        here = agent_identity.load(path)
        return here is None or here.uuid not in known
    database = path / DATABASE
    try:
        with closing(read_only(database)) as connection:
            (uuid,) = connection.execute("SELECT uuid FROM agent").fetchone() or ("",)
            return uuid not in known and state_log.has_rows(connection)
    except (sqlite3.Error, UnicodeDecodeError):
        if find_damage(database):
            return False
        raise
