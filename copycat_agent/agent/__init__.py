"""The agent: store, Spark, watcher and worker, wired together."""

from __future__ import annotations

from copycat_agent.agent.agent import Agent, Settings
from copycat_agent.agent.files import DefinitionFiles, WantedDefinitions

__all__ = ["Agent", "DefinitionFiles", "Settings", "WantedDefinitions"]
