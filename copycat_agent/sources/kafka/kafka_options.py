"""Options of source `kafka`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Literal, Self

from copycat_agent.extending import (
    ConvertersOptions,
    Definition,
    Duration,
    Field,
    FilesSinkOptions,
    KafkaOptions,
    Patterns,
    PolledOptions,
    PrivateAttr,
    RollOptions,
    ValuesReader,
    values_reader,
)

_TIMES = ("beginning", "end")


class KafkaSourceOptions(PolledOptions):
    """Records of topics: each partition is read by itself, in order, with the key, the headers and the time of each record."""

    type: Literal["kafka"] = Field("kafka", description="Records of topics.")
    topics: Patterns = Field(
        min_length=1,
        description="Topics to read: names, or regular expressions that stand for whole names, as in orders-.*; new topics and "
        "partitions are found. Topics that begin with __ are only read by their names.",
    )
    exclude: Patterns = Field((), description="Topics to leave out, as `topics`.")
    kafka: KafkaOptions | None = Field(
        None,
        description="The cluster that is read, where it is another one than that of `kafka`. What is absent here is librdkafka's default.",
    )
    start_at: str = Field(
        "beginning",
        description="Where to begin in partitions when this connector first meets them: beginning, end, or an RFC 3339 time: at the first "
        "record that is not older.",
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        "read_committed", description="read_committed: of transactions only what is committed, once all before it have ended."
    )
    group: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Consumer group in which positions are kept for people and tools that show a lag, copycat-NAME by default. The "
        "connector itself does not go by it.",
    )
    poll_interval: Duration = Field(0.5, ge=0.05, le=86400, description="Time between two looks how far the partitions go.")
    discover_interval: Duration = Field(30.0, ge=0.1, le=86400, description="Time between two looks for new topics and partitions.")
    _cluster: KafkaOptions = PrivateAttr(KafkaOptions())
    _connector: str = PrivateAttr("")
    _roll: RollOptions | None = PrivateAttr(None)
    _into: str = PrivateAttr("")
    _converters: ConvertersOptions | None = PrivateAttr(None)

    def model_post_init(self, context: object) -> None:
        """Raises ValueError for invalid patterns and times."""
        super().model_post_init(context)
        for text in (*self.topics, *self.exclude):
            try:
                re.compile(text)
            except re.error as error:
                raise ValueError(f"{text!r} is no topic and no regular expression: {error}") from None
        if self.start_at not in _TIMES and self._start_time() is None:
            raise ValueError("start_at is beginning, end, or a time with its zone, as in 2026-11-21T05:00:00Z")

    def _start_time(self) -> datetime | None:
        try:
            moment = datetime.fromisoformat(self.start_at)
        except ValueError:
            return None
        return moment if moment.tzinfo is not None else None

    @property
    def start_ms(self) -> int | None:
        """Returns the time to begin at, in epoch milliseconds; None for `beginning` and `end`."""
        moment = None if self.start_at in _TIMES else self._start_time()
        return None if moment is None else round(moment.timestamp() * 1000)

    @property
    def cluster(self) -> KafkaOptions:
        """Returns the cluster that is read."""
        return self._cluster

    @property
    def roll(self) -> RollOptions | None:
        """Returns when unread records make a file, before which they are not read; None: they are read at once."""
        return self._roll

    @property
    def into(self) -> str:
        """Returns the address of the files sink with the connector's name; "" for records that go into topics."""
        return self._into

    @property
    def group_name(self) -> str:
        """Returns the consumer group that positions are committed to; "" where no connector is known."""
        return self.group or (f"copycat-{self._connector}" if self._connector else "")

    def values_reader(self) -> ValuesReader | None:
        """Returns the reader that decodes values; None for values that go on as bytes."""
        converters = self._converters
        if converters is None or converters.value is None:
            return None
        return values_reader(converters.value, converters.schema_registry)

    def completed(self, definition: Definition) -> Self:
        """Returns a copy with the cluster and the connector's name; for a files sink also with its address, `roll` and converters."""
        copy = self.model_copy()
        private: dict[str, Any] = {"_cluster": self.kafka or definition.kafka, "_connector": definition.name}
        if isinstance(definition.sink, FilesSinkOptions):
            into = f"{definition.sink.address}#{definition.name}"
            private |= {"_roll": definition.sink.roll, "_converters": definition.converters, "_into": into}
        copy.__pydantic_private__ = {**(copy.__pydantic_private__ or {}), **private}
        return copy
