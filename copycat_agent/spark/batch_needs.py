"""What a batch needs of Spark, by its definition: a query that is answered, records that are read, or a task alone."""

from __future__ import annotations

import functools
import pickle
from functools import lru_cache
from typing import TYPE_CHECKING

from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import sql_step
from copycat_agent.transforms.sql import SqlStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from copycat_agent.errors import CopycatError
    from copycat_agent.model import Stretch


@lru_cache(maxsize=256)
def step_of(pickled: bytes) -> SqlStep | None:
    """The query of a pickled definition, None when it has none."""
    definition = pickle.loads(pickled)  # noqa: S301 - from the driver, which is this process
    return sql_step(definition) if isinstance(definition, Definition) else None


@lru_cache(maxsize=256)
def makes_frames(pickled: bytes) -> Callable[[Stretch, SparkSession], DataFrame] | None:
    """How the source of a pickled definition has its records read by Spark; None for one that does not."""
    definition = pickle.loads(pickled)  # noqa: S301 - from the driver, which is this process
    if not isinstance(definition, Definition) or (frame := SOURCES[definition.source.type].frame) is None:
        return None
    return functools.partial(frame, definition.source)


def told_by_source(pickled: bytes, error: BaseException) -> CopycatError | None:
    """What the source of a pickled definition says of an error in a job of its own; None where it is not the source's."""
    definition = pickle.loads(pickled)  # noqa: S301 - as above
    told = SOURCES[definition.source.type].told if isinstance(definition, Definition) else None
    return None if told is None else told(error)


def needs_job(pickled: bytes) -> bool:
    """Whether batches of a pickled definition are jobs of Spark's SQL, which a resident task cannot run."""
    return step_of(pickled) is not None or makes_frames(pickled) is not None
