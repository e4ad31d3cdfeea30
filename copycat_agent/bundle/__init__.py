"""A redacted archive for a report: how the agent and its host are, without records and secrets."""

from __future__ import annotations

from copycat_agent.bundle.collecting import BundlePart, Sought, line_of, packed, parts
from copycat_agent.bundle.redacting import known_secrets

__all__ = ["BundlePart", "Sought", "known_secrets", "line_of", "packed", "parts"]
