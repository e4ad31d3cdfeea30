"""`copycat doctor`: checks the agent's environment step by step, and names a fix for what is wrong. Changes nothing.

The sections are the host, its limits, the state directory, each definition, the Spark cluster, each Kafka cluster and each schema registry.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from copycat_agent.definitions import LoadedFile, LoadResult
from copycat_agent.errors import CopycatError
from copycat_agent.mountinfo import Mount, mounts
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sources import SOURCES
from copycat_agent.sources.contract import Probed
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.workbench.doctor.file_checks import PatternResult, examine_files, examine_secrets, examine_shared
from copycat_agent.workbench.doctor.host_checks import examine_host, examine_limits
from copycat_agent.workbench.doctor.kafka_checks import clusters, examine_clusters
from copycat_agent.workbench.doctor.master_checks import examine_master, examine_on_cluster
from copycat_agent.workbench.doctor.registry_checks import examine_registries, registries
from copycat_agent.workbench.doctor.spool_checks import examine_spool
from copycat_agent.workbench.doctor.state_checks import agent_uuid, examine_state, holder
from copycat_agent.workbench.doctor.steps import CheckStep, CheckVerdict, Notes
from copycat_agent.workbench.doctor.store_checks import examine_store
from copycat_agent.workbench.doctor.users import User, find_user

__all__ = ["CheckStep", "CheckVerdict", "DoctorTarget", "User", "examine", "find_user", "only_unreachable", "worst"]

_SHOWN_MOST = 1000
"""Most characters of a source's message that are shown."""


def examine_probed(notes: Notes, definition: Definition, probed: Iterable[Probed]) -> None:
    """Adds the steps that a source's own check yields. CopycatErrors of the check become a failed step."""
    try:
        for name, text, verdict, fix in probed:
            said, hint = definition.mask.text(text)[:_SHOWN_MOST], definition.mask.text(fix)
            if verdict == "ok":
                notes.ok(name, said)
            else:
                (notes.warn if verdict == "warn" else notes.fail)(name, said, hint)
    except CopycatError as error:
        notes.fail("source", definition.mask.text(error.message), error.hint)


@dataclass(frozen=True, slots=True)
class DoctorTarget:
    """The configuration to check, as `run` would load it."""

    agent: AgentOptions
    loaded: LoadResult
    state_dir: Path
    socket: Path
    user: User
    master: str | None = None
    """The Spark master of `run --master`, None without."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def examine(subject: DoctorTarget) -> list[CheckStep]:
    """Returns all steps, in the order in which they depend on each other. Changes nothing; findings raise nothing."""
    definitions = [one for one in subject.loaded.definitions.values() if one.enabled]
    pid = holder(subject.state_dir)
    with ThreadPoolExecutor(3, thread_name_prefix="doctor-network") as beside:
        kafka = beside.submit(examine_clusters, clusters(definitions, agent_uuid(subject.state_dir), subject.agent))
        schemas = beside.submit(lambda: examine_registries(registries(definitions)))
        master = beside.submit(_examine_master, subject, runs=pid is not None)
        connectors, seen = _examine_connectors(subject)
        directories = {path for one in seen if one.watched for path in one.directories}
        return [
            *examine_host(subject.user, subject.agent.spark, subject.environ, runs=pid is not None),
            *examine_limits([one.max_open_files for one in seen], len(directories), pid),
            *examine_state(subject.state_dir, subject.socket, subject.user, mounts()),
            *connectors,
            *master.result(),
            *kafka.result(),
            *schemas.result(),
        ]


def _examine_master(subject: DoctorTarget, *, runs: bool) -> list[CheckStep]:
    return examine_master(subject.agent.spark, subject.master, runs=runs) if subject.master else []


def _examine_connectors(subject: DoctorTarget) -> tuple[list[CheckStep], list[PatternResult]]:
    mounted = mounts()
    notes: dict[str, Notes] = {}
    seen: dict[str, tuple[Definition, PatternResult]] = {}
    for file in subject.loaded.files:
        label = file.name or file.path.name
        one = notes.setdefault(label, Notes(f"connector {label}"))
        _examine_definition(one, file)
        if file.definition is not None and file.definition.enabled:
            seen[label] = file.definition, _examine_source(one, file.definition, subject.user, mounted)
            if isinstance(file.definition.sink, FilesSinkOptions):
                examine_store(one, file.definition.name, file.definition.sink)
            if subject.master:
                examine_on_cluster(one, file.definition, subject.master, subject.agent.spark.conf)
            examine_secrets(one, file.path, file.definition, subject.user, subject.environ.get("CREDENTIALS_DIRECTORY"))
    examine_shared(seen, notes)
    return [step for one in notes.values() for step in one.steps], [one for _, one in seen.values()]


def _examine_source(notes: Notes, definition: Definition, user: User, mounted: list[Mount]) -> PatternResult:
    probe = SOURCES[definition.source.type].probe
    if probe is not None:
        examine_probed(notes, definition, probe(definition.source, user))
        return PatternResult()
    look = examine_spool if isinstance(definition.source, SpoolDirOptions) else examine_files
    return look(notes, definition, user, mounted)


def _examine_definition(notes: Notes, file: LoadedFile) -> None:
    for problem in file.problems:
        place = f"{problem.path}:{problem.line}:{problem.column}" if problem.line else problem.path
        notes.fail("definition", f"{place}: {problem.text}", problem.hint or "copycat check DIR shows the place")
    if file.definition is not None:
        notes.ok("definition", f"{file.path}" + ("" if file.definition.enabled else " (disabled, not looked at)"))


def worst(steps: Iterable[CheckStep]) -> CheckVerdict:
    """Returns FAIL if any step failed, else WARN if any warns, else OK."""
    found = {step.verdict for step in steps}
    return next((one for one in (CheckVerdict.FAIL, CheckVerdict.WARN) if one in found), CheckVerdict.OK)


def only_unreachable(steps: Iterable[CheckStep]) -> bool:
    """Returns whether something failed, and every failure is that no broker answers."""
    failed = [step for step in steps if step.verdict is CheckVerdict.FAIL]
    return bool(failed) and all(step.unreachable for step in failed)
