"""A definition, compiled once per process: from framed bytes to what `produce` takes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache

from copycat_agent.batch.bound import Bound
from copycat_agent.batch.recipe import Recipe
from copycat_agent.batch.shaping import Headers, StageError, host_name, origin_headers
from copycat_agent.batch.window import BoundWindow
from copycat_agent.errors import FatalError
from copycat_agent.model import Split
from copycat_agent.registry import told

__all__ = ["Bound", "Headers", "Pipeline", "StageError", "compiled", "host_name", "origin_headers"]


@lru_cache(maxsize=256)
def compiled(pickled: bytes) -> Pipeline:
    """The pipeline of a pickled definition, kept by the definition's bytes. Called by `run_batch` in every process."""
    try:
        definition = pickle.loads(pickled)  # noqa: S301 - from the driver, over an authenticated socket
    except (ImportError, AttributeError) as error:  # a part of an installed package, which the driver has
        words = f"a task cannot read the definition: {told(error)}"
        raise FatalError(words, "install the package that the definition uses for the Python that runs the agent's tasks") from None
    return Pipeline(definition)


class Pipeline(Recipe):
    """What a definition does to a record. Stateless after construction; shared by threads."""

    def bind(
        self, split: Split, partitions: Callable[[str], int], run: int, host: str | None = None, window: BoundWindow | None = None
    ) -> Bound:
        """The pipeline for the records of one split. `partitions` gives a topic's partition count; `run` rotates sticky ones.

        `host` is the one with the file, None for this one. Raises DataError when a template cannot be rendered for any record of this file.
        """
        return Bound(self, split, partitions, run, host_name() if host is None else host, window)
