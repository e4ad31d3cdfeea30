"""`copycat completion`: the script that teaches a shell to complete `copycat`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]  # public by their use, not by __all__

PROGRAM = "copycat"
VARIABLE = "_COPYCAT_COMPLETE"
"""Set by the script when it asks `copycat` for the possible next words; click derives the name from the program's."""


class Shell(StrEnum):
    """Shells there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def answer_shells() -> None:
    """Let the app answer the scripts: typer sets this up itself only for apps that also have --install-completion."""
    completion_init()


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell that the script is for.")]) -> None:
    """Print a script that makes a shell complete commands, options and files. Packages install it already.

    For one shell: source <(copycat completion bash). For good: put that line into ~/.bashrc or ~/.zshrc;
    copycat completion fish > ~/.config/fish/completions/copycat.fish.
    """
    script = get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value)
    typer.echo(_autoloaded(script) if shell is Shell.ZSH else script)


def _autoloaded(script: str) -> str:
    """For zsh, which runs a file of its `fpath` as the function: typer's script would only register, the first TAB do nothing."""
    body, _, register = script.strip().rpartition("\n")
    call = register.split()[1]
    return f'{body}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  {call} "$@"\nelse\n  {register}\nfi'
