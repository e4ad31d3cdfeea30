"""Options of `cleanup`: what becomes of a spooled file once nothing is left to do with it."""

from __future__ import annotations

from typing import Literal

from copycat_agent.options import Duration, Field, Options


class CleanupOptions(Options):
    """What becomes of a file once Kafka has every record of it and its offset is on disk."""

    policy: Literal["none", "delete", "move", "move_by_date"] = Field(
        "none",
        description="none: it stays, and is not read again. delete. move: to the directory `to`. "
        "move_by_date: to `to`/YYYY-MM-DD, the day (UTC) it was last changed. A file that is there is never overwritten.",
    )
    to: str | None = Field(None, description="Absolute path of the directory for files that are delivered; made when it is missing.")
    failed_to: str | None = Field(
        None,
        description="Absolute path of the directory for bad files, each with NAME.error.json beside it. Absent: a bad file stays, is not "
        "read again, and is shown as troubled.",
    )
    retain: Duration | None = Field(
        None,
        ge=60,
        description="What this connector put into `to` and `failed_to` is deleted so long after, unless it was changed; absent: never.",
    )
    keep_directories: bool = Field(True, description="false removes subdirectories of `dir` that cleanup has made empty.")
    across_devices: Literal["refuse", "copy"] = Field(
        "refuse",
        description="When `to` or `failed_to` is on another file system than `dir`. "
        "refuse: files stay where they are, and the connector says why. "
        "copy: copy, sync, then delete the original.",
    )
