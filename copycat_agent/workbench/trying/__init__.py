"""Samples through the real pipeline, without Kafka and without offsets: what becomes of each record, and by which step.

`take` is what `copycat try` shows; `run_tests` runs the `tests:` of a definition.
"""

from __future__ import annotations

from copycat_agent.workbench.trying.cases import ABSENT, CaseMismatch, CaseOutcome, Difference, run_tests, take_case
from copycat_agent.workbench.trying.results import (
    Fate,
    Fields,
    Output,
    StepTrace,
    Stopped,
    TrialResult,
    TriedRecord,
    Where,
    likely_path,
    stopped,
)
from copycat_agent.workbench.trying.sample_run import MOST_RECORDS, StandIn, StandIns, take
from copycat_agent.workbench.trying.tracing import QueryStep

__all__ = [
    "ABSENT",
    "MOST_RECORDS",
    "CaseMismatch",
    "CaseOutcome",
    "Difference",
    "Fate",
    "Fields",
    "Output",
    "QueryStep",
    "StandIn",
    "StandIns",
    "StepTrace",
    "Stopped",
    "TrialResult",
    "TriedRecord",
    "Where",
    "likely_path",
    "run_tests",
    "stopped",
    "take",
    "take_case",
]
