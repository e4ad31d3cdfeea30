"""Which batches have a query: those take another way through Spark."""

from __future__ import annotations

import pickle
from functools import lru_cache

from copycat_agent.options import Definition
from copycat_agent.transforms.queries import sql_step
from copycat_agent.transforms.sql import SqlStep


@lru_cache(maxsize=256)
def step_of(pickled: bytes) -> SqlStep | None:
    """The query of a pickled definition, None when it has none."""
    definition = pickle.loads(pickled)  # noqa: S301 - from the driver, which is this process
    return sql_step(definition) if isinstance(definition, Definition) else None
