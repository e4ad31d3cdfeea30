"""What these tests work with: journals, and a connector that reads them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.extending import LostRecords
from copycat_agent.sources import SOURCES
from copycat_agent.sources.journald.journald_source import JournaldSource
from tests.rig.journals import MISSING
from tests.rig.shipping import Shipping, running_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.extending import Stretch

needs_journals = pytest.mark.skipif(bool(MISSING), reason=MISSING or "there are journals")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A directory for journals, which is not there yet."""
    return tmp_path / "journal"


@pytest.fixture
def shipping(tmp_path: Path, broker: DevBroker, make_topic: Callable[..., str]) -> Iterator[Shipping]:
    """A connector of the real worker on a real broker, whose batches run in this process; not started."""
    with running_here(Shipping, tmp_path, "app", broker.bootstrap, make_topic()) as shipping:
        yield shipping


class Reading:
    """The source without an agent: what a look finds is read, and where that ends is saved."""

    def __init__(self, directory: Path, position: Any = None, **options: Any) -> None:
        model = SOURCES["journald"].options
        chosen = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        self.source = JournaldSource(model.model_validate({"type": "journald", "directory": str(directory), **chosen}))  # type: ignore[arg-type]
        (found,) = self.source.look({}, to_the_end=False)
        self.key = found.key
        self.position = found.start if position is None else position
        self.lost: list[LostRecords] = []

    def look(self, *, to_the_end: bool = False) -> Stretch | None:
        """What is to be read next."""
        (found,) = self.source.look({self.key: self.position}, to_the_end=to_the_end)
        return self.source.plan(found, self.position)

    def read(self, most: int | None = None, *, to_the_end: bool = False) -> list[Any]:
        """The entries of what is to be read next, all or the first `most`; what was lost is in `lost`."""
        stretch = self.look(to_the_end=to_the_end)
        if stretch is None:
            return []
        found: list[Any] = []
        last: Any = None
        reading: Any = self.source.read(stretch)
        with contextlib.closing(reading):
            for record, position in reading:
                if isinstance(record, LostRecords):
                    self.lost.append(record)
                else:
                    found.append(record)
                last = position
                if len(found) == most:
                    break
        self.position = self.source.apply(stretch, last, finished=most is None or len(found) < most)
        return found

    def messages(self, most: int | None = None) -> list[str]:
        """The same, only what was written as MESSAGE."""
        return [one["MESSAGE"] for one in self.read(most)]
