"""Options of sink `files`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from copycat_agent.errors import FatalError
from copycat_agent.options import AfterValidator, ByteSize, Duration, Field, Options, SinkOptions, ValidationInfo
from copycat_agent.sinks.sink_stores import check_address

FileFormat = Literal["jsonl", "lines", "csv", "binary", "parquet", "avro"]
Compression = Literal["none", "gzip", "zstd", "snappy", "lz4"]

COMPRESSIONS: dict[FileFormat, tuple[Compression, ...]] = {
    "jsonl": ("none", "gzip", "zstd"),
    "lines": ("none", "gzip", "zstd"),
    "csv": ("none", "gzip", "zstd"),
    "binary": ("none",),
    "parquet": ("none", "gzip", "zstd", "snappy", "lz4"),
    "avro": ("none", "gzip", "zstd", "snappy"),
}
"""Compressions that each format supports."""

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


def _address(uri: str) -> str:
    try:
        check_address(uri)
    except FatalError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None
    return uri


def _of_format(compression: Compression, info: ValidationInfo) -> Compression:
    form = info.data.get("format")  # None: that is bad itself
    if form is not None and compression not in COMPRESSIONS[form]:
        raise ValueError(f"format {form} takes compression {', '.join(COMPRESSIONS[form])}")
    return compression


def _without_colon(path: str, info: ValidationInfo) -> str:
    if str(info.data.get("uri")).startswith("hdfs:") and ":" in _PLACEHOLDER.sub("", path):
        raise ValueError("HDFS takes no names with a colon; those of values are written as %3A")
    return path


class RollOptions(Options):
    """When a file is written. What comes first does it; until then Kafka keeps the records."""

    records: int = Field(1_000_000, ge=1, le=100_000_000, description="A file is written after this many records of a partition.")
    bytes: ByteSize = Field(
        256 * 2**20, ge=64 * 2**10, description="Or after this many bytes of a partition's records, as they are in Kafka."
    )
    age: Duration = Field(600.0, ge=0.1, le=7 * 86400, description="Or once the oldest record has waited for this long.")
    idle: Duration | None = Field(None, ge=0.1, le=7 * 86400, description="Or once nothing new has come for this long; never if absent.")


class FilesSinkOptions(SinkOptions):
    """Files of a store or a file system, written once and complete, under names that say which offsets they hold."""

    type: Literal["files"] = Field("files", description="Files of a store.")
    uri: Annotated[str, AfterValidator(_address)] = Field(
        min_length=1,
        description="Directory below which files are written: file:///srv/lake/orders/, s3://lake/orders/?region=eu-central-1; gs, "
        "abfss and hdfs://NAMENODE:8020/lake/. Credentials are where the store's SDK looks for them.",
    )
    path: Annotated[str, AfterValidator(_without_colon)] = Field(
        "{@topic}", min_length=1, description="Template of a file's directory below `uri`, such as {@topic}/dt={@timestamp:%Y-%m-%d}."
    )
    format: FileFormat = Field("jsonl", description="Format of the files.")
    compression: Annotated[Compression, AfterValidator(_of_format)] = Field(
        "none", description="How they are compressed. zstd or snappy is usual for parquet."
    )
    roll: RollOptions = Field(RollOptions(), description="When a file is written.")

    @property
    def has_topics(self) -> bool:
        return False

    @property
    def address(self) -> str:
        """The address of the directory, without the store's options."""
        return f"{check_address(self.uri).shown.rstrip('/')}/"

    @property
    def prefix_bytes(self) -> int:
        address = check_address(self.uri)
        return 0 if address.scheme in ("file", "hdfs") else len(address.path.strip("/").encode())

    @property
    def places(self) -> tuple[str, ...]:
        address = check_address(self.uri)
        literal = re.sub(r"([*?[])", r"[\1]", address.path.rstrip("/"))
        return (f"{literal}/*",) if address.scheme == "file" else ()
