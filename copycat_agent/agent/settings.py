"""What an agent is told before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copycat_agent.options import AgentOptions


@dataclass(frozen=True, slots=True)
class Settings:
    """The agent's options as they hold for this call, and where state is kept."""

    agent: AgentOptions
    state_dir: Path
