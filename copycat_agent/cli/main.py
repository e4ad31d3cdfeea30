"""Entry point of `copycat`: the commands and what their errors look like."""

from __future__ import annotations

import sys

import typer

from copycat_agent import __version__
from copycat_agent.cli import exits
from copycat_agent.cli.check import check, schema
from copycat_agent.cli.completion import answer_shells, completion
from copycat_agent.cli.ctl import ctl
from copycat_agent.cli.demo import demo
from copycat_agent.cli.describe import describe
from copycat_agent.cli.dev_broker import dev_broker
from copycat_agent.cli.dlq import dlq
from copycat_agent.cli.doctor import doctor
from copycat_agent.cli.losses import losses
from copycat_agent.cli.ls import ls
from copycat_agent.cli.offsets import offsets
from copycat_agent.cli.options import use_color
from copycat_agent.cli.plan import plan
from copycat_agent.cli.run import run
from copycat_agent.cli.status import status
from copycat_agent.cli.streams import occupy_standard_streams
from copycat_agent.cli.tap import tap
from copycat_agent.cli.top import top
from copycat_agent.definitions import render
from copycat_agent.errors import CopycatError, DefinitionError

app = typer.Typer(
    name="copycat",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Ships log files to Kafka: nothing lost, nothing silent.",
)


def version() -> None:
    """Print the version."""
    typer.echo(__version__)


for command in (run, check, doctor, plan, status, top, ls, describe, tap, losses, schema, dev_broker, demo, completion, version):
    app.command(name=command.__name__.replace("_", "-"))(command)
app.add_typer(ctl, name="ctl")
app.add_typer(offsets, name="offsets")
app.add_typer(dlq, name="dlq")


def main() -> None:
    """Run the command line. Errors go to stderr with their next step, exit codes are those of `exits`."""
    occupy_standard_streams()
    answer_shells()
    try:
        app()
    except DefinitionError as error:
        color = use_color(no_color=False)
        for problem in error.problems:
            typer.echo(render(problem, color=color) + "\n", err=True, color=color)
        sys.exit(exits.DEFINITION_ERROR)
    except CopycatError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(exits.FAILED)
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
