"""`copycat explain`: what each connector makes of one path, and what an option means. Changes nothing, asks nobody."""

from __future__ import annotations

from copycat_agent.workbench.explaining.keys import OptionKey, all_keys, find_keys, near_keys
from copycat_agent.workbench.explaining.path_answers import PathAnswer, Refusal, asked

__all__ = ["OptionKey", "PathAnswer", "Refusal", "all_keys", "asked", "find_keys", "near_keys"]
