"""A TCP proxy that understands Kafka's framing just enough to break it in precise ways."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, Self

from copycat_agent.dev_broker import free_port
from tests.rig.requests import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Caught,
    Rule,
    api_key,
    correlation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

__all__ = ["ADD_PARTITIONS_TO_TXN", "END_TXN", "FETCH", "INIT_PRODUCER_ID", "METADATA", "PRODUCE", "Caught", "Proxy"]

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, without a time: what closes such a socket is an RST."""
_CALL_SECONDS = 60.0
_ACCEPT_TURNS = 10
"""Of the loop: enough for what the kernel has accepted to become a task that can be counted and cancelled, however slow the machine is."""
_OPEN_SECONDS = 3.0
"""A broker that stood still long enough has a full queue of connections: another one may take the kernel a minute."""
_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_Mode = Literal["forward", "pause", "blackhole", "cut"]


@contextlib.contextmanager
def _member(tasks: set[asyncio.Task[Any]]) -> Iterator[None]:
    """The current task belongs to `tasks` for the time of the block."""
    task = asyncio.current_task()
    assert task is not None
    tasks.add(task)
    try:
        yield
    finally:
        tasks.discard(task)


class Proxy:
    """127.0.0.1:`port` in front of `upstream`; every method may be called from any thread and holds when it returns.

    Works on whole frames, so that connections survive every change of mode except `cut`. `requests` counts the requests
    seen per API key, `dropped` the answers lost on purpose.
    """

    def __init__(self, upstream: str = "") -> None:
        self.upstream = upstream
        self.port = free_port()
        self.requests: Counter[int] = Counter()
        self.dropped = 0
        self._mode: _Mode = "forward"
        self._delay_seconds = 0.0
        self._seconds_per_byte = 0.0
        self._rules: list[Rule] = []
        self._generation = 0
        self._opening: set[asyncio.Task[Any]] = set()
        self._connections: set[asyncio.Task[Any]] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """Open at the moment."""
        return len(self._connections)

    def start(self) -> Self:
        """Begin to listen, forwarding."""
        self._thread.start()
        self.forward()
        return self

    def stop(self) -> None:
        """Close everything and end the thread."""
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS)
        self._loop.close()

    def forward(self) -> None:
        """Pass everything on, without delay; also what undoes `pause`, `cut`, `blackhole`, `delay` and `throttle`."""
        self._delay_seconds = self._seconds_per_byte = 0.0
        self._enter("forward")

    def pause(self) -> None:
        """Forward nothing, keep the connections and what they have sent; `forward` lets it flow."""
        self._enter("pause")

    def blackhole(self) -> None:
        """Accept connections and requests, throw every frame away. What was thrown away stays lost after `forward`."""
        self._enter("blackhole")

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._enter("cut")

    def delay(self, seconds: float) -> None:
        """Hold each frame in each direction for `seconds`, one after the other."""
        self._delay_seconds = seconds

    def throttle(self, bytes_per_second: float) -> None:
        """Be a slow line: hold each frame, in each direction of each connection, as long as its bytes take."""
        self._seconds_per_byte = 1 / bytes_per_second

    def drop_response(self, api_key: int, nth: int = 1, *, close: bool = True, wanted: Callable[[bytes], bool] = lambda _: True) -> None:
        """Let the broker handle the `nth` request from now with `api_key`, of those that are `wanted`, but lose its answer.

        `close` also closes the connection, so that the client knows at once that it knows nothing; without, the client
        waits for its own time-out. Counts over all connections; each call is good for one answer.
        """
        self._rules.append(Rule(api_key, nth, wanted, lose_answer=True, close=close))

    def catch(
        self, api_key: int, nth: int = 1, *, wanted: Callable[[bytes], bool] = lambda _: True, call: Callable[[], object] | None = None
    ) -> Caught:
        """Look out for the `nth` request from now with `api_key`, of those that are `wanted`.

        `call` is called before it goes on to the broker, in the proxy's thread: be quick there, and call no method of the proxy.
        """
        caught = Caught(lambda: self.upstream)
        self._rules.append(Rule(api_key, nth, wanted, call=call, caught=caught))
        return caught

    def disconnect(self, *, reset: bool = False) -> None:
        """Close the connections there are, with an RST if so wanted; new ones are welcome."""
        self._call(self._disconnect(reset=reset))

    def reset(self) -> None:
        """As after `start`: forwarding, no rules, no connections, counters at zero."""
        self._rules.clear()
        self.forward()
        self.disconnect()
        self.requests.clear()
        self.dropped = 0

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def _call(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_CALL_SECONDS)

    def _enter(self, mode: _Mode) -> None:
        self._call(self._switch(mode))

    async def _switch(self, mode: _Mode) -> None:
        self._mode = mode
        self._open.set() if mode != "pause" else self._open.clear()
        if mode == "cut":
            await self._close_server()
            await self._disconnect()
        elif self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _disconnect(self, *, reset: bool = False) -> None:
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0.001)
        self._generation += 1
        for client in self._clients if reset else ():
            client.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._opening:
            _, late = await asyncio.wait(self._opening, timeout=_OPEN_SECONDS)
            for opening in late:
                opening.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        generation = self._generation
        self._clients.add(writer)
        try:
            with _member(self._opening):  # cancelled only when it takes long: a connection that opens meanwhile would leak
                broker_reader, broker_writer = await asyncio.open_connection(*self.upstream.rsplit(":", 1))
            try:
                with _member(self._connections):
                    if generation == self._generation:
                        await self._join((reader, writer), (broker_reader, broker_writer))
            finally:
                broker_writer.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # the broker is gone, or the test wants the connection gone
        finally:
            self._clients.discard(writer)
            writer.transport.abort()

    async def _join(self, client: _Ends, broker: _Ends) -> None:
        """Forward in both directions until either side ends."""
        awaited: dict[int, Rule] = {}
        pumps = [
            asyncio.ensure_future(self._pump(client[0], broker[1], lambda frame: self._note_request(frame, awaited))),
            asyncio.ensure_future(self._pump(broker[0], client[1], lambda frame: self._check_answer(frame, awaited))),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_wanted: Callable[[bytes], bool]) -> None:
        """Copy frames (a length of 4 bytes, then that many) until one side ends."""
        while True:
            size = await reader.readexactly(4)
            frame = await reader.readexactly(struct.unpack(">i", size)[0])
            await asyncio.sleep(self._delay_seconds + len(frame) * self._seconds_per_byte)
            await self._open.wait()
            if self._mode != "blackhole" and is_wanted(frame):
                writer.write(size + frame)
                await writer.drain()

    def _note_request(self, frame: bytes, awaited: dict[int, Rule]) -> bool:
        """Always wanted. `awaited`: rules for answers of this connection, by correlation id."""
        self.requests[api_key(frame)] += 1
        for rule in [rule for rule in self._rules if rule.is_due(frame)]:
            self._rules.remove(rule)
            awaited[correlation(frame)] = rule
            if rule.call:
                rule.call()
            if rule.caught:
                rule.caught.note(frame)
        return True

    def _check_answer(self, frame: bytes, awaited: dict[int, Rule]) -> bool:
        rule = awaited.pop(correlation(frame, is_answer=True), None)
        if rule is None:
            return True
        if rule.caught:
            rule.caught.answer = frame
        if rule.lose_answer:
            self.dropped += 1
            if rule.close:
                raise ConnectionResetError
        return not rule.lose_answer
