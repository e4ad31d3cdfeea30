"""Makes a job from the options of `copycat backfill`: which files, which run, from which time on; and shows its plan with `--plan`."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import typer

from copycat_agent import logs
from copycat_agent.agent import AgentSettings
from copycat_agent.backfill import path_source
from copycat_agent.backfill.backfill import BackfillJob
from copycat_agent.backfill.delivered import EarlierDeliveries
from copycat_agent.backfill.dry_run import plan_of
from copycat_agent.backfill.path_runs import PathRun, PathRuns, PathSelection, choose, give_up, is_worked_on, rows_of, shared_file
from copycat_agent.cli import exits
from copycat_agent.cli.common_options import leave
from copycat_agent.display import age, size, visible
from copycat_agent.encoding.window import WindowOptions
from copycat_agent.errors import FatalError
from copycat_agent.model import offsets_in
from copycat_agent.offsets.store_reader import offsets_of, saved_offsets
from copycat_agent.options import Definition, LimitsOptions
from copycat_agent.sources import SOURCES
from copycat_agent.sources.contract import PolledOptions
from copycat_agent.sources.contract_files import FilesOptions
from copycat_agent.sources.files.reading.address import is_remote
from copycat_agent.sources.remote import maker as remote_maker

_EXCLUDED = "source.exclude of the definition leaves out"
FILES_SHOWN = 200


class BackfillRequest(NamedTuple):
    """The request on the command line. `rate` in bytes per second, 0 for no limit; `directory`: that of the definition's file."""

    paths: tuple[str, ...]
    window: WindowOptions | None
    rate: int
    again: bool
    resume: bool
    directory: Path | None = None


def usage(words: str) -> NoReturn:
    """Ends the command with a usage error."""
    leave(words, exits.USAGE)


def moment(text: str | None, option: str) -> int | None:
    """Returns the epoch milliseconds of an RFC 3339 time or a date; without a zone it is in the host's."""
    if text is None:
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        usage(f"{option} {text!r} is not a time: give one as 2026-11-22T05:00:00Z, or a date as 2026-11-22")


def window_of(since: str | None, until: str | None, time_field: str | None) -> WindowOptions | None:
    """Returns the wanted times; None for all."""
    if since is None and until is None:
        if time_field is not None:
            usage("--time-field goes with --since or --until")
        return None
    since_ms, until_ms = moment(since, "--since"), moment(until, "--until")
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        usage(f"no record is written both at --since {since} or later and before --until {until}")
    return WindowOptions(since_ms=since_ms, until_ms=until_ms, time_field=time_field)


def rate_of(text: str | None) -> int:
    """Returns the bytes per second of `20MiB/s` or `20MiB`."""
    if text is None:
        return 0
    try:
        options = LimitsOptions.model_validate({"bytes_per_second": text.removesuffix("/s")})
    except ValueError:
        usage(f"--rate {text!r} is no rate of at least 1KiB/s: give bytes per second with a unit, as 20MiB/s")
    return options.bytes_per_second or 0


def resolve_run(definition: Definition, settings: AgentSettings, asked: BackfillRequest) -> tuple[BackfillJob, PathRun | None]:
    """Returns the job, and its run: None without PATHs. Begins a run on disk, or finds the one to resume.

    With PATHs the caller holds `PathRuns.held` until the store of the run is locked: only from then on others see that it is worked on.
    """
    if not asked.paths:
        if asked.again:
            usage("--again needs PATHs: without any, the connector's own offsets say what is left (copycat offsets reset forgets them)")
        if asked.resume:
            usage("--resume needs PATHs: without any, a backfill always goes on where the connector is")
        _warn_of_window(asked)
        return BackfillJob(definition, settings.state_dir, window=asked.window, rate=asked.rate, directory=asked.directory), None
    runs = PathRuns(settings.state_dir)
    runs.prune()
    run = _run(definition, runs, asked)
    kind = SOURCES[definition.source.type]
    if run.remote:
        make = remote_maker(kind, run.remote)
    else:
        make = path_source.maker(kind, run.files, None if run.again else delivered_before(definition, settings, run.window, run))
    return BackfillJob(definition, run.directory, make, run.window, asked.rate), run


def delivered_before(
    definition: Definition, settings: AgentSettings, wanted: WindowOptions | None, run: PathRun | None = None
) -> EarlierDeliveries:
    """Returns what Kafka has of this connector's files: by its own offsets and those of other runs than `run` with all that is wanted.

    Its own count only if it reads all of its files: else nobody knows whether what is before a position was read.
    """
    reads_all = getattr(definition.source, "reads_all", True)
    saved = offsets_in(offsets_of(definition, saved_offsets(settings.state_dir))) if reads_all else {}
    live = [(one, offset, "the connector") for one, offset in saved.items()]
    earlier = [row for name in (definition.name, *definition.renamed_from) for row in PathRuns(settings.state_dir).rows(name, wanted)]
    own = f"backfill {run.name}" if run else ""
    return EarlierDeliveries([*live, *(row for row in earlier if row[2] != own)])


def files_of(definition: Definition, paths: Sequence[str]) -> PathSelection:
    """Returns the chosen files. Ends the command if a PATH matches nothing, or the definition excludes all files."""
    if isinstance(definition.source, PolledOptions) and not isinstance(definition.source, FilesOptions):
        usage(
            f"source {definition.source.type} has no files: name no PATHs, and what is there is read from where the connector is;\n"
            "       to begin elsewhere, use source.start_at with a name of its own, or copycat offsets set NAME"
        )
    chosen = choose(paths, getattr(definition.source, "exclude", ()))
    if chosen.nothing:
        usage("\n       ".join(visible(one) for one in chosen.nothing))
    if chosen.remote and chosen.files:
        usage("give addresses and files of this host to different runs")
    if chosen.excluded and not (chosen.files or chosen.remote):
        usage(f"{_EXCLUDED} all of these files: backfill them with a definition that does not exclude them")
    if chosen.excluded:
        others = len(chosen.excluded) - 1
        more = f" and {others:,} more" if others else ""
        typer.echo(f"note: {_EXCLUDED} {visible(chosen.excluded[0])}{more}", err=True)
    return chosen


def _run(definition: Definition, runs: PathRuns, asked: BackfillRequest) -> PathRun:
    """Returns the run to resume, or a new one."""
    names = tuple(path if is_remote(path) else os.path.abspath(path) for path in asked.paths)  # noqa: PTH100 - links keep their names
    before, shape = runs.unfinished(definition.name, names), _shape(definition)
    if before is not None and is_worked_on(before):
        raise FatalError(f"this backfill already runs: it began {_when(before)} ({_progress(before)})", "wait for its end")
    if asked.resume:
        if before is None:
            usage(f"there is nothing to resume: no backfill of {definition.name} over these PATHs was left unfinished")
        _check_same_window(before, asked)
        if before.shape not in ("", shape):
            usage("the definition has another source.format than when this run began: put it back, or begin anew with --again")
        _refuse_shared(definition, runs, before.files, again=before.again)
        return before
    if before is not None and not asked.again:
        usage(
            f"a backfill of these PATHs that began {_when(before)} did not come to its end ({_progress(before)}):\n"
            "       go on with it: --resume\n"
            "       or begin anew and send everything again: --again"
        )
    chosen = files_of(definition, asked.paths)
    _refuse_shared(definition, runs, chosen.files, again=asked.again)
    if before is not None:
        give_up(before)
    window = asked.window or WindowOptions(since_ms=None, until_ms=None, time_field=None)
    return runs.begin(
        PathRun(
            Path(),
            definition.name,
            names,
            chosen.files,
            chosen.remote,
            window.since_ms,
            window.until_ms,
            window.time_field,
            again=asked.again,
            shape=shape,
        )
    )


def _refuse_shared(definition: Definition, runs: PathRuns, files: Sequence[str], *, again: bool) -> None:
    """Raises FatalError if another process backfills one of these files now: both would send the rest of it. `again` asks for that."""
    names = (definition.name, *definition.renamed_from)
    others = () if again else (run for run in runs.all() if run.state == "begun" and run.connector in names and is_worked_on(run))
    for run in others:
        if (file := shared_file(run, files)) is not None:
            words = f"{visible(file)} is being read by the backfill that began {_when(run)} ({_progress(run)})"
            raise FatalError(words, "wait for its end, or leave out its files")


def _shape(definition: Definition) -> str:
    form = getattr(definition.source, "format", None)
    words = f"{definition.source.type} {form.model_dump_json() if form is not None else ''}"
    return hashlib.blake2b(words.encode(), digest_size=8).hexdigest()


def _check_same_window(before: PathRun, asked: BackfillRequest) -> None:
    window = asked.window
    if window and (window.since_ms, window.until_ms, window.time_field) != (before.since_ms, before.until_ms, before.time_field):
        usage("the run to resume began with other times: leave out --since, --until and --time-field, it goes on with its own")


def _warn_of_window(asked: BackfillRequest) -> None:
    if asked.window is not None:
        words = "records outside of these times are passed by the connector's own offsets: the agent will not send them later"
        typer.echo(f"warning: {words}; to leave the offsets alone, name the files as PATHs", err=True)


def _when(run: PathRun) -> str:
    return time.strftime("on %Y-%m-%d at %H:%M:%S", time.localtime(run.begun_ms / 1000))


def _progress(run: PathRun) -> str:
    """Returns how far the run had come, as a message."""
    rows = rows_of(run)
    done = sum(offset.done for offset in rows.values())
    records = sum(offset.records for offset in rows.values())
    return f"{done:,} of {max(len(run.files), len(rows)):,} files done, {records:,} records passed"


def show_plan(definition: Definition, settings: AgentSettings, asked: BackfillRequest, *, as_json: bool) -> None:
    """Prints the plan on stdout."""
    logs.setup("error")
    chosen = files_of(definition, asked.paths) if asked.paths else None
    delivered = None if asked.again or chosen is None else delivered_before(definition, settings, asked.window)
    saved = {} if chosen else offsets_of(definition, saved_offsets(settings.state_dir))
    measured = _measured(PathRuns(settings.state_dir), definition.name)
    plan = plan_of(definition, chosen, delivered, saved, asked.rate, measured)
    typer.echo(json.dumps(plan, indent=2) if as_json else "\n".join(_lines(plan, chosen)))


def _measured(runs: PathRuns, connector: str) -> float:
    """Returns the bytes per second of this connector's latest finished run of more than 1 s, 0.0 without one."""
    for run in reversed(runs.all()):
        try:
            account = json.loads((run.directory / "account.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if run.connector == connector and account["seconds"] > 1 and account["bytes_per_second"]:
            return float(account["bytes_per_second"])
    return 0.0


def _lines(plan: Mapping[str, Any], chosen: PathSelection | None) -> Iterator[str]:
    files = sorted(plan["files"], key=lambda file: (file["action"] == "skip", file["path"]))
    for file in files[:FILES_SHOWN]:
        yield _file(file)
    if len(files) > FILES_SHOWN:
        yield f"... and {len(files) - FILES_SHOWN:,} more files; --format json has them all"
    for address in chosen.remote if chosen else ():
        yield f"{address}: what is behind addresses is not looked at"
    topic = plan["topic"]
    yield f"topic {visible(topic['name'])}: {topic['state']}"
    totals, words = plan["totals"], plan["time"]["words"]
    records = f"about {totals['records']:,} records" if totals["records"] is not None else "nobody knows how many records"
    took = f"about {age(plan['time']['seconds'])} {words}" if plan["time"]["seconds"] is not None else words
    yield f"{plan['connector']}: {totals['send']:,} of {totals['files']:,} files to send: {size(totals['bytes'])}, {records}, {took}"
    for warning in plan["warnings"]:
        yield f"warning: {visible(warning)}"


def _file(file: Mapping[str, Any]) -> str:
    packed = f", {file['compression']}: about {size(file['unpacked_bytes'])} unpacked" if file["compression"] else ""
    why = f": {visible(file['why'])}" if file["why"] else ""
    if file["action"] == "skip":
        return f"{visible(file['path'])}: skip{why}"
    records = "" if file["records"] is None else f", about {file['records']:,} records"
    return f"{visible(file['path'])}: {file['action']} {size(file['bytes'])}{packed}{records}{why}"
