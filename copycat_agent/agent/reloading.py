"""Reload: what the files ask for is made to run, and what came of it is told as a diff."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.agent import renames
from copycat_agent.agent.differences import differences
from copycat_agent.control import Reload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from copycat_agent.agent.files import DefinitionFiles, Wanted
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import AgentOptions, Definition
    from copycat_agent.worker import Worker

_log = logs.get("reload")


class Reloader:
    """Thread-safe; one reload at a time, the first one included."""

    def __init__(self, files: DefinitionFiles, worker: Worker, store: OffsetStore, started_with: AgentOptions) -> None:
        """`started_with`: the options that hold until the agent is started anew, but for `kafka`."""
        self.files = files
        self.options = started_with
        """The options as they hold."""
        self.paths: Mapping[str, Path] = {}
        """The file of each connector."""
        self.last: Reload | None = None
        self.results: Counter[str] = Counter()
        """Reloads after the first load, by result: `ok` or `problems`."""
        self._started_with = started_with
        self._worker = worker
        self._store = store
        self._lock = threading.Lock()
        self._told: tuple[object, ...] = ()
        self._warned: set[tuple[str, str]] = set()

    def reload(self, loaded: Wanted | None = None) -> Reload:
        """Load everything, unless that has just been done, and run it: equal definitions go on untouched.

        Raises what the offset store raises.
        """
        with self._lock:
            wanted = loaded or self.files.load()
            moves = self._moves(wanted)
            outcome = self._outcome(self._worker.definitions(), wanted, moves)
            for line in outcome.lines():
                self._tell(line, outcome)
            self._told = outcome.kept, outcome.restart
            self._warn(wanted)
            self._worker.apply(wanted.definitions.values(), moves.taken, moves.earlier)
            self.paths = wanted.paths
            self.options = self._started_with.model_copy(update={"kafka": wanted.options.kafka})
            if self.last is not None:
                self.results["ok" if outcome.clean else "problems"] += 1
            if not wanted.definitions and self.last is not None and outcome.removed:
                _log.warning("no definition is left; the agent waits for some", directory=self.files.directory)
            self.last = replace(outcome, at=time.time())
            return self.last

    def _moves(self, wanted: Wanted) -> renames.Renames:
        """Who takes over whose offsets; definitions that may not are taken out of `wanted`, or stay as they run."""
        if not any(definition.renamed_from for definition in wanted.definitions.values()):
            return renames.Renames()
        running = self._worker.definitions()
        leaving = running.keys() - wanted.definitions.keys()  # these may save their first offsets only when they end
        there = wanted.definitions.keys() | wanted.left_out | wanted.kept.keys()
        moves = renames.find(wanted.definitions, {*self._store.connectors(), *self._store.connectors_with_lanes(), *leaving}, there)
        for name, why in moves.refused.items():
            if name in running:
                wanted.definitions[name] = running[name]
                wanted.kept[name] = f"{why}; its last good version goes on"
            else:
                del wanted.definitions[name], wanted.paths[name]
                wanted.kept[name] = f"{why}; it is not run"
        for pair in set(moves.in_use) - self._warned:
            self._warned.add(pair)
            hint = "remove one of the two: no offsets move while both are there"
            _log.warning("renamed_from names a definition that is still there", connector=pair[0], renamed_from=pair[1], hint=hint)
        return moves

    def _warn(self, wanted: Wanted) -> None:
        """What is allowed and probably not meant, once; that of the first load has been shown to who started the agent."""
        for one in wanted.warnings:
            if (one.path, one.text) not in self._warned and self.last is not None:
                _log.warning("definition may not do what is meant", file=one.path, line=one.line, why=one.text, hint=one.hint)
            self._warned.add((one.path, one.text))

    def _outcome(self, before: Mapping[str, Definition], wanted: Wanted, moves: renames.Renames) -> Reload:
        after = wanted.definitions
        options = differences(self._started_with, wanted.options)
        both = sorted(after.keys() & before.keys())
        return Reload(
            added=tuple(sorted(after.keys() - before.keys())),
            changed={name: differences(before[name], after[name]) for name in both if before[name] != after[name]},
            removed=tuple(sorted(before.keys() - after.keys())),
            kept=dict(sorted(wanted.kept.items())),
            renamed={name: ", ".join(olds) for name, olds in moves.taken.items()},
            restart=tuple(option for option in options if option != "kafka" and not option.startswith("kafka.")),
            problems=wanted.problems,
        )

    def _tell(self, line: str, outcome: Reload) -> None:
        """Changes always; what is still broken or still needs a restart is old news."""
        log = _log.bind(connector=line[2:].partition(" ")[0].rstrip(":"))
        if not line.startswith("!"):
            log.info("reload", always=True, diff=line)
        elif (outcome.kept, outcome.restart) != self._told:
            log.warning("reload", always=True, diff=line)
