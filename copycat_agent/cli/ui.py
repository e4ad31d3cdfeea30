"""`copycat ui`: the page of the running agent, in a browser."""

from __future__ import annotations

import os
import webbrowser
from typing import Annotated

import typer

from copycat_agent.cli.agent_client import find_agent
from copycat_agent.cli.common_options import Config, Socket, StateDir
from copycat_agent.display import visible
from copycat_agent.errors import CopycatError

_SCREENS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of a session with a browser; in others a text browser might take over the terminal."""


def ui(
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the address.")] = False,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Print the address of the running agent's page, and open it in a browser where the session has one.

    The page is off until api.page.listen of agent.yaml says where it is served.
    """
    page = find_agent(socket, state_dir, config).get("/v1").get("page")  # an agent that was started before an upgrade has none
    if not page:
        hint = "set api: {page: {listen: 127.0.0.1:8090}} in agent.yaml, and restart the agent"
        raise CopycatError("this agent serves no page", hint)
    typer.echo(visible(page))
    if not no_open and any(map(os.environ.get, _SCREENS)):
        webbrowser.open(page)
