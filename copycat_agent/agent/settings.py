"""What an agent is told before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copycat_agent.options import AgentOptions


@dataclass(frozen=True, slots=True)
class Settings:
    """The agent's options as they hold for this call, where state is kept, and where it answers (None: nowhere)."""

    agent: AgentOptions
    state_dir: Path
    socket_path: Path | None = None
