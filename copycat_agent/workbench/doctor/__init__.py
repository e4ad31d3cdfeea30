"""`copycat doctor`: what needs the world, looked at step by step, with the fix for what is wrong. Changes nothing.

The host, the limits, the state directory, each definition, each cluster, each schema registry.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from copycat_agent.definitions import Loaded, LoadedFile
from copycat_agent.errors import CopycatError
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.sources.datasource.reader_process import ReaderFaultError, ReaderProcess
from copycat_agent.sources.datasource.source import DataSourceOptions
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.workbench.doctor.file_checks import PatternResult, examine_files, examine_secrets, examine_shared
from copycat_agent.workbench.doctor.host_checks import examine_host, examine_limits
from copycat_agent.workbench.doctor.kafka_checks import clusters, examine_clusters
from copycat_agent.workbench.doctor.registry_checks import examine_registries, registries
from copycat_agent.workbench.doctor.spool_checks import examine_spool
from copycat_agent.workbench.doctor.state_checks import agent_uuid, examine_state, holder
from copycat_agent.workbench.doctor.steps import CheckStep, CheckVerdict, Notes
from copycat_agent.workbench.doctor.users import Mount, User, find_user, mounts

__all__ = ["CheckStep", "CheckVerdict", "Examined", "User", "examine", "find_user", "only_unreachable", "worst"]


def examine_reader(notes: Notes, definition: Definition) -> PatternResult:
    """The steps of one connector's data source. Reads nothing: of a simple reader, which reads to know its end, only the beginning."""
    source = definition.source
    assert isinstance(source, DataSourceOptions)
    name = "reader"
    try:
        with closing(ReaderProcess(source.class_, dict(source.options), source.timeout)) as planner:
            columns = ", ".join(f"{column} {kind}" for column, kind in planner.made["columns"])
            notes.ok(name, f"{source.class_}: {'a simple reader' if planner.made['simple'] else 'a reader that plans'} of {columns}")
            name = "offsets"
            begin = planner.ask("initial").values["offset"]
            end = "" if planner.made["simple"] else f", it goes to {planner.ask('latest', start=begin).values['offset']} now"
            notes.ok(name, definition.mask.text(f"a first start begins at {begin}{end}"))
    except CopycatError as error:
        said = f": {error.shown(definition.mask)}" if isinstance(error, ReaderFaultError) and error.text else ""
        notes.fail(name, definition.mask.text(error.message) + said, error.hint)
    return PatternResult()


@dataclass(frozen=True, slots=True)
class Examined:
    """What is to be examined, as `run` would see it."""

    agent: AgentOptions
    loaded: Loaded
    state_dir: Path
    socket: Path
    user: User
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def examine(subject: Examined) -> list[CheckStep]:
    """All steps, in the order in which they depend on each other. Changes nothing; raises nothing for what it finds."""
    definitions = [one for one in subject.loaded.definitions.values() if one.enabled]
    pid = holder(subject.state_dir)
    with ThreadPoolExecutor(2, thread_name_prefix="doctor-network") as beside:
        kafka = beside.submit(examine_clusters, clusters(definitions, agent_uuid(subject.state_dir)))
        schemas = beside.submit(lambda: examine_registries(registries(definitions)))
        connectors, seen = _examine_connectors(subject)
        directories = {path for one in seen if one.watched for path in one.directories}
        return [
            *examine_host(subject.user, subject.agent.spark, subject.environ, runs=pid is not None),
            *examine_limits([one.max_open_files for one in seen], len(directories), pid),
            *examine_state(subject.state_dir, subject.socket, subject.user, mounts()),
            *connectors,
            *kafka.result(),
            *schemas.result(),
        ]


def _examine_connectors(subject: Examined) -> tuple[list[CheckStep], list[PatternResult]]:
    mounted = mounts()
    notes: dict[str, Notes] = {}
    seen: dict[str, tuple[Definition, PatternResult]] = {}
    for file in subject.loaded.files:
        label = file.name or file.path.name
        one = notes.setdefault(label, Notes(f"connector {label}"))
        _examine_definition(one, file)
        if file.definition is not None and file.definition.enabled:
            seen[label] = file.definition, _examine_source(one, file.definition, subject.user, mounted)
            examine_secrets(one, file.path, file.definition, subject.user, subject.environ.get("CREDENTIALS_DIRECTORY"))
    examine_shared(seen, notes)
    return [step for one in notes.values() for step in one.steps], [one for _, one in seen.values()]


def _examine_source(notes: Notes, definition: Definition, user: User, mounted: list[Mount]) -> PatternResult:
    if isinstance(definition.source, DataSourceOptions):
        return examine_reader(notes, definition)
    look = examine_spool if isinstance(definition.source, SpoolDirOptions) else examine_files
    return look(notes, definition, user, mounted)


def _examine_definition(notes: Notes, file: LoadedFile) -> None:
    for problem in file.problems:
        place = f"{problem.path}:{problem.line}:{problem.column}" if problem.line else problem.path
        notes.fail("definition", f"{place}: {problem.text}", problem.hint or "copycat check DIR shows the place")
    if file.definition is not None:
        notes.ok("definition", f"{file.path}" + ("" if file.definition.enabled else " (disabled, not looked at)"))


def worst(steps: Iterable[CheckStep]) -> CheckVerdict:
    """FAIL before WARN before OK; nothing else counts."""
    found = {step.verdict for step in steps}
    return next((one for one in (CheckVerdict.FAIL, CheckVerdict.WARN) if one in found), CheckVerdict.OK)


def only_unreachable(steps: Iterable[CheckStep]) -> bool:
    """Whether something failed, and all that did is that no broker answers."""
    failed = [step for step in steps if step.verdict is CheckVerdict.FAIL]
    return bool(failed) and all(step.unreachable for step in failed)
