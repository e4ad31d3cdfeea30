"""What one connector's cleanup means for the others: files taken away before they are read, or put where they are read once more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.definitions.spool_rules import patterns_of
from copycat_agent.errors import Problem
from copycat_agent.sources.files.paths.matching import shared_name
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from copycat_agent.definitions.loaded import LoadedFile


def without_takers(files: Sequence[LoadedFile]) -> tuple[LoadedFile, ...]:
    """The files with a problem for each enabled connector that takes away what another one reads: it does not load.

    The other could not have read it yet: its records would be lost. As far as patterns tell, and among definitions that load.
    """
    return tuple(_refused(file, files) if _takes(file) else file for file in files)


def _takes(file: LoadedFile) -> bool:
    definition = file.definition
    if definition is None or not definition.enabled or not isinstance(definition.source, SpoolDirOptions):
        return False
    return definition.source.cleanup.policy != "none"


def _refused(file: LoadedFile, files: Iterable[LoadedFile]) -> LoadedFile:
    found = [problem for other in files if other is not file and (problem := _taking(file, other))]
    return replace(file, definition=None, problems=(*file.problems, *found)) if found else file


def _taking(file: LoadedFile, other: LoadedFile) -> Problem | None:
    mine, theirs = file.definition, other.definition
    if mine is None or theirs is None or not theirs.enabled or not isinstance(mine.source, SpoolDirOptions):
        return None
    name = shared_name(patterns_of(mine.source), patterns_of(theirs.source))
    if not name:
        return None
    line, column, source_line = file.name_at
    does = "deletes" if mine.source.cleanup.policy == "delete" else "moves away"
    text = f"{file.name} {does} files that {other.name} ({other.path}) reads too, like {name!r}: perhaps before it has read them"
    hint = "narrow the patterns of one, or set cleanup.policy: none in both, or let one read a directory of its own"
    return Problem(str(file.path), line, column, "cleanup-shared", text, hint, source_line)


def reread(files: Sequence[LoadedFile]) -> tuple[Problem, ...]:
    """Warnings for what is put where another connector reads it into the same topic once more."""
    enabled = [file for file in files if file.definition is not None and file.definition.enabled]
    return tuple(problem for file in enabled for other in enabled if other is not file and (problem := _rereading(file, other)))


def _rereading(file: LoadedFile, other: LoadedFile) -> Problem | None:
    mine, theirs = file.definition, other.definition
    if mine is None or theirs is None or not isinstance(mine.source, SpoolDirOptions):
        return None
    to = mine.source.cleanup.to if mine.source.cleanup.policy in ("move", "move_by_date") else None
    if to is None or (mine.record.topic, mine.kafka) != (theirs.record.topic, theirs.kafka):
        return None
    names = ("*", *mine.source.pattern)
    if not shared_name(([f"{to.rstrip('/')}/**/{name}" for name in names], ()), patterns_of(theirs.source)):
        return None
    line, column, source_line = file.name_at
    text = f"{file.name} moves files to {to}, where {other.name} ({other.path}) reads them into the same topic: every record arrives twice"
    hint = "move them elsewhere, or let the other one send to another topic"
    return Problem(str(file.path), line, column, "shared-files", text, hint, source_line)
