"""What a connector works with, and where it writes what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.delivery.guarantees import Deliveries
    from copycat_agent.executor import Executor
    from copycat_agent.logs import Log
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.sources import Keeper, Source
    from copycat_agent.watch import Watcher
    from copycat_agent.worker.orders import Orders
    from copycat_agent.worker.poll_loop import PollLoop
    from copycat_agent.worker.restart_keeper import RestartKeeper
    from copycat_agent.worker.status import ConnectorMetrics, ConnectorState
    from copycat_agent.worker.taps import Taps


class Tools(NamedTuple):
    """What every connector works with, shared by all.

    `accounts`: what becomes of each file is entered in the store; `tracked`: with where its records are in Kafka, which costs about as much
    as sending them. `make_source` stands in for `SourceKind.make`.
    `until_idle`: connectors end once they have read what is there.
    `keeper` is given to sources whose files are worth keeping for the next process.
    """

    store: OffsetStore
    executor: Executor
    watcher: Watcher
    deliveries: Deliveries
    loop: PollLoop
    accounts: bool = False
    make_source: Callable[..., Source] | None = None
    tracked: bool = False
    keeper: Keeper | None = None
    until_idle: bool = False


class ConnectorContext(NamedTuple):
    """Where a connector reads what it should do, and writes what it did."""

    orders: Orders
    connector_state: ConnectorState
    metrics: ConnectorMetrics
    taps: Taps
    log: Log
    keeper: RestartKeeper
