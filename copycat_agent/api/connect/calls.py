"""The types that the REST application and its views exchange: a call, a reply, and a view of the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from copycat_agent.api.connect.cluster_ids import ClusterIds
from copycat_agent.api.guard import StatusError
from copycat_agent.control import Control


class Call(NamedTuple):
    """A request: the values of its route's braces, its query (all values of each name), and its JSON body, None without one."""

    named: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    body: object = None

    @property
    def connector(self) -> str:
        """Returns the connector's name in the address, which need not exist."""
        return self.named["connector"]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Returns whether the first value of a query parameter is `true`. As in Java, any other text is false."""
        values = self.query.get(name)
        return default if not values else values[0].lower() == "true"


class Reply(NamedTuple):
    """An answer: JSON, None for an empty body. `made` is the path of something that was created, "" for none."""

    value: object = None
    status: HTTPStatus = HTTPStatus.OK
    made: str = ""


class WorkerView(NamedTuple):
    """The agent as a worker of Kafka Connect. `worker_id` is HOST:PORT; `origin` precedes the path in URLs.

    `clusters` looks up ids of Kafka clusters; None: they are not wanted.
    """

    control: Control
    worker_id: str
    origin: str = ""
    clusters: ClusterIds | None = None


View = Callable[[WorkerView, Call], Reply]
"""Answers a call. Raises StatusError, or what `Control` raises."""


def not_found(message: str) -> StatusError:
    """Returns the error for something that does not exist."""
    return StatusError(HTTPStatus.NOT_FOUND, message)
