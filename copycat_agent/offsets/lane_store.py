"""The methods of `OffsetStore` for exactly-once lanes (`lanes`) and the agent's identity in Kafka (`agent_identity`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from copycat_agent.errors import CopiedError, DataError, PositionsError
from copycat_agent.model import Account, OffsetsPartition, Position, SavedRow, SourceOffset, SourcePartition
from copycat_agent.offsets import agent_identity, connector_names, lane_rows, lanes, ledger, saved_rows, schema
from copycat_agent.offsets.connection import OpenStore
from copycat_agent.offsets.state_dir import StateDir, marker_text

if TYPE_CHECKING:
    import sqlite3

    from copycat_agent.offsets.agent_identity import AgentIdentity
    from copycat_agent.offsets.lanes import SavedLanes
    from copycat_agent.offsets.store_file import OpenedStore
    from copycat_agent.transactions.opening import Adopt, LaneGroup, LaneSnapshot


class LaneStore(OpenStore):
    """The base of `OffsetStore`."""

    def __init__(self, opened: OpenedStore, directory: StateDir | None = None, *, rebuilds: bool = False) -> None:
        """Called by `OffsetStore.open` and the like."""
        super().__init__(opened, directory, rebuilds=rebuilds)
        self._identity: AgentIdentity | None = None

    @property
    def agent_uuid(self) -> str:
        """The uuid of the agent."""
        return self._kept.uuid

    @property
    def identity(self) -> AgentIdentity:
        """The agent's identity in Kafka with this start's nonce, which is on disk. Raises RetriableError if it cannot be saved."""
        with self.using() as connection:
            if self._identity is None:
                kept, identity = agent_identity.started(self._kept, lane_rows.nonces(connection))
                self._save_identity(kept)
                self._kept, self._identity = kept, identity
            return self._identity

    def partitions(self, cluster: str, now: int) -> int:
        """Returns the number of partitions to use of a cluster's offsets topic: as many as it had when this agent first used it.

        `now` is its present number; it is remembered the first time, and if it has become less. So a connector's place is found again after
        the store is lost, even if partitions were added meanwhile. Raises RetriableError as `identity` does.
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
        """Why the store was begun anew, "" if it was not. Until a person removes the marker, only Kafka's positions count."""
        return marker_text(Path(self._path)) if self._directory else ""

    def begin_anew(self, connector: str) -> int:
        """Deletes a connector's offsets and state on a person's request. Returns their number. Kafka's positions no longer count."""
        self._leave_identity(connector)
        with self.writing() as connection:
            gone = saved_rows.keys_of(connection, connector)
            saved_rows.delete(connection, gone)
            has_lanes = lane_rows.has_lanes(connection, connector)
            if has_lanes:
                lane_rows.mark(connection, gone, wish=True)
            if has_lanes or self._kept.nonces or self.damaged:  # Kafka may have lanes from a lost store, or from an opening that was killed
                lanes.adopt(connection, connector, "local")
        self._give_back_space()
        return len(gone)

    def lanes(self, connector: str) -> SavedLanes:
        """Returns what is known of a connector's lanes."""
        with self.using() as connection:
            return lanes.kept(connection, connector)

    def knows(self, connector: str) -> bool:
        """Returns whether this store knows what Kafka has of the connector. After the store was lost it does not."""
        with self.using() as connection:
            return lane_rows.is_known(connection, connector)

    def connectors_with_lanes(self) -> tuple[str, ...]:
        """Returns the names of all connectors that have lanes, with or without offsets."""
        with self.using() as connection:
            return tuple(lane_rows.named(connection))

    def identified(self, connector: str) -> SavedLanes:
        """As `lanes`, but creates an id if the connector has none."""
        kept = self.lanes(connector)
        if kept.id:
            return kept
        with self.writing() as connection:
            lane_rows.identify(connection, connector)
            return lanes.kept(connection, connector)

    def looked_up(self, connector: str, found: Iterable[LaneGroup]) -> None:
        """Saves the lanes that Kafka has for the connector's names (`connector_names.looked_up`)."""
        with self.writing() as connection:
            connector_names.looked_up(connection, connector, found)

    def renamed_since(self, connector: str, key: str) -> None:
        """Gives up the connector's id, which is another connector's in Kafka (`connector_names.renamed_since`)."""
        with self.writing() as connection:
            connector_names.renamed_since(connection, connector, key)

    def lanes_opened(
        self,
        connector: str,
        cluster: str,
        place: OffsetsPartition,
        snapshot: LaneSnapshot,
        published: Iterable[tuple[SourcePartition, SavedRow | None]] = (),
        *,
        keeps_accounts: bool = False,
    ) -> tuple[Position, ...]:
        """Saves the lanes that were opened, and their positions, in one transaction. A decision for this opening is then done.

        `published` is `OpeningPlan.publish`. Losses of steps that were unknown here are entered, and with `keeps_accounts` their counts.
        Returns the positions that count: those that no saved row is ahead of, and no later wish of a person replaces.
        """
        with self.writing() as connection:
            known = lanes.kept(connection, connector)
            steps = {number: head.seq for number, head in known.heads.items()} if known.adopt == "topic" else {}
            unknown = [one for one in snapshot.positions if one.seq > steps.get(one.lane, 0)]
            news = lanes.opened(connection, connector, cluster, place, snapshot, dict(published))
            self._enter(connection, unknown, keeps_accounts=keeps_accounts)
        return tuple(news)

    def _enter(self, connection: sqlite3.Connection, unknown: Iterable[Position], *, keeps_accounts: bool) -> None:
        """Enters losses and accounts of transactions that this store did not know."""
        for one in unknown:
            self._ledger.enter(connection, one.losses)
            if keeps_accounts and isinstance(one.offset, SourceOffset):
                ledger.add_accounts(connection, {one.partition: Account(one.counts, path=one.offset.path)})

    def lanes_refused(self, connector: str, error: PositionsError) -> None:
        """Called when lanes could not be opened. If this host is a copy, or was copied, saves that, and the positions it has committed."""
        if isinstance(error, CopiedError):
            with self.writing() as connection:
                unknown = lanes.refused(connection, connector, cast("tuple[Position, ...]", error.positions))
                self._enter(connection, unknown, keeps_accounts=False)

    def unpublished(self, connector: str, limit: int) -> dict[SourcePartition, SavedRow | None]:
        """Returns up to `limit` rows that are not in Kafka yet, None for deleted ones; the most urgent first."""
        with self.using() as connection:
            return lane_rows.unpublished(connection, connector, limit)

    def leave_lanes(self, connector: str) -> None:
        """Called when a run without lanes begins. If they are opened again later, the rows here count, and not Kafka's."""
        with self.using() as connection:
            is_left = not lane_rows.has_lanes(connection, connector) or lanes.kept(connection, connector).unused
        if not is_left:
            with self.writing() as connection:
                lanes.leave(connection, connector)

    def adopt(self, connector: str, which: Adopt) -> str:
        """Saves a person's decision which positions the next opening goes on from.

        A copy that goes on from its own positions gets a new identity, with which all its connectors go on from their saved positions; none
        may have open lanes. Returns the new uuid, "" if the identity stays.
        """
        changed = self._leave_identity(connector) if which == "local" else ""
        with self.writing() as connection:
            lanes.adopt(connection, connector, which)
        return changed

    def take_over(self, connector: str, agent: str) -> None:
        """Makes the next opening take over that agent's connector of this name. The agent must be gone for good.

        Raises DataError if it is this agent.
        """
        if agent in {self._kept.uuid, *self._kept.former}:
            raise DataError("that is this agent, or was it", "leave --agent out")
        with self.writing() as connection:
            connector_names.take_over(connection, connector, agent)

    def undecided(self, connector: str) -> str:
        """Why a connector without lanes must not start: the store was begun anew, and no person has decided. "" if it may."""
        with self.using() as connection:
            is_new = lane_rows.is_known(connection, connector) and not lane_rows.has_lanes(connection, connector)
            is_decided = is_new or lane_rows.binding(connection, connector).adopt == "local"
        return "" if is_decided else self.damaged

    def _leave_identity(self, connector: str) -> str:
        """Gives the agent a new identity if lanes showed that it is a copy, or was copied. Returns the new uuid, else ""."""
        with self._lock:
            if not self.lanes(connector).copied:
                return ""
            kept = agent_identity.another(self._kept)
            self._save_identity(kept)
            with self.writing() as connection:  # if this fails, the next start does it
                schema.set_uuid(connection, kept.uuid)
                lanes.begin_anew(connection)
            self._kept, self._identity = kept, None
            return kept.uuid
