"""Messages over TLS: whole, in order, both ways at a time, and readable for nobody in between."""

from __future__ import annotations

import os
import select
import socket
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from copycat_agent.spark.cluster_listener import identity
from copycat_agent.tls_channel import TlsChannel, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (0, 1, 1000, 2**16, 2**18 + 1, 3_000_000)


class Pair:
    """Two ends, and all that has been seen of them on the wire."""

    def __init__(self) -> None:
        self.seen = bytearray()
        context, certificate = identity()
        server, middle = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
        self._between = threading.Thread(target=self._relay, args=(middle, server.getsockname()))
        self._between.start()
        found: list[TlsChannel] = []

        def accept() -> None:
            found.append(TlsChannel(server.accept()[0], context, is_server=True))
            found[0].meet()

        thread = threading.Thread(target=accept)
        thread.start()
        self.client = connect("127.0.0.1", middle.getsockname()[1], certificate)
        thread.join(60)
        (self.server,) = found
        for one in (self.client, self.server):
            one.trust()
        server.close()
        middle.close()

    def _relay(self, middle: socket.socket, address: tuple[str, int]) -> None:
        one, _ = middle.accept()
        with one, socket.create_connection(address) as other, suppress(OSError):
            targets = {one: other, other: one}
            while True:
                for source in select.select(list(targets), [], [])[0]:
                    if not (data := source.recv(2**16)):
                        return
                    self.seen += data
                    targets[source].sendall(data)

    def close(self) -> None:
        """Both ends."""
        self.client.close()
        self.server.close()
        self._between.join(60)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends that have met."""
    found = Pair()
    yield found
    found.close()


def test_messages_come_whole_and_in_order_both_ways_at_a_time(pair: Pair) -> None:
    sent = [os.urandom(size) for size in SIZES for _ in range(3)]

    def send(end: TlsChannel) -> None:
        for one in sent:
            end.send_bytes(one)

    threads = [threading.Thread(target=send, args=(end,)) for end in (pair.client, pair.server)]
    got: list[bytes] = []
    threads.append(threading.Thread(target=lambda: got.extend(pair.server.recv_bytes() for _ in sent)))
    for thread in threads:
        thread.start()
    assert [pair.client.recv_bytes() for _ in sent] == sent
    for thread in threads:
        thread.join(60)
    assert got == sent


def test_nothing_can_be_read_in_between(pair: Pair) -> None:
    secret = b"canary-on-the-wire" * 100
    pair.client.send_bytes(secret)
    pair.server.recv_bytes()
    pair.server.send_bytes(secret)
    pair.client.recv_bytes()
    assert len(pair.seen) > 2 * len(secret)
    assert b"canary" not in pair.seen


def test_an_end_that_is_closed_is_told_to_the_other(pair: Pair) -> None:
    pair.client.close()
    with pytest.raises((EOFError, OSError)):
        pair.server.recv_bytes()


def test_a_message_that_is_too_long_is_not_read(pair: Pair) -> None:
    pair.client.send_bytes(bytes(257))
    with pytest.raises(OSError, match="longer"):
        pair.server.recv_bytes(256)


def test_somebody_elses_certificate_is_not_talked_to() -> None:
    context, _ = identity()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with closing(TlsChannel(server.accept()[0], context, is_server=True)) as channel:
                channel.meet()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="somebody else"):
            connect("127.0.0.1", server.getsockname()[1], bytes(32))
        thread.join(60)
