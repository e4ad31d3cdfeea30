"""Options of source `spool_dir`, and of its `cleanup`."""

from __future__ import annotations

from typing import Annotated, Literal

from copycat_agent.formats.records.byte_records import FormatOption, LinesOptions
from copycat_agent.options import Discriminator, Duration, Field, Options, Patterns, Regex, SourceOptions, Tag
from copycat_agent.sources.files.packing.unpacking import CompressionOption, UnpackOption, UnpackOptions


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


class ReadyOptions(Options):
    """When a file is complete."""

    min_age: Duration | None = Field(
        None, ge=0, description="Size and time of change are the same for so long. 5s; 0s when only done_file is given."
    )
    done_file: str | None = Field(
        None, description='Name of the file that says a file is complete, as in "{name}.done"; it is cleaned up with it.'
    )


class OrderByPart(Options):
    """A part of the name that files are begun in the order of."""

    regex: Regex = Field(
        description="It is looked for in the name; its first group counts, or all of it without one. Digits alone count as a number. Names "
        "in which it is not found, or not in time, go last."
    )


def _kind_of_order(value: object) -> str:
    return "part" if isinstance(value, dict | OrderByPart) else "word"


class SpoolDirOptions(SourceOptions):
    """Whole files that are dropped into a directory and read once.

    Never read, whatever `pattern` says: names that begin with a dot, and those that programs give to unfinished files
    (.tmp .part .partial .filepart .crdownload .swp .processing, and a ~ at the end). A file that was read is the same file under another
    name; one that is dropped again under its name with the very same content is a repeat, and not sent again.
    """

    type: Literal["spool_dir"] = Field("spool_dir", description="Whole files that are dropped into a directory.")
    dir: str = Field(min_length=1, description="Absolute path of the directory.")
    pattern: Patterns = Field(("*",), description="Names of the files: a pattern with *, ?, [...], or a list of them.")
    exclude: Patterns = Field((), description="Patterns to leave out: by file name, or by whole path when they hold a slash.")
    recursive: bool = Field(False, description="true looks into all directories below as well, but not into those that begin with a dot.")
    ready: ReadyOptions = Field(ReadyOptions(), description="When a file is complete.")
    scan_interval: Duration = Field(5.0, ge=0.1, le=3600, description="Time between two looks at the directory.")
    watch: Literal["auto", "poll"] = Field("auto", description="auto: file-system events hasten a look. poll: only scan_interval does.")
    order_by: Annotated[
        Annotated[Literal["mtime", "name", "size", "none"], Tag("word")] | Annotated[OrderByPart, Tag("part")],
        Discriminator(_kind_of_order),
    ] = Field(
        "mtime",
        description="Which of the files that are ready is begun first; equal ones go by name. A file that is begun is finished before "
        "its task begins another. none: as they come, and large ones let others go ahead after each "
        "batch. {regex: RE}: by a part of the name.",
    )
    descending: bool = Field(False, description="true begins with the newest, the last name, or the largest.")
    format: FormatOption = LinesOptions()
    compression: CompressionOption = "auto"
    unpack: UnpackOption = UnpackOptions()
    cleanup: CleanupOptions = Field(CleanupOptions(), description="What becomes of files that are delivered, and of bad ones.")
    on_bad_file: Literal["quarantine", "stop"] = Field(
        "quarantine",
        description="A file that cannot be read to its end: quarantine sends what comes before the damage, sets the file aside (see "
        "cleanup.failed_to) and goes on with the next. stop: the connector fails there, until the file is repaired or taken away.",
    )
    on_changed_file: Literal["stop", "continue"] = Field(
        "stop",
        description="A file that somebody writes to while it is read. stop: the file stays where it is, with an error, and is not read "
        "on; other files go on. continue: it is read on once it is ready again, from its beginning when what was read of it is not the "
        "same any more.",
    )
    follow_hard_links: bool = Field(
        False,
        description="A new file with several hard links is passed over where the kernel lets anybody link other users' files "
        "(fs.protected_hardlinks is 0, or cannot be read), unless it belongs to the agent's user, or to the owner of its directory and "
        "nobody else may write there. true reads it.",
    )
    forget_after: Duration = Field(
        7 * 86400.0,
        ge=1,
        description="What is known of files that were seen to be gone is kept this long, of at most 100,000 of them; of files "
        "that are excluded, or cannot be looked for, it is kept.",
    )
