"""What somebody else's reader raised, told without what it said."""

from __future__ import annotations

from pathlib import Path

from copycat_agent.registry import told


def fault(error: BaseException, name: str) -> str:
    """Type and place, where the reader of class `name` (`package.module:Class`) came to it. Its text may hold data or secrets."""
    package, place, trace = name.partition(":")[0].partition(".")[0], "", error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            place = f"{type(error).__name__} at {Path(frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place or told(error)
