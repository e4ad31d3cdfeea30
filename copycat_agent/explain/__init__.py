"""`copycat explain`: what each connector makes of one path, and what an option means. Changes nothing, asks nobody."""

from __future__ import annotations

from copycat_agent.explain.answers import Answer, asked
from copycat_agent.explain.keys import Key, all_keys, find_keys, near_keys
from copycat_agent.explain.obstacles import Refusal

__all__ = ["Answer", "Key", "Refusal", "all_keys", "asked", "find_keys", "near_keys"]
