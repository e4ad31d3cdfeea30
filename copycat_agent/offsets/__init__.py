"""The offset store: saved offsets in one SQLite file that one agent owns. Only this package uses sqlite3.

::

    <state_dir>/              mode 0700, owned by the agent's user
      lock                    flock, held for the agent's life; contains the holder's pid
      offsets.db  -wal        WAL, synchronous=FULL, one connection
      offsets.db.quarantined  marker: a damaged store was moved aside; the agent does not start before a person has decided
      offsets.db.damaged-*    stores that were moved aside, never overwritten
      identity.json           the agent's identity in Kafka, once it has had an exactly-once connector (`agent_identity`)

Besides offsets and the state of sources, the file holds the loss ledger (about the newest 10,000 entries of each connector, and totals that
are never pruned), the state that a person last asked of each connector, its id in Kafka (`connector_names`), and what is known of
exactly-once lanes (`lanes`). Each row has a checksum. After a broken page, or a broken row of a table that decides what is read again,
nothing in the file is trusted. A broken row of any other table is dropped and logged as an error, since no offset depends on it.

Positions of exactly-once connectors are in Kafka. So an agent with such connectors begins a new store in place of a damaged one, with the
same identity; connectors without lanes do not start in it until a person has decided (`OffsetStore.undecided`).

A store of an older version is migrated when it is opened, one transaction per step. A newer one is refused: to go back to an older agent,
restore the state directory from before the upgrade.
"""

from __future__ import annotations

from copycat_agent.offsets.lanes import LaneCommit
from copycat_agent.offsets.store import OffsetStore

__all__ = ["LaneCommit", "OffsetStore"]
