"""Saved offsets, wherever they can be had: through the running agent, else in its file. Never both: who has the lock writes."""

from __future__ import annotations

import contextlib
import os
import re
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from copycat_agent.api import AgentClient, AgentUnreachableError, address
from copycat_agent.cli.agent_client import find_agent
from copycat_agent.cli.shown import age, visible
from copycat_agent.definitions import load_agent, load_file, render
from copycat_agent.errors import CopycatError, FatalError, UnknownConnectorError
from copycat_agent.model import Loss, LossReason, LossTotal, SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.document import from_document, to_document
from copycat_agent.offsets.lanes import to_lanes_document
from copycat_agent.options import HIDDEN, AgentOptions
from copycat_agent.sources.log_file.beginning.placing import LineRules
from copycat_agent.sources.log_file.followed import STARTED
from copycat_agent.transactions.opening import Adopt

GOES_ON = {"local": "the positions of this host", "topic": "the positions in Kafka"}

Offsets = Mapping[SourcePartition, SourceOffset]
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

Changes = Mapping[SourcePartition, SourceOffset | None]
"""What to save; None deletes."""
Totals = Mapping[tuple[str, LossReason], LossTotal]


def line_rules(name: str, path: Path) -> LineRules | None:
    """As the definition in this file says. Raises CopycatError when it does not load, or is another connector's."""
    loaded = load_file(path, AgentOptions(), resolve_env=False)
    if loaded.definition is None:
        raise CopycatError(render(loaded.problems[0]).splitlines()[0], f"copycat check {path.parent} says more")
    if loaded.definition.name != name and name not in loaded.definition.renamed_from:
        msg = f"{path} defines {loaded.definition.name}, not {name}"
        raise CopycatError(msg)
    return rules_of(loaded.definition.source.model_dump())


def rules_of(source: Mapping[str, Any]) -> LineRules | None:
    """As a definition's source says; None when an option that matters is hidden."""
    line = source.get("line") or {}
    said = {"delimiter": line.get("delimiter"), "encoding": source.get("encoding")}
    if HIDDEN in said.values():
        return None
    return LineRules(**{name: value for name, value in said.items() if value}, unpacks=source.get("compression") != "none")


def columns(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows as lines, columns below each other; the last one as long as it is."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def listed(offsets: Offsets) -> list[str]:
    """One line per file: how far it is settled, how large it was, what it is."""
    rows = [
        (offset.cursor or str(offset.position), str(offset.size), str(offset.records), _state(offset), partition.key, visible(offset.path))
        for partition, offset in by_path(offsets)
    ]
    return columns([("position", "size", "records", "state", "key", "path"), *rows]) if rows else []


def lane_lines(lanes: Mapping[str, Any] | None) -> list[str]:
    """What is known of a connector's lanes, below its files; nothing for one that has none."""
    if lanes is None:
        return []
    where = "no partition" if lanes["partition"] is None else f"partition {lanes['partition']}"
    cluster = f"Kafka cluster {lanes['cluster']}" if lanes["cluster"] else "no Kafka cluster known yet"
    lines = ["", f"exactly once: positions in {where} of {lanes['topic']}, {cluster}"]
    lines += [f"lane {one['lane']}: step {one['step']}, at offset {one['offset']}" for one in lanes["heads"]]
    lines += [f"takes over {_whose(one)} when it starts" for one in lanes["before"]]
    if lanes["copied"]:
        lines.append("another state directory with this agent's identity has moved a lane: this host is a copy, or was copied")
    if lanes["adopt"]:
        lines.append(f"goes on from {GOES_ON[lanes['adopt']]} when it starts")
    return lines


def _whose(one: Mapping[str, Any]) -> str:
    return f"{one['connector']} of agent {one['agent']}" if one["agent"] else f"the lanes of {one['connector']}"


def compared(before: Offsets, after: Offsets) -> list[str]:
    """What is different: `-` for what was, `+` for what is. Empty when nothing is."""
    lines = []
    for partition in dict.fromkeys(partition for partition, _ in [*by_path(before, everything=True), *by_path(after, everything=True)]):
        was, now = before.get(partition), after.get(partition)
        if was != now:
            lines += [f"- {_brief(partition, was)}"] if was else []
            lines += [f"+ {_brief(partition, now)}"] if now else []
    return lines


def by_path(offsets: Offsets, *, everything: bool = False) -> list[tuple[SourcePartition, SourceOffset]]:
    """By path and key. Without `everything` files only, not the row that says when the connector first looked."""
    chosen = (item for item in offsets.items() if everything or item[0].key != STARTED)
    return sorted(chosen, key=lambda item: (item[1].path, item[0].key))


def _brief(partition: SourcePartition, offset: SourceOffset) -> str:
    if partition.key == STARTED:
        return f"first looked {age(time.time() - offset.position / 1000)} ago"
    return f"{visible(offset.path)} ({partition.key}): position {offset.cursor or offset.position}, {_state(offset)}"


def _state(offset: SourceOffset) -> str:
    if offset.done:
        return "done"
    return (
        "gone"
        if offset.gone_ms
        else "skipping"
        if offset.skipping
        else "read"
        if offset.position >= offset.size and not offset.compression
        else "unread"
    )


class Access(Protocol):
    """What the commands need. Everything raises `CopycatError`, `BusyError` when a connector runs and `force` is not given."""

    def connectors(self) -> tuple[str, ...]:
        """Names with saved offsets."""

    def known(self) -> tuple[str, ...]:
        """Names with saved offsets, and of connectors that run without any yet."""

    def read(self, name: str) -> Mapping[SourcePartition, SourceOffset]:
        """What is saved for a connector; empty for one that is not known."""

    def lanes(self, name: str) -> Mapping[str, Any] | None:
        """`to_lanes_document` of a connector's exactly-once lanes, None for one that has none."""

    def line_rules(self, name: str) -> LineRules | None:
        """What a line is for the connector; None when nobody here knows its definition."""

    def save(self, name: str, changes: Changes, *, force: bool) -> None:
        """Save and delete; what is not named stays."""

    def reset(self, name: str, *, force: bool) -> None:
        """Delete everything; what Kafka says of the connector does not count any more either."""

    def adopt(self, name: str, which: Adopt, agent: str, *, force: bool) -> str:
        """Decide which positions it goes on from. Returns the agent's new uuid where it got one, else ""."""

    def rename(self, old: str, new: str, *, force: bool) -> int:
        """Returns how many moved."""

    def losses(self, name: str | None, limit: int) -> tuple[tuple[Loss, ...], Totals]:
        """The newest entries of the ledger, newest first, and its totals."""


class ByFile:
    """No agent runs: this process holds its lock."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def connectors(self) -> tuple[str, ...]:
        """See `Access`."""
        return self._store.connectors()

    def known(self) -> tuple[str, ...]:
        """See `Access`."""
        return self._store.connectors()

    def read(self, name: str) -> Mapping[SourcePartition, SourceOffset]:
        """See `Access`."""
        return self._store.read(name)

    def lanes(self, name: str) -> Mapping[str, Any] | None:
        """See `Access`."""
        return to_lanes_document(self._store.lanes(name))

    def line_rules(self, name: str) -> LineRules | None:  # noqa: ARG002 - nobody knows it
        """See `Access`."""
        return None

    def save(self, name: str, changes: Changes, *, force: bool) -> None:  # noqa: ARG002 - nothing runs
        """See `Access`."""
        given = {partition: offset for partition, offset in changes.items() if offset is not None}
        self._store.reset(given, [partition for partition in changes if partition not in given])

    def reset(self, name: str, *, force: bool) -> None:  # noqa: ARG002 - nothing runs
        """See `Access`."""
        self._store.begin_anew(name)

    def adopt(self, name: str, which: Adopt, agent: str, *, force: bool) -> str:  # noqa: ARG002 - nothing runs
        """See `Access`."""
        if agent:
            self._store.take_over(name, agent)
            return ""
        return self._store.adopt(name, which)

    def rename(self, old: str, new: str, *, force: bool) -> int:  # noqa: ARG002 - nothing runs
        """See `Access`."""
        return self._store.rename(old, new)

    def losses(self, name: str | None, limit: int) -> tuple[tuple[Loss, ...], Totals]:
        """See `Access`."""
        return self._store.losses(name, limit), {key: sums for key, sums in self._store.loss_totals().items() if name in {None, key[0]}}


class BySocket:
    """The agent runs, and has the lock."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    def connectors(self) -> tuple[str, ...]:
        """See `Access`."""
        return tuple(self._client.get("/v1/offsets")["connectors"])

    def known(self) -> tuple[str, ...]:
        """See `Access`."""
        running = {one["name"] for one in self._client.get("/v1/connectors")["connectors"]}
        return tuple(sorted(running.union(self.connectors())))

    def read(self, name: str) -> Mapping[SourcePartition, SourceOffset]:
        """See `Access`."""
        documents = self._client.get(address("offsets", name))["offsets"]
        found = dict(from_document(name, document) for document in documents)
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def lanes(self, name: str) -> Mapping[str, Any] | None:
        """See `Access`."""
        found: Mapping[str, Any] | None = self._client.get(address("offsets", name))["lanes"]
        return found

    def line_rules(self, name: str) -> LineRules | None:
        """See `Access`."""
        try:
            return rules_of(self._client.get(address("connectors", name, "/definition"))["definition"]["source"])
        except UnknownConnectorError:
            return None

    def save(self, name: str, changes: Changes, *, force: bool) -> None:
        """See `Access`."""
        documents = [to_document(one, offset) if offset else {"key": one.key, "offset": None} for one, offset in changes.items()]
        self._client.put(address("offsets", name), {"offsets": documents, "force": force})

    def reset(self, name: str, *, force: bool) -> None:
        """See `Access`."""
        self._client.delete(address("offsets", name), {"force": force})

    def adopt(self, name: str, which: Adopt, agent: str, *, force: bool) -> str:
        """See `Access`."""
        asked = {"from": which, "agent": agent, "force": force}
        return str(self._client.post(address("offsets", name, "/adopt"), asked)["identity"])

    def rename(self, old: str, new: str, *, force: bool) -> int:
        """See `Access`."""
        return int(self._client.post(address("offsets", old, "/rename"), {"to": new, "force": force})["renamed"])

    def losses(self, name: str | None, limit: int) -> tuple[tuple[Loss, ...], Totals]:
        """See `Access`."""
        only = f"&connector={urllib.parse.quote(name, safe='')}" if name else ""
        found = self._client.get(f"/v1/losses?limit={limit}{only}")
        sums = {
            (one["connector"], cast("LossReason", one["reason"])): LossTotal(one["size_bytes"], one["records"], one["entries"])
            for one in found["totals"]
        }
        return tuple(map(_loss, found["losses"])), sums


@contextlib.contextmanager
def access(socket: Path | None, state_dir: Path | None, config: Path | None, *, create: bool = False) -> Iterator[Access]:
    """The agent that these options mean if it answers, else the file in the state directory, locked meanwhile.

    `create`: made anew where there is none.
    """
    client = find_agent(socket, state_dir, config)
    if _is_the_one(client, state_dir, asked_for=socket is not None):
        yield BySocket(client)
        return
    try:
        store = (OffsetStore.open if create else OffsetStore.open_existing)(_directory(state_dir, config))
    except FatalError as error:
        if "another agent" not in error.message:
            raise
        hint = f"it does not answer at {client.socket_path}: it is starting, or hangs; else name its socket with --socket"
        raise CopycatError(error.message, hint) from error
    with store:
        yield ByFile(store)


def checked_name(name: str) -> str:
    """`name`, when a connector can have it. UnknownConnectorError when none can."""
    if not _NAME.fullmatch(name):
        msg = f"no connector can have the name {name!a:.80}"
        raise UnknownConnectorError(msg, "1 to 63 lower-case letters, digits and -, not - first")
    return name


def _directory(state_dir: Path | None, config: Path | None) -> Path:
    """As `cli.settings.settle_settings` chooses it."""
    agent = load_agent(config) if config else AgentOptions()
    return Path(state_dir or agent.state_dir or os.environ.get("STATE_DIRECTORY") or Path.home() / ".local/state/copycat").absolute()


def _is_the_one(client: AgentClient, state_dir: Path | None, *, asked_for: bool) -> bool:
    """Whether an agent answers, and is that of the state directory that was named, if one was."""
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
