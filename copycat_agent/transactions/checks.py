"""The checks of an opening: that Kafka has shown all entries, and the errors that say why it does not go on.

An opening reads back what it has committed: only that proves that it had read everything before. A broker that is cut off from its cluster
shows a partition as it was at that time, to everybody who still reaches it, while commits go to the leader that was elected after it.
Fencing does not help, since it is the coordinator's. But a reader that is shown its own last commit is shown everything before it.

Each error names the alternatives between which a person has to choose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from copycat_agent.errors import BehindError, CopiedError, PositionsError, RenamedError, RetriableError
from copycat_agent.model import Head, LaneId, OffsetsPartition, Position
from copycat_agent.transactions.entries import names_in, steps
from copycat_agent.transactions.protocol import Entry, Procedure, Step

AT_ONCE = 20_000
"""The most entries read at a time: of a larger read, `producer.transactional` frees entries that later ones replace."""

_LOCAL, _TOPIC = "go on from the positions of this host", "from those of the topic, which sends what is behind them again"

Name = tuple[str, str]
"""An agent, and a key of its lanes."""


class Claim(NamedTuple):
    """A step of a lane that an opening has committed. `head.offset` is the end up to which the partition was read before that."""

    lane: LaneId
    place: OffsetsPartition
    head: Head


def read_back(claims: Sequence[Claim], ends: Mapping[Name, int], connector: str, *, whole: bool) -> Procedure[None]:
    """Raises RetriableError unless `claims`, in their order, are all steps that their lanes have taken since those were read.

    `ends` is the offset up to which the partition of each key was read for the final result. `whole`: its other lanes must not have moved
    either, and no name may have been written. `connector` is its name, for the error message.
    """
    by_name: dict[Name, list[Claim]] = defaultdict(list)
    for one in claims:
        by_name[one.lane[:2]].append(one)
    for name, mine in by_name.items():
        entries = yield from _entries(mine[0].place, min(one.head.offset for one in mine))
        expected, there = steps_expected(mine), steps_there(mine, steps(entries, *name), whole=whole)
        was_named = whole and names_in((one for one in entries if one.offset >= ends[name]), *name)
        if there != expected or was_named or any(one.head.offset > ends[name] for one in mine):
            lanes = sorted(number for number in expected.keys() | there.keys() if expected.get(number) != there.get(number))
            raise _stale(mine[0].place, connector, lanes)


def _entries(place: OffsetsPartition, since: int) -> Procedure[list[Entry]]:
    end = yield Step("end", (place,))
    entries: list[Entry] = []
    for begin in range(since, end, AT_ONCE):
        entries += yield Step("replay", (place, begin, min(end, begin + AT_ONCE)))
    return entries


def steps_expected(claims: Sequence[Claim]) -> dict[int, list[tuple[int, str]]]:
    """Returns the claimed steps of each lane."""
    taken: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for one in claims:
        taken[one.lane.number].append(one.head[:2])
    return taken


def steps_there(claims: Sequence[Claim], taken: Sequence[tuple[int, Head]], *, whole: bool) -> dict[int, list[tuple[int, str]]]:
    """Returns the steps of each lane that were read back, without those that were read before it was claimed."""
    read: dict[int, int] = {}
    for one in claims:
        read.setdefault(one.lane.number, one.head.offset)
    there: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for number, head in taken:
        if head.offset >= read.get(number, 0) and (whole or number in read):
            there[number].append(head[:2])
    return there


def _stale(place: OffsetsPartition, connector: str, lanes: Sequence[int]) -> RetriableError:
    what = f"connector {connector}"
    if lanes:
        what = f"lane{'s' if len(lanes) > 1 else ''} {', '.join(map(str, lanes[:8]))} of {what}"
    return RetriableError(
        f"partition {place.partition} of {place.topic} was not shown as it is when {what} was opened: a broker that is cut off from the"
        " others may have answered, or somebody else has moved it since",
        "it is tried again by itself; if that goes on, look for a broker that its cluster does not reach, and stop it",
    )


def _ways(name: str, local: str, topic: str) -> str:
    adopt = f"copycat offsets adopt {name}"
    return f"{local}: {adopt}; {topic}: {adopt} --from-topic; read everything again: copycat offsets reset {name}"


def other_cluster(connector: str, bound: str, cluster: str) -> PositionsError:
    """Returns the error for a connector whose positions are in the `bound` cluster while Kafka is another one."""
    words = f"the positions of connector {connector} belong to Kafka cluster {bound}, and this one is {cluster}"
    hint = f"connect it to that cluster again, or go on here from the positions of this host: copycat offsets adopt {connector}"
    return PositionsError(words, f"{hint}; or read everything again: copycat offsets reset {connector}")


def made_anew(connector: str, place: OffsetsPartition, partitions: int) -> BehindError:
    """Returns the error for a topic with too few partitions for the connector's entries: a topic never loses any."""
    there = f"{place.topic} has {partitions} partition{'s' if partitions > 1 else ''}"
    words = f"the positions of connector {connector} were in partition {place.partition}, and {there}: the topic was made anew"
    return BehindError(words, _ways(connector, _LOCAL, _TOPIC))


def behind(name: str, number: int, known: Head, head: Head, place: OffsetsPartition) -> BehindError:
    """Returns the error for connector `name` if the store knows a step of a lane that Kafka does not show."""
    words = (
        f"lane {number} of connector {name} is at step {known.seq} here, and at {head.seq} in partition {place.partition} of {place.topic}:"
        " the topic was emptied, made anew, or has lost acknowledged records"
    )
    return BehindError(words, _ways(name, _LOCAL, _TOPIC))


def renamed(name: str, called: str) -> RenamedError:
    """Returns the error for a connector whose id belongs to another one in Kafka: `called` is its name there, "" without one."""
    now = f"that of connector {called}" if called else "nobody's any more"
    words = f"the id of connector {name} is {now} in Kafka: offsets.db is older than a rename"
    return RenamedError(words, f"Kafka is asked which id {name} has; nothing is to be done")


def foreign(name: str, number: int, mine: Iterable[Position], place: OffsetsPartition) -> CopiedError:
    """Returns the error for a lane of connector `name` that another agent has moved; `mine` is what this start has committed before."""
    words = (
        f"lane {number} of connector {name} was moved by an agent with this agent's identity and another state directory:"
        " this host, or its state directory, is a copy"
    )
    hint = (
        "if this is a backup or a snapshot that was put back, and no other agent uses this state directory:"
        f" copycat offsets adopt {name} --from-topic; if it is a second host, stop one of the two for good, or let this one go on"
        f" as an agent of its own from the positions it has: copycat offsets adopt {name}"
    )
    return CopiedError(words, hint, tuple(mine), place)
