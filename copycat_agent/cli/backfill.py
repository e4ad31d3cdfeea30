"""`copycat backfill`: reads files to their end, once, with an account of every record."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from copycat_agent.agent import AgentSettings
from copycat_agent.backfill.backfill import Backfill, Choose, on_master, on_this_host
from copycat_agent.backfill.path_runs import PathRun, PathRuns, finish, stored_rows
from copycat_agent.backfill.summary import Summary
from copycat_agent.cli import exits
from copycat_agent.cli.backfill_job import BackfillRequest, rate_of, resolve_run, show_plan, window_of
from copycat_agent.cli.common_options import (
    BootstrapServers,
    Config,
    Format,
    NoColor,
    Output,
    Quiet,
    StateDir,
    Verbose,
    leave,
    say_problems,
    start_logging,
    use_color,
)
from copycat_agent.cli.run_progress import follow
from copycat_agent.cli.running import StopSignals, resolve_settings
from copycat_agent.definitions import NO_ADDRESS, load_directory, load_file
from copycat_agent.display import size, visible
from copycat_agent.errors import BlockedError, CopycatError, FatalError, RetriableError
from copycat_agent.options import Definition
from copycat_agent.producer.probing import ClusterProbe
from copycat_agent.sources import SOURCES
from copycat_agent.spark.cluster_host import is_cluster

FILES_SHOWN = 200
"""The most files that are listed, failed and unfinished ones first. `--format json` has them all."""
_ORDER = ("failed", "unfinished", "done", "skipped")
_NAMES = {"acknowledged": "acknowledged", "dead_lettered": "dead-lettered", "dropped": "dropped", "rejected": "rejected"}
ANSWER_SECONDS = 30.0
"""How long a broker may take to answer before anything is read."""


def table_of(summary: Mapping[str, Any]) -> str:
    """Returns the account as plain text, in as many lines as needed."""
    return "\n".join(_lines(summary))


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    files = sorted(summary["files"], key=lambda file: (_ORDER.index(file["state"]), file["path"]))
    for file in files[:FILES_SHOWN]:
        yield _file(file)
        for place in file["delivered"]:
            yield f"    {place['topic']}-{place['partition']}: offsets {place['first']:,} to {place['last']:,}"
    if len(files) > FILES_SHOWN:
        yield f"... and {len(files) - FILES_SHOWN:,} more files; --format json has them all"
    yield from _losses(summary)
    yield _total(summary)


def _file(file: Mapping[str, Any]) -> str:
    why = f": {visible(file['why'])}" if file["why"] else ""
    if file["state"] == "skipped":
        return f"{visible(file['path'])}: skipped{why}"
    packed = f", {file['compression']}" if file["compression"] else ""
    return f"{visible(file['path'])}: {file['state']}{why}; {_records(file)} ({size(file['bytes'])}{packed})"


def _records(counts: Mapping[str, Any]) -> str:
    parts = [f"{counts['read']:,} records read"]
    parts += [f"{counts[name]:,} {words}" for name, words in _NAMES.items() if counts[name] or name == "acknowledged"]
    if counts["too_long"]:
        parts.append(f"{counts['too_long']:,} of them too long")
    if counts["kept"]:
        parts.append(f"{counts['kept']:,} kept as they were, for a step failed")
    if counts["undated"]:
        parts.append(f"{counts['undated']:,} without a time")
    return ", ".join(parts)


def _losses(summary: Mapping[str, Any]) -> Iterator[str]:
    for loss in summary["losses"]:
        records = f" in {loss['records']:,} records" if loss["records"] else ""
        yield f"given up: {loss['size_bytes']:,} bytes{records}, {loss['reason'].replace('_', ' ')} (copycat losses shows where)"


def _total(summary: Mapping[str, Any]) -> str:
    totals = summary["totals"]
    states = ", ".join(f"{totals['files'][state]:,} {state}" for state in reversed(_ORDER) if totals["files"][state])
    files = totals["files"]["all"]
    head = f"{summary['connector']}: {summary['state']}: {files:,} file{'s' if files != 1 else ''} ({states or 'none'})"
    pace = f"{summary['seconds']:,.1f} s, {summary['records_per_second']:,.0f} records/s, {size(summary['bytes_per_second'])}/s"
    return f"{head}; {_records(totals['records'])} ({size(totals['bytes'])}); {pace}"


def backfill(  # noqa: PLR0913, PLR0917 - the command's options
    definition: Annotated[Path, typer.Argument(metavar="DEFINITION", help="The definition's file.")],
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Files, patterns or directories; without any: what the definition matches now."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be sent and how long it may take; send nothing.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="T", help="Only records written at T (RFC 3339, or a date) or later.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="T", help="Only records written before T.")] = None,
    time_field: Annotated[
        str | None, typer.Option("--time-field", metavar="NAME", help="The field that says when a record was written.")
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", metavar="SIZE", help="At most so many bytes of input per second: 20MiB/s.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Send also what was delivered before.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of these PATHs that did not come to its end.")] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Work on this Spark cluster (spark://HOST:PORT); every worker reads the files."),
    ] = None,
    config: Config = None,
    state_dir: StateDir = None,
    bootstrap_servers: BootstrapServers = None,
    output: Output = Format.TEXT,
    verbose: Verbose = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Read files to their end, once, and account for every record: read = acknowledged + dead-lettered + dropped, or the exit code is 1.

    With PATHs: these files, beside a running agent if there is one; what was delivered before is skipped. Without: what the definition
    matches, with the connector's own offsets. The summary goes to stdout. A first signal settles what is in flight and says how to
    resume (exit 130). Exits 69 when no broker answers.
    """
    stop = StopSignals()
    settings = resolve_settings(definition.absolute().parent, config, state_dir, bootstrap_servers)
    start_logging(settings.agent, verbose=verbose, quiet=quiet or not verbose)
    color = use_color(no_color=no_color)
    loaded = _load(definition, settings, color=color, alone=bool(paths))
    _refuse_elsewhere(loaded, master)
    window = window_of(since, until, time_field)
    asked = BackfillRequest(tuple(paths or ()), window, rate_of(rate), again=again, resume=resume, directory=definition.absolute().parent)
    if plan:
        show_plan(loaded, settings, asked, as_json=output is Format.JSON)
        return
    _require_broker(loaded, stop)
    choose = on_master(master, loaded.delivery.tasks_max) if master else on_this_host
    work, run = begin(loaded, settings, asked, choose, stop.check)
    code = _work(work, run, stop, output, quiet=quiet, color=color)
    if code:
        raise typer.Exit(code)


def _load(path: Path, settings: AgentSettings, *, color: bool, alone: bool) -> Definition:
    """Returns the definition. Ends the command with 78 if it cannot be used.

    Unless `alone`, also if `run` would refuse it beside the others of its directory, whose offsets or files it might take.
    """
    others = () if alone else load_directory(path.parent, settings.agent).files
    loaded = next((one for one in others if one.path == path), None) or load_file(path, settings.agent)
    say_problems(loaded.problems, color=color)
    if loaded.definition is None:
        raise typer.Exit(exits.DEFINITION_ERROR)
    if not loaded.definition.kafka.bootstrap_servers:
        leave(f"{NO_ADDRESS};\nfor a trial, start a broker with: copycat dev-broker", exits.DEFINITION_ERROR)
    return loaded.definition


def _refuse_elsewhere(definition: Definition, master: str | None) -> None:
    """Ends the command with 2 if the source cannot be read by a cluster."""
    source = definition.source.type
    if master and is_cluster(master) and (why := SOURCES[source].only_here):
        leave(f"--master {master}: source {source} is read on this host alone: {why}; leave --master out", exits.USAGE)


def _require_broker(definition: Definition, stop: StopSignals) -> None:
    """Ends the command with 69 if no broker answers, so that this does not show only after hours."""

    def ask() -> None:
        with closing(ClusterProbe(definition.kafka, time.monotonic() + ANSWER_SECONDS)) as probe:
            probe.brokers()

    try:
        stop.leave_behind(ask)
    except BlockedError:
        raise
    except RetriableError as error:
        servers = ",".join(definition.kafka.bootstrap_servers)
        leave(f"no broker answers at {servers}: {error}; nothing was read", exits.BROKER_UNREACHABLE)


def begin(
    definition: Definition, settings: AgentSettings, asked: BackfillRequest, choose: Choose, check: Callable[[], None]
) -> tuple[Backfill, PathRun | None]:
    """Returns the work, whose store is locked, and its run, None without PATHs. `check` raises if it has to be left before that."""
    with PathRuns(settings.state_dir).held() if asked.paths else nullcontext():
        job, run = resolve_run(definition, settings, asked)
        check()
        try:
            return Backfill(job, settings.agent, choose), run
        except FatalError as error:
            raise _with_ways_out(error, run) from None


def _work(work: Backfill, run: PathRun | None, stop: StopSignals, output: Format, *, quiet: bool, color: bool) -> int:
    """Runs it to its end, or to the first signal; prints the account. Returns the exit code."""
    with work:
        follow(work, stop, quiet=quiet, color=color)
        interrupted = stop.asked and not work.wait(0)
        waited_in_vain = work.gave_up_waiting()
        summary = _with_run(work.stop(interrupted=interrupted), run)
    kept = keep_account(run, summary)
    if output is Format.JSON:
        json.dump(summary, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        typer.echo(table_of(summary))
    code = _exit_code(summary, waited_in_vain=waited_in_vain, gave_up=work.failure is not None)
    if not kept:
        code = code or exits.FAILED
    _say_how_it_ended(summary, run, code)
    return code


def keep_account(run: PathRun | None, summary: Summary) -> bool:
    """Saves a run that came to its end. Returns False if that fails: the account is printed all the same."""
    if run is not None and summary["state"] == "finished":
        try:
            finish(run, summary, stored_rows(run))
        except (OSError, CopycatError) as error:
            why = error.message if isinstance(error, CopycatError) else error.strerror
            typer.echo(f"error: the account cannot be kept in {run.directory}: {why}; --resume tries that again", err=True)
            return False
    return True


def _with_run(summary: Summary, run: PathRun | None) -> Summary:
    """Returns the summary with the properties of its run."""
    head = {"version": summary["version"], "connector": summary["connector"], "run": run.name if run else None}
    asked = {
        "paths": list(map(visible, run.asked)) if run else None,
        "since_ms": run.since_ms if run else None,
        "until_ms": run.until_ms if run else None,
    }
    return {**head, **asked, **summary}


def _with_ways_out(error: FatalError, run: PathRun | None) -> CopycatError:
    """Adds a hint if an agent, or the same backfill, has the lock."""
    if "another agent" not in error.message:
        return error
    if run is not None:
        return FatalError(error.message.replace("another agent", "this backfill already runs: another process"), "wait for its end")
    hint = "stop the agent first, or name the files as PATHs: those are read beside it, with offsets of their own"
    return FatalError(error.message, hint)


def _exit_code(summary: Summary, *, waited_in_vain: bool, gave_up: bool) -> int:
    if summary["state"] == "interrupted":
        return exits.FAILED if summary["offsets_unsaved"] else exits.INTERRUPTED
    if waited_in_vain:
        return exits.BROKER_UNREACHABLE
    if gave_up:
        return exits.GAVE_UP
    return exits.GOOD if summary["complete"] else exits.FAILED


def _say_how_it_ended(summary: Summary, run: PathRun | None, code: int) -> None:
    if code == exits.GOOD:
        return
    if summary["problem"]:
        typer.echo(f"error: {summary['problem']}", err=True)
    if summary["state"] == "finished":
        typer.echo("error: not every record is accounted for as delivered, dead-lettered or dropped: see the summary", err=True)
        return
    words = "go on where it ended with" if run else "go on where it ended with the same command"
    typer.echo(f"{summary['state']}: {words}: {command_to_resume(run)}", err=True)


def command_to_resume(run: PathRun | None) -> str:
    """Returns the typed command, with --resume if it named PATHs."""
    typed = [one for one in sys.argv[1:] if one not in ("--resume", "--again")]
    if run is not None:
        typed.append("--resume") if "--" not in typed else typed.insert(typed.index("--"), "--resume")
    return shlex.join(["copycat", *typed])
