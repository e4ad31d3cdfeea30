"""`copycat demo` and `copycat dev-broker`: a full run on generated logs, and a real one-node Kafka for experiments."""

from __future__ import annotations

import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from copycat_agent import logs
from copycat_agent.agent import Agent, AgentSettings
from copycat_agent.cli import exits
from copycat_agent.cli.common_options import NoColor, leave
from copycat_agent.cli.running import StopSignals, resolve_settings
from copycat_agent.definitions import load_directory
from copycat_agent.demo import TOPICS, Proof, Traffic, prove, write_definitions
from copycat_agent.dev_broker import KAFKA_VERSION, DevBroker, fetch_kafka
from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.producer.topic_reader import read_topic
from copycat_agent.worker import State, Status

_RATE_SECONDS = 2.0
"""The period over which rates are measured."""
_LINE_SECONDS = 2.0
"""Time between two lines if there is no terminal."""
_COLORS = {State.RUNNING: "green", State.FAILED: "red", State.RETRYING: "yellow", State.BLOCKED: "yellow"}
_ROTATE_SECONDS = 1.5
"""Time between two rotations; the logs take turns."""
_LOOK_SECONDS = 0.25
_CATCH_UP_SECONDS = 60.0
"""After this time without progress, missing lines are taken as lost."""


class _RecentRates:
    """Records per second over the last moments, by connector."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def of(self, name: str, count: int, now: float) -> float:
        """Takes in `count` records since the beginning, at `now` (monotonic seconds). Returns the rate."""
        seen = self._seen.setdefault(name, deque())
        seen.append((now, count))
        while len(seen) > 2 and seen[1][0] <= now - _RATE_SECONDS:  # noqa: PLR2004 - the window's both ends
            seen.popleft()
        (then, before), (_, after) = seen[0], seen[-1]
        return (after - before) / (now - then) if now > then else 0.0


class _LineView:
    """Prints lines, for logs and pipes. One thread calls `begin`, `show`..., `end`, `verdict` in order; `say` and `end` at any time."""

    def __init__(self) -> None:
        self._rates = _RecentRates()
        self._began = self._next = 0.0

    def say(self, text: str) -> None:
        """Prints a line."""
        typer.echo(text)

    def begin(self, bootstrap: str) -> None:
        """Called when the broker is up at `bootstrap`."""
        self._began = time.monotonic()
        self.say(f"broker: {bootstrap}")

    def show(self, statuses: Sequence[Status], written: int, rotations: int) -> None:
        """Shows the state: the connectors, lines written to the logs and rotations of them so far."""
        now = time.monotonic()
        rates = {status.name: self._rates.of(status.name, status.counts.acknowledged, now) for status in statuses}
        if now < self._next:
            return
        self._next = now + _LINE_SECONDS
        self.say(f"{now - self._began:5.1f} s  {written:,} lines written, {rotations} rotations")
        for status in statuses:
            counts, lag = status.counts, status.lag
            why = f" ({status.reason})" if status.reason else ""
            self.say(
                f"         {status.name}: {status.state.upper()}{why}, read {counts.read:,}, acknowledged {counts.acknowledged:,}, "
                f"behind {lag.bytes:,} bytes in {lag.files} files, {rates[status.name]:,.0f} records/s"
            )

    def end(self) -> None:
        """Ends the live view. Safe to call twice."""

    def verdict(self, proofs: Sequence[Proof]) -> None:
        """Shows the comparison and its result."""
        for proof in proofs:
            self.say(
                f"{proof.log}: written {proof.written:,}, arrived {proof.arrived:,}, lost {proof.lost:,}, "
                f"duplicated {proof.duplicated:,}, out of order {proof.out_of_order:,}, unknown {proof.unknown:,}"
            )
        self.say(words_of(proofs))


class _LiveView(_LineView):
    """A table that changes in place."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._bootstrap = ""

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def begin(self, bootstrap: str) -> None:
        self._bootstrap, self._began = bootstrap, time.monotonic()
        self._live.start()

    def show(self, statuses: Sequence[Status], written: int, rotations: int) -> None:
        now = time.monotonic()
        head = f"broker {self._bootstrap}   {now - self._began:.0f} s   {written:,} lines written   {rotations} rotations"
        self._live.update(Group(Text(head), self._table(statuses, now)), refresh=True)

    def end(self) -> None:
        self._live.stop()

    def verdict(self, proofs: Sequence[Proof]) -> None:
        table = _empty_table("log", "written", "arrived", "lost", "duplicated", "out of order", "unknown")
        for proof in proofs:
            numbers = (proof.written, proof.arrived, proof.lost, proof.duplicated, proof.out_of_order, proof.unknown)
            table.add_row(proof.log, *(f"{number:,}" for number in numbers), style="" if proof.exact else "red")
        self._console.print(table)
        exact = all(proof.exact for proof in proofs)
        self._console.print(words_of(proofs), style="bold green" if exact else "bold red", markup=False)

    def _table(self, statuses: Sequence[Status], now: float) -> Table:
        table = _empty_table("connector", "state", "read", "acknowledged", "behind", "files", "records/s")
        for status in statuses:
            state = Text(status.state.upper(), _COLORS.get(status.state, ""))
            acknowledged = status.counts.acknowledged
            rate = self._rates.of(status.name, acknowledged, now)
            table.add_row(
                status.name, state, f"{status.counts.read:,}", f"{acknowledged:,}", f"{status.lag.bytes:,} B", str(status.lag.files),
                f"{rate:,.0f}",
            )  # fmt: skip
            if status.reason:
                table.add_row("", Text(status.reason, "yellow"))
        return table


def words_of(proofs: Sequence[Proof]) -> str:
    """Returns the verdict in a sentence."""
    written = sum(proof.written for proof in proofs)
    if all(proof.exact for proof in proofs):
        return f"EXACT: all {written:,} lines of {len(proofs)} logs arrived once, in order, byte by byte."
    wrong = ", ".join(proof.log for proof in proofs if not proof.exact)
    altered = "; bytes were altered" if any(proof.altered for proof in proofs) else ""
    return f"NOT EXACT: of {written:,} lines, something is wrong with: {wrong}{altered}."


def _empty_table(first: str, *others: str) -> Table:
    table = Table(first, expand=False)
    for other in others:
        table.add_column(other, justify="left" if other == "state" else "right")
    return table


def demo(
    seconds: Annotated[float, typer.Option(help="How long the logs grow.", min=1, max=86400)] = 30,
    rate: Annotated[int, typer.Option(help="Lines per second, over all logs.", min=10, max=200_000)] = 4000,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Work in this new or empty directory and keep it; default: a temporary one.")
    ] = None,
    no_color: NoColor = False,
) -> None:
    """Show it all in a minute: logs that grow and rotate, the agent, a real one-node Kafka, and a check of what arrived.

    Exits 0 only when every line that was written arrived exactly once, in order. Ctrl-C ends it cleanly at any time.
    """
    stop = StopSignals()
    console = Console(no_color=no_color or None, highlight=False)
    view = _LiveView(console) if console.is_terminal else _LineView()
    try:
        with ExitStack() as until_end:
            root = _directory(directory, until_end)
            proofs = _run(root, seconds, rate, view, until_end, stop)
            view.verdict(proofs)
            if directory:
                view.say(f"kept: {root}")
    except KeyboardInterrupt:
        view.say("stopped")
        raise typer.Exit(exits.INTERRUPTED) from None
    raise typer.Exit(exits.GOOD if all(proof.exact for proof in proofs) else exits.FAILED)


def _directory(wanted: Path | None, until_end: ExitStack) -> Path:
    """Returns the directory to work in. Ends the command with 2 if the wanted one is not empty: an old state would spoil the count."""
    if wanted is None:
        return Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="copycat-demo-", ignore_cleanup_errors=True)))
    wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(wanted.iterdir()):
        leave(f"{wanted} is not empty; name a new directory", exits.USAGE)
    return wanted.absolute()


def _run(root: Path, seconds: float, rate: int, view: _LineView, until_end: ExitStack, stop: StopSignals) -> tuple[Proof, ...]:
    """Runs everything up to the comparison. What is started here ends with `until_end`."""
    broker = DevBroker(root / "kafka")
    until_end.callback(broker.stop)
    connectors = write_definitions(root, root / "logs", broker.bootstrap)
    settings = resolve_settings(connectors, None, root / "state", None)
    logs.setup("info", "text", until_end.enter_context((root / "agent.log").open("w", encoding="utf-8")))
    until_end.callback(logs.setup)  # not into a file that is closed
    definitions = load_directory(connectors, settings.agent).definitions.values()
    view.say(f"definitions: {connectors}/*.yaml   agent's log: {root}/agent.log")
    with Traffic(root / "logs", rate, _ROTATE_SECONDS) as traffic, Agent(settings) as agent:
        view.say(f"starting Spark, and Kafka {KAFKA_VERSION} (the very first time it is downloaded: 43 MB)")
        stop.leave_behind(fetch_kafka)
        broker.start()
        stop.check()
        agent.apply(definitions)
        traffic.start()
        view.begin(broker.bootstrap)
        until_end.callback(view.end)
        _grow(agent, traffic, view, seconds, stop)
        _catch_up(agent, traffic, view, stop)
        view.end()
    view.say("reading the topics back")
    return _compare(settings, traffic, stop)


def _grow(agent: Agent, traffic: Traffic, view: _LineView, seconds: float, stop: StopSignals) -> None:
    """Lets the logs grow for `seconds`, and shows the state."""
    end = time.monotonic() + seconds
    _look(agent, traffic, view, lambda: time.monotonic() >= end, stop)
    traffic.stop()
    if traffic.error:
        raise FatalError(f"the made-up logs cannot be written: {traffic.error.strerror}", "give the demo a directory with --dir")


def _catch_up(agent: Agent, traffic: Traffic, view: _LineView, stop: StopSignals) -> None:
    """Waits until everything is acknowledged, or nothing moves any more: then the comparison shows what is missing."""
    best, since = -1, time.monotonic()

    def done() -> bool:
        nonlocal best, since
        acknowledged = sum(status.counts.acknowledged for status in agent.statuses())
        if acknowledged > best:
            best, since = acknowledged, time.monotonic()
        return acknowledged >= traffic.written or time.monotonic() - since > _CATCH_UP_SECONDS

    _look(agent, traffic, view, done, stop)


def _look(agent: Agent, traffic: Traffic, view: _LineView, done: Callable[[], bool], stop: StopSignals) -> None:
    """Shows the state until `done`. Raises FatalError if Spark is given up, or a connector fails."""
    while not done():
        stop.check()
        statuses = agent.statuses()
        view.show(statuses, traffic.written, traffic.rotations)
        failed = [status for status in statuses if status.state is State.FAILED]
        if failed:
            raise FatalError(f"connector {failed[0].name} failed: {failed[0].reason}")
        if agent.given_up:
            raise agent.given_up
        agent.wake.wait(_LOOK_SECONDS)
    view.show(agent.statuses(), traffic.written, traffic.rotations)


def _compare(settings: AgentSettings, traffic: Traffic, stop: StopSignals) -> tuple[Proof, ...]:
    def lines() -> Iterator[bytes]:
        for topic in TOPICS.values():
            for line in read_topic(settings.agent.kafka, topic):
                stop.check()
                yield line

    return prove(traffic.logs, lines())


def dev_broker(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535)] = 9092,
    data: Annotated[
        Path | None, typer.Option(help="Directory to keep topics in between runs; without it they are gone at the end.", file_okay=False)
    ] = None,
) -> None:
    """Start a real one-node Kafka on this machine and keep it until Ctrl-C or SIGTERM.

    Kafka is fetched once (43 MB) into ~/.cache/copycat; Java is all it needs. Prints its address when it is ready.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = Console(stderr=True, highlight=False)
    try:
        with ExitStack() as until_end:
            directory = data or Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="copycat-kafka-")))
            broker = DevBroker(directory, port)
            until_end.callback(broker.stop)
            _serve(broker, words)
    except KeyboardInterrupt:
        words.print("stopped")
    except CopycatError as error:
        words.print(f"error: {error}", markup=False)
        raise typer.Exit(1) from error


def _serve(broker: DevBroker, words: Console) -> None:
    """Starts the broker, prints its address, and waits. Ends by KeyboardInterrupt, or with exit 1 if Kafka ends by itself."""
    words.print(f"starting Kafka {KAFKA_VERSION}, log in {broker.log_path}", markup=False)
    broker.start()
    typer.echo(broker.bootstrap)
    words.print(f"ready: use --bootstrap-servers {broker.bootstrap}; Ctrl-C ends it", markup=False)
    code = broker.wait()
    words.print(f"error: Kafka ended by itself with exit code {code}; read {broker.log_path}", markup=False)
    raise typer.Exit(1)
