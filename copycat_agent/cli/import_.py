"""`copycat import`: converts configurations of other products into definitions."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from copycat_agent.cli import exits
from copycat_agent.cli.common_options import Config, Format, Output, Socket, StateDir, leave
from copycat_agent.cli.import_positions import judged, save
from copycat_agent.definitions import load_content
from copycat_agent.definitions.formatting.editing import NO_NUMBER, numbers_lost
from copycat_agent.definitions.yaml_tree import FILE_BYTES_MAX
from copycat_agent.display import visible
from copycat_agent.errors import CopycatError
from copycat_agent.options import AgentOptions
from copycat_agent.small_files import read_small_file
from copycat_agent.workbench.importing import PRODUCTS, ImportedDefinition, ImportResult, Remark, text_of


class Product(StrEnum):
    """The products whose configurations can be imported."""

    FILEBEAT = "filebeat"
    FLUENT_BIT = "fluent-bit"
    VECTOR = "vector"
    CONNECT = "connect"
    RSYSLOG = "rsyslog"
    FLUME = "flume"
    OTEL = "otel"


def import_(  # noqa: PLR0913, PLR0917 - the command's options
    product: Annotated[Product, typer.Argument(metavar="|".join(Product), help="Whose configuration it is.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The configuration.")],
    with_: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="FILE", help="A file that belongs to it: parsers of Fluent Bit, a worker of Connect."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write one file per definition; never over a file.")
    ] = None,
    positions: Annotated[
        Path | None,
        typer.Option(
            "--positions", metavar="STATE", help="Where the product keeps its positions: say what becomes of each file. Only looks."
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="With --positions: save those that the files prove, so that run goes on there.")
    ] = False,
    trust_names: Annotated[
        bool, typer.Option("--trust-names", help="With --positions: a name says which file is meant, where the product keeps nothing else.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="With --write: over positions that are saved already.")] = False,
    report: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Print definitions that do what another product's configuration does, and list what they do not.

    Definitions go to stdout, the report to stderr; with --format json both to stdout. Secrets are not copied: definitions refer to
    credentials instead. Exits 1 when something was not mapped.

    With --positions it says of each file where the product was in it, whether the file proves that, and what the agent does with it; stop
    the product first. Definitions are then printed only to a directory (-o). Exits 1, too, when the position of a file that is there is not
    taken. Nothing of the product's state is changed.
    """
    if (write or trust_names) and positions is None:
        leave("--write and --trust-names go with --positions", exits.USAGE)
    imported = _read(product, file, with_ or [])
    texts = {made.name: text_of(made, visible(file.name)) for made in _renamed(imported.made)}
    for made in imported.made:
        _check(made, texts[made.name], imported)
    taken = None if positions is None else judged(product.value, positions, texts, trust_names=trust_names)
    paths = _free_paths(texts, output)
    if write and taken is not None:
        save(taken, force=force, socket=socket, state_dir=state_dir, config=config)
    _write(paths)
    if report is Format.JSON:
        document = _report(imported, texts) | ({} if taken is None else {"positions": taken.entries(), "written": write})
        typer.echo(json.dumps(document, indent=2))
    else:
        if output is None and taken is None:
            sys.stdout.write("---\n".join(texts.values()))
        _say(imported, texts, file, output)
        if taken is not None:
            typer.echo("\n".join(taken.lines(written=write)))
    is_good = texts and not imported.report.unmapped and (taken is None or taken.is_complete)
    raise typer.Exit(exits.GOOD if is_good else exits.FAILED)


def _read(product: Product, file: Path, others: list[Path]) -> ImportResult:
    texts = []
    for path in (file, *others):
        try:
            texts.append(read_small_file(path, FILE_BYTES_MAX).decode("utf-8-sig"))
        except OSError as error:
            raise CopycatError(f"{path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise CopycatError(f"{path}: not UTF-8", "save it as UTF-8") from None
    try:
        return PRODUCTS[product.value](texts[0], texts[1:])
    except CopycatError as error:
        raise CopycatError(f"{file}: {error.message}", error.hint) from None


def _renamed(made: tuple[ImportedDefinition, ...]) -> tuple[ImportedDefinition, ...]:
    """Makes all names different: they are the keys of offsets."""
    seen: set[str] = set()
    for one in made:
        name, number = one.name, 1
        while one.name in seen:
            number += 1
            one.name = f"{name[:58]}-{number}"
        one.document["name"] = one.name
        seen.add(one.name)
    return made


def _check(made: ImportedDefinition, text: str, imported: ImportResult) -> None:
    """Reports what does not load, or would be another value: the user has to know, whoever is at fault."""
    imported.report.unmapped += [Remark(0, f"{made.name}.yaml {place}", NO_NUMBER) for place in numbers_lost(made.document)]
    loaded = load_content(Path(f"{made.name}.yaml"), text.encode(), AgentOptions(), resolve_env=False)
    for problem in loaded.problems:
        remark = Remark(0, f"{made.name}.yaml line {problem.line}", f"{problem.text}; {problem.hint}" if problem.hint else problem.text)
        imported.report.unmapped.append(remark)


def _free_paths(texts: dict[str, str], directory: Path | None) -> dict[Path, str]:
    """Returns the paths of the texts. Raises CopycatError if one of these files exists."""
    paths = {} if directory is None else {directory / f"{name}.yaml": text for name, text in texts.items()}
    for path in paths:
        if os.path.lexists(path):
            raise CopycatError(f"{path} is there already", "name another directory, or move that file away")
    return paths


def _write(paths: dict[Path, str]) -> None:
    try:
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise CopycatError(f"{error.filename}: {error.strerror}") from None


def _say(imported: ImportResult, texts: dict[str, str], file: Path, output: Path | None) -> None:
    lines = []
    for title, remarks in (("not mapped", imported.report.unmapped), ("to know", imported.report.notes)):
        if remarks:
            lines += [f"{title}:", *(_remark(one) for one in sorted(remarks))]
    count = f"{len(texts)} definition{'' if len(texts) == 1 else 's'}"
    lines.append(f"{visible(str(file))}: {count}, {len(imported.report.unmapped)} not mapped")
    if texts:
        where = visible(str(output)) if output else "DIR"
        lines.append(
            ("" if output else f"write {'it' if len(texts) == 1 else 'them'} with -o DIR, then: ")
            + f"copycat check {where}, copycat try FILE -d {where}/NAME.yaml"
        )
    typer.echo("\n".join(lines), err=True)


def _remark(remark: Remark) -> str:
    place = f"line {remark.line}: " if remark.line else ""
    return f"  {place}{visible(remark.what)}: {visible(remark.why)}"


def _report(imported: ImportResult, texts: dict[str, str]) -> dict[str, Any]:
    return {
        "definitions": [{"name": name, "text": text} for name, text in texts.items()],
        "unmapped": [one._asdict() for one in sorted(imported.report.unmapped)],
        "notes": [one._asdict() for one in sorted(imported.report.notes)],
    }
