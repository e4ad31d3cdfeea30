"""Entry point of `copycat`: the commands and what their errors look like."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from copycat_agent import failpoints
from copycat_agent.cli import exits
from copycat_agent.cli.commands import Commands
from copycat_agent.cli.completion import answer_shells
from copycat_agent.cli.failpoints_view import listing
from copycat_agent.cli.options import Format, use_color
from copycat_agent.cli.streams import forgive_encodings, occupy_standard_streams
from copycat_agent.definitions import printable, render
from copycat_agent.errors import CopycatError, DefinitionError

app = typer.Typer(
    name="copycat",
    cls=Commands,
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def copycat(
    context: typer.Context,
    show_failpoints: Annotated[
        bool, typer.Option("--failpoints", help="List the places where a test can make the agent die, and end.")
    ] = False,
    output: Annotated[Format, typer.Option("--format", help="With --failpoints: text or json.")] = Format.TEXT,
) -> None:
    """Ships log files and spool directories to Kafka, at least once or exactly once."""
    if show_failpoints:
        typer.echo(listing(output))
        raise typer.Exit(exits.GOOD)
    if context.invoked_subcommand is None:
        context.fail("Missing command.")
    if wrong := failpoints.problem():
        typer.echo(f"error: {wrong}", err=True)
        raise typer.Exit(exits.USAGE)


def main() -> None:
    """Run the command line. Errors go to stderr with their next step, exit codes are those of `exits`."""
    occupy_standard_streams()
    forgive_encodings()
    answer_shells()
    try:
        app()
    except DefinitionError as error:
        color = use_color(no_color=False)
        for problem in error.problems:
            typer.echo(render(problem, color=color) + "\n", err=True, color=color)
        sys.exit(exits.DEFINITION_ERROR)
    except CopycatError as error:
        typer.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(exits.FAILED)
    except OSError as error:  # mostly stdout on a full disk: a traceback would tell a user less
        typer.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(exits.FAILED)
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
