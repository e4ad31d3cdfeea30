"""Sources: what is there, is it the same, where were we. A new source is one file and one line in `SOURCES`."""

from __future__ import annotations

from copycat_agent.sources.base import Changes, FileState, FileView, Lag, Offsets, Plan, Source, SourceKind, only_looking
from copycat_agent.sources.log_file import LOG_FILE
from copycat_agent.sources.spool.spool_dir import SPOOL_DIR

__all__ = ["SOURCES", "Changes", "FileState", "FileView", "Lag", "Offsets", "Plan", "Source", "SourceKind", "only_looking"]

SOURCES: dict[str, SourceKind] = {"log_file": LOG_FILE, "spool_dir": SPOOL_DIR}
