"""Records, and what their file says of them."""

from __future__ import annotations

from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column of a file. `type` is spelt as Spark SQL does: `string`, `bigint`, `decimal(10,2)`, `array<string>`, `struct<a: int>`."""

    name: str
    type: str = "string"
    nullable: bool = True


class Schema(NamedTuple):
    """What a file says its records look like: from its header, or its own schema. `avro` is that, as JSON, of an Avro file."""

    columns: tuple[Column, ...]
    avro: str = ""


class Record(NamedTuple):
    """One record on its way to Kafka.

    `value` is the framed bytes, or a dict of fields once a transform has made some. `start` and `end` are the bytes it
    covers in its file, delimiter included; `number` counts from 1 within the file. `timestamp_ms` is the event time in
    epoch milliseconds, None when no transform has set one. `partial` marks a last line that was never finished. Of formats that
    count records `start` and `end` are record numbers from 0. `schema` is the file's, where its format has one.
    """

    value: bytes | dict[str, Any]
    start: int
    end: int
    number: int
    key: bytes | None = None
    topic: str = ""
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    partial: bool = False
    schema: Schema | None = None
