"""A redacted archive for a report: how the agent and its host are, without records and secrets."""

from __future__ import annotations

from copycat_agent.bundle.archive import Part, line_of, packed
from copycat_agent.bundle.collecting import Sought, parts
from copycat_agent.bundle.redacting import known_secrets

__all__ = ["Part", "Sought", "known_secrets", "line_of", "packed", "parts"]
