"""Dead letters: what `encoding.letters` wrote, read back, and sent again through the definition as it is now."""

from __future__ import annotations

from copycat_agent.dlq.letter import Letter, parse
from copycat_agent.dlq.progress import Progress, group_of
from copycat_agent.dlq.replay import Replay, Report
from copycat_agent.dlq.saved import saved_progress
from copycat_agent.dlq.survey import Survey, Tally, latest, survey

__all__ = ["Letter", "Progress", "Replay", "Report", "Survey", "Tally", "group_of", "latest", "parse", "saved_progress", "survey"]
