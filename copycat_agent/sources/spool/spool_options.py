"""Options of source `spool_dir`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.options import Duration, Field, Options, SourceOptions


class ReadyOptions(Options):
    """When a file is complete."""

    min_age: Duration | None = Field(
        None, ge=0, description="Size and time of change are the same for so long. 5s; 0s when only done_file is given."
    )
    done_file: str | None = Field(
        None, description='Name of the file that says a file is complete, as in "{name}.done"; it is cleaned up with it.'
    )


class CleanupOptions(Options):
    """What becomes of a file once Kafka has every record of it and its offset is on disk."""

    policy: Literal["none", "delete", "move", "move_by_date"] = Field(
        "none",
        description="none: it stays, and is not read again. delete. move: to the directory `to`. move_by_date: to `to`/YYYY-MM-DD, the day it was last changed.",
    )
    to: str | None = Field(None, description="Absolute path of the directory for files that are delivered.")
    failed_to: str | None = Field(None, description="Absolute path of the directory for bad files.")
    retain: Duration | None = Field(
        None, ge=60, description="Files in `to` and `failed_to` are deleted so long after they were put there; absent: never."
    )
    keep_directories: bool = Field(True, description="false removes subdirectories that cleanup has made empty.")


class SpoolDirOptions(SourceOptions):
    """Whole files that are dropped into a directory and read once."""

    type: Literal["spool_dir"] = Field("spool_dir", description="Reads files that are dropped into a directory.")
    dir: str = Field(description="Absolute path of the directory.")
