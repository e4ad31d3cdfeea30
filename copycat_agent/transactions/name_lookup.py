"""Looks up the id of a name, for a store that does not know it: the store may be new, or it may have been lost.

Looking up a name opens lanes: those under the name are fenced and claimed, and the claims are read back. So a broker that is cut off from
the others cannot hide an id, and no process of a version without ids, whose lanes had names, can commit anything any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from copycat_agent.model import OffsetsPartition
from copycat_agent.transactions.opening import LaneGroup, OpeningPlan, open_lanes
from copycat_agent.transactions.protocol import Procedure

PlaceOf = Callable[[str, str], OffsetsPartition]
"""`place_of(agent, key)` returns the partition with the entries of a key."""


class NameQuery(NamedTuple):
    """A name to look up. `agent` is another agent that is gone, "" for this one."""

    name: str
    agent: str = ""


def look_up(names: Iterable[NameQuery], plan: OpeningPlan, place_of: PlaceOf) -> Procedure[list[LaneGroup]]:
    """Returns the lanes that Kafka has for these names, in their order, nothing for a name that it does not know.

    These are the lanes of an id; those under the name itself if a version without ids has positions there; and those of an agent that is
    gone in any case, since a person says that there are some. `plan` says who asks; its lanes do not matter. Raises what `open_lanes`
    raises.
    """
    found: list[LaneGroup] = []
    for one in names:
        agent = one.agent or plan.agent
        under_name = LaneGroup(one.name, place_of(agent, one.name), agent=one.agent)
        there = yield from open_lanes(replace(plan, lanes=under_name, wanted=(0,)))
        if there.id:
            of_id = LaneGroup(there.id, place_of(agent, there.id), agent=one.agent)
            told = yield from open_lanes(replace(plan, lanes=of_id, wanted=(0,)))
            if told.name == one.name:
                found.append(of_id)
                continue
        elif there.positions:
            found.append(under_name)
            continue
        if one.agent:
            found.append(under_name)
    return found
