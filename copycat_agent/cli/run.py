"""`copycat run`: the agent, in the foreground, its messages to the service manager, and the final account."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from copycat_agent import logs
from copycat_agent.agent import Agent, AgentSettings, DefinitionFiles, Elsewhere, LeaderElection, StoppedError, WantedDefinitions
from copycat_agent.agent.leader_election import WAIT_SECONDS
from copycat_agent.backfill.summary import Summary
from copycat_agent.cli import exits
from copycat_agent.cli.common_options import (
    BootstrapServers,
    Config,
    Directory,
    Format,
    LogFormatOption,
    NoColor,
    Quiet,
    Socket,
    StateDir,
    Verbose,
    leave,
    say_problems,
    start_logging,
    use_color,
)
from copycat_agent.cli.record_preview import show_records
from copycat_agent.cli.run_progress import UntilIdle, as_document, failed_files
from copycat_agent.cli.running import StopSignals, overrides, resolve_settings
from copycat_agent.definitions import NO_ADDRESS
from copycat_agent.spark.cluster_host import is_cluster
from copycat_agent.systemd import ServiceManager
from copycat_agent.transforms import sql_step
from copycat_agent.worker import State, Status

READY_SECONDS = 10.0
"""How long the connectors' first scans may delay "ready": a dead network file system must not delay it for ever."""
UP_SECONDS = WAIT_SECONDS + READY_SECONDS
"""How long the agent's state in Kafka may delay "ready". One that finds another process with its agent_id ends before that."""
_LOOK_SECONDS = 0.5

_log = logs.get("agent")


def account(statuses: Iterable[Status]) -> str:
    """Returns one line per connector: every record that was read, and its outcome."""
    return "\n".join(_line(status) for status in statuses)


def _line(status: Status) -> str:
    counts = status.counts
    parts = [f"{counts.read:,} records read ({counts.read_bytes:,} bytes)", f"{counts.acknowledged:,} acknowledged"]
    parts += [
        f"{getattr(counts, name):,} {name.replace('_', '-')}"
        for name in ("dead_lettered", "dropped", "rejected", "too_long")
        if getattr(counts, name)
    ]
    if counts.kept:
        parts.append(f"{counts.kept:,} of the acknowledged kept as they were, for a step failed")
    if status.lag.lost_bytes:
        parts.append(f"{status.lag.lost_bytes:,} bytes lost before they were read")
    if status.troubled_files:
        parts.append(f"{status.troubled_files:,} {'file' if status.troubled_files == 1 else 'files'} could not be read")
    if status.unsaved:
        parts.append("offsets could not be saved, what they cover will be sent again")
    if status.reason:
        parts.append(status.reason)
    return f"{status.name}: {status.state}: {', '.join(parts)}"


class ServiceReporter:
    """Reports to the service manager. Called by the loop of `run`, in its thread. Does nothing without a service manager."""

    def __init__(self, manager: ServiceManager, agent: Agent) -> None:
        self._manager = manager
        self._agent = agent
        self._began = time.monotonic()
        self._is_ready = False
        self._reload_asked = False

    def tick(self) -> None:
        """Reports changes and feeds the watchdog, unless the agent hangs. Called about twice a second."""
        if not self._manager.listens:
            return
        status = self._summary()
        if not self._is_ready:
            if self._agent.worker.started() or time.monotonic() - self._began > READY_SECONDS:
                self._is_ready = True
                self._manager.ready(status)
        elif self._reload_asked and not self._agent.reloading:
            self._reload_asked = False
            self._manager.ready(status)
        self._manager.status(status)
        self._manager.feed(self._agent.heartbeat())

    def reloading(self) -> None:
        """Called before a reload is requested."""
        self._reload_asked = True
        self._manager.reloading()

    def stopping(self) -> None:
        """Called before the agent settles what is in flight."""
        self._manager.stopping("settles what is in flight")

    def _summary(self) -> str:
        """Returns a text such as `3 connectors: 2 running, 1 blocked`."""
        counts = self._agent.worker.states()
        total = sum(counts.values())
        states = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
        return f"{total} connector{'' if total == 1 else 's'}{': ' if states else ''}{states}"


def run(  # noqa: PLR0913, PLR0917 - the command's options
    directory: Directory,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when everything that is there is read.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Print what would be sent as JSON lines, send nothing, move no offset.")] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another process runs with this agent_id, and take over when it is gone.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this connector; may be repeated.")] = None,
    config: Config = None,
    state_dir: StateDir = None,
    bootstrap_servers: BootstrapServers = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    log_format: LogFormatOption = None,
    socket: Socket = None,
    no_color: NoColor = False,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Read and send on this Spark cluster (spark://HOST:PORT)."),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="With --until-idle: the account as text, or all of it as json.")] = Format.TEXT,
) -> None:
    """Read the definitions in DIR and ship what they name to Kafka, until SIGTERM or Ctrl-C.

    Definitions that do not load are reported and the others run; exit 78 when none loads. A first signal settles what is in
    flight and exits 0, or 1 when that could not be saved; a second one exits at once. With --until-idle also a connector that
    failed, and files that could not be read to their end, make it exit 1.
    """
    manager = ServiceManager()
    stop = StopSignals(hangup_reloads=not until_idle)
    on_cluster = _is_on_cluster(master, to_the_end=until_idle or dry)
    elsewhere: Elsewhere = "on a cluster" if on_cluster else "by a process that takes over" if standby else ""
    settings = resolve_settings(directory, config, state_dir, bootstrap_servers, socket)
    shows_bars = until_idle and not (dry or quiet or verbose) and os.isatty(2)
    start_logging(settings.agent, verbose=verbose, quiet=quiet or shows_bars, log_format=log_format)
    if dry:
        raise typer.Exit(show_records(directory, settings, only or [], stop, color=use_color(no_color=no_color)))
    files = DefinitionFiles(directory, config, overrides(bootstrap_servers), only or [], elsewhere=elsewhere)
    first = _first_load(files, only or [], color=use_color(no_color=no_color))
    _leave_if_asked(stop, until_idle=until_idle)
    tracked = until_idle and output is Format.JSON
    with contextlib.ExitStack() as around:
        leading = around.enter_context(led(settings, stop, manager, stands_by=standby, until_idle=until_idle))
        if leading is not None and files.look() != files.seen:  # they have changed while this process stood by
            first = _first_load(files, only or [], color=use_color(no_color=no_color))
        running = [one for one in first.definitions.values() if one.enabled]
        rebuild = any(one.delivery.guarantee == "exactly_once" for one in running)
        queries = any(sql_step(one) is not None for one in running)
        agent = around.enter_context(
            Agent(
                settings,
                until_idle=until_idle,
                tracked=tracked,
                rebuild=rebuild,
                manager=manager,
                queries=queries,
                master=master,
                leading=leading,
            )
        )
        to_the_end = UntilIdle(agent, bars=shows_bars, color=use_color(no_color=no_color)) if until_idle else None
        agent.follow(files, first, once=until_idle)
        service = ServiceReporter(manager, agent)
        while not (stop.asked or agent.given_up) and not (until_idle and agent.worker.wait(0)):
            service.tick()
            agent.wake.wait(_LOOK_SECONDS) if to_the_end is None else to_the_end.wait(_LOOK_SECONDS)
            if stop.reload_asked():
                _log.info("agent is asked to reload", signal="SIGHUP")
                service.reloading()
                agent.ask_to_reload()
        service.stopping()
        if stop.asked:
            _log.info("agent is asked to stop", signal=stop.name)
        summaries = to_the_end.end(interrupted=stop.asked) if to_the_end and not agent.given_up else []
    if agent.given_up:
        leave(str(agent.given_up), exits.GAVE_UP)
    statuses = [status for status in agent.statuses() if status.enabled]
    code = _exit_code(statuses, summaries, until_idle=until_idle, stopped=stop.asked)
    if until_idle:
        typer.echo("\n".join((account(statuses), *failed_files(summaries))) if output is Format.TEXT else as_document(summaries, code))
    if code:
        raise typer.Exit(code)


def _is_on_cluster(master: str | None, *, to_the_end: bool) -> bool:
    """Returns whether the master is a cluster. Ends the command with 2 for a run to the end there: another command does that."""
    on_cluster = master is not None and is_cluster(master)
    if on_cluster and to_the_end:
        leave(
            "--master goes with an agent that stays; a run to the end on a cluster is: copycat backfill DEFINITION --master URL",
            exits.USAGE,
        )
    return on_cluster


@contextlib.contextmanager
def led(
    settings: AgentSettings, stop: StopSignals, manager: ServiceManager, *, stands_by: bool, until_idle: bool
) -> Iterator[LeaderElection | None]:
    """Around the agent: this process leads those with its agent_id, once it is its turn; None without one.

    Leaves when it is asked to stop before, or before it has the agent's state.
    """
    agent = settings.agent
    if agent.agent_id is None:
        if stands_by:
            leave("--standby needs agent_id in agent.yaml: the name that this process shares with the one that runs", exits.USAGE)
        yield None
        return

    up_at = time.monotonic() + UP_SECONDS

    def tick(status: str) -> None:
        nonlocal up_at
        if time.monotonic() > up_at:
            manager.ready(status)
            up_at = math.inf
        manager.status(status)
        manager.feed(0.0)

    with LeaderElection(agent.kafka, agent.agent_id, stopping=lambda: stop.asked, tick=tick) as leading:
        if stands_by:
            manager.ready("stands by")
        if not leading.begin(stands_by=stands_by):
            _leave_if_asked(stop, until_idle=until_idle)
        try:
            yield leading
        except StoppedError:
            _leave_if_asked(stop, until_idle=until_idle)
            raise


def _leave_if_asked(stop: StopSignals, *, until_idle: bool) -> None:
    """Ends the command if a stop was requested before anything was started."""
    if stop.asked:
        raise typer.Exit(exits.INTERRUPTED if until_idle else exits.GOOD)


def _waits_for_clients(loaded: WantedDefinitions) -> bool:
    """Returns whether an agent that runs nothing is right: its definitions may come over Kafka Connect's REST API."""
    connect = loaded.options.api.connect
    return connect is not None and connect.writable and not loaded.problems and not loaded.kept


def _exit_code(statuses: Iterable[Status], summaries: Iterable[Summary], *, until_idle: bool, stopped: bool) -> int:
    """Returns the exit code by the outcomes of the connectors. `stopped`: by a signal."""
    if any(summary["totals"]["files"]["failed"] for summary in summaries):
        return exits.FAILED
    for status in statuses:
        if status.unsaved or (until_idle and (status.state is State.FAILED or status.troubled_files)):
            return exits.FAILED
    return exits.INTERRUPTED if until_idle and stopped else exits.GOOD


def _first_load(files: DefinitionFiles, only: list[str], *, color: bool) -> WantedDefinitions:
    """Returns the definitions to run. Problems go to stderr; ends the command with 78 or 2 if nothing is left to run."""
    loaded = files.load()
    say_problems(loaded.problems, color=color)
    say_problems(loaded.warnings, kind="warning", color=color)
    unknown = [name for name in only if name not in loaded.definitions and name not in loaded.kept]
    if unknown:
        leave(f"no definition named {', '.join(unknown)} loads from {files.directory}", exits.USAGE)
    if not any(one.enabled for one in loaded.definitions.values()) and not _waits_for_clients(loaded):
        no_address = any(why.startswith(NO_ADDRESS) for why in loaded.kept.values())
        why = f"{NO_ADDRESS};\nfor a trial, start a broker with: copycat dev-broker" if no_address else ""
        if files.elsewhere and loaded.kept and not loaded.problems:
            why = why or "\n".join(f"{name}: {words}" for name, words in sorted(loaded.kept.items()))
        leave(f"{why or f'no definition in {files.directory} can be run'}", exits.DEFINITION_ERROR)
    return loaded
