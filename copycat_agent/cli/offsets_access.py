"""Access to saved offsets: through the running agent, else in its file. Never both: only the owner of the lock writes.

Commands create no store, and move no damaged one aside.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from copycat_agent.api import AgentClient, AgentUnreachableError, address
from copycat_agent.cli.agent_client import find_agent
from copycat_agent.cli.common_options import state_directory
from copycat_agent.definitions import load_agent, load_file
from copycat_agent.display import render, visible
from copycat_agent.errors import CopycatError, DataError, FatalError, UnknownConnectorError
from copycat_agent.model import STATE_KEY, Loss, LossReason, LossTotal, SavedRow, SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.document import changes_document, from_documents, not_beyond, saved_rows
from copycat_agent.offsets.lanes import to_lanes_document
from copycat_agent.options import HIDDEN, AgentOptions
from copycat_agent.sources.contract import as_text
from copycat_agent.sources.log_file.beginning.manual_position import LineRules, is_file_key
from copycat_agent.sources.spool_dir.rows import is_range_key
from copycat_agent.transactions.opening import Adopt

Offsets = Mapping[SourcePartition, SavedRow]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

Changes = Mapping[SourcePartition, SavedRow | None]
"""The rows to save; None deletes."""
Totals = Mapping[tuple[str, LossReason], LossTotal]


def line_rules(name: str, path: Path) -> LineRules | None:
    """Returns the line rules of the definition in this file. Raises CopycatError if it does not load, or is another connector's."""
    loaded = load_file(path, AgentOptions(), resolve_env=False)
    if loaded.definition is None:
        raise CopycatError(render(loaded.problems[0]).splitlines()[0], f"copycat check {path.parent} says more")
    if loaded.definition.name != name and name not in loaded.definition.renamed_from:
        raise CopycatError(f"{path} defines {loaded.definition.name}, not {name}")
    return rules_of(loaded.definition.source.model_dump())


def rules_of(source: Mapping[str, Any]) -> LineRules | None:
    """Returns the line rules of a definition's source; None if an option that matters is hidden."""
    form = source.get("format")  # where a source of whole files says it
    form = form if isinstance(form, Mapping) else source
    said = {"delimiter": (form.get("line") or {}).get("delimiter"), "encoding": form.get("encoding")}
    if HIDDEN in said.values():
        return None
    given = {name: value for name, value in said.items() if value}
    return LineRules(**given, unpacks=source.get("compression") != "none", notes_time=source.get("type") != "log_file")


class _ByFile:
    """Access without an agent: this process holds the lock of the store.

    Everything raises `CopycatError`, with an agent `BusyError` if a connector runs and `force` is not given.
    """

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def connectors(self) -> tuple[str, ...]:
        """Returns the names with saved offsets."""
        return self._store.connectors()

    def known(self) -> tuple[str, ...]:
        """Returns the names with saved offsets, and of running connectors without any yet."""
        return self._store.connectors()

    def read(self, name: str) -> Mapping[SourcePartition, SavedRow]:
        """Returns the saved rows of a connector; empty if it is not known."""
        return self._store.saved(name)

    def lanes(self, name: str) -> Mapping[str, Any] | None:
        """Returns `to_lanes_document` of a connector's exactly-once lanes, None if it has none."""
        return to_lanes_document(self._store.lanes(name))

    def line_rules(self, name: str) -> LineRules | None:  # noqa: ARG002 - it is not known here
        """Returns the line rules of the connector; None if its definition is not known here."""
        return None

    def save(self, name: str, changes: Changes, *, force: bool) -> None:  # noqa: ARG002 - nothing runs
        """Saves and deletes rows; others stay."""
        given = {partition: offset for partition, offset in changes.items() if offset is not None}
        self._store.reset(given, [partition for partition in changes if partition not in given])

    def reset(self, name: str, *, force: bool) -> None:  # noqa: ARG002 - nothing runs
        """Deletes everything; Kafka's positions of the connector do not count any more either."""
        self._store.begin_anew(name)

    def adopt(self, name: str, which: Adopt, agent: str, *, force: bool) -> str:  # noqa: ARG002 - nothing runs
        """Decides which positions it continues from. Returns the agent's new uuid if it got one, else ""."""
        if agent:
            self._store.take_over(name, agent)
            return ""
        return self._store.adopt(name, which)

    def rename(self, old: str, new: str, *, force: bool) -> int:  # noqa: ARG002 - nothing runs
        """Renames a connector. Returns how many rows moved."""
        return self._store.rename(old, new)

    def losses(self, name: str | None, limit: int) -> tuple[tuple[Loss, ...], Totals]:
        """Returns the newest entries of the ledger, newest first, and its totals."""
        return self._store.losses(name, limit), {key: sums for key, sums in self._store.loss_totals().items() if name in {None, key[0]}}


class _BySocket:
    """Access through the running agent, which has the lock. The methods are those of `_ByFile`."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    def connectors(self) -> tuple[str, ...]:
        return tuple(self._client.get("/v1/offsets")["connectors"])

    def known(self) -> tuple[str, ...]:
        running = {one["name"] for one in self._client.get("/v1/connectors")["connectors"]}
        return tuple(sorted(running.union(self.connectors())))

    def read(self, name: str) -> Mapping[SourcePartition, SavedRow]:
        return saved_rows(name, self._client.get(address("offsets", name)))

    def lanes(self, name: str) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self._client.get(address("offsets", name))["lanes"]
        return found

    def line_rules(self, name: str) -> LineRules | None:
        try:
            return rules_of(self._client.get(address("connectors", name, "/definition"))["definition"]["source"])
        except UnknownConnectorError:
            return None

    def save(self, name: str, changes: Changes, *, force: bool) -> None:
        self._client.put(address("offsets", name), {**changes_document(changes), "force": force})

    def reset(self, name: str, *, force: bool) -> None:
        self._client.delete(address("offsets", name), {"force": force})

    def adopt(self, name: str, which: Adopt, agent: str, *, force: bool) -> str:
        asked = {"from": which, "agent": agent, "force": force}
        return str(self._client.post(address("offsets", name, "/adopt"), asked)["identity"])

    def rename(self, old: str, new: str, *, force: bool) -> int:
        return int(self._client.post(address("offsets", old, "/rename"), {"to": new, "force": force})["renamed"])

    def losses(self, name: str | None, limit: int) -> tuple[tuple[Loss, ...], Totals]:
        only = f"&connector={urllib.parse.quote(name, safe='')}" if name else ""
        found = self._client.get(f"/v1/losses?limit={limit}{only}")
        sums = {
            (one["connector"], cast("LossReason", one["reason"])): LossTotal(one["size_bytes"], one["records"], one["entries"])
            for one in found["totals"]
        }
        return tuple(map(_loss, found["losses"])), sums


Access = _ByFile | _BySocket


@contextlib.contextmanager
def access(socket: Path | None, state_dir: Path | None, config: Path | None, *, create: bool = False) -> Iterator[Access]:
    """Yields access through the selected agent if it answers, else to the file in the state directory, locked meanwhile.

    `create`: creates a missing store.
    """
    client = find_agent(socket, state_dir, config)
    if _is_the_one(client, state_dir, asked_for=socket is not None):
        yield _BySocket(client)
        return
    directory = state_directory(state_dir, load_agent(config) if config else AgentOptions())
    try:
        store = (OffsetStore.open if create else OffsetStore.open_existing)(directory)
    except FatalError as error:
        if "another agent" not in error.message:
            raise
        hint = f"it does not answer at {client.socket_path}: it is starting, or hangs; else name its socket with --socket"
        raise CopycatError(error.message, hint) from error
    with store:
        yield _ByFile(store)


def read_documents(name: str, source: str) -> Changes:
    """Returns the rows to import. Raises DataError with the reason if they are invalid."""
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text("utf-8")
        body: Any = json.loads(text)
    except OSError as error:
        raise CopycatError(f"{source} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source} is not JSON: {visible(str(error))}", "copycat offsets export writes what can be imported") from error
    given = from_documents(name, body)
    for partition, row in given.items():
        has_cursor = isinstance(row, SourceOffset) and row.cursor
        if partition.key != STATE_KEY and not (has_cursor or is_file_key(partition.key) or is_range_key(partition.key)):
            raise DataError(f"{partition.key!a} is no key of a file", "copycat offsets export shows what keys look like")
    return given


def moved_cursor(
    connector: str, saved: Mapping[SourcePartition, SourceOffset], wanted: str, *, path: str, key: str, force: bool = False
) -> dict[SourcePartition, SourceOffset]:
    """Returns the row of the partition with this name or key at another position; empty if it is no partition of such a source.

    The partition's name is replaced by its key: a source that refuses positions of another source accepts that. A bare value is the
    `offset` of a position that has one. Raises DataError for a position that is not JSON, and without `force` for one unlike the saved one.
    """
    chosen = next((one for one, offset in saved.items() if offset.cursor and (one.key == key or (path and offset.path == path))), None)
    if chosen is None:
        return {}
    before = json.loads(saved[chosen].cursor)
    try:
        position = json.loads(wanted)
    except (ValueError, RecursionError):
        msg = f"{wanted!a:.80} is no JSON value, and {chosen.key} of {connector} is at {saved[chosen].cursor}"
        raise DataError(msg, "give a position of that form") from None
    if isinstance(before, dict) and "offset" in before and not isinstance(position, dict):
        position = {"offset": position}
    if not (force or _is_alike(position, before)):
        msg = f"{wanted!a:.80} is no position as {chosen.key} of {connector} has: it is at {saved[chosen].cursor}"
        raise DataError(msg, "give one of that form; if that is what you want, use --force")
    return {chosen: not_beyond(replace(saved[chosen], cursor=as_text(position), path=chosen.key))}


def _is_alike(position: Any, before: Any) -> bool:  # noqa: ANN401 - any JSON
    """Returns whether it may be a position of the same source: of the same type, a map without new keys, a number of the same sign."""
    if isinstance(position, dict) and isinstance(before, dict):
        return bool(position) and all(name in before and _is_alike(value, before[name]) for name, value in position.items())
    if before is None:
        return True
    return type(position) is type(before) and not (isinstance(position, int) and position < 0 <= before)


def checked_name(name: str) -> str:
    """Returns `name` if a connector can have it. Raises UnknownConnectorError if none can."""
    if not _NAME.fullmatch(name):
        raise UnknownConnectorError(f"no connector can have the name {name!a:.80}", "1 to 63 lower-case letters, digits and -, not - first")
    return name


def _is_the_one(client: AgentClient, state_dir: Path | None, *, asked_for: bool) -> bool:
    """Returns whether an agent answers, and is that of the given state directory, if one is given."""
    try:
        theirs = client.get("/v1")["state_dir"]
    except AgentUnreachableError:
        if asked_for:
            raise
        return False
    return state_dir is None or os.path.realpath(theirs) == os.path.realpath(state_dir)


def _loss(value: Mapping[str, Any]) -> Loss:
    values = dict(value)
    return Loss(SourcePartition(values.pop("connector"), values.pop("key")), **values)
