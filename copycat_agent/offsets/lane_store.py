"""The part of `OffsetStore` about exactly-once lanes (`lanes`) and the identity of the agent in Kafka (`agent_identity`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from copycat_agent.errors import CopiedError, DataError
from copycat_agent.model import Account, SourceOffset
from copycat_agent.offsets import agent_identity, connector_names, lane_rows, lanes, ledger, saved_rows, schema
from copycat_agent.offsets.connection import HeldFile
from copycat_agent.offsets.state_dir import marker_text

if TYPE_CHECKING:
    import sqlite3

    from copycat_agent.errors import PositionsError
    from copycat_agent.model import OffsetsPartition, Position, SavedRow, SourcePartition
    from copycat_agent.offsets.agent_identity import AgentIdentity
    from copycat_agent.offsets.lanes import KeptLanes
    from copycat_agent.offsets.state_dir import StateDir
    from copycat_agent.offsets.store_file import OpenedStore
    from copycat_agent.transactions.opening import Adopt, Lanes, LaneSnapshot


class LaneStore(HeldFile):
    """A part of `OffsetStore`."""

    def __init__(self, opened: OpenedStore, directory: StateDir | None = None, *, rebuilds: bool = False) -> None:
        """For `OffsetStore.open` and `in_memory`."""
        super().__init__(opened, directory, rebuilds=rebuilds)
        self._identity: AgentIdentity | None = None

    @property
    def agent_uuid(self) -> str:
        """The uuid of the agent."""
        return self._kept.uuid

    @property
    def identity(self) -> AgentIdentity:
        """The identity of the agent in Kafka, with this start's nonce, which is on disk. RetriableError when it cannot be put there."""
        with self.using() as connection:
            if self._identity is None:
                kept, identity = agent_identity.started(self._kept, lane_rows.nonces(connection))
                self._save_identity(kept)
                self._kept, self._identity = kept, identity
            return self._identity

    def partitions(self, cluster: str, now: int) -> int:
        """Returns how many partitions the offsets topic of a cluster counts as having: as many as when this agent first used it.

        `now`: how many it has; remembered the first time, and where there are fewer than there were. So a connector's place is found
        again when the store is lost, also where partitions were added meanwhile. RetriableError as for `identity`.
        """
        with self._lock:
            known = self._kept.partitions.get(cluster, 0)
            if 0 < known <= now:
                return known
            kept = replace(self._kept, partitions={**self._kept.partitions, cluster: now})
            self._save_identity(kept)
            self._kept = kept
            return now

    @property
    def damaged(self) -> str:
        """Why the store was begun anew, "" when it was not: until a person removes the marker, only Kafka's word counts."""
        return marker_text(Path(self._path)) if self._directory else ""

    def begin_anew(self, connector: str) -> int:
        """Delete all offsets of a connector and its state, on a person's request; returns how many.

        What Kafka says of it does not count any more.
        """
        self._leave_identity(connector)
        with self.writing() as connection:
            gone = saved_rows.keys_of(connection, connector)
            saved_rows.delete(connection, gone)
            has_lanes = lane_rows.has_lanes(connection, connector)
            if has_lanes:
                lane_rows.mark(connection, gone, wish=True)
            if has_lanes or self._kept.nonces or self.damaged:  # Kafka may know of lanes: of a store that is lost, of a killed opening
                lanes.adopt(connection, connector, "local")
        self._give_back_space()
        return len(gone)

    def lanes(self, connector: str) -> KeptLanes:
        """Returns what is known of a connector's lanes."""
        with self.using() as connection:
            return lanes.kept(connection, connector)

    def knows(self, connector: str) -> bool:
        """Whether it is known here what Kafka has of it. A store that was lost knows of nobody."""
        with self.using() as connection:
            return lane_rows.is_known(connection, connector)

    def connectors_with_lanes(self) -> tuple[str, ...]:
        """Names of all connectors that have lanes, whether or not they have offsets."""
        with self.using() as connection:
            return tuple(lane_rows.named(connection))

    def identified(self, connector: str) -> KeptLanes:
        """Returns what is known of a connector's lanes, with an id that is made where there was none."""
        kept = self.lanes(connector)
        if kept.id:
            return kept
        with self.writing() as connection:
            lane_rows.identify(connection, connector)
            return lanes.kept(connection, connector)

    def looked_up(self, connector: str, found: Iterable[Lanes]) -> None:
        """Kafka was asked for names of the connector of which it was not known here what they are for, and has these lanes."""
        with self.writing() as connection:
            connector_names.looked_up(connection, connector, found)

    def renamed_since(self, connector: str, key: str) -> None:
        """The id with this key, which the connector has here, is another's in Kafka: this store is older than a rename."""
        with self.writing() as connection:
            connector_names.renamed_since(connection, connector, key)

    def lanes_opened(
        self,
        connector: str,
        cluster: str,
        place: OffsetsPartition,
        truth: LaneSnapshot,
        published: Iterable[tuple[SourcePartition, SavedRow | None]] = (),
        *,
        keeps_accounts: bool = False,
    ) -> tuple[Position, ...]:
        """The lanes are opened: save what is so, positions included, in one transaction; what was decided for it is done.

        `published` is `OpeningPlan.publish`. Losses of steps that were not known here are entered, and with `keeps_accounts` their counts.
        Returns the positions that count: not those that a row is ahead of, or a later wish of a person.
        """
        with self.writing() as connection:
            known = lanes.kept(connection, connector)
            steps = {number: head.seq for number, head in known.heads.items()} if known.adopt == "topic" else {}
            unknown = [one for one in truth.positions if one.seq > steps.get(one.lane, 0)]
            news = lanes.opened(connection, connector, cluster, place, truth, dict(published))
            self._enter(connection, unknown, keeps_accounts=keeps_accounts)
        return tuple(news)

    def _enter(self, connection: sqlite3.Connection, unknown: Iterable[Position], *, keeps_accounts: bool) -> None:
        """Enters what transactions did that this store did not know of."""
        for one in unknown:
            self._ledger.enter(connection, one.losses)
            if keeps_accounts and isinstance(one.offset, SourceOffset):
                ledger.add_accounts(connection, {one.partition: Account(one.counts, path=one.offset.path)})

    def lanes_refused(self, connector: str, error: PositionsError) -> None:
        """The lanes could not be opened: remember that this host is a copy, or was copied, and save what it has committed itself."""
        if isinstance(error, CopiedError):
            with self.writing() as connection:
                unknown = lanes.refused(connection, connector, cast("tuple[Position, ...]", error.positions))
                self._enter(connection, unknown, keeps_accounts=False)

    def unpublished(self, connector: str, limit: int) -> dict[SourcePartition, SavedRow | None]:
        """Returns up to `limit` rows that no transaction has told yet, None for deleted ones; the most urgent first."""
        with self.using() as connection:
            return lane_rows.unpublished(connection, connector, limit)

    def leave_lanes(self, connector: str) -> None:
        """A run without lanes begins: should they be opened again, what is saved here counts, and not what Kafka says."""
        with self.using() as connection:
            is_left = not lane_rows.has_lanes(connection, connector) or lanes.kept(connection, connector).unused
        if not is_left:
            with self.writing() as connection:
                lanes.leave(connection, connector)

    def adopt(self, connector: str, which: Adopt) -> str:
        """Notes which positions the next opening goes on from: a person has decided.

        A copy that goes on from its own positions gets an identity of its own, and all its connectors go on from theirs: none of them
        may be open. Returns its uuid then, else "".
        """
        changed = self._leave_identity(connector) if which == "local" else ""
        with self.writing() as connection:
            lanes.adopt(connection, connector, which)
        return changed

    def take_over(self, connector: str, agent: str) -> None:
        """The next opening takes over what Kafka says of that agent's connector of this name: the agent is gone, and never runs again.

        DataError when it is this one.
        """
        if agent in {self._kept.uuid, *self._kept.former}:
            raise DataError("that is this agent, or was it", "leave --agent out")
        with self.writing() as connection:
            connector_names.take_over(connection, connector, agent)

    def undecided(self, connector: str) -> str:
        """Why a connector without lanes must not begin, "" when it may: the store was begun anew, and nobody has decided."""
        with self.using() as connection:
            is_new = lane_rows.is_known(connection, connector) and not lane_rows.has_lanes(connection, connector)
            is_decided = is_new or lane_rows.binding(connection, connector).adopt == "local"
        return "" if is_decided else self.damaged

    def _leave_identity(self, connector: str) -> str:
        """The agent's new uuid when the connector was found to be a copy's, or copied; else ""."""
        with self._lock:
            if not self.lanes(connector).copied:
                return ""
            kept = agent_identity.another(self._kept)
            self._save_identity(kept)
            with self.writing() as connection:  # should this fail, the next start does it
                schema.set_uuid(connection, kept.uuid)
                lanes.begin_anew(connection)
            self._kept, self._identity = kept, None
            return kept.uuid
