"""How effects are performed: the wait of a connector that has nothing to do, until something happens or has changed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent import logs
from copycat_agent.delivery.at_least_once import AtLeastOnceDelivery
from copycat_agent.model import AT_LEAST_ONCE
from copycat_agent.worker.connector_io import ConnectorIO
from copycat_agent.worker.context import ConnectorContext, RestartKeeper, WorkerServices
from copycat_agent.worker.effects import WaitForChange
from copycat_agent.worker.orders import ConnectorCommands, Taps
from copycat_agent.worker.status import ConnectorMetrics, ConnectorState
from tests.unit.worker.doubles import definition

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.worker.effects import Effects
    from copycat_agent.worker.poll_loop import Wait

Happens = Callable[[ConnectorCommands], object]
SECONDS = 3600.0
HAPPENS: dict[str, Happens] = {
    "stop": lambda orders: orders.stop(0.0),
    "pause": ConnectorCommands.pause,
    "resume": ConnectorCommands.resume,
    "question": lambda orders: orders.ask(lambda _: None),
    "result": lambda orders: orders.wake.wakeup(),
    "write": lambda orders: orders.wake.written("/logs/a"),
    "new name": lambda orders: orders.wake.changed(),
}


class Waiting:
    """A connector in a `WaitForChange`, whose source answers what `says` returns."""

    def __init__(self, root: Path) -> None:
        self.orders, log = ConnectorCommands(), logs.get("connector")
        self.asked = 0
        self.says: Callable[[], bool] = lambda: True
        self.answer: float | None = None
        self.error: Exception | None = None
        store: Any = SimpleNamespace(saved=lambda _: {})
        source: Any = SimpleNamespace(unchanged=self._unchanged)
        unused: Any = None
        tools = WorkerServices(store, unused, unused, unused, unused, make_source=lambda *_: source)
        context = ConnectorContext(self.orders, ConnectorState(log), ConnectorMetrics(), Taps(), log, RestartKeeper(None, lambda: False))
        self._io = ConnectorIO(definition(root), tools, context, AtLeastOnceDelivery("app", store, log, AT_LEAST_ONCE))

    def begin(self, until: float, seconds: float = SECONDS, latest: float = math.inf) -> Wait:
        """What the poll loop is asked to wait for first."""
        self._steps = self._io.carry_out(self._connector(WaitForChange(until, seconds, latest)))
        return next(self._steps)

    def go_on(self) -> Wait | None:
        """What the poll loop is asked to wait for next, None when the wait of the connector is over."""
        self.orders.wake.disarm()
        return next(self._steps, None)

    @property
    def is_woken(self) -> bool:
        """Whether the poll loop goes on at once, as something has happened since the step began."""
        return not self.orders.wake.arm(lambda: None, deaf=False)

    def _connector(self, wait: WaitForChange) -> Effects:
        try:
            self.answer = (yield wait).value
        except ValueError as error:
            self.error = error

    def _unchanged(self) -> bool:
        self.asked += 1
        return self.says()


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    return Waiting(tmp_path)


@pytest.mark.parametrize("happens", HAPPENS.values(), ids=HAPPENS)
def test_what_happens_just_when_a_look_is_due_ends_the_wait(waiting: Waiting, happens: Happens) -> None:
    due = time.monotonic()
    waiting.begin(due)
    happens(waiting.orders)
    assert waiting.go_on() is None
    assert (waiting.answer, waiting.asked) == (due, 0)


@pytest.mark.parametrize("happens", HAPPENS.values(), ids=HAPPENS)
def test_what_happens_while_the_source_is_asked_ends_the_wait(waiting: Waiting, happens: Happens) -> None:
    def says() -> bool:
        happens(waiting.orders)
        return True

    waiting.says = says
    waiting.begin(time.monotonic())
    next_wait = waiting.go_on()
    assert next_wait is not None
    assert waiting.is_woken
    assert waiting.go_on() is None
    assert waiting.answer == next_wait.until, "the source was asked just now, so a look is not due"


def test_the_source_is_asked_when_a_look_is_due_until_something_has_changed(waiting: Waiting) -> None:
    wait: Wait | None = waiting.begin(time.monotonic(), seconds=0.0)
    for times in range(3):
        assert wait is not None
        assert (waiting.asked, wait.deaf, waiting.is_woken) == (times, False, False)
        wait = waiting.go_on()
    assert wait is not None
    waiting.says = lambda: False
    assert waiting.go_on() is None
    assert waiting.answer == wait.until <= time.monotonic(), "the look is due"


def test_what_is_due_before_the_next_look_ends_the_wait(waiting: Waiting) -> None:
    now = time.monotonic()
    assert waiting.begin(now + SECONDS, latest=now).until == now
    assert waiting.go_on() is None
    assert (waiting.answer, waiting.asked) == (now + SECONDS, 0)


def test_a_source_that_cannot_say_ends_its_connector(waiting: Waiting) -> None:
    def says() -> bool:
        raise ValueError

    waiting.says = says
    waiting.begin(time.monotonic())
    assert waiting.go_on() is None
    assert isinstance(waiting.error, ValueError)
