"""Everything at once: the host, the limits, the state directory, each definition, each cluster, each schema registry."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from copycat_agent.definitions import Loaded, LoadedFile
from copycat_agent.doctor.exactly_once import agent_uuid
from copycat_agent.doctor.files import Seen, examine_files, examine_secrets, examine_shared
from copycat_agent.doctor.host import examine_host
from copycat_agent.doctor.kafka import clusters, examine_clusters
from copycat_agent.doctor.limits import examine_limits
from copycat_agent.doctor.model import Notes, Step, Verdict
from copycat_agent.doctor.mounts import mounts
from copycat_agent.doctor.registry import examine_registries, registries
from copycat_agent.doctor.spool import examine_spool
from copycat_agent.doctor.state import examine_state, holder
from copycat_agent.doctor.users import User
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be examined, as `run` would see it."""

    agent: AgentOptions
    loaded: Loaded
    state_dir: Path
    socket: Path
    user: User
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def examine(subject: Subject) -> list[Step]:
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


def _examine_connectors(subject: Subject) -> tuple[list[Step], list[Seen]]:
    mounted = mounts()
    notes: dict[str, Notes] = {}
    seen: dict[str, tuple[Definition, Seen]] = {}
    for file in subject.loaded.files:
        label = file.name or file.path.name
        one = notes.setdefault(label, Notes(f"connector {label}"))
        _examine_definition(one, file)
        if file.definition is not None and file.definition.enabled:
            look = examine_spool if isinstance(file.definition.source, SpoolDirOptions) else examine_files
            seen[label] = file.definition, look(one, file.definition, subject.user, mounted)
            examine_secrets(one, file.path, file.definition, subject.user, subject.environ.get("CREDENTIALS_DIRECTORY"))
    examine_shared(seen, notes)
    return [step for one in notes.values() for step in one.steps], [one for _, one in seen.values()]


def _examine_definition(notes: Notes, file: LoadedFile) -> None:
    for problem in file.problems:
        place = f"{problem.path}:{problem.line}:{problem.column}" if problem.line else problem.path
        notes.fail("definition", f"{place}: {problem.text}", problem.hint or "copycat check DIR shows the place")
    if file.definition is not None:
        notes.ok("definition", f"{file.path}" + ("" if file.definition.enabled else " (disabled, not looked at)"))


def worst(steps: Iterable[Step]) -> Verdict:
    """FAIL before WARN before OK; nothing else counts."""
    found = {step.verdict for step in steps}
    return next((one for one in (Verdict.FAIL, Verdict.WARN) if one in found), Verdict.OK)


def only_unreachable(steps: Iterable[Step]) -> bool:
    """Whether something failed, and all that did is that no broker answers."""
    failed = [step for step in steps if step.verdict is Verdict.FAIL]
    return bool(failed) and all(step.unreachable for step in failed)
