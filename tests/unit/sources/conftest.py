"""What all tests of sources need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.sources.log_file import file_closer, file_planner
from copycat_agent.sources.spool_dir.cleanup import cleaner, copies, target_notes
from tests.unit.sources import rig

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _sources_are_closed() -> Iterator[None]:
    """No file stays open behind a test."""
    yield
    rig.close_all()


@pytest.fixture(autouse=True)
def _unhurried() -> Iterator[None]:
    """Between two lines of a test on a busy machine as much time may pass as counts for a source. Tests of these limits set their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_planner, "UNSEEN_SECONDS", 600.0)
        patch.setattr(file_closer, "LAST_LINE_SECONDS", 30.0)
        patch.setattr(cleaner, "CALL_SECONDS", 600.0)
        patch.setattr(copies, "STEP_SECONDS", 600.0)
        patch.setattr(target_notes, "PASS_SECONDS", 600.0)
        yield
