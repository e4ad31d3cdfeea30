"""The lag of very many files is not looked at in every cycle, that of few is."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from copycat_agent.sources import Lag
from copycat_agent.sources.log_file import views
from copycat_agent.sources.log_file.views import CROWD, KEEP_SECONDS, LagView

if TYPE_CHECKING:
    from copycat_agent.sources.log_file.catalog import Catalog


class Crowd:
    """As much of a catalog as is asked whether it is crowded."""

    def __init__(self, files: int) -> None:
        self.dirty = range(files)

    @property
    def followed(self) -> Crowd:
        """The same files."""
        return self


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Lag]:
    """The lags that were made, one for each look."""
    made: list[Lag] = []

    def look(catalog: Catalog) -> Lag:
        made.append(Lag(files=len(catalog.followed.dirty)))
        return made[-1]

    monkeypatch.setattr(views, "lag_of", look)
    return made


def test_a_crowd_is_looked_at_now_and_then_and_few_files_always(looks: list[Lag]) -> None:
    now, crowd = [1000.0], Crowd(CROWD + 1)
    view = LagView(cast("Catalog", crowd), clock=lambda: now[0])
    assert [view.now().files for _ in range(100)] == [CROWD + 1] * 100
    assert len(looks) == 1
    now[0] += KEEP_SECONDS
    view.now()
    assert len(looks) == 2
    crowd.dirty = range(CROWD)
    assert view.now().files == CROWD, "nothing old is told of few"
    assert [view.now() for _ in range(10)] == looks[-10:]
