"""Options of source `log_file`."""

from __future__ import annotations

from typing import Literal

from copycat_agent.formats import LineOptions, MultilineOptions
from copycat_agent.options import Duration, Field, Options, SourceOptions


class LogCleanupOptions(Options):
    """What becomes of a log file once all that it holds is in Kafka, and saved as read."""

    policy: Literal["none", "delete"] = Field(
        "none",
        description="none: it stays. delete: it is deleted, unless it is empty, its last line has no end, or a program has it open for "
        "writing. Of packed files those that were read to their end since the agent began.",
    )
    after: Duration = Field(3600.0, ge=1, description="A file is deleted when nobody has written to it, or renamed it, for so long.")


class LogFileOptions(SourceOptions):
    """Options of `type: log_file`."""

    type: Literal["log_file"] = Field(description="Log files that grow.")
    include: tuple[str, ...] = Field(
        min_length=1, description="Absolute paths or glob patterns: *, ?, [...] within a name, ** for directories."
    )
    exclude: tuple[str, ...] = Field((), description="Patterns to leave out: by file name, or by whole path when they hold a slash.")
    start_at: str = Field(
        "beginning",
        description="Where to begin with files that are there when this connector first runs: beginning, end, or an RFC 3339 time: at "
        "the first line that says it was written then or later, or, where lines do not say when, at the end of files last changed before "
        "it. Later files are read from their beginning.",
    )
    ignore_older: Literal["off"] | Duration = Field(
        "off",
        description="A file that is new to this connector and was last changed longer ago is begun at its end: only what is appended "
        "later is sent. off: no file is too old.",
    )
    encoding: str = Field(
        "utf-8",
        min_length=1,
        max_length=64,
        description="What the files are encoded in: a codec of Python, or auto: what the byte order mark says, UTF-8 without one. Values "
        "go as UTF-8; of UTF-8 files, and with `converters: {value: bytes}`, as the bytes that they are.",
    )
    line: LineOptions = Field(LineOptions(), description="What a line is.")
    compression: Literal["auto", "none"] = Field(
        "auto",
        description="auto: files that are packed as gzip, zstd, bzip2, xz, lz4 or snappy, by their first bytes, are read as what they "
        "hold. none: their bytes are taken as they are.",
    )
    multiline: MultilineOptions | None = Field(None, description="Records of several lines; absent: each line is one.")
    scan_interval: Duration = Field(5.0, ge=0.1, le=3600, description="Time between two looks at all directories.")
    watch: Literal["auto", "poll"] = Field("auto", description="auto: file-system events hasten a look. poll: only scan_interval does.")
    rotate_wait: Duration = Field(
        300.0, ge=0, description="A renamed or deleted file is kept open until it is read and has been quiet this long."
    )
    hold_deleted: Literal["forever"] | Duration = Field(
        "forever",
        description="A deleted file that is not read yet is kept open, and takes up disk space, at most this long after it was deleted. "
        "Then what is left of it is given up and counted as lost. Under systemd it stays open over a crash of the agent and `systemctl "
        "restart`; with `systemctl stop`, and outside systemd when the agent ends, what is unread of it is lost and counted.",
    )
    max_open_files: int = Field(512, ge=1, le=100_000, description="Files kept open at a time.")
    follow_symlinks: bool = Field(
        False,
        description="true reads what symbolic links below the patterns' fixed parts (up to the first wildcard) point to, while that is "
        "beneath a fixed part or one of symlink_roots.",
    )
    symlink_roots: tuple[str, ...] = Field((), description="Directories that followed links may lead into, beside the patterns' own.")
    follow_hard_links: bool = Field(
        False,
        description="A new file with several hard links is passed over where the kernel lets anybody link other users' files "
        "(fs.protected_hardlinks is 0, or cannot be read), unless it belongs to the agent's user, or to the owner of its directory and "
        "nobody else may write there. true reads it.",
    )
    cleanup: LogCleanupOptions = Field(LogCleanupOptions(), description="What becomes of files that are read.")
    forget_after: Duration = Field(
        7 * 86400.0,
        ge=1,
        description="Offsets of files that were seen to be gone are kept this long, at most 100,000 of them; those of files that are "
        "excluded, or cannot be looked for, are kept.",
    )

    @property
    def reads_all(self) -> bool:
        """Returns whether nothing of a file is left out on purpose: then what is before a saved position was read."""
        return (self.start_at, self.ignore_older) == ("beginning", "off")
