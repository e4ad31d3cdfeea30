"""Finds out what a batch needs of Spark, by its definition: a query, records that Spark reads, or only a task."""

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
    """Returns the query step of a pickled definition, None without one."""
    definition = pickle.loads(pickled)  # noqa: S301 - from the driver, which is this process
    return sql_step(definition) if isinstance(definition, Definition) else None


@lru_cache(maxsize=256)
def makes_frames(pickled: bytes) -> Callable[[Stretch, SparkSession], DataFrame] | None:
    """Returns the function that makes data frames for the source of a pickled definition; None if Spark does not read it."""
    definition = pickle.loads(pickled)  # noqa: S301 - from the driver, which is this process
    if not isinstance(definition, Definition) or (frame := SOURCES[definition.source.type].frame) is None:
        return None
    return functools.partial(frame, definition.source)


def told_by_source(pickled: bytes, error: BaseException) -> CopycatError | None:
    """Translates an error of a job by the source of its pickled definition. Returns None if the source does not know the error."""
    definition = pickle.loads(pickled)  # noqa: S301 - as above
    told = SOURCES[definition.source.type].told if isinstance(definition, Definition) else None
    return None if told is None else told(error)


def needs_job(pickled: bytes) -> bool:
    """Returns whether batches of a pickled definition need a job of Spark SQL, which a resident task cannot run."""
    return step_of(pickled) is not None or makes_frames(pickled) is not None
