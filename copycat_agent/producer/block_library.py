"""The librdkafka that confluent-kafka has loaded, called directly for what its binding cannot do: an array of messages in one call.

Enqueueing a line of 160 bytes takes 0.2 µs so, with the search for the newlines, and 0.7 by a call of `produce` for each. The functions
and the struct are librdkafka's public ones (`rdkafka.h`), and have stood for years. Yet nothing would say so if they were others: each
process tries them once before it uses them, on a client that knows no broker.
"""

from __future__ import annotations

import ctypes
from ctypes import CDLL, POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

DELIVERY, ERROR, STATISTICS = 0x1, 0x8, 0x40
"""Kinds of events that a client is asked for (`RD_KAFKA_EVENT_...`)."""
NO_NUMPY = "numpy is not installed"
_PRODUCER = 0  # RD_KAFKA_PRODUCER
PURGE_ALL = 0x1 | 0x2 | 0x4
"""What is queued, what is in flight, without waiting (`RD_KAFKA_PURGE_F_...`)."""
_WORDS_BYTES = 512
_TRIED = b"one\n\nthree\n"
_TRIED_KEY = b"key"
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 - its spelling
_WAIT_MS = 2_000


class MessageStruct(ctypes.Structure):
    """`rd_kafka_message_t`. Pointers are numbers here, which arrays can hold."""

    _fields_ = (
        ("err", c_int), ("rkt", c_size_t), ("partition", c_int32), ("payload", c_size_t), ("len", c_size_t), ("key", c_size_t),
        ("key_len", c_size_t), ("offset", c_int64), ("_private", c_size_t),
    )  # fmt: skip


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "version": (c_int,),
    "conf_new": (c_void_p,),
    "conf_set": (c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
    "conf_set_events": (None, c_void_p, c_int),
    "conf_set_log_cb": (None, c_void_p, c_void_p),
    "conf_destroy": (None, c_void_p),
    "new": (c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    "destroy": (None, c_void_p),
    "topic_new": (c_void_p, c_void_p, c_char_p, c_void_p),
    "topic_destroy": (None, c_void_p),
    "produce_batch": (c_int, c_void_p, c_int32, c_int, c_void_p, c_int),
    "flush": (c_int, c_void_p, c_int),
    "purge": (c_int, c_void_p, c_int),
    "outq_len": (c_int, c_void_p),
    "queue_get_main": (c_void_p, c_void_p),
    "queue_poll": (c_void_p, c_void_p, c_int),
    "queue_destroy": (None, c_void_p),
    "event_type": (c_int, c_void_p),
    "event_error": (c_int, c_void_p),
    "event_error_is_fatal": (c_int, c_void_p),
    "event_error_string": (c_char_p, c_void_p),
    "event_stats": (c_char_p, c_void_p),
    "event_message_next": (POINTER(MessageStruct), c_void_p),
    "event_destroy": (None, c_void_p),
}
"""By name without `rd_kafka_`: what a function returns, and takes."""


class UnfitError(Exception):
    """The library is not as expected, in words."""


class RawLines(NamedTuple):
    """Whole lines in a row: the first `size_bytes` of `data`, each ended by the one byte `delimiter`."""

    data: bytes
    size_bytes: int
    delimiter: bytes = b"\n"


class Messages(NamedTuple):
    """An array of `MessageStruct`, one for each line; `longest` is the size of the largest. They point into `lines` and `key`."""

    structs: np.ndarray[Any, Any]
    longest: int
    lines: RawLines
    key: bytes | None


class BlockLibrary:
    """The functions, without their `rd_kafka_`, and what makes arrays of messages. Stateless. Made by `block_library`."""

    def __init__(self, library: CDLL, struct: type[ctypes.Structure] = MessageStruct) -> None:
        """Raises ImportError without numpy, AttributeError for a library that lacks a function."""
        import numpy as np  # noqa: PLC0415 - 0.1 s and 10 MiB, which are for those who send much

        for name, (returns, *takes) in _FUNCTIONS.items():
            function = getattr(library, f"rd_kafka_{name}")
            function.restype, function.argtypes = returns, takes
        self._library = library
        self._numpy = np
        self._dtype = np.dtype(struct)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a function of the library
        """Return the function of this name."""
        return getattr(self._library, f"rd_kafka_{name}")

    def client(self, settings: Mapping[str, Any]) -> int:
        """Make a producer that reports failures, errors and statistics as events, and returns its address. Raises UnfitError."""
        words = ctypes.create_string_buffer(_WORDS_BYTES)
        configuration = self.conf_new()
        self.conf_set_events(configuration, DELIVERY | ERROR | STATISTICS)
        self.conf_set_log_cb(configuration, None)
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if callable(value) or self.conf_set(configuration, name.encode(), text.encode(), words, _WORDS_BYTES):
                self.conf_destroy(configuration)
                raise UnfitError(f"setting {name} is not for it")  # never the words, which hold its value
        client: int | None = self.new(_PRODUCER, configuration, words, _WORDS_BYTES)
        if client is None:
            self.conf_destroy(configuration)
            raise UnfitError(f"no client could be made: {words.value.decode(errors='replace')}")
        return client

    def messages(self, lines: RawLines, key: bytes | None) -> Messages:
        """Returns a message for each line."""
        np = self._numpy
        text = np.frombuffer(lines.data, np.uint8, lines.size_bytes)
        ends = np.flatnonzero(text == lines.delimiter[0])
        structs = np.zeros(len(ends), self._dtype)
        begins = np.empty_like(ends)
        begins[:1] = 0
        begins[1:] = ends[:-1] + 1
        structs["payload"] = begins + text.__array_interface__["data"][0]
        sizes = structs["len"] = ends - begins
        if key is not None:
            structs["key"], structs["key_len"] = ctypes.cast(c_char_p(key), c_void_p).value, len(key)
        return Messages(structs, int(sizes.max(initial=0)), lines, key)

    def put(self, topic: int, partition: int, messages: Messages, begin: int) -> tuple[int, int]:
        """Enqueue messages from the `begin`-th on. Returns how many are done in all, and the code of the error of the next one, or 0.

        What they point to is not copied, but for keys: it has to stay where it is until all are acknowledged, or the client is freed.
        """
        structs = messages.structs
        count = len(structs) - begin
        address = structs.__array_interface__["data"][0] + begin * structs.itemsize
        if self.produce_batch(topic, partition, 0, address, count) == count:
            return len(structs), 0
        failed = begin + int(self._numpy.flatnonzero(structs["err"][begin:])[0])
        return failed, int(structs["err"][failed])

    def events(self, queue: int, milliseconds: int) -> Iterator[tuple[int, int]]:
        """Waits for an event as long as that, and yields what there is: kind and address, valid until the next one is asked for."""
        while (event := self.queue_poll(queue, milliseconds)) is not None:
            try:
                yield self.event_type(event), event
            finally:
                self.event_destroy(event)
            milliseconds = 0

    def reported(self, event: int) -> Iterator[MessageStruct]:
        """The messages of a delivery report."""
        while message := self.event_message_next(event):
            yield message.contents


@cache
def block_library() -> BlockLibrary | str:
    """The library, ready for use, or in words why it cannot be used. Found out once in a process, in 0.1 s: it imports numpy."""
    try:
        library = BlockLibrary(CDLL(loaded_path()))
        check(library, confluent_kafka.libversion()[1])
    except ImportError:
        return NO_NUMPY
    except (UnfitError, AttributeError, OSError, ValueError) as error:
        return str(error)
    return library


def loaded_path() -> str:
    """Returns where the one librdkafka lies that is loaded into this process. Raises UnfitError where it is not known."""
    mapped = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines())
    paths = {parts[5] for parts in mapped if len(parts) > 5 and "librdkafka" in parts[5].rpartition("/")[2]}  # noqa: PLR2004 - the path
    if len(paths) != 1:
        raise UnfitError("which librdkafka confluent-kafka has loaded is not known")
    return paths.pop()


def check(library: BlockLibrary, version: int) -> None:
    """Put messages to a client without a broker, take them back, and raise UnfitError unless they come back as they were."""
    if library.version() != version:
        raise UnfitError(f"librdkafka is version {library.version():#010x}, not {version:#010x}")
    client = library.client({"delivery.report.only.error": True, "client.id": "copycat-check"})
    queue, topic = library.queue_get_main(client), library.topic_new(client, b"copycat-check", None)
    try:
        messages = library.messages(RawLines(_TRIED + b"rest", len(_TRIED)), _TRIED_KEY)
        lines = _TRIED.splitlines()
        wanted = [(int(one["payload"]), int(one["len"]), _TRIED_KEY) for one in messages.structs]
        found = [ctypes.string_at(address, size) for address, size, _ in wanted] if len(wanted) == len(lines) else []
        if found != lines or messages.longest != max(map(len, lines)):
            raise UnfitError("lines are not found as expected")
        if topic is None or library.put(topic, 0, messages, 0) != (len(wanted), 0) or library.outq_len(client) != len(wanted):
            raise UnfitError("librdkafka does not take messages as expected")
        library.purge(client, PURGE_ALL)
        if _reported(library, queue, len(wanted)) != wanted or library.outq_len(client):
            raise UnfitError("librdkafka does not report messages as expected")
    finally:
        if topic is not None:
            library.topic_destroy(topic)
        library.queue_destroy(queue)
        library.destroy(client)


def _reported(library: BlockLibrary, queue: int, count: int) -> list[tuple[int, int, bytes]]:
    """Where each message that was taken back lies, its size, and its key."""
    found: list[tuple[int, int, bytes]] = []
    while len(found) < count:
        before = len(found)
        for kind, event in library.events(queue, _WAIT_MS):
            for one in library.reported(event) if kind == DELIVERY else ():
                if one.err not in _PURGED or one.key_len != len(_TRIED_KEY):
                    raise UnfitError("librdkafka does not report messages as expected")
                found.append((one.payload, one.len, ctypes.string_at(one.key, one.key_len)))
        if len(found) == before:
            break
    return found
