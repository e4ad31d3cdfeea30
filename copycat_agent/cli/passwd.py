"""`copycat passwd`: a line for the file that `api.users` names."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from copycat_agent.api.port_access import Role, line_of


def passwd(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")],
    role: Annotated[
        Role, typer.Option(help="view: may read. operate: may also pause, stop and restart connectors, and change their offsets.")
    ] = "view",
) -> None:
    """Print a line for the file that api.users names: NAME and a hash of the password, which is asked for, or read from stdin.

    The password is never shown and never on a command line: copycat passwd prometheus >> /etc/copycat/api.users
    """
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise typer.BadParameter("there is no password on stdin")
    typer.echo(line_of(name, password, role=role))
