"""What `copycat demo` shows: made-up logs that grow and rotate, the definitions that ship them, and the proof afterwards."""

from __future__ import annotations

from copycat_agent.demo.definitions import TOPICS, write_definitions
from copycat_agent.demo.proof import Proof, prove
from copycat_agent.demo.traffic import Traffic

__all__ = ["TOPICS", "Proof", "Traffic", "prove", "write_definitions"]
