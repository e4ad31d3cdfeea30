"""What tests of `run_batch` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.producer import ProducerPool

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def producers() -> Iterator[ProducerPool]:
    """One process's producers, kept over tests as in a runner."""
    producers = ProducerPool()
    yield producers
    producers.close()
