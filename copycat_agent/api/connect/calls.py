"""What passes between the REST application and its views: a call, a reply, and where to look things up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from copycat_agent.api.connect.cluster_ids import ClusterIds
from copycat_agent.api.guard import StatusError
from copycat_agent.control import Control


class Call(NamedTuple):
    """A request: what stands in the braces of its route, its query (each name with all its values), and its JSON, None without one."""

    named: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    body: object = None

    @property
    def connector(self) -> str:
        """Returns the name of the connector that the address names: any text, known or not."""
        return self.named["connector"]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Whether a query's value is true, by its first one. As Java reads it: anything that is not `true` is false."""
        values = self.query.get(name)
        return default if not values else values[0].lower() == "true"


class Reply(NamedTuple):
    """An answer: JSON, None for an empty body. `made`: the path of what did not exist before, "" for nothing."""

    value: object = None
    status: HTTPStatus = HTTPStatus.OK
    made: str = ""


class WorkerView(NamedTuple):
    """The agent as a worker of Kafka Connect; `worker_id` is HOST:PORT, `origin` what comes before the path in an address here.

    `clusters` knows the ids of Kafka clusters; None: nobody asks for them.
    """

    control: Control
    worker_id: str
    origin: str = ""
    clusters: ClusterIds | None = None


View = Callable[[WorkerView, Call], Reply]
"""What answers at an address. Raises `StatusError`, or what `Control` raises."""


def not_found(message: str) -> StatusError:
    """Returns what is raised for something that is not there."""
    return StatusError(HTTPStatus.NOT_FOUND, message)
