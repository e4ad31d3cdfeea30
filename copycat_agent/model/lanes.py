"""The nouns of exactly once: what is kept in Kafka beside the records, and what a task is told to do about it.

A *lane* is one task of a connector whose guarantee is exactly_once. It moves in steps: each transaction takes its *head* from one
`seq` to the next, and nothing else does. Frozen values, all of them picklable.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal, NamedTuple

from copycat_agent.model.accounts import Counts, Loss
from copycat_agent.model.offsets import SourceOffset, SourcePartition

OFFSETS_TOPIC = "__copycat_offsets"
"""The compacted topic that holds heads, positions and names."""
_ID_MARK = "~"
"""No name begins so (`options.ConnectorName`): a key is an id or a name, and never both."""


def new_connector_id() -> str:
    """An id for a connector: made once, and kept whatever the connector is called. Safe in a transactional.id."""
    return f"{_ID_MARK}{secrets.token_hex(6)}"


def connector_id_of(name: str) -> str:
    """The id of a connector that a version before ids had under this name: the same whenever a copy of that version's store is migrated."""
    return f"{_ID_MARK}{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def is_connector_id(key: str) -> bool:
    """Whether a key of lanes is a connector's id, and not a name."""
    return key.startswith(_ID_MARK)


class Place(NamedTuple):
    """The partition that holds everything of one connector, or of one name."""

    topic: str
    partition: int


class LaneId(NamedTuple):
    """A lane: the agent's uuid, the key of its connector, and the task's number.

    `key` is the connector's id, see `new_connector_id`. Of lanes that stand under a name it is that name: older versions had no ids.
    """

    agent: str
    key: str
    number: int


class Head(NamedTuple):
    """Where a lane is. `nonce` names the start of the agent that took it there.

    This stands in its `Place` at `offset` or behind it; of one that was read, just there. -1 before it is anywhere.
    """

    seq: int = 0
    nonce: str = ""
    offset: int = -1


class Position(NamedTuple):
    """How far a partition is settled, as the transaction that took lane number `lane` to `seq` says; `offset` None: it is forgotten.

    `counts` and `losses` are what that transaction made of it. `nonce` names the start of the agent whose transaction it was.
    `is_last`: nothing later is known of the partition under the same key, nor anything under the connector's own one, if that is
    another; a person may have set it back meanwhile.
    """

    partition: SourcePartition
    lane: int
    seq: int
    offset: SourceOffset | None
    counts: Counts = Counts()
    losses: tuple[Loss, ...] = ()
    nonce: str = ""
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class LanePlan:
    """What a batch is told of its lane: it may commit if, and only if, the head is still `head`.

    `also` are offsets that the driver has changed by itself since the last transaction, None for those it has forgotten: they go along.
    """

    lane: LaneId
    head: Head
    place: Place
    also: tuple[tuple[SourcePartition, SourceOffset | None], ...] = ()

    @property
    def guarantee(self) -> str:
        """See `model.DeliveryPlan`."""
        return "exactly_once"


LaneState = Literal["committed", "idle", "undone", "unknown"]
"""committed: the transaction is, and the head is the outcome's. idle: there was nothing to commit. undone: nothing is committed, nor can
be. unknown: it may be committed, or somebody else has moved the lane: the truth has to be read."""


class LaneOutcome(NamedTuple):
    """What became of a batch's transaction. `head` is where the lane is now, as far as the state says; `why` is in words."""

    state: LaneState
    head: Head
    why: str = ""
