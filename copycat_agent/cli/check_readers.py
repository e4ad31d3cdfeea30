"""What `copycat check` says of data sources: each is made in a process of its own, as the agent would make it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.definitions import Finding, Loaded, LoadedFile, problem_in
from copycat_agent.errors import CopycatError
from copycat_agent.sources.datasource.reader_process import ReaderFaultError, ReaderProcess, UnusableReaderError
from copycat_agent.sources.datasource.source import DataSourceOptions

if TYPE_CHECKING:
    from copycat_agent.options import Definition


def with_readers(loaded: Loaded) -> Loaded:
    """The same, with a problem for each data source of which no reader can be made. It is asked nothing but its schema."""
    files = tuple(_looked_at(file) for file in loaded.files)
    found = tuple(problem for file, before in zip(files, loaded.files, strict=True) if file is not before for problem in file.problems)
    return replace(loaded, files=files, problems=(*loaded.problems, *found))


def _looked_at(file: LoadedFile) -> LoadedFile:
    source = file.definition.source if file.definition is not None else None
    if not isinstance(source, DataSourceOptions) or file.definition is None:
        return file
    try:
        ReaderProcess(source.class_, dict(source.options), source.timeout).close()
    except CopycatError as error:
        finding = _finding(file.definition, error)
        return replace(file, definition=None, problems=(*file.problems, problem_in(file.path, finding)))
    return file


def _finding(definition: Definition, error: CopycatError) -> Finding:
    """What is wrong, where the definition says it: what its data source raises is mostly about its options."""
    is_class = isinstance(error, UnusableReaderError) and error.option == "class"
    said = error.shown(definition.mask) if isinstance(error, ReaderFaultError) else ""
    words = definition.mask.text(error.message) + (f": {said}" if said else "")
    return Finding(("source", "class" if is_class else "options"), "data-source", words, error.hint)
