"""Samples through the real pipeline, without Kafka and without offsets: what becomes of each record, and by which step.

`take` is what `copycat try` shows; `run_tests` runs the `tests:` of a definition.
"""

from __future__ import annotations

from copycat_agent.samples.cases import Mismatch, Outcome, run_tests, take_case
from copycat_agent.samples.comparing import ABSENT, Difference
from copycat_agent.samples.model import Fate, Fields, Output, Sampled, Samples, StepTrace
from copycat_agent.samples.standin import StandIn, StandIns
from copycat_agent.samples.stopped import Stopped, stopped
from copycat_agent.samples.taking import MOST_RECORDS, likely_path, take
from copycat_agent.samples.tracing import Query, Where

__all__ = [
    "ABSENT",
    "MOST_RECORDS",
    "Difference",
    "Fate",
    "Fields",
    "Mismatch",
    "Outcome",
    "Output",
    "Query",
    "Sampled",
    "Samples",
    "StandIn",
    "StandIns",
    "StepTrace",
    "Stopped",
    "Where",
    "likely_path",
    "run_tests",
    "stopped",
    "take",
    "take_case",
]
