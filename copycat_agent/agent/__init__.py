"""The agent: store, Spark, watcher and worker, wired together."""

from __future__ import annotations

from copycat_agent.agent.agent import Agent
from copycat_agent.agent.files import NO_ADDRESS, DefinitionFiles, Wanted
from copycat_agent.agent.settings import Settings

__all__ = ["NO_ADDRESS", "Agent", "DefinitionFiles", "Settings", "Wanted"]
