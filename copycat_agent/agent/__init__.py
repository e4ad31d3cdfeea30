"""The agent: store, Spark, watcher and worker, wired together."""

from __future__ import annotations

from copycat_agent.agent.agent import Agent
from copycat_agent.agent.files import DefinitionFiles, Wanted
from copycat_agent.agent.settings import Settings

__all__ = ["Agent", "DefinitionFiles", "Settings", "Wanted"]
