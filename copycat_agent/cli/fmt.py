"""`copycat fmt`: writes definitions in canonical form."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from copycat_agent.cli import exits
from copycat_agent.cli.common_options import say_problems, use_color
from copycat_agent.definitions import load_content
from copycat_agent.definitions.formatting import MeaningChangedError, format_text
from copycat_agent.definitions.secret_values import Masker, masked_lines
from copycat_agent.definitions.writing import rewrite
from copycat_agent.definitions.yaml_tree import FILE_BYTES_MAX, SyntaxProblem
from copycat_agent.display import visible
from copycat_agent.errors import Problem
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.small_files import is_directory, read_small_file

_HERE = Path("connectors.d")
_STDIN = "-"


@dataclass(slots=True)
class _Outcome:
    """The results for the files so far."""

    changed: int = 0
    same: int = 0
    bad: int = 0
    failed: int = 0


def fmt(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE|DIR]...", help="Definitions, or directories of them; - is stdin to stdout. Default: ./connectors.d."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 when a file is not in this form.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Change nothing; print what would change, secrets hidden.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colors.")] = False,
) -> None:
    """Write definitions in one form: order of keys, indentation, quotes where they are needed. Comments and the meaning stay.

    A file whose meaning would change is left alone, and so is one that is no YAML; exits 78 for the latter. With --check, and with
    --diff, exits 1 when something would change.
    """
    outcome = _Outcome()
    color = use_color(no_color=no_color)
    for path in _files(paths or _default()):
        _format(path, outcome, check=check, diff=diff, color=color)
    if paths != [_STDIN]:
        _say(outcome, only_told=check or diff)
    if outcome.bad:
        raise typer.Exit(exits.DEFINITION_ERROR)
    if outcome.failed or (outcome.changed and (check or diff)):
        raise typer.Exit(exits.FAILED)


def _default() -> list[str]:
    if _HERE.is_dir():
        return [str(_HERE)]
    raise typer.BadParameter(f"there is no {_HERE} here: name files or directories")


def _files(paths: list[str]) -> Iterator[str]:
    """Yields the chosen files: of a directory, those that `run` takes for definitions."""
    for path in paths:
        if path == _STDIN or not is_directory(path):
            yield path
            continue
        for inner in sorted(Path(path).iterdir()):
            if inner.suffix in {".yaml", ".yml"} and not inner.name.startswith(".") and not is_directory(inner):
                yield str(inner)


def _format(name: str, outcome: _Outcome, *, check: bool, diff: bool, color: bool) -> None:
    path = Path("stdin.yaml" if name == _STDIN else name)
    try:
        content = sys.stdin.buffer.read(FILE_BYTES_MAX + 1) if name == _STDIN else read_small_file(path, FILE_BYTES_MAX)
        made = _formatted(path, content)
    except SyntaxProblem:
        outcome.bad += 1
        say_problems(load_content(path, content, AgentOptions(), resolve_env=False).problems, color=color)
        return
    except MeaningChangedError:
        outcome.failed += 1
        typer.echo(f"error: {visible(str(path))}: what it says would change, so it is left as it is; please report this", err=True)
        return
    except OSError as error:
        outcome.failed += 1
        typer.echo(f"error: {visible(str(path))}: {error.strerror}", err=True)
        return
    _tell_or_write(name, content, made, outcome, check=check, diff=diff)


def _formatted(path: Path, content: bytes) -> bytes:
    """Returns the new content. Raises `MeaningChangedError`, too, if the loader would make something else of it."""
    if path.stem == "agent":
        return format_text(content, AgentOptions).encode()
    made = format_text(content, Definition).encode()
    old, new = (load_content(path, one, AgentOptions(), resolve_env=False) for one in (content, made))
    if old.definition != new.definition or _texts(old.problems) != _texts(new.problems):
        raise MeaningChangedError
    return made


def _texts(problems: tuple[Problem, ...]) -> list[tuple[str, str]]:
    """Returns problems without their positions, which move."""
    return sorted((one.code, one.text) for one in problems)


def _tell_or_write(name: str, content: bytes, made: bytes, outcome: _Outcome, *, check: bool, diff: bool) -> None:
    outcome.same += content == made
    outcome.changed += content != made
    if diff:
        typer.echo(_diff(name, content, made), nl=False)
    elif check:
        if content != made:
            typer.echo(visible(name))
    elif name == _STDIN:
        sys.stdout.buffer.write(made)
        sys.stdout.buffer.flush()
    elif content != made:
        _rewrite(name, content, made, outcome)


def _rewrite(name: str, content: bytes, made: bytes, outcome: _Outcome) -> None:
    try:
        rewrite(Path(name), content, made)
    except OSError as error:
        outcome.changed, outcome.failed = outcome.changed - 1, outcome.failed + 1
        typer.echo(f"error: {visible(name)}: {error.strerror}", err=True)
    else:
        typer.echo(visible(name))


def _diff(name: str, content: bytes, made: bytes) -> str:
    texts = (one.decode(errors="replace").replace("\r\n", "\n") for one in (content, made))
    mask = Masker()  # which hides logins in addresses
    old, new = ([mask(line) for line in masked_lines(text)] for text in texts)
    lines = difflib.unified_diff(old, new, f"{visible(name)} as it is", f"{visible(name)} formatted", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def _say(outcome: _Outcome, *, only_told: bool) -> None:
    """Prints a line with the totals."""
    total = outcome.changed + outcome.same + outcome.bad + outcome.failed
    if not total:
        typer.echo("no *.yaml or *.yml there", err=True)
        return
    parts = [f"{outcome.changed} {'would change' if only_told else 'formatted'}", f"{outcome.same} good already"]
    parts += [f"{outcome.bad} no YAML: copycat check says more"] if outcome.bad else []
    parts += [f"{outcome.failed} left alone"] if outcome.failed else []
    typer.echo(", ".join(parts), err=True)
