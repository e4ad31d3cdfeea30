"""What tests of `run_batch` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.batch import following, refused_record_search
from copycat_agent.producer import ProducerPool, task_memory

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def producers() -> Iterator[ProducerPool]:
    """One process's producers, kept over tests as in a runner."""
    producers = ProducerPool()
    yield producers
    producers.close()


@pytest.fixture(autouse=True)
def _unhurried() -> Iterator[None]:
    """No search, no stop and no stay ends early because the machine is busy. Tests of these limits set their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refused_record_search, "SEARCH_SECONDS", 600.0)
        patch.setattr(task_memory, "SETTLE_SECONDS", 60.0)
        patch.setattr(following, "STAY_SECONDS", 600.0)
        yield
