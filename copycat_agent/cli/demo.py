"""`copycat demo`: the whole main job on made-up logs, with a real broker, and the proof that nothing was lost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from copycat_agent import logs
from copycat_agent.agent import Agent, Settings
from copycat_agent.cli import exits
from copycat_agent.cli.demo_view import View, make_view
from copycat_agent.cli.options import NoColor
from copycat_agent.cli.settings import settle_settings
from copycat_agent.cli.stopping import Stopping
from copycat_agent.definitions import load_directory
from copycat_agent.demo import TOPICS, Proof, Traffic, prove, write_definitions
from copycat_agent.dev_broker import KAFKA_VERSION, DevBroker, fetch_kafka
from copycat_agent.errors import FatalError
from copycat_agent.producer.reading import read_topic
from copycat_agent.worker import State

_ROTATE_SECONDS = 1.5
"""Between two rotations; the logs take turns."""
_LOOK_SECONDS = 0.25
_CATCH_UP_SECONDS = 60.0
"""Without any progress for so long, what is missing is taken to be lost."""


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
    stop = Stopping()
    view = make_view(no_color=no_color)
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
    """The directory to work in. Leaves with exit 2 when the wanted one is not empty: an old state would spoil the count."""
    if wanted is None:
        return Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="copycat-demo-", ignore_cleanup_errors=True)))
    wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(wanted.iterdir()):
        typer.echo(f"error: {wanted} is not empty; name a new directory", err=True)
        raise typer.Exit(exits.USAGE)
    return wanted.absolute()


def _run(root: Path, seconds: float, rate: int, view: View, until_end: ExitStack, stop: Stopping) -> tuple[Proof, ...]:
    """Everything, up to the comparison. What is started here ends with `until_end`."""
    broker = DevBroker(root / "kafka")
    until_end.callback(broker.stop)
    connectors = write_definitions(root, root / "logs", broker.bootstrap)
    settings = settle_settings(connectors, None, root / "state", None)
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


def _grow(agent: Agent, traffic: Traffic, view: View, seconds: float, stop: Stopping) -> None:
    """The part to watch."""
    end = time.monotonic() + seconds
    _look(agent, traffic, view, lambda: time.monotonic() >= end, stop)
    traffic.stop()
    if traffic.error:
        raise FatalError(f"the made-up logs cannot be written: {traffic.error.strerror}", "give the demo a directory with --dir")


def _catch_up(agent: Agent, traffic: Traffic, view: View, stop: Stopping) -> None:
    """Until everything is acknowledged, or nothing moves any more: then the comparison shows what is missing."""
    best, since = -1, time.monotonic()

    def done() -> bool:
        nonlocal best, since
        acknowledged = sum(status.counts.acknowledged for status in agent.statuses())
        if acknowledged > best:
            best, since = acknowledged, time.monotonic()
        return acknowledged >= traffic.written or time.monotonic() - since > _CATCH_UP_SECONDS

    _look(agent, traffic, view, done, stop)


def _look(agent: Agent, traffic: Traffic, view: View, done: Callable[[], bool], stop: Stopping) -> None:
    """Show how things are until `done`. Raises FatalError when Spark is given up, or a connector is."""
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


def _compare(settings: Settings, traffic: Traffic, stop: Stopping) -> tuple[Proof, ...]:
    def lines() -> Iterator[bytes]:
        for topic in TOPICS.values():
            for line in read_topic(settings.agent.kafka, topic):
                stop.check()
                yield line

    return prove(traffic.logs, lines())
