"""Why an opening does not go on, and between which ways out a person has to choose."""

from __future__ import annotations

from collections.abc import Iterable

from copycat_agent.errors import BehindError, CopiedError, PositionsError, RenamedError
from copycat_agent.model import Head, Place, Position

_LOCAL, _TOPIC = "go on from the positions of this host", "from those of the topic, which sends what is behind them again"


def _ways(name: str, local: str, topic: str) -> str:
    adopt = f"copycat offsets adopt {name}"
    return f"{local}: {adopt}; {topic}: {adopt} --from-topic; read everything again: copycat offsets reset {name}"


def other_cluster(connector: str, bound: str, cluster: str) -> PositionsError:
    """The refusal where the connector's positions are in the `bound` cluster, and Kafka is another one."""
    words = f"the positions of connector {connector} belong to Kafka cluster {bound}, and this one is {cluster}"
    hint = f"connect it to that cluster again, or go on here from the positions of this host: copycat offsets adopt {connector}"
    return PositionsError(words, f"{hint}; or read everything again: copycat offsets reset {connector}")


def made_anew(connector: str, place: Place, partitions: int) -> BehindError:
    """The refusal where the topic has too few partitions for the connector's place: a topic never loses any."""
    there = f"{place.topic} has {partitions} partition{'s' if partitions > 1 else ''}"
    words = f"the positions of connector {connector} were in partition {place.partition}, and {there}: the topic was made anew"
    return BehindError(words, _ways(connector, _LOCAL, _TOPIC))


def behind(name: str, number: int, known: Head, head: Head, place: Place) -> BehindError:
    """The refusal where connector `name` has seen a step of a lane that Kafka does not show."""
    words = (
        f"lane {number} of connector {name} is at step {known.seq} here, and at {head.seq} in partition {place.partition} of {place.topic}:"
        " the topic was emptied, made anew, or has lost acknowledged records"
    )
    return BehindError(words, _ways(name, _LOCAL, _TOPIC))


def renamed(name: str, called: str) -> RenamedError:
    """The refusal where the id that connector `name` has here is another's in Kafka: `called` is its name there, "" for nobody's."""
    now = f"that of connector {called}" if called else "nobody's any more"
    words = f"the id of connector {name} is {now} in Kafka: offsets.db is older than a rename"
    return RenamedError(words, f"Kafka is asked which id {name} has; nothing is to be done")


def foreign(name: str, number: int, mine: Iterable[Position], place: Place) -> CopiedError:
    """The refusal where somebody else has moved a lane of connector `name`; `mine` is what this start has committed before."""
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
