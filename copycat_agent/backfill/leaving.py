"""What a run that came to its end leaves in the offsets topic: nothing. Its keys get tombstones, and compaction drops them.

Nothing of it is in flight any more, and its store is dropped as well: nobody asks for its heads again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from copycat_agent import logs
from copycat_agent.delivery.exactly_once.attempts import MakeWorld, kafka_world
from copycat_agent.errors import CopycatError
from copycat_agent.model import OFFSETS_TOPIC, Head, LaneId, Place, Position
from copycat_agent.transactions.entries import head_entry, id_entry, name_entry, partition_of, position_entry, transactional_id
from copycat_agent.transactions.protocol import Entry, Lines, Step, Steps, perform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.delivery.exactly_once.attempts import World
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.offsets.lanes import KeptLanes
    from copycat_agent.options import Definition

MOST = 5000
"""Tombstones in one transaction: about 1 MiB."""
_log = logs.get("backfill")


def clear_lanes(definition: Definition, store: OffsetStore, make_world: MakeWorld = kafka_world) -> None:
    """Delete all that is in Kafka of the lanes of a run with a store of its own. Raises nothing: where it fails, some KB stay.

    Should the run be gone on with all the same, what is saved in its store counts.
    """
    try:
        kept = store.lanes(definition.name)
        if kept.place is not None:
            store.leave_lanes(definition.name)
            world = make_world(definition, lambda: False)
            try:
                home = _home(definition, store, kept, world)
                for place, entries in ((kept.place, _tombstones(definition, store, kept)), (home, _of_name(definition, store))):
                    _tell(transactional_id(_lane(store, kept, 0), 0), place, entries, world)
            finally:
                world.close()
    except CopycatError as error:
        _log.warning("positions of this run stay in the offsets topic, which costs some KB", connector=definition.name, why=str(error))


def _lane(store: OffsetStore, kept: KeptLanes, number: int) -> LaneId:
    return LaneId(store.agent_uuid, kept.id, number)


def _home(definition: Definition, store: OffsetStore, kept: KeptLanes, world: World) -> Place:
    """Where it stands which id the run's connector has."""
    count = store.partitions(kept.cluster, world.ensure_topic(OFFSETS_TOPIC))
    return Place(OFFSETS_TOPIC, partition_of(store.agent_uuid, definition.name, count))


def _tombstones(definition: Definition, store: OffsetStore, kept: KeptLanes) -> list[Entry]:
    """Of every key that it may have: heads go last, so that what is left when this fails is still whole."""
    name, agent = definition.name, store.agent_uuid
    untold = store.unpublished(name, MOST)  # what it has forgotten, and Kafka has not
    positions = [position_entry(agent, kept.id, Position(one, 0, 0, None)) for one in {**store.read(name), **untold}]
    heads = [head_entry(_lane(store, kept, number), head)._replace(value=None) for number, head in kept.heads.items()]
    return [*positions, name_entry(agent, kept.id, None), *heads]


def _of_name(definition: Definition, store: OffsetStore) -> list[Entry]:
    """What stands under the name: which id it has, and the lane by which that was asked for."""
    asked_by = LaneId(store.agent_uuid, definition.name, 0)
    return [id_entry(store.agent_uuid, definition.name, None), head_entry(asked_by, Head())._replace(value=None)]


def _tell(transactional_id: str, place: Place, entries: Sequence[Entry], world: World) -> None:
    for begin in range(0, len(entries), MOST):
        perform(_transaction(transactional_id, place, entries[begin : begin + MOST]), cast("Steps", world))


def _transaction(transactional_id: str, place: Place, entries: Sequence[Entry]) -> Lines[None]:
    handle = yield Step("prepare", (transactional_id,))
    try:
        yield Step("ready", (handle,))
        yield Step("begin", (handle,))
        yield Step("send", (handle, place, entries))
        yield Step("flush", (handle,))
        yield Step("commit", (handle,))
    finally:
        yield Step("close", (handle,))
