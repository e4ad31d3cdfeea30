"""Entry point of `copycat`: the commands by name, each imported on use, and the output of their errors."""

from __future__ import annotations

import gc
import importlib
import io
import json
import keyword
import os
import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]  # public by their use, not by __all__
from typer.core import TyperGroup

from copycat_agent import __version__, failpoints
from copycat_agent.cli import exits
from copycat_agent.cli.common_options import Format, leave, say_problems, use_color
from copycat_agent.display import printable
from copycat_agent.errors import CopycatError, DefinitionError

PROGRAM = "copycat"
VARIABLE = "_COPYCAT_COMPLETE"
"""Set by the script when it asks `copycat` for the possible next words; click derives the name from the program's."""
COMMANDS: Mapping[str, str] = {
    "run": "run", "backfill": "backfill", "check": "check", "doctor": "doctor", "plan": "plan", "explain": "explain", "status": "status",
    "top": "top", "ls": "status", "describe": "status", "tap": "top", "losses": "losses", "schema": "check", "dev-broker": "demo",
    "demo": "demo", "completion": "main", "fmt": "fmt", "new": "new", "import": "import_", "version": "main", "ctl": "ctl",
    "offsets": "offsets", "dlq": "dlq", "health": "ctl", "passwd": "passwd", "try": "try_", "test": "test_command", "bundle": "bundle",
    "ui": "ui",
}  # fmt: skip
"""Command -> the module of this package with a function, or a `typer.Typer` of commands, that has the command's name; for a Python keyword
(import, try) the module's name. It is imported on use: `run` does without rich, doctor and demo, 70 ms of its start."""
_NAME_WIDTH = 16
"""The width of names in the list of `--failpoints`."""
_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def answer_shells() -> None:
    """Lets the app answer the scripts: typer sets this up itself only for apps that also have --install-completion."""
    completion_init()


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell that the script is for.")]) -> None:
    """Print a script that makes a shell complete commands, options and files. Packages install it already.

    For one shell: source <(copycat completion bash). For good: put that line into ~/.bashrc or ~/.zshrc;
    copycat completion fish > ~/.config/fish/completions/copycat.fish.
    """
    script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value)
    typer.echo(_autoloaded(script) if shell is Shell.ZSH else script)


def _autoloaded(script: str) -> str:
    """Adapts the script for zsh, which runs a file of its `fpath` as the function: else it would only register on the first TAB."""
    body, _, register = script.strip().rpartition("\n")
    call = register.split()[1]
    return f'{body}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  {call} "$@"\nelse\n  {register}\nfi'


def occupy_standard_streams() -> None:
    """Opens the null device for stdin, stdout or stderr if they are closed (`2>&-`).

    Otherwise the next file that is opened would get the number, and libraries and children that write to "stderr" would write into the
    offset store; and Python would have no stream object.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - a descriptor, for life


def forgive_encodings() -> None:
    """Writes characters that a terminal's encoding lacks, and odd bytes of file names, as backslash escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def listing(output: Format) -> str:
    """Returns the failpoints with their windows, and how to use one."""
    if output is Format.JSON:
        return json.dumps([{"name": name, "window": window, "where": where} for name, window, where in _rows()], indent=2)
    lines = [f"{name:<{_NAME_WIDTH}}{window:<5}{where}" for name, window, where in _rows()]
    actions = [f"  {name:<{_NAME_WIDTH - 2}}{what}" for name, what in failpoints.ACTIONS.items()]
    how = (
        f"\n{failpoints.VARIABLE}=name[:nth][:kill|hang|stop|error] acts when a process of the agent comes there for the nth time (1);\n"
        f"with {failpoints.ONCE}=FILE only the first process that does. For tests: docs/exactly-once.md has the windows."
    )
    return "\n".join([*lines, how, *actions])


def _rows() -> list[tuple[str, str, str]]:
    """Returns name, window and description of each failpoint."""
    cut = {name: words.partition(": ") for name, words in failpoints.NAMES.items()}
    return [(name, window, where) for name, (window, _, where) in cut.items()]


def version() -> None:
    """Print the version."""
    typer.echo(__version__)


class CommandGroup(TyperGroup):
    """The group of all commands; it imports a command when that is looked up."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - typer's
        """Called by typer."""
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)  # the names, for the list, completion and "did you mean"

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer keeps the types to itself
        """Returns the command, None if there is none of this name."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name)
        return super().get_command(ctx, cmd_name)


def _load(name: str) -> Any:  # noqa: ANN401 - see `get_command`
    gc.disable()  # imported modules stay: scanning them again and again would take a tenth of the time
    try:
        module = importlib.import_module(f"copycat_agent.cli.{COMMANDS[name]}")
    finally:
        gc.enable()
    found = getattr(module, COMMANDS[name] if keyword.iskeyword(name) else name.replace("-", "_"))
    around = typer.Typer(add_completion=False)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
        made: Any = typer.main.get_command(around)
        made = made.commands[name]
    else:
        around.command(name=name)(found)
        made = typer.main.get_command(around)
    for one in (made, *getattr(made, "commands", {}).values()):
        one.help = _LINE_END.sub(" ", one.help or "")
    return made


app = typer.Typer(
    name="copycat",
    cls=CommandGroup,
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
    show_version: Annotated[bool, typer.Option("--version", help="Print the version, and end.")] = False,
) -> None:
    """Ship log files, dropped files and other records to Kafka, and topics to files, at least once or exactly once."""
    if show_version:
        version()
        raise typer.Exit(exits.GOOD)
    if show_failpoints:
        typer.echo(listing(output))
        raise typer.Exit(exits.GOOD)
    if context.invoked_subcommand is None:
        context.fail("Missing command.")
    if wrong := failpoints.problem():
        leave(wrong, exits.USAGE)


def main() -> None:
    """Runs the command line. Errors go to stderr with their next step, exit codes are those of `exits`."""
    occupy_standard_streams()
    forgive_encodings()
    answer_shells()
    try:
        app()
    except DefinitionError as error:
        color = use_color(no_color=False)
        say_problems(error.problems, color=color)
        sys.exit(exits.DEFINITION_ERROR)
    except CopycatError as error:
        typer.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(exits.FAILED)
    except OSError as error:  # mostly stdout on a full disk: a traceback would help a user less
        typer.echo(f"error: {printable(str(error))}", err=True)
        sys.exit(exits.FAILED)
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
