"""A producer that was closed is gone at once: no thread and no connection of it waits for the collector of garbage."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.dev_broker import free_port
from copycat_agent.errors import CopycatError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import TaskProducer
from copycat_agent.producer.transactional import KafkaSteps
from tests.rig.threads import held
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def uncollected() -> Iterator[None]:
    """As in a quiet process, whose oldest generation is hardly ever collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def nowhere() -> KafkaOptions:
    return KafkaOptions(bootstrap_servers=(f"127.0.0.1:{free_port()}",))


def refused(ask: Callable[[], object]) -> CopycatError:
    """What it raised, with its frames, as a batch keeps it."""
    try:
        ask()
    except CopycatError as error:
        return error
    raise AssertionError("a topic was found where no broker is")


def in_a_lane(options: KafkaOptions) -> CopycatError:
    """One attempt. The frame of this function, with what it keeps, is among those of the error."""
    steps = KafkaSteps(options, "test", stopping=lambda: True)
    handle = steps.prepare("copycat.u.app.0.0")
    failure = refused(lambda: handle.topics.partitions("there.is.none"))
    steps.close(handle)
    steps.close()
    return failure


def in_a_task(options: KafkaOptions) -> CopycatError:
    """As `in_a_lane`."""
    producer = TaskProducer(options, "test")
    producer.begin(lambda: True)
    failure = refused(lambda: producer.topics.partitions("there.is.none"))
    producer.close()
    return failure


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("attempt", [in_a_lane, in_a_task])
def test_an_error_that_somebody_keeps_keeps_no_client(attempt: Callable[[KafkaOptions], Any]) -> None:
    options = nowhere()
    before = held()
    attempt(options)
    wait_until(lambda: held() <= before, 60, f"threads and files: {before} before")
