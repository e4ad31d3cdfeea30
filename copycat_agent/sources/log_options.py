"""Options of source `log_file`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.formats import LineOptions
from copycat_agent.options import Duration, Field, SourceOptions


class LogFileOptions(SourceOptions):
    """Options of `type: log_file`."""

    type: Literal["log_file"] = Field(description="Log files that grow.")
    include: tuple[str, ...] = Field(
        min_length=1, description="Absolute paths or glob patterns: *, ?, [...] within a name, ** for directories."
    )
    exclude: tuple[str, ...] = Field((), description="Patterns to leave out: by file name, or by whole path when they hold a slash.")
    start_at: str = Field(
        "beginning",
        description="Where to begin with files that are there when this connector first runs: beginning, end, or an RFC 3339 time "
        "(files last changed before it are begun at their end). Later files are read from their beginning.",
    )
    line: LineOptions = Field(LineOptions(), description="What a line is.")
    scan_interval: Duration = Field(5.0, ge=0.1, le=3600, description="Time between two looks at all directories.")
    watch: Literal["auto", "poll"] = Field("auto", description="auto: file-system events hasten a look. poll: only scan_interval does.")
    rotate_wait: Duration = Field(
        300.0, ge=0, description="A renamed or deleted file is kept open until it is read and has been quiet this long."
    )
    max_open_files: int = Field(512, ge=1, le=100_000, description="Files kept open at a time.")
    follow_symlinks: bool = Field(False, description="true reads what symbolic links below the patterns' fixed part point to.")
    forget_after: Duration = Field(7 * 86400.0, ge=1, description="Offsets of files that are gone are kept this long.")
