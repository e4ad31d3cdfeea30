"""Times in texts: formats, zones and years, from a text to epoch milliseconds. Compiled once, remembered while texts repeat."""

from __future__ import annotations

from copycat_agent.transforms.times.clocks import LOCAL, find_zone
from copycat_agent.transforms.times.layouts import EPOCH_UNITS
from copycat_agent.transforms.times.time_reading import Times, compile_times

__all__ = ["EPOCH_UNITS", "LOCAL", "Times", "compile_times", "find_zone"]
