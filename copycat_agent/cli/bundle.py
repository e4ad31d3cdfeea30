"""`copycat bundle`: an archive for a report, without records and secrets."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from copycat_agent import __version__, logs
from copycat_agent.agent import AgentSettings
from copycat_agent.bundle import PART_SECONDS, BundledAgent, BundlePart, is_hanging, known_secrets, line_of, packed, parts
from copycat_agent.cli import exits
from copycat_agent.cli.agent_client import find_agent
from copycat_agent.cli.common_options import Config, Socket, StateDir, leave, state_directory
from copycat_agent.cli.running import resolve_settings
from copycat_agent.definitions import find_agent_file
from copycat_agent.definitions.secret_values import Masker
from copycat_agent.display import visible
from copycat_agent.errors import CopycatError
from copycat_agent.options import AgentOptions

_HERE = Path("connectors.d")
_PACKAGED = Path("/etc/copycat/connectors.d")
_PACKAGED_STATE = Path("/var/lib/copycat")
_INSIDE = """\
In it: versions, definitions, states, metrics, the log, what doctor says, the shape of the offset store.
That includes names of connectors, topics, hosts and users, and paths of files with the positions in them.
Not in it: records, keys of records, comments and tests of definitions, secrets. What definitions hold or refer to
as a secret is replaced wherever it would appear, as far as this user can read it."""


def bundle(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="Directory of definitions; default: ./connectors.d, the running agent's, /etc/copycat/connectors.d."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here; default: copycat-bundle-HOST-TIME.tar.gz.")
    ] = None,
    config: Config = None,
    state_dir: StateDir = None,
    socket: Socket = None,
) -> None:
    """Write what a report needs to a .tar.gz that only its owner can read: how the agent and its host are, no records and no secrets.

    Works while an agent runs and while none does, with broken definitions and a damaged store: what cannot be had is named in its
    MANIFEST.txt, and the command ends with 0 all the same. Sends nothing anywhere, and overwrites nothing.
    """
    path = output or Path(f"copycat-bundle-{platform.node()}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz")
    logs.setup("error")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        leave(f"{visible(str(path))} cannot be made: {error.strerror}; name another file with --output", exits.FAILED)
    try:
        with os.fdopen(fd, "wb") as file:
            typer.echo(f"{_INSIDE}\nThis takes some seconds, and up to {PART_SECONDS:.0f} for each part that hangs.\n", err=True)
            bundled = _bundled_agent(directory, config, state_dir, socket)
            mask = _masker(bundled)
            file.write(packed(_collect(bundled, mask), mask, _head()))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    typer.echo(f"\nlook through it before you send it: tar -xzOf {visible(str(path))} | less", err=True)
    typer.echo(str(path))
    if is_hanging():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exits.GOOD)


def _head() -> str:
    return f"copycat bundle {__version__}, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}, {platform.node()}\n{_INSIDE}\n"


def _collect(bundled: BundledAgent, mask: Masker) -> list[BundlePart]:
    found = []
    for part in parts(bundled):
        typer.echo(visible(mask(line_of(part))), err=True)
        found.append(part)
    return found


def _masker(bundled: BundledAgent) -> Masker:
    files = [] if bundled.agent_file is None else [bundled.agent_file]
    with contextlib.suppress(OSError):
        files += [path for path in bundled.directory.iterdir() if path.suffix in {".yaml", ".yml"}] if bundled.directory else []
    return known_secrets(files, os.environ)


def _bundled_agent(directory: Path | None, config: Path | None, state_dir: Path | None, socket: Path | None) -> BundledAgent:
    """Resolves these options as far as possible: with an agent.yaml that does not load, the defaults apply."""
    where = directory or (_HERE if os.path.isdir(_HERE) else None)  # noqa: PTH112 - pathlib raises where one may not look
    try:
        client = find_agent(socket, state_dir, config)
    except CopycatError:
        client = find_agent(socket, state_dir, None)
    try:
        view = client.get("/v1")
    except CopycatError:
        view = {}
    where = where or Path(view.get("directory") or _PACKAGED)
    settings, why_not = _settings(where, config, state_dir, socket)
    kept_in = Path(view["state_dir"]) if view and state_dir is None else settings.state_dir
    if not view and state_dir is None and not os.path.isdir(kept_in) and os.path.isdir(_PACKAGED_STATE):  # noqa: PTH112 - as above
        kept_in = _PACKAGED_STATE
    is_there = os.path.isdir(where)  # noqa: PTH112 - as above
    try:
        agent_file = find_agent_file(where, config)
    except OSError:
        agent_file = config
    return BundledAgent(client, kept_in, where if directory or is_there else None, agent_file, settings.agent, why_not)


def _settings(where: Path, config: Path | None, state_dir: Path | None, socket: Path | None) -> tuple[AgentSettings, str]:
    try:
        return resolve_settings(where, config, state_dir, None, socket), ""
    except (CopycatError, OSError) as error:
        chosen = state_directory(state_dir, AgentOptions())
        return AgentSettings(AgentOptions(), chosen, chosen / "agent.sock"), str(error).replace("\n", " ")
