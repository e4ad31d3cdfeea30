"""Commands in the process of the tests, in a tenth of the time of a process of their own."""

from __future__ import annotations

import io
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import typer

from copycat_agent.cli import main as cli

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

Done = subprocess.CompletedProcess[str]


@cache
def _built() -> object:
    """The command line's parsers, which typer builds anew for each call otherwise."""
    return typer.main.get_command(cli.app)


def caller(capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """`call("check", "connectors.d")`, until `patch` is undone. Without `stdin` the command has this process's."""
    patch.setattr(cli, "app", _built())

    def call(*arguments: object, stdin: str | None = None) -> Done:
        patch.setattr(sys, "argv", ["copycat", *map(str, arguments)])
        if stdin is not None:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return Done(sys.argv, code, said.out, said.err)

    return call
