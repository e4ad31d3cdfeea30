"""Random histories of a connector that deletes the files that it has read: what goes was read, and nothing else is lost or repeated by it.

To replay one: `python -m tests.simulation.removed --guarantee exactly_once --seed 17`.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

from copycat_agent.sources.log_file import removal
from tests.simulation.agent import Agent, Clock
from tests.simulation.histories import Whole
from tests.simulation.running import Tell, main, play


class Removing(Whole):
    """`Whole`, with `cleanup`: what an agent has deleted is noticed before anything else happens."""

    def _make_agent(self, directory: Path, pattern: str, keep_open: int) -> Any:
        delivery = {"guarantee": self.guarantee, "tasks_max": self.tasks_max}
        cleanup = {"policy": "delete"}
        return Agent(directory, pattern, delivery, self.tell, max_open_files=keep_open, cleanup=cleanup)

    def step(self) -> None:
        self.notice_deleted()
        super().step()
        self.notice_deleted()

    def _check(self) -> None:
        self.notice_deleted()
        super()._check()

    def notice_deleted(self) -> None:
        """AssertionError for a file that is gone, and holds what nobody has read."""
        for path in [path for path in self.names if not os.path.lexists(path)]:
            file = self.names[path]
            lines = set(self.agent.lines)
            unread = [line for line in (*file.lines, file.unfinished) if line and line not in lines | self.excused]
            assert not unread, f"{path.name} was deleted, and nobody has read {unread}"
            self.tell(f"the agent has deleted {path.name}")
            destroyed = self.destroyed
            self._unname(path, unlink=False)
            self.destroyed = destroyed


def run(seed: int, guarantee: str, tell: Tell = lambda _: None) -> None:
    """One history. Raises AssertionError where a promise is broken."""
    chance = random.Random(f"{seed} {guarantee} removal")
    with ExitStack() as held:
        held.enter_context(Clock().installed())
        held.enter_context(patch.object(removal, "LOOKS", (0.0, 0.0)))
        held.enter_context(patch.object(removal, "AGAIN_SECONDS", 0.0))
        held.enter_context(patch.object(removal.FileRemoval, "is_old", lambda _self, _file: chance.random() < 0.3))
        play(Removing(seed, guarantee, tell))


if __name__ == "__main__":
    main(run)
