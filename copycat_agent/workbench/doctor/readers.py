"""A data source: can its reader be made, and does it say where it is."""

from __future__ import annotations

from copycat_agent.errors import CopycatError
from copycat_agent.options import Definition
from copycat_agent.sources.datasource.reader_process import ReaderFaultError, ReaderProcess
from copycat_agent.sources.datasource.source import DataSourceOptions
from copycat_agent.workbench.doctor.file_checks import PatternResult
from copycat_agent.workbench.doctor.steps import Notes


def examine_reader(notes: Notes, definition: Definition) -> PatternResult:
    """The steps of one connector's data source. Reads nothing: of a simple reader, which reads to know its end, only the beginning."""
    source = definition.source
    assert isinstance(source, DataSourceOptions)
    name = "reader"
    try:
        planner = ReaderProcess(source.class_, dict(source.options), source.timeout)
        try:
            columns = ", ".join(f"{column} {kind}" for column, kind in planner.made["columns"])
            notes.ok(name, f"{source.class_}: {'a simple reader' if planner.made['simple'] else 'a reader that plans'} of {columns}")
            name = "offsets"
            begin = planner.ask("initial").values["offset"]
            end = "" if planner.made["simple"] else f", it goes to {planner.ask('latest', start=begin).values['offset']} now"
            notes.ok(name, definition.mask.text(f"a first start begins at {begin}{end}"))
        finally:
            planner.close()
    except CopycatError as error:
        said = f": {error.shown(definition.mask)}" if isinstance(error, ReaderFaultError) and error.text else ""
        notes.fail(name, definition.mask.text(error.message) + said, error.hint)
    return PatternResult()
