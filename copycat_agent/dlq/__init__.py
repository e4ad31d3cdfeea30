"""Dead letters: what `encoding.letters` wrote, read back, and sent again through the definition as it is now."""

from __future__ import annotations

from copycat_agent.dlq.letter import Letter, parse
from copycat_agent.dlq.replay import Replay, ReplayReport
from copycat_agent.dlq.survey import ReplayProgress, Survey, Tally, group_of, latest, saved_progress, survey

__all__ = [
    "Letter",
    "Replay",
    "ReplayProgress",
    "ReplayReport",
    "Survey",
    "Tally",
    "group_of",
    "latest",
    "parse",
    "saved_progress",
    "survey",
]
