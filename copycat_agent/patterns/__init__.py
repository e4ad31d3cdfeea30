r"""Patterns that never hang: regular expressions in Python's spelling, safe on any text.

A backtracking engine may need time that doubles with each character: `(a+)+$`. `compile_pattern` finds out beforehand how the work grows
with the text's length. Where it grows in step with it, the pattern is Python's own `re`, at full speed; where it grows faster, only texts
short enough are left to `re`, and the others, or all, go to an engine that gives up after `TIMEOUT_SECONDS`: a `DataError`.
"""

from __future__ import annotations

from copycat_agent.patterns.pattern import TIMEOUT_SECONDS, Match, Pattern, Repl, Stop, compile_pattern, where_it_stopped

__all__ = ["TIMEOUT_SECONDS", "Match", "Pattern", "Repl", "Stop", "compile_pattern", "where_it_stopped"]
