"""Requests of the Kafka protocol as a proxy sees them: which one is it, what does it say, and sent once more by somebody else."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

PRODUCE, FETCH, METADATA, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 0, 1, 3, 22, 24, 26
"""Kafka API keys that tests aim at."""

FENCED = frozenset({47, 90})
"""INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: somebody else has taken the transactional id."""
_FLEXIBLE_END_TXN = 3
"""From this version of EndTxn on, its answer's header, and itself, end with tagged fields."""


def api_key(frame: bytes) -> int:
    """Request header: api_key int16, api_version int16, correlation_id int32, client_id."""
    return int(struct.unpack_from(">h", frame)[0])


def correlation(frame: bytes, *, is_answer: bool = False) -> int:
    """What an answer and its request have in common."""
    return int(struct.unpack_from(">i", frame, 0 if is_answer else 4)[0])


def is_commit(frame: bytes) -> bool:
    """An EndTxn that asks to commit; it ends with a boolean, in newer versions followed by one byte for no tagged fields."""
    return api_key(frame) == END_TXN and bool(frame[-2 if _version(frame) >= _FLEXIBLE_END_TXN else -1])


def is_abort(frame: bytes) -> bool:
    """An EndTxn that asks to abort."""
    return api_key(frame) == END_TXN and not is_commit(frame)


def transactional_id(frame: bytes) -> str:
    """Of an EndTxn or AddPartitionsToTxn of one of our lanes."""
    begin = frame.index(b"copycat.")
    return frame[begin : next(end for end in range(begin, len(frame)) if not 32 < frame[end] < 127)].decode()


def mentions(text: str) -> Callable[[bytes], bool]:
    """Requests in which `text` occurs: a topic, a transactional id."""
    return lambda frame: text.encode() in frame


def _version(frame: bytes) -> int:
    return int(struct.unpack_from(">h", frame, 2)[0])


@dataclass
class Rule:
    """What a proxy does with request number `countdown` (1 = the next one) of those with `api_key` that are `wanted`."""

    api_key: int
    countdown: int
    wanted: Callable[[bytes], bool] = field(default=lambda _: True)
    lose_answer: bool = False
    close: bool = False
    """Close the connection when the answer is lost."""
    call: Callable[[], object] | None = None
    """Called in the proxy's thread before the request goes on to the broker."""
    caught: Caught | None = None

    def is_due(self, frame: bytes) -> bool:
        """Whether it is this request's turn. Counts."""
        if self.api_key != api_key(frame) or not self.wanted(frame):
            return False
        self.countdown -= 1
        return self.countdown == 0


class Caught:
    """A request that a proxy was told to look out for."""

    def __init__(self, upstream: Callable[[], str]) -> None:
        self.frame = b""
        """Empty until it comes."""
        self.answer = b""
        """The broker's; empty until it has passed."""
        self._upstream = upstream
        self._seen = threading.Event()

    @property
    def is_seen(self) -> bool:
        """Whether it has come."""
        return self._seen.is_set()

    def note(self, frame: bytes) -> None:
        """It came."""
        self.frame = frame
        self._seen.set()

    def wait(self, deadline: float = 60.0) -> None:
        """Return when it has come."""
        wait_until(self._seen.is_set, deadline, "the request did not come")

    def send_again(self, deadline: float = 60.0) -> int:
        """The same bytes once more, on a connection of their own, as a network would deliver them late. Returns EndTxn's error code."""
        host, port = self._upstream().rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=deadline) as connection:
            connection.sendall(struct.pack(">i", len(self.frame)) + self.frame)
            with connection.makefile("rb") as answers:
                answer = answers.read(struct.unpack(">i", answers.read(4))[0])
        assert correlation(answer, is_answer=True) == correlation(self.frame)
        return self._error(answer)

    @property
    def error(self) -> int:
        """EndTxn's error code in the answer that has passed."""
        return self._error(self.answer)

    def _error(self, answer: bytes) -> int:
        """Of correlation_id int32, from version 3 on tagged fields, throttle_time_ms int32, error_code int16."""
        return int(struct.unpack_from(">h", answer, 9 if _version(self.frame) >= _FLEXIBLE_END_TXN else 8)[0])
