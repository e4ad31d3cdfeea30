"""`copycat import --positions`: judges another product's positions, file by file, and saves them for the agent to continue from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copycat_agent import logs
from copycat_agent.cli.offsets_access import access, rules_of
from copycat_agent.definitions import load_content
from copycat_agent.display import visible
from copycat_agent.errors import CopycatError
from copycat_agent.model import offsets_in
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.sources.log_file.beginning.manual_position import LineRules
from copycat_agent.workbench.importing.common_settings import name_of
from copycat_agent.workbench.takeover import PEERS, FileDecision, PeerState, Successor, Takeover, take_over

_log = logs.get("import")


@dataclass(frozen=True, slots=True)
class TakeoverReport:
    """The judged positions, for people and for programs."""

    takeover: Takeover
    state: PeerState
    where: Path

    @property
    def is_complete(self) -> bool:
        """Whether every existing file that a definition reads continues at the product's position."""
        return all(one.taken or not one.is_there or not one.connector or one.position is None for one in self.takeover.decisions)

    def lines(self, *, written: bool) -> list[str]:
        """Returns one line for each file, and the sum."""
        decisions = self.takeover.decisions
        lines = [f"  {_line(one)}" for one in sorted(decisions, key=lambda one: (one.connector, one.path))]
        known = [one for one in decisions if one.position is not None]
        taken = sum(one.taken for one in known)
        total = f"{visible(str(self.where))}: {len(known)} position{'' if len(known) == 1 else 's'}, {taken} taken"
        if self.takeover.rows:
            total += ", saved" if written else "; nothing is saved yet: --write does, while the product is stopped"
        return ["positions:", *lines, *(f"  {visible(note)}" for note in self.state.notes), total]

    def entries(self) -> list[dict[str, Any]]:
        """Returns the decisions for programs."""
        return [one._asdict() for one in self.takeover.decisions]


def judged(product: str, where: Path, texts: Mapping[str, str], *, trust_names: bool) -> TakeoverReport:
    """Judges the positions that the product has at `where`. `texts` are definitions by name. Raises CopycatError."""
    logs.setup("error")
    state = PEERS[product](where)
    successors = [_successor(name, text, state) for name, text in texts.items()]
    return TakeoverReport(take_over(successors, state, _log, trust_names=trust_names), state, where)


def save(taken: TakeoverReport, *, force: bool, socket: Path | None, state_dir: Path | None, config: Path | None) -> None:
    """Saves the taken positions, through the running agent or in its file. Saves none if any is saved already, unless `force`."""
    rows = taken.takeover.rows
    if not rows:
        return
    with access(socket, state_dir, config, create=True) as store:
        before = {name: store.read(name) for name in rows}
        there = [name for name, saved in before.items() if offsets_in(saved)]
        if there and not force:
            hint = "look at them with copycat offsets show; --force saves over those of the same files, and keeps the others"
            raise CopycatError(f"positions are saved already of {', '.join(there)}, and nothing was changed", hint)
        for name, changes in rows.items():
            store.save(name, changes, force=force)


def _successor(name: str, text: str, state: PeerState) -> Successor:
    loaded = load_content(Path(f"{name}.yaml"), text.encode(), AgentOptions(), resolve_env=False)
    if loaded.definition is None:
        raise CopycatError(
            f"{name} does not load, so its files are not known", "mend what the import could not map, or leave --positions out"
        )
    pipelines = {one.pipeline for one in state.positions if one.pipeline and name_of(one.pipeline, "connect") == name}
    has_pipelines = any(one.pipeline for one in state.positions)
    return Successor(_with_paths(loaded.definition), _rules(loaded.definition), frozenset(pipelines) if has_pipelines else None)


def _with_paths(definition: Definition) -> Definition:
    """Returns the definition if its files are known without resolving references. Raises CopycatError."""
    said = definition.source.model_dump()
    for path in (*said.get("include", ()), said.get("dir") or ""):
        if "${" in path:
            raise CopycatError(
                f"{definition.name} reads {path}: which files that means is not known here", "write the path out, then import again"
            )
    return definition


def _rules(definition: Definition) -> LineRules:
    return rules_of(definition.source.model_dump()) or LineRules()


def _line(one: FileDecision) -> str:
    path = f"{one.connector}: {visible(one.path)}" if one.connector else visible(one.path)
    if one.taken:
        return f"{path}: goes on at byte {one.position:,}: {visible(one.why)}"
    then = f"; {visible(one.then)}" if one.then else ""
    return f"{path}: {'' if one.position is None else 'not taken: '}{visible(one.why)}{then}"
