"""The offset store: what is settled, in one SQLite file that one agent owns. The door to sqlite3.

::

    <state_dir>/              mode 0700, this user's
      lock                    flock, held for the agent's life; the holder's pid inside
      offsets.db  -wal        WAL, synchronous=FULL, one connection
      offsets.db.quarantined  a damaged store was moved aside; nothing starts before a person has decided
      offsets.db.damaged-*    what was moved aside, never overwritten
"""

from __future__ import annotations

from copycat_agent.offsets.store import OffsetStore

__all__ = ["OffsetStore"]
