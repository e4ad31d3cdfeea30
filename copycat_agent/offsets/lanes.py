"""What is known of lanes here: heads, where they stand in Kafka, and which offsets are not there yet.

Kafka decides and this is the memory of it: see `transactions.opening` for what is done with it, and why it may be behind.

A *mark* is a row of `unpublished`: what is saved of this partition, or that it is forgotten, is not in Kafka. A mark that a person
made outranks what Kafka says until the lanes are opened: only then is it sure that whatever Kafka says later was made of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.errors import FatalError, PositionsError
from copycat_agent.model import OFFSETS_TOPIC, Head, Place, SourceOffset, SourcePartition
from copycat_agent.offsets import schema
from copycat_agent.offsets.schema import checksum
from copycat_agent.transactions.opening import Adopt, Lanes

if TYPE_CHECKING:
    import sqlite3

    from copycat_agent.model import Position
    from copycat_agent.offsets.schema import Row
    from copycat_agent.transactions.opening import Truth

FIRST = "started"
"""The row that says when a connector first looked (`sources.followed`): with it in Kafka, a file that Kafka does not know is new."""
_BUG = "this is a bug in copycat-agent; restart the agent: it reads what Kafka says anew"


@dataclass(frozen=True, slots=True)
class KeptLanes:
    """What is known of a connector's lanes. All of it is empty for one that never had any.

    `cluster` is the Kafka cluster where its positions belong, `place` where they stand there, `heads` how far they were when they were
    last saved. `adopt` is what a person, or a change of the guarantee, has decided for the next opening. `before` are lanes under its
    earlier names, or of an agent that is gone (its place has partition -1), which that opening takes over. `copied`: another state
    directory with this agent's identity has moved one of them. `unused`: the connector has run without them since.
    """

    cluster: str = ""
    place: Place | None = None
    heads: dict[int, Head] = field(default_factory=dict)
    adopt: Adopt = ""
    before: tuple[Lanes, ...] = ()
    copied: bool = False
    unused: bool = False


def to_lanes_document(lanes: KeptLanes) -> dict[str, Any] | None:
    """As values that any JSON library takes; None for a connector that has no lanes, or runs without them."""
    if lanes.unused or lanes == KeptLanes(adopt=lanes.adopt):
        return None
    place = lanes.place._asdict() if lanes.place else {"topic": OFFSETS_TOPIC, "partition": None}
    heads = [{"lane": number, "step": head.seq, "start": head.nonce, "offset": head.offset} for number, head in sorted(lanes.heads.items())]
    before = [{"connector": one.connector, "agent": one.agent} for one in lanes.before]
    return {"cluster": lanes.cluster, **place, "heads": heads, "adopt": lanes.adopt, "before": before, "copied": lanes.copied}


class _Binding(NamedTuple):
    cluster: str = ""
    adopt: Adopt = ""
    copied: int = 0
    unused: int = 0


def kept(connection: sqlite3.Connection, connector: str) -> KeptLanes:
    """What is known of its lanes."""
    bound = _binding(connection, connector)
    groups = _groups(connection, connector)
    own = next((one for one in groups if one.connector == connector and not one.agent), None)
    before = tuple(one for one in groups if one is not own)
    return KeptLanes(bound.cluster, own.place if own else None, dict(own.known) if own else {}, bound.adopt, before, *map(bool, bound[2:]))


def has_lanes(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether they were ever opened, under this name or an earlier one."""
    return connection.execute("SELECT 1 FROM places WHERE connector = ? LIMIT 1", (connector,)).fetchone() is not None


def opened(
    connection: sqlite3.Connection,
    connector: str,
    cluster: str,
    place: Place,
    truth: Truth,
    published: Mapping[SourcePartition, SourceOffset | None],
) -> list[Position]:
    """Save what an opening found, which has told Kafka what is `published`. Returns the positions that count here.

    The first time, after a rename, and when it goes on from here, what Kafka does not have under the connector's present name is
    marked. PositionsError when it was to take over another agent's lanes, and nothing was found.
    """
    known = kept(connection, connector)
    gone = [one for one in known.before if one.agent]
    if gone and not truth.positions:
        raise _nothing_there(gone[0])
    if not known.adopt:
        _check_forwards(connector, known.heads, truth.heads)
    there = {**published, **{one.partition: one.offset for one in truth.positions}}
    if known.adopt == "topic":
        _forget_published(connection, connector, there.keys())
    news = [one for one in truth.positions if _apply(connection, one, may_rewind=known.adopt == "topic")]
    _replace_lanes(connection, connector, place, truth.heads)
    _bind(connection, connector, _Binding(cluster))
    if known.adopt == "local" or known.before or known.place is None:
        same = {one.partition for one in news if one.offset is there[one.partition]}  # a lost store has all of them from there
        rows = connection.execute(f"{schema.SELECT} WHERE connector = ?", (connector,))
        others = (schema.decode(row) for row in rows if row[:2] not in same)
        mark(connection, [partition for partition, offset in others if there.get(partition) != offset], wish=False)
    connection.execute("UPDATE unpublished SET wish = 0 WHERE connector = ? AND wish = 1", (connector,))
    return news


def _nothing_there(group: Lanes) -> PositionsError:
    words = f"Kafka knows nothing of connector {group.connector} of agent {group.agent}, which it was to take over"
    name = group.connector
    ways = f"see whether agent and cluster are right: copycat offsets adopt {name} --from-topic --agent UUID"
    return PositionsError(words, f"{ways}; or go on without: copycat offsets adopt {name}")


def refused(connection: sqlite3.Connection, connector: str, own: Collection[Position]) -> list[Position]:
    """The host is a copy, or was copied. Save what it has committed itself; returns what of it was not known here."""
    heads = kept(connection, connector).heads
    unknown = [one for one in own if one.seq > heads.get(one.lane, Head()).seq]
    for one in unknown:
        _apply(connection, one, may_rewind=False)
        before = heads.get(one.lane, Head())
        heads[one.lane] = before._replace(seq=max(one.seq, before.seq))
    _save_heads(connection, connector, Lanes(connector, Place("", -1)), heads)
    _bind(connection, connector, _binding(connection, connector)._replace(copied=1))
    return unknown


def _check_forwards(connector: str, before: Mapping[int, Head], after: Mapping[int, Head]) -> None:
    for number, head in before.items():
        if number not in after or after[number].seq <= head.seq:
            msg = f"lane {number} of connector {connector} would be opened at {_at(after.get(number))}, and it was at {_at(head)}"
            raise FatalError(msg, _BUG)


def _at(head: Head | None) -> str:
    return f"step {head.seq}" if head else "no step"


def _apply(connection: sqlite3.Connection, position: Position, *, may_rewind: bool) -> bool:
    """Whether the position counts here: a person's later wish outranks it, and so does a row that is further."""
    partition, offset = position.partition, position.offset
    assert offset is not None, "a forgotten partition has no position"
    (wish,) = connection.execute("SELECT wish FROM unpublished WHERE connector = ? AND key = ?", partition).fetchone() or (0,)
    saved = connection.execute("SELECT position FROM offsets WHERE connector = ? AND key = ?", partition).fetchone()
    is_behind = saved is not None and saved[0].isdigit() and offset.position < int(saved[0])
    if wish or (is_behind and not may_rewind):
        return False
    connection.execute(schema.UPSERT, schema.encode(partition, offset))
    unmark(connection, [partition])
    return True


def _forget_published(connection: sqlite3.Connection, connector: str, there: Collection[SourcePartition]) -> None:
    """What Kafka is said to have and has not: a person has decided that Kafka is right."""
    keys = connection.execute(
        "SELECT key FROM offsets WHERE connector = ? AND key NOT IN (SELECT key FROM unpublished WHERE connector = ?)",
        (connector, connector),
    ).fetchall()
    gone = [(connector, key) for (key,) in keys if SourcePartition(connector, key) not in there]
    connection.executemany("DELETE FROM offsets WHERE connector = ? AND key = ?", gone)


def backwards(connection: sqlite3.Connection, connector: str, heads: Mapping[int, Head]) -> FatalError | None:
    """The refusal when a lane would not move forwards by what a batch says of it."""
    known = kept(connection, connector).heads
    for number, head in heads.items():
        before = known.get(number)
        if before is None or head.seq < before.seq or (head.seq == before.seq and head.nonce != before.nonce):
            msg = f"lane {number} of connector {connector} would move from {_at(before)} to {_at(head)}"
            return FatalError(msg, _BUG)
    return None


def save_heads(connection: sqlite3.Connection, connector: str, heads: Mapping[int, Head]) -> None:
    """A batch's transaction is committed."""
    _save_heads(connection, connector, Lanes(connector, Place("", -1)), heads)


def mark(connection: sqlite3.Connection, partitions: Iterable[SourcePartition], *, wish: bool) -> None:
    """What is saved of them is not in Kafka; `wish`: because a person wants it so."""
    rows = [(*one, int(wish)) for one in partitions]
    connection.executemany(
        "INSERT INTO unpublished (connector, key, wish, checksum) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (connector, key) DO UPDATE SET wish = max(wish, excluded.wish)",
        [(*row, checksum(row[:2])) for row in rows],
    )


def unmark(connection: sqlite3.Connection, partitions: Iterable[SourcePartition]) -> None:
    """What is saved of them is in Kafka."""
    connection.executemany("DELETE FROM unpublished WHERE connector = ? AND key = ?", partitions)


def changed(connection: sqlite3.Connection, partitions: Collection[SourcePartition], *, wish: bool) -> None:
    """Offsets were saved or deleted that no transaction has told: mark those of connectors with lanes.

    While a connector runs without them the next opening takes everything from here anyway: only a person's marks are made then.
    """
    for connector in {one.connector for one in partitions}:
        if has_lanes(connection, connector) and (wish or _binding(connection, connector).adopt != "local"):
            mark(connection, [one for one in partitions if one.connector == connector], wish=wish)


def told(connection: sqlite3.Connection, also: Mapping[SourcePartition, SourceOffset | None]) -> None:
    """These offsets were told in a transaction as they stood when it was planned: marks go where that is still what is saved."""
    for partition, offset in also.items():
        row = connection.execute(f"{schema.SELECT} WHERE connector = ? AND key = ?", partition).fetchone()
        if (schema.decode(row)[1] if row else None) == offset:
            unmark(connection, [partition])


def unpublished(connection: sqlite3.Connection, connector: str, limit: int) -> dict[SourcePartition, SourceOffset | None]:
    """Up to `limit` marked ones, None for those that are forgotten. The row `FIRST` comes first, then the oldest marks."""
    first = connection.execute("SELECT key FROM unpublished WHERE connector = ? AND key = ? LIMIT ?", (connector, FIRST, limit)).fetchall()
    others = "SELECT key FROM unpublished WHERE connector = ? AND key <> ? ORDER BY number LIMIT ?"
    keys = [*first, *connection.execute(others, (connector, FIRST, limit - len(first)))]
    found: dict[SourcePartition, SourceOffset | None] = {}
    for (key,) in keys:
        row = connection.execute(f"{schema.SELECT} WHERE connector = ? AND key = ?", (connector, key)).fetchone()
        found[SourcePartition(connector, key)] = schema.decode(row)[1] if row else None
    return found


def adopt(connection: sqlite3.Connection, connector: str, which: Adopt) -> None:
    """What a person has decided for the next opening: the last word counts. "topic" takes back what was wished before, too."""
    if which == "topic":
        connection.execute("UPDATE unpublished SET wish = 0 WHERE connector = ?", (connector,))
    _forget_agents(connection, connector)
    bound = _binding(connection, connector)
    _bind(connection, connector, bound._replace(adopt=which, copied=0, unused=bound.unused if which == "local" else 0))


def leave(connection: sqlite3.Connection, connector: str) -> None:
    """It runs without lanes: the next opening goes on from what is here then."""
    _bind(connection, connector, _binding(connection, connector)._replace(adopt="local", unused=1))


def take_over(connection: sqlite3.Connection, connector: str, agent: str) -> None:
    """The next opening takes over the lanes of that agent's connector of the same name as well. Nothing is taken back here."""
    _forget_agents(connection, connector)
    _save_place(connection, connector, Lanes(connector, Place(OFFSETS_TOPIC, -1), agent=agent))


def rename(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Lanes of `old` become earlier ones of `new`; should anybody be called `old` again, its lanes are not those of today.

    Called when the offsets have moved. Kafka knows them under the old name, so all of them are told again.
    """
    theirs, ours, is_used = _binding(connection, old), _binding(connection, new), has_lanes(connection, new)
    if not has_lanes(connection, old):
        return
    for group in _groups(connection, old):
        _save_place(connection, new, group)
        _save_heads(connection, new, group, group.known)
    wishes = connection.execute("SELECT key FROM unpublished WHERE connector = ? AND wish = 1", (old,)).fetchall()
    mark(connection, [SourcePartition(new, key) for (key,) in wishes], wish=True)
    for table in ("places", "lanes", "unpublished"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ?", (old,))  # noqa: S608 - constants
    clusters = dict.fromkeys(one.cluster for one in (ours, theirs) if one.cluster)  # two are none: a person decides
    decided = (ours.adopt or theirs.adopt) if is_used else theirs.adopt
    _bind(connection, new, _Binding(" and ".join(clusters), decided, ours.copied or theirs.copied, theirs.unused))
    _bind(connection, old, _Binding(adopt="local"))


def begin_anew(connection: sqlite3.Connection) -> None:
    """The agent has another identity: Kafka knows nothing of it, so every connector goes on from what is saved here."""
    for table in ("places", "lanes", "unpublished"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - constants
    for connector, cluster in connection.execute("SELECT connector, cluster FROM bindings").fetchall():
        _bind(connection, connector, _Binding(cluster))


def nonces(connection: sqlite3.Connection) -> list[str]:
    """Those that heads name."""
    return [nonce for (nonce,) in connection.execute("SELECT DISTINCT nonce FROM lanes")]


def _forget_agents(connection: sqlite3.Connection, connector: str) -> None:
    """Nobody else's lanes are taken over."""
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ? AND agent <> ''", (connector,))  # noqa: S608 - constants


def _replace_lanes(connection: sqlite3.Connection, connector: str, place: Place, heads: Mapping[int, Head]) -> None:
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ?", (connector,))  # noqa: S608 - constants
    own = Lanes(connector, place, heads)
    _save_place(connection, connector, own)
    _save_heads(connection, connector, own, heads)


def _groups(connection: sqlite3.Connection, connector: str) -> list[Lanes]:
    """By agent and name, the connector's own and earlier ones."""
    places = connection.execute("SELECT agent, name, topic, part FROM places WHERE connector = ? ORDER BY agent, name", (connector,))
    heads: dict[tuple[str, str], dict[int, Head]] = {}
    for agent, name, number, *head in connection.execute(
        "SELECT agent, name, number, seq, nonce, position FROM lanes WHERE connector = ? ORDER BY number", (connector,)
    ):
        heads.setdefault((agent, name), {})[number] = Head(*head)
    return [Lanes(name, Place(*place), heads.get((agent, name), {}), agent) for agent, name, *place in places]


def _binding(connection: sqlite3.Connection, connector: str) -> _Binding:
    row = connection.execute("SELECT cluster, adopt, copied, unused FROM bindings WHERE connector = ?", (connector,)).fetchone()
    return _Binding(*row) if row else _Binding()


def _bind(connection: sqlite3.Connection, connector: str, bound: _Binding) -> None:
    _save(connection, "bindings", [(connector, *bound)])


def _save_place(connection: sqlite3.Connection, connector: str, group: Lanes) -> None:
    _save(connection, "places", [(connector, group.agent, group.connector, *group.place)])


def _save_heads(connection: sqlite3.Connection, connector: str, group: Lanes, heads: Mapping[int, Head]) -> None:
    _save(connection, "lanes", [(connector, group.agent, group.connector, number, *head) for number, head in heads.items()])


def _save(connection: sqlite3.Connection, table: str, rows: Collection[Row]) -> None:
    if rows:
        size = len(next(iter(rows))) + 1
        query = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * size)})"  # noqa: S608 - a constant
        connection.executemany(query, [(*row, checksum(row)) for row in rows])
