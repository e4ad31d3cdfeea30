"""What all tests of sources need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.sources import rig

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _sources_are_closed() -> Iterator[None]:
    """No file stays open behind a test."""
    yield
    rig.close_all()
