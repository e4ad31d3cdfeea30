"""A second client of a task's producer, for whole blocks of lines that differ in nothing but their values; see `block_library`.

It has the settings of the first, and tells what becomes of its records in the same way: failures, errors of connections, statistics. A
block is not copied. It is kept here until everything is acknowledged, or until librdkafka has ended all that could still read it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from copycat_agent import logs
from copycat_agent.producer.block_library import DELIVERY, ERROR, PURGE_ALL, STATISTICS, BlockLibrary, Messages, RawLines, UnfitError

MOST_IDLE_SECONDS = 60.0
"""A client that has sent nothing for so long is closed: it holds connections and a few threads."""
_ENVELOPE_BYTES = 512
"""More than librdkafka counts for a message beside its key and value, when it compares it with message.max.bytes."""
_QUEUE_FULL = KafkaError._QUEUE_FULL  # noqa: SLF001 - its spelling

_log = logs.get("kafka")


class Heard(NamedTuple):
    """Who is told what the client says: a failure of a record or of the whole client, an error of a connection, statistics as text."""

    failure: Callable[[KafkaError, None], None]
    error: Callable[[KafkaError], None]
    statistics: Callable[[str], None]


class BlockClient:
    """A librdkafka producer of its own. Used from one thread at a time."""

    def __init__(self, library: BlockLibrary, settings: Mapping[str, Any], heard: Heard) -> None:
        """`settings` are those of the task's producer. Raises UnfitError when they are not for it."""
        self._library = library
        self._heard = heard
        self._most_bytes = int(settings["message.max.bytes"]) - _ENVELOPE_BYTES
        self._client = library.client(settings)
        self._queue: int = library.queue_get_main(self._client)
        self._topics: dict[str, int] = {}
        self._blocks: list[bytes] = []
        self._free = weakref.finalize(self, _free, library, self._client, self._queue, self._topics, self._blocks)
        self._used = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether it has sent nothing for so long that it is better closed."""
        return time.monotonic() - self._used > MOST_IDLE_SECONDS

    @property
    def has_unflushed(self) -> bool:
        """Whether something was put since `flush` last left nothing."""
        return bool(self._blocks)

    def messages(self, lines: RawLines, key: bytes | None) -> Messages | None:
        """Returns what `put` takes; None where a line is so large that the client might refuse it by itself."""
        messages = self._library.messages(lines, key)
        return messages if messages.longest + len(key or b"") <= self._most_bytes else None

    def put(self, topic: str, partition: int, messages: Messages) -> Iterator[int]:
        """Enqueue all messages. Yields whenever the queue is full: how many are on their way.

        Raises KafkaException when the client takes nothing more.
        """
        self._blocks.append(messages.lines.data)
        self._used = time.monotonic()
        done, code = self._library.put(self._topic(topic), partition, messages, 0)
        while code == _QUEUE_FULL:
            yield done
            done, code = self._library.put(self._topic(topic), partition, messages, done)
        if code:
            raise KafkaException(KafkaError(code))

    def _topic(self, name: str) -> int:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._library.topic_new(self._client, name.encode(), None)
            if topic is None:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG))  # noqa: SLF001 - its spelling
            self._topics[name] = topic
        return topic

    def poll(self, seconds: float) -> None:
        """Tell what there is to tell; wait for it so long."""
        library, heard = self._library, self._heard
        for kind, event in library.events(self._queue, int(seconds * 1000)):
            if kind == DELIVERY:  # its words are librdkafka's for the code: a message has no others, and its text is a record's
                for code in {one.err for one in library.reported(event)}:
                    heard.failure(KafkaError(code), None)
            elif kind == STATISTICS:
                heard.statistics(library.event_stats(event).decode(errors="replace"))
            elif kind == ERROR:
                self._tell(event)

    def _tell(self, event: int) -> None:
        code, words = self._library.event_error(event), self._library.event_error_string(event).decode(errors="replace")
        if self._library.event_error_is_fatal(event):
            self._heard.failure(KafkaError(code, words, True), None)
        else:
            self._heard.error(KafkaError(code, words))

    def flush(self, seconds: float) -> int:
        """Wait for acknowledgements so long. Returns how many messages are left."""
        if not self._blocks:
            self.poll(0)
            return 0
        self._library.flush(self._client, int(seconds * 1000))
        self.poll(0)
        left: int = self._library.outq_len(self._client)
        if not left:
            self._blocks.clear()
        return left

    def close(self) -> None:
        """Give up what is queued and free the client, which cannot be used any more. Never blocks for the network.

        The library waits for its threads, and one of those may wait for a name server: another thread does that, and keeps the blocks.
        """
        self._library.purge(self._client, PURGE_ALL)
        with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter ends: then it is freed with this object
            threading.Thread(target=self._free, name="freeing", daemon=True).start()


def _free(library: BlockLibrary, client: int, queue: int, topics: dict[str, int], blocks: list[bytes]) -> None:
    """Free the client, and only then the blocks."""
    library.purge(client, PURGE_ALL)
    for topic in topics.values():
        library.topic_destroy(topic)
    library.queue_destroy(queue)
    library.destroy(client)
    blocks.clear()


def fits(tail: tuple[Any, ...]) -> bool:
    """Whether messages that end like this (`TaskProducer.send`) have nothing that an array cannot carry: a timestamp, or headers."""
    return not any(tail[2:])


def open_client(library: BlockLibrary | str, settings: Mapping[str, Any], heard: Heard) -> BlockClient | None:
    """A client; None where there can be none, which the log says once in a process."""
    try:
        if not isinstance(library, str):
            return BlockClient(library, settings, heard)
        why = library
    except UnfitError as error:
        why = str(error)
    _say(why)
    return None


@cache
def _say(why: str) -> None:
    _log.info("large files of plain lines are handed to librdkafka line by line", why=why)
