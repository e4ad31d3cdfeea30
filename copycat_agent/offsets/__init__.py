"""The offset store: what is settled, in one SQLite file that one agent owns. The door to sqlite3.

::

    <state_dir>/              mode 0700, this user's
      lock                    flock, held for the agent's life; the holder's pid inside
      offsets.db  -wal        WAL, synchronous=FULL, one connection
      offsets.db.quarantined  a damaged store was moved aside; nothing starts without it before a person has decided
      offsets.db.damaged-*    what was moved aside, never overwritten
      identity.json           who the agent is in Kafka, once it has had an exactly-once connector (see `agent_identity`)

Besides offsets, and what each connector remembers, the file holds the loss ledger (entries, the newest 10,000 or so of each connector, and
totals that are never pruned), what a person last asked each connector to be, which id each has in Kafka (see `connector_names`), and what
is known of exactly-once lanes (see `lanes`). Each row carries a checksum. A broken page, or a broken row of a table that decides what is
read again, condemns the file: nothing in it can be trusted then. A broken row of the other tables is dropped with an ERROR line, since no
offset depends on it.

Positions of exactly-once connectors are in Kafka. So an agent that has some begins a new store in place of a damaged one, for the same
identity; connectors without lanes do not begin in it until a person has decided (`OffsetStore.undecided`).

A store of an older version is migrated when it is opened, each step in one transaction; a newer one is refused, so to go back
to an older agent is to restore the state directory from before the upgrade.
"""

from __future__ import annotations

from copycat_agent.offsets.lanes import LaneCommit
from copycat_agent.offsets.store import OffsetStore

__all__ = ["LaneCommit", "OffsetStore"]
