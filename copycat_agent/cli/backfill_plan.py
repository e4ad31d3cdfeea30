"""`copycat backfill --plan`: what a run would send, what it would skip, how long it may take. Sends nothing, moves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from copycat_agent import logs
from copycat_agent.backfill.paths import Chosen
from copycat_agent.backfill.planning import plan_of
from copycat_agent.backfill.runs import Runs
from copycat_agent.cli.backfill_asked import delivered_before, files_of
from copycat_agent.cli.shown import age, size, visible
from copycat_agent.offsets.looking import offsets_of, saved_offsets

if TYPE_CHECKING:
    from copycat_agent.agent import Settings
    from copycat_agent.cli.backfill_asked import Asked
    from copycat_agent.options import Definition

FILES_SHOWN = 200


def show_plan(definition: Definition, settings: Settings, asked: Asked, *, as_json: bool) -> None:
    """Print the plan on stdout."""
    logs.setup("error")
    chosen = files_of(definition, asked.paths) if asked.paths else None
    delivered = None if asked.again or chosen is None else delivered_before(definition, settings, None)
    saved = {} if chosen else offsets_of(definition, saved_offsets(settings.state_dir))
    measured = _measured(Runs(settings.state_dir), definition.name)
    plan = plan_of(definition, chosen, delivered, saved, asked.rate, measured)
    typer.echo(json.dumps(plan, indent=2) if as_json else "\n".join(_lines(plan, chosen)))


def _measured(runs: Runs, connector: str) -> float:
    """Bytes per second of the latest finished run of this connector that took a while, 0.0 without one."""
    for run in reversed(runs.all()):
        try:
            account = json.loads((run.directory / "account.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if run.connector == connector and account["seconds"] > 1 and account["bytes_per_second"]:
            return float(account["bytes_per_second"])
    return 0.0


def _lines(plan: Mapping[str, Any], chosen: Chosen | None) -> Iterator[str]:
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
