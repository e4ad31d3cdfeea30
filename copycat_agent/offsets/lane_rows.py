"""The tables of lanes: what each connector is in Kafka, places and heads by connector and by whose they are, and what it is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import Head, Place, new_connector_id
from copycat_agent.offsets.schema import checksum
from copycat_agent.transactions.opening import Adopt, Lanes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping

    from copycat_agent.offsets.schema import Row


class Binding(NamedTuple):
    """A row of `bindings`: see `lanes.KeptLanes`."""

    cluster: str = ""
    adopt: Adopt = ""
    copied: int = 0
    unused: int = 0


class Identified(NamedTuple):
    """A row of `names`: see `lanes.KeptLanes`."""

    id: str
    asks: int = 1
    registered: str = ""


def identified(connection: sqlite3.Connection, connector: str) -> Identified | None:
    """What the connector is in Kafka; None for one that has no id yet."""
    row = connection.execute("SELECT id, asks, registered FROM names WHERE connector = ?", (connector,)).fetchone()
    return Identified(*row) if row else None


def identify(connection: sqlite3.Connection, connector: str) -> Identified:
    """The same; an id is made where there is none."""
    known = identified(connection, connector)
    if known is None:
        known = Identified(new_connector_id())
        save_identified(connection, connector, known)
    return known


def save_identified(connection: sqlite3.Connection, connector: str, what: Identified) -> None:
    """Save it. sqlite3.IntegrityError where another connector has the id."""
    row = (connector, *what)
    connection.execute(
        "INSERT INTO names (connector, id, asks, registered, checksum) VALUES (?, ?, ?, ?, ?) ON CONFLICT (connector) DO UPDATE"
        " SET id = excluded.id, asks = excluded.asks, registered = excluded.registered, checksum = excluded.checksum",
        (*row, checksum(row)),
    )


def owner(connection: sqlite3.Connection, key: str) -> str:
    """The connector that has this id, or lanes of this key; "" for nobody."""
    query = "SELECT connector FROM names WHERE id = ? UNION SELECT connector FROM places WHERE agent = '' AND name = ?"
    row = connection.execute(query, (key, key)).fetchone()
    return str(row[0]) if row else ""


def has_lanes(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether they were ever opened, under this name or an earlier one."""
    return connection.execute("SELECT 1 FROM places WHERE connector = ? LIMIT 1", (connector,)).fetchone() is not None


def is_known(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether this store knows what Kafka has of the connector, if only that there is nothing."""
    known = identified(connection, connector)
    return has_lanes(connection, connector) or (known is not None and not known.asks)


def is_renamed(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether the id that it had here was found to be another's, and it is not known yet which one it has: see `names.renamed_since`."""
    known = identified(connection, connector)
    return known is not None and bool(known.asks) and known.registered == connector


def named(connection: sqlite3.Connection) -> list[str]:
    """Connectors that have lanes."""
    return [name for (name,) in connection.execute("SELECT DISTINCT connector FROM places")]


def nonces(connection: sqlite3.Connection) -> list[str]:
    """Those that heads name."""
    return [nonce for (nonce,) in connection.execute("SELECT DISTINCT nonce FROM lanes")]


def forget_agents(connection: sqlite3.Connection, connector: str) -> None:
    """Nobody else's lanes are taken over."""
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ? AND agent <> ''", (connector,))  # noqa: S608 - constants


def forget_lanes(connection: sqlite3.Connection, connector: str) -> None:
    """It has none."""
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ?", (connector,))  # noqa: S608 - constants


def forget_group(connection: sqlite3.Connection, connector: str, group: Lanes) -> None:
    """These are not its lanes any more."""
    for table in ("places", "lanes"):
        query = f"DELETE FROM {table} WHERE connector = ? AND agent = ? AND name = ?"  # noqa: S608 - constants
        connection.execute(query, (connector, group.agent, group.key))


def replace_lanes(connection: sqlite3.Connection, connector: str, place: Place, heads: Mapping[int, Head]) -> None:
    """These are all that it has."""
    forget_lanes(connection, connector)
    own = Lanes(identify(connection, connector).id, place, heads)
    save_place(connection, connector, own)
    save_heads(connection, connector, own, heads)


def groups(connection: sqlite3.Connection, connector: str) -> list[Lanes]:
    """By agent and key, the connector's own and those that it takes over."""
    places = connection.execute("SELECT agent, name, topic, part FROM places WHERE connector = ? ORDER BY agent, name", (connector,))
    heads: dict[tuple[str, str], dict[int, Head]] = {}
    for agent, name, number, *head in connection.execute(
        "SELECT agent, name, number, seq, nonce, position FROM lanes WHERE connector = ? ORDER BY number", (connector,)
    ):
        heads.setdefault((agent, name), {})[number] = Head(*head)
    return [Lanes(name, Place(*place), heads.get((agent, name), {}), agent) for agent, name, *place in places]


def binding(connection: sqlite3.Connection, connector: str) -> Binding:
    """What it is bound to; an empty one where nothing was ever said of it."""
    row = connection.execute("SELECT cluster, adopt, copied, unused FROM bindings WHERE connector = ?", (connector,)).fetchone()
    return Binding(*row) if row else Binding()


def bind(connection: sqlite3.Connection, connector: str, bound: Binding) -> None:
    """Save it."""
    _save(connection, "bindings", [(connector, *bound)])


def save_place(connection: sqlite3.Connection, connector: str, group: Lanes) -> None:
    """Save where lanes stand; `lanes.KeptLanes` says whose."""
    _save(connection, "places", [(connector, group.agent, group.key, *group.place)])


def save_heads(connection: sqlite3.Connection, connector: str, group: Lanes, heads: Mapping[int, Head]) -> None:
    """Save how far lanes of a group are; others of it stay."""
    _save(connection, "lanes", [(connector, group.agent, group.key, number, *head) for number, head in heads.items()])


def _save(connection: sqlite3.Connection, table: str, rows: Collection[Row]) -> None:
    if rows:
        size = len(next(iter(rows))) + 1
        query = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * size)})"  # noqa: S608 - a constant
        connection.executemany(query, [(*row, checksum(row)) for row in rows])
