"""The store's rows about a connector's exactly-once lanes, and how openings, batches and decisions of a person change them.

Kafka is the truth. The store is a copy that may be out of date: `transactions.opening` compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.errors import FatalError, PositionsError
from copycat_agent.model import OFFSETS_TOPIC, Head, OffsetsPartition, Position, SavedRow, SourcePartition
from copycat_agent.offsets import lane_rows, saved_rows
from copycat_agent.transactions.opening import Adopt, LaneGroup, LaneSnapshot

if TYPE_CHECKING:
    import sqlite3


_BUG = "this is a bug in copycat-agent; restart the agent: it reads what Kafka says anew"


@dataclass(frozen=True, slots=True)
class SavedLanes:
    """The known state of a connector's lanes. All fields are empty for a connector that never had any.

    `cluster` is the Kafka cluster of its positions, `place` their partition of the offsets topic, `heads` the lanes' heads when last saved.
    `adopt` is the decision of a person, or of a change of the guarantee, for the next opening. `before` are lanes with other keys that it
    takes over: of connectors merged into it, of its name in versions before ids, or of another agent. A place with partition -1 is not
    known yet; if the key is a name, Kafka must be asked for it. `copied`: another state directory with this agent's identity has
    moved one of the lanes. `unused`: the connector has run without lanes since.

    `id` is the connector's id, "" before it has one. `asks`: it is not known here what Kafka has under the connector's name. `registered`
    is the name that Kafka had for the id when the lanes were last opened; "" if none, or if the connector was renamed since. `is_new`: no
    lanes of the id were opened, or found in Kafka.
    """

    cluster: str = ""
    place: OffsetsPartition | None = None
    heads: dict[int, Head] = field(default_factory=dict)
    adopt: Adopt = ""
    before: tuple[LaneGroup, ...] = ()
    copied: bool = False
    unused: bool = False
    id: str = ""
    asks: bool = True
    registered: str = ""
    is_new: bool = True


def to_lanes_document(lanes: SavedLanes) -> dict[str, Any] | None:
    """Returns lanes as JSON values; None for a connector that has no lanes, or runs without them."""
    if lanes.unused or not (lanes.cluster or lanes.place or lanes.before):
        return None
    place = lanes.place._asdict() if lanes.place else {"topic": OFFSETS_TOPIC, "partition": None}
    heads = [{"lane": number, "step": head.seq, "start": head.nonce, "offset": head.offset} for number, head in sorted(lanes.heads.items())]
    before = [{"connector": one.key, "agent": one.agent} for one in lanes.before]
    decided = {"adopt": lanes.adopt, "before": before, "copied": lanes.copied}
    return {"id": lanes.id, "cluster": lanes.cluster, **place, "heads": heads, **decided}


def kept(connection: sqlite3.Connection, connector: str) -> SavedLanes:
    """Returns what is known of a connector's lanes."""
    bound = lane_rows.binding(connection, connector)
    groups = lane_rows.groups(connection, connector)
    known = lane_rows.identified(connection, connector) or lane_rows.NameRow("")
    own = next((one for one in groups if one.key == known.id and not one.agent), None)
    place = own.place if own and own.place.partition >= 0 else None
    before = tuple(one for one in groups if one is not own)
    heads = dict(own.known) if own else {}
    named = {"id": known.id, "asks": bool(known.asks), "registered": known.registered, "is_new": own is None}
    return SavedLanes(bound.cluster, place, heads, bound.adopt, before, *map(bool, bound[2:]), **named)  # type: ignore[arg-type]


def opened(
    connection: sqlite3.Connection,
    connector: str,
    cluster: str,
    place: OffsetsPartition,
    truth: LaneSnapshot,
    published: Mapping[SourcePartition, SavedRow | None],
) -> list[Position]:
    """Saves what an opening found; it has written `published` to Kafka. Returns the positions that count here.

    At the first opening, after a merge, and when it goes on from the rows here, rows that Kafka does not have under the connector's own key
    are marked. Raises PositionsError if it was to take over another agent's lanes, and found nothing.
    """
    known = kept(connection, connector)
    gone = [one for one in known.before if one.agent]
    if gone and not truth.positions:
        raise _nothing_there(connector, gone[0].agent)
    if not known.adopt:
        _check_forwards(connector, known.heads, truth.heads)
    there = {**published, **{one.partition: one.offset for one in truth.positions if one.is_last}}
    if known.adopt == "topic":
        _forget_published(connection, connector, there.keys())
    news = apply(connection, truth.positions, allow_rewind=known.adopt == "topic")
    lane_rows.replace_lanes(connection, connector, place, truth.heads)
    lane_rows.save_identified(connection, connector, lane_rows.identify(connection, connector)._replace(asks=0, registered=connector))
    lane_rows.bind(connection, connector, lane_rows.BindingRow(cluster))
    if known.adopt == "local" or known.before or known.place is None:
        same = {one.partition for one in news if one.offset is there[one.partition]}  # saved from Kafka just now, as after a loss
        saved = saved_rows.all_of(connection, connector).items()
        lane_rows.mark(connection, [one for one, row in saved if one not in same and there.get(one) != row], wish=False)
    connection.execute("UPDATE unpublished SET wish = 0 WHERE connector = ? AND wish = 1", (connector,))
    return news


def _nothing_there(name: str, agent: str) -> PositionsError:
    words = f"Kafka knows nothing of connector {name} of agent {agent}, which it was to take over"
    ways = f"see whether agent and cluster are right: copycat offsets adopt {name} --from-topic --agent UUID"
    return PositionsError(words, f"{ways}; or go on without: copycat offsets adopt {name}")


def refused(connection: sqlite3.Connection, connector: str, own: Collection[Position]) -> list[Position]:
    """Called if the host is a copy, or was copied. Saves positions that it has committed itself. Returns those that were unknown here."""
    heads = kept(connection, connector).heads
    unknown = [one for one in own if one.seq > heads.get(one.lane, Head()).seq]
    apply(connection, unknown, allow_rewind=False)
    for one in unknown:
        before = heads.get(one.lane, Head())
        heads[one.lane] = before._replace(seq=max(one.seq, before.seq))
    save_heads(connection, connector, heads)
    lane_rows.bind(connection, connector, lane_rows.binding(connection, connector)._replace(copied=1))
    return unknown


def _check_forwards(connector: str, before: Mapping[int, Head], after: Mapping[int, Head]) -> None:
    for number, head in before.items():
        if number not in after or after[number].seq <= head.seq:
            msg = f"lane {number} of connector {connector} would be opened at {_at(after.get(number))}, and it was at {_at(head)}"
            raise FatalError(msg, _BUG)


def _at(head: Head | None) -> str:
    return f"step {head.seq}" if head else "no step"


def apply(connection: sqlite3.Connection, positions: Iterable[Position], *, allow_rewind: bool) -> list[Position]:
    """Saves positions from Kafka. Returns those that count here: a later wish of a person outranks them, and so does a row further on."""
    positions = list(positions)
    saved = [one for one in positions if one.is_last and _apply(connection, one, allow_rewind=allow_rewind)]
    count, partitions = {id(one) for one in saved}, {one.partition for one in saved}
    return [one for one in positions if id(one) in count or (not one.is_last and one.partition in partitions)]


def _apply(connection: sqlite3.Connection, position: Position, *, allow_rewind: bool) -> bool:
    partition, row = position.partition, position.offset
    assert row is not None, "a forgotten partition has no position"
    (wish,) = connection.execute("SELECT wish FROM unpublished WHERE connector = ? AND key = ?", partition).fetchone() or (0,)
    if wish or (saved_rows.further(connection, partition, row) is not None and not allow_rewind):
        return False
    saved_rows.save(connection, {partition: row})
    lane_rows.unmark(connection, [partition])
    return True


def _forget_published(connection: sqlite3.Connection, connector: str, there: Collection[SourcePartition]) -> None:
    """Deletes unmarked rows that Kafka does not have, after a person has decided that Kafka is right."""
    marks = connection.execute("SELECT connector, key FROM unpublished WHERE connector = ?", (connector,))
    untold = set(map(SourcePartition._make, marks))
    saved_rows.delete(connection, [one for one in saved_rows.keys_of(connection, connector) if one not in untold and one not in there])


def backwards(connection: sqlite3.Connection, connector: str, heads: Mapping[int, Head]) -> FatalError | None:
    """Returns an error if a batch's heads would move a lane backwards."""
    known = kept(connection, connector).heads
    for number, head in heads.items():
        before = known.get(number)
        if before is None or head.seq < before.seq or (head.seq == before.seq and head.nonce != before.nonce):
            msg = f"lane {number} of connector {connector} would move from {_at(before)} to {_at(head)}"
            return FatalError(msg, _BUG)
    return None


def save_heads(connection: sqlite3.Connection, connector: str, heads: Mapping[int, Head]) -> None:
    """Saves heads of the connector's own lanes."""
    key = lane_rows.identify(connection, connector).id
    lane_rows.save_heads(connection, connector, LaneGroup(key, OffsetsPartition("", -1)), heads)


def adopt(connection: sqlite3.Connection, connector: str, which: Adopt) -> None:
    """Saves a person's decision for the next opening, which replaces an earlier one. "topic" also takes back earlier wishes."""
    if which == "topic":
        connection.execute("UPDATE unpublished SET wish = 0 WHERE connector = ?", (connector,))
    lane_rows.forget_agents(connection, connector)
    bound = lane_rows.binding(connection, connector)
    lane_rows.bind(connection, connector, bound._replace(adopt=which, copied=0, unused=bound.unused if which == "local" else 0))


def leave(connection: sqlite3.Connection, connector: str) -> None:
    """Notes that the connector runs without lanes: the next opening goes on from the rows here."""
    lane_rows.bind(connection, connector, lane_rows.binding(connection, connector)._replace(adopt="local", unused=1))


def begin_anew(connection: sqlite3.Connection) -> None:
    """Forgets all lanes after the agent got a new identity, which Kafka does not know: every connector goes on from the rows here."""
    for table in ("places", "lanes", "unpublished"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - constants
    for connector, cluster in connection.execute("SELECT connector, cluster FROM bindings").fetchall():
        lane_rows.bind(connection, connector, lane_rows.BindingRow(cluster))
    for connector, *row in connection.execute("SELECT connector, id, asks, registered FROM names").fetchall():
        lane_rows.save_identified(connection, connector, lane_rows.NameRow(*row)._replace(asks=0, registered=""))


@dataclass(frozen=True, slots=True)
class LaneCommit:
    """The changes to a connector's lanes by a Kafka transaction of a batch, or of the driver.

    `heads` are the new heads of the lanes that it moved. `written` are partitions whose rows, saved together with this, it has written to
    Kafka; other rows of the commit become `unpublished`. `driver_rows` are those of the `LanePlan`, which it has also written; they stay
    unpublished if another row was saved since.
    """

    connector: str
    heads: Mapping[int, Head] = field(default_factory=dict)
    written: Collection[SourcePartition] = ()
    driver_rows: Mapping[SourcePartition, SavedRow | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Returns whether there is anything to save."""
        return bool(self.heads or self.written or self.driver_rows)

    def refusal(self, connection: sqlite3.Connection) -> FatalError | None:
        """Returns an error if a lane would move backwards."""
        return backwards(connection, self.connector, self.heads) if self.heads else None

    def save(self, connection: sqlite3.Connection, saved: Iterable[SourcePartition]) -> None:
        """Saves it; `saved` are the partitions of the rows in the same commit."""
        lane_rows.changed(connection, [one for one in saved if one not in self.written], wish=False)
        lane_rows.unmark(connection, self.written)
        lane_rows.unmark_published(connection, self.driver_rows)
        if self.heads:
            save_heads(connection, self.connector, self.heads)


NOTHING_WRITTEN = LaneCommit("")
"""A commit without a Kafka transaction."""


class OperatorChange(NamedTuple):
    """Marks a commit as a person's request, which outranks Kafka. `is_lost` is that of `lane_rows.changed`."""

    is_lost: bool = False

    def refusal(self, _connection: sqlite3.Connection) -> None:
        """Returns None: a person may move positions back."""

    def save(self, connection: sqlite3.Connection, saved: Iterable[SourcePartition]) -> None:
        """Marks the rows of `saved`."""
        lane_rows.changed(connection, list(saved), wish=True, is_lost=self.is_lost)
