"""The tables of lanes: places and heads by connector and by whose they are, and what each connector is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from copycat_agent.model import Head, Place
from copycat_agent.offsets.schema import checksum
from copycat_agent.transactions.opening import Adopt, Lanes

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping

    from copycat_agent.offsets.schema import Row

Decision = Adopt | Literal["moved"]
"""Which positions the next opening goes on from. "moved": nobody has decided, and what Kafka has under the connector's name is not its
own: another connector had that name before."""


class Binding(NamedTuple):
    """A row of `bindings`: see `lanes.KeptLanes`."""

    cluster: str = ""
    adopt: Decision = ""
    copied: int = 0
    unused: int = 0


def has_lanes(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether they were ever opened, under this name or an earlier one."""
    return connection.execute("SELECT 1 FROM places WHERE connector = ? LIMIT 1", (connector,)).fetchone() is not None


def is_bound(connection: sqlite3.Connection, connector: str) -> bool:
    """Whether anything was ever said of its lanes here, if only that there are none of its own."""
    return has_lanes(connection, connector) or binding(connection, connector).adopt != ""


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


def replace_lanes(connection: sqlite3.Connection, connector: str, place: Place, heads: Mapping[int, Head]) -> None:
    """These are all that it has."""
    for table in ("places", "lanes"):
        connection.execute(f"DELETE FROM {table} WHERE connector = ?", (connector,))  # noqa: S608 - constants
    own = Lanes(connector, place, heads)
    save_place(connection, connector, own)
    save_heads(connection, connector, own, heads)


def groups(connection: sqlite3.Connection, connector: str) -> list[Lanes]:
    """By agent and name, the connector's own and earlier ones."""
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
    _save(connection, "places", [(connector, group.agent, group.connector, *group.place)])


def save_heads(connection: sqlite3.Connection, connector: str, group: Lanes, heads: Mapping[int, Head]) -> None:
    """Save how far lanes of a group are; others of it stay."""
    _save(connection, "lanes", [(connector, group.agent, group.connector, number, *head) for number, head in heads.items()])


def _save(connection: sqlite3.Connection, table: str, rows: Collection[Row]) -> None:
    if rows:
        size = len(next(iter(rows))) + 1
        query = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * size)})"  # noqa: S608 - a constant
        connection.executemany(query, [(*row, checksum(row)) for row in rows])
