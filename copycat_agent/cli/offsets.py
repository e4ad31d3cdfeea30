"""`copycat offsets`: shows and changes saved offsets, and decides which positions an exactly-once connector continues from."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from copycat_agent.cli import exits
from copycat_agent.cli.agent_client import Name, SomeName
from copycat_agent.cli.common_options import Config, Format, Output, Socket, StateDir, leave
from copycat_agent.cli.offsets_access import Access, Changes, Offsets, access, checked_name, line_rules, moved_cursor, read_documents
from copycat_agent.cli.offsets_view import by_path, columns, compared, into_files, lane_lines, listed, meaning_of, summary, taken_over
from copycat_agent.display import visible
from copycat_agent.errors import CopycatError, DataError, UnknownConnectorError
from copycat_agent.model import SourcePartition, offsets_in
from copycat_agent.offsets.agent_identity import is_uuid
from copycat_agent.offsets.document import to_documents
from copycat_agent.sources.log_file.beginning.manual_position import place
from copycat_agent.transactions.opening import Adopt


def adopt(  # noqa: PLR0913, PLR0917 - the command's options
    name: Name,
    from_topic: Annotated[
        bool, typer.Option("--from-topic", help="Go on from the positions in Kafka, not from those of this host.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="UUID",
            help="With --from-topic: take over the positions of this agent, whose state directory is gone, beside one's own.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Stop a connector that runs meanwhile.")] = False,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Decide which positions a connector with exactly_once goes on from, when it has refused to start.

    From those of this host: what was sent up to there is not sent again, whatever Kafka says. With --from-topic from those in Kafka: what
    lies behind them is sent again. It holds from the connector's next start: copycat ctl restart NAME. With --agent a state directory is
    made where there is none: say it before the new agent starts for the first time, as the agent's user.
    """
    if agent and not from_topic:
        leave("--agent goes with --from-topic: its positions are nowhere else", exits.USAGE)
    if agent and not is_uuid(agent):
        msg = f"{agent!a:.60} is not the uuid of an agent"
        raise DataError(msg, "keys in __copycat_offsets begin with it, and so do transactional ids, behind copycat.")
    which: Adopt = "topic" if from_topic else "local"
    with access(socket, state_dir, config, create=bool(agent)) as store:  # an agent whose state directory is gone has none
        lanes = _lanes(store, checked_name(name), agent)
        means = taken_over(name, agent) if agent else meaning_of(name, which, lanes)
        if sys.stdin.isatty() and not yes:
            typer.confirm(f"{means}\ngo on?", abort=True, err=True)
        identity = store.adopt(name, which, agent or "", force=force)
    if output is Format.JSON:
        typer.echo(json.dumps({"connector": name, "from": which, "agent": agent or "", "identity": identity}, indent=2))
        return
    typer.echo(means)
    if identity:
        typer.echo(f"this agent is {identity} from now on")
    typer.echo(f"it holds when {name} starts next: copycat ctl restart {name}")


def _lanes(store: Access, name: str, agent: str | None) -> Mapping[str, Any] | None:
    """Returns what is known of the connector's lanes. Raises UnknownConnectorError if the connector is not known."""
    lanes = store.lanes(name)
    if lanes is None and not agent and name not in (known := store.known()):
        msg = f"no offsets are saved for {visible(name)}"
        raise UnknownConnectorError(msg, f"there are some for: {', '.join(known)}" if known else "there are none at all")
    return lanes


offsets = typer.Typer(
    no_args_is_help=True,
    help="Look at saved offsets, and change them: through the agent when it runs, else in its file. A connector that runs has to be "
    "stopped first (copycat ctl stop NAME), or is stopped meanwhile with --force.",
)
Force = Annotated[bool, typer.Option("--force", help="Stop a connector that runs meanwhile, and do what looks wrong.")]
FileOption = Annotated[Path | None, typer.Option("--path", metavar="FILE", help="The file, by the name it has, or had last.")]
KeyOption = Annotated[str | None, typer.Option("--key", metavar="KEY", help="The file, by its key, as show prints it.")]

offsets.command()(adopt)


@offsets.command(name="list")
def list_(
    name: SomeName = None, output: Output = Format.TEXT, socket: Socket = None, state_dir: StateDir = None, config: Config = None
) -> None:
    """List connectors that have saved offsets, with the guarantee that they last ran with."""
    with access(socket, state_dir, config) as store:
        names = [_known(store, name)] if name else list(store.connectors())
        found = [summary(one, store.read(one), store.lanes(one)) for one in names]
    if output is Format.JSON:
        typer.echo(json.dumps(found, indent=2))
    elif found:
        rows = [(one["name"], f"{one['files']:,}", f"{one['gone']:,}", f"{one['bytes']:,}", one["guarantee"]) for one in found]
        typer.echo("\n".join(columns([("connector", "files", "gone", "bytes settled", "guarantee"), *rows])))
    else:
        typer.echo("no connector has saved offsets", err=True)


@offsets.command()
def show(name: Name, output: Output = Format.TEXT, socket: Socket = None, state_dir: StateDir = None, config: Config = None) -> None:
    """Show the offsets of a connector, file by file: the next byte to read, the size it was known to have, its key.

    Of one with exactly_once also its lanes as they were last saved here: the agent asks Kafka when it starts.
    """
    with access(socket, state_dir, config) as store:
        lanes = store.lanes(name)
        found = store.read(name if lanes else _known(store, name))
    if output is Format.JSON:
        typer.echo(json.dumps({"connector": name, **to_documents(found), "lanes": lanes}, indent=2))
        return
    typer.echo("\n".join(listed(found)) or f"no file of {name} has an offset", err=not by_path(found))
    for line in lane_lines(lanes):
        typer.echo(line)


@offsets.command(name="set")
def set_(  # noqa: PLR0913, PLR0917 - the command's options
    name: Name,
    position: Annotated[
        str,
        typer.Option(
            "--position",
            metavar="N|beginning|end|JSON",
            help="The next byte or offset to read; end: behind its last line. JSON: of a source without files.",
        ),
    ],
    path: FileOption = None,
    key: KeyOption = None,
    definition: Annotated[
        Path | None,
        typer.Option(
            "--definition", "-d", metavar="FILE", help="The connector's definition, which says what a line is; a running agent knows."
        ),
    ] = None,
    force: Force = False,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Have a file read on from another position; in a packed file positions count the bytes that it holds.

    The file is looked at, so that the agent knows it again by what lies before that position. A position beyond its end, in the
    middle of a line, or of a file that is not there is refused without --force. Where no agent runs and no definition is given,
    lines end with a line feed, in UTF-8 or what a byte order mark says. A source without files has a position of its own, which export
    shows as `cursor`: give one of that form, or only the `offset` that it has; nothing else of it is checked.
    """
    _one_of(path, key)
    with access(socket, state_dir, config) as store:
        saved = store.read(checked_name(name))
        if moved := moved_cursor(name, offsets_in(saved), position, path=str(path or ""), key=key or "", force=force):
            _change(store, name, saved, moved, force=force, output=output)
            return
        rules = line_rules(name, definition) if definition else store.line_rules(name)
        chosen = place(name, offsets_in(saved), position, path=os.path.abspath(path) if path else "", key=key or "", rules=rules)  # noqa: PTH100 - no links followed
        for doubt in chosen.doubts:
            typer.echo(f"warning: {visible(doubt)}", err=True)
        if chosen.doubts and not force:
            raise CopycatError("nothing was changed", "if that is what you want, use --force")
        _change(store, name, saved, {chosen.partition: chosen.offset}, force=force, output=output)


@offsets.command()
def reset(  # noqa: PLR0913, PLR0917 - the command's options
    name: Name,
    path: FileOption = None,
    key: KeyOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Force = False,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Delete the offsets of a connector, or of one file: what they cover is read again.

    A connector without offsets begins as if it had never run: start_at holds for the files that are there. A single file is read
    from its beginning. With exactly_once the positions in Kafka do not count any more either, once it starts.
    """
    with access(socket, state_dir, config) as store:
        saved = store.read(checked_name(name))
        chosen = _selected(name, saved, path, key)
        if chosen and not yes and sys.stdin.isatty():
            typer.echo("\n".join(compared({one: saved[one] for one in chosen}, {})), err=True)
            typer.confirm(f"delete {len(chosen)} offsets of {name}, so that what they cover is sent again?", abort=True, err=True)
        if path is None and key is None:
            store.reset(name, force=force)
            chosen = []
        _change(store, name, saved, dict.fromkeys(chosen), force=force, output=output)


@offsets.command()
def export(
    name: Name,
    target: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Instead of stdout.")] = None,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Write the offsets of a connector as JSON, for import."""
    with access(socket, state_dir, config) as store:
        text = json.dumps({"connector": name, **to_documents(store.read(_known(store, name)))}, indent=2)
    if target is None:
        typer.echo(text)
    else:
        try:
            target.write_text(f"{text}\n", "utf-8")
        except OSError as error:
            raise CopycatError(f"{target} cannot be written: {error.strerror}") from error


@offsets.command(name="import")
def import_(
    name: Name,
    source: Annotated[str, typer.Argument(metavar="FILE", help="What export wrote; - for stdin.")],
    force: Force = False,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Save the offsets in FILE over those that are there. Others stay; an offset of null deletes."""
    given = read_documents(checked_name(name), source)
    with access(socket, state_dir, config) as store:
        _change(store, name, store.read(name), given, force=force, output=output)


@offsets.command()
def rename(
    name: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The connector that takes them over.")],
    force: Force = False,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Give all that is saved for a connector to another name: offsets, losses, and whether it is paused or stopped.

    A file that NEW has an offset of already keeps that one.
    """
    with access(socket, state_dir, config) as store:
        _known(store, name)
        kept = offsets_in(store.read(checked_name(new)))
        moved = store.rename(name, new, force=force)
    if output is Format.JSON:
        typer.echo(json.dumps({"from": name, "to": new, "renamed": moved, "kept": len(kept)}, indent=2))
    else:
        typer.echo(f"{moved} offsets of {name} are {new}'s now" + (f"; {new} had {len(kept)} of its own" if kept else ""))


def _change(store: Access, name: str, before: Offsets, changes: Changes, *, force: bool, output: Format) -> None:
    """Saves the changes, and prints their effect."""
    if changes:
        store.save(name, changes, force=force)
    after = store.read(name)
    if before != after and any(map(into_files, offsets_in(before).values())):
        typer.echo(f"note: {name} goes on where its files end, whatever its offsets say, until it has another name or uri", err=True)
    if output is Format.JSON:
        typer.echo(
            json.dumps({"connector": name, "before": to_documents(before)["offsets"], "after": to_documents(after)["offsets"]}, indent=2)
        )
        return
    lines = compared(before, after)
    for line in lines:
        typer.echo(line)
    if not lines:
        typer.echo(f"nothing has changed: {len(before)} offsets of {name}" if before else f"{name} has no offsets", err=True)


def _selected(name: str, saved: Offsets, path: Path | None, key: str | None) -> list[SourcePartition]:
    """Returns all partitions, or those that `path` or `key` selects."""
    if path is None and key is None:
        return list(saved)
    _one_of(path, key)
    wanted = os.path.abspath(path) if path else ""  # noqa: PTH100 - no links followed
    chosen = [one for one, offset in offsets_in(saved).items() if one.key == key or offset.path == wanted]
    if not chosen:
        raise DataError(f"connector {name} has no offset of {visible(wanted or str(key))}", f"see: copycat offsets show {name}")
    return chosen


def _one_of(path: Path | None, key: str | None) -> None:
    if (path is None) == (key is None):
        leave("say which file: either --path or --key", exits.USAGE)


def _known(store: Access, name: str) -> str:
    """Returns `name` if it has offsets. Raises UnknownConnectorError."""
    names = store.connectors()
    if name not in names:
        msg = f"no offsets are saved for {visible(name)}"
        raise UnknownConnectorError(msg, f"there are some for: {', '.join(names)}" if names else "there are none at all")
    return name
