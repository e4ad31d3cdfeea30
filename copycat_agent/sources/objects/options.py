"""Options of source `objects`."""

from __future__ import annotations

import posixpath
from typing import Literal

from copycat_agent.extending import Duration, FatalError, Field, FilesOptions, Options, Patterns, parse_address

NOTIFY_SECONDS = 1.0
"""Seconds between two reads of the queue."""
S3_OPTIONS = ("region", "endpoint_override", "scheme", "profile")
_OF_BACKFILL = ("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open")
"""Further options of pyarrow, accepted so that `copycat backfill` can use the same address."""


class ObjectCleanup(Options):
    """What becomes of an object once Kafka has every record of it and that is saved."""

    policy: Literal["none", "delete", "move", "tag"] = Field(
        "none",
        description="none: it stays, and is not read again. delete. move: below `to`, under its name behind the last slash of `uri`. "
        "tag: it gets the tag `tag` (s3 only).",
    )
    to: str | None = Field(None, description="Where move puts them: a path in the same bucket or file system, as in /done/.")
    tag: str = Field("copycat=delivered", pattern=r"^[A-Za-z0-9 +\-._:/@]{1,128}=[A-Za-z0-9 +\-._:/@]{0,256}$", description="name=value.")

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for options that exclude or lack each other."""
        if (self.policy == "move") != (self.to is not None):
            raise ValueError("cleanup.to and cleanup.policy: move need each other")
        if self.to is not None and not self.to.startswith("/"):
            raise ValueError("cleanup.to begins with a slash: it is a path in the same bucket or file system")


class NotifyOptions(Options):
    """Where events of the store tell of new objects."""

    sqs: str = Field(
        pattern=r"^https?://[^\s@?#]+$",
        description="URL of an SQS queue that gets the bucket's ObjectCreated events, from S3 itself, through SNS or EventBridge. This "
        "connector alone reads it; a message is deleted once what it tells of is saved.",
    )


class ObjectsOptions(FilesOptions):
    """Objects of a store, or files of a tree, each read once.

    They are read in the order of their names. What arrives late, under a lower name or with an older time, is found by a look back
    at each poll, and by a sweep through all names, a part at each poll. An object that is replaced is read again, whole; one that is
    put again with the very same content is not. Names that end with a slash are none.
    """

    type: Literal["objects"] = Field("objects", description="Objects of a store, or files of a tree, followed for ever.")
    uri: str = Field(
        min_length=1,
        description="Address of the bucket and the directory below which all names are read: s3, gs, abfss, hdfs, file. Credentials are "
        "where the store's SDK looks for them. Options behind a question mark: s3://logs/app/?region=eu-central-1",
    )
    pattern: Patterns = Field(
        ("*",), description="Names to read: by the part behind the last slash, or by all behind the prefix of `uri` when they hold a slash."
    )
    exclude: Patterns = Field((), description="Patterns to leave out, as `pattern`.")
    poll_interval: Duration = Field(5.0, ge=0.1, le=86400, description="Time between two listings while nothing is new.")
    look_back: Duration = Field(
        600.0,
        ge=0,
        le=7 * 86400,
        description="In a large bucket, a poll lists only from the greatest name that has not changed for this long, 1,000 names back at "
        "most, overall and in each directory with new objects. A late object whose name sorts after that is found at once.",
    )
    relist: Duration = Field(
        600.0,
        ge=1,
        le=7 * 86400,
        description="Polls list everything once in this time, a part each, so any late object is found within it.",
    )
    start_at: Literal["beginning", "end"] = Field(
        "beginning",
        description="end: objects that are there when the connector begins are not read, nor what comes later under a time that is more "
        "than a day older than theirs.",
    )
    min_age: Duration | None = Field(
        None, ge=0, le=86400, description="Objects are read once they were not changed for so long. 0s; with file and hdfs 5s."
    )
    notify: NotifyOptions | None = Field(
        None, description="New objects are read within a second or two of their event; polls find all others (s3 only)."
    )
    cleanup: ObjectCleanup = Field(ObjectCleanup(), description="What becomes of objects that are delivered.")

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for a bad address, and for options that exclude each other."""
        try:
            address = parse_address(self.uri)
        except FatalError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None
        if any(one in address.path for one in "*["):
            raise ValueError("uri holds no pattern: it is a prefix, and source.pattern says which names below it")
        asked = [one.partition("=")[0] for one in address.query.split("&") if one]
        if address.scheme == "s3" and (unknown := [one for one in asked if one not in (*S3_OPTIONS, *_OF_BACKFILL)]):
            raise ValueError(f"uri has an option that is not known: {unknown[0]}; known are {', '.join(S3_OPTIONS)}")
        plain = _plain_path if address.scheme in ("file", "hdfs", "viewfs") else str
        if self.cleanup.to is not None and f"{plain(self.cleanup.to).rstrip('/')}/".startswith(f"{plain(address.path).rstrip('/')}/"):
            raise ValueError("cleanup.to lies below source.uri: what is moved there would be read again")
        if address.scheme != "s3" and (self.cleanup.policy == "tag" or self.notify is not None):
            raise ValueError("cleanup.policy: tag and notify are for s3 alone")

    @property
    def look_seconds(self) -> float:
        """The queue is read more often than names are listed."""
        return self.poll_interval if self.notify is None else min(NOTIFY_SECONDS, self.poll_interval)


def _plain_path(path: str) -> str:
    """Returns the path of a file system without "." and "..", and with single slashes."""
    return posixpath.normpath(f"/{path.lstrip('/')}")
