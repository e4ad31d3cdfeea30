"""Reload: runs what the files define, and reports the outcome as a diff.

Everything is loaded again and compared by value with what runs. An equal definition keeps its files and positions. A changed one is
drained while its successor waits for its end, so no connector waits for another one's drain.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from copycat_agent import logs
from copycat_agent.agent.definition_files import DefinitionFiles, WantedDefinitions
from copycat_agent.api import is_name
from copycat_agent.control import ReloadResult
from copycat_agent.definitions import load_content
from copycat_agent.definitions.formatting.editing import has_words
from copycat_agent.definitions.writing import create, put_aside, remove, rewrite
from copycat_agent.errors import BusyError, CopycatError, DataError, DefinitionError
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, Definition, Options
from copycat_agent.worker import Worker
from copycat_agent.worker.handle import Target


def differences(before: Options, after: Options, at: str = "") -> tuple[str, ...]:
    """Returns the dotted options that differ, in the order of their sections: `("record.topic", "kafka.client.linger.ms")`.

    An option whose type changed, or a list, is named as a whole. An equal value that has become a secret, or no longer is one,
    counts: it is shown differently.
    """
    if type(before) is not type(after):
        return (at.rstrip("."),)
    found: list[str] = []
    for name, info in type(before).model_fields.items():
        key = f"{at}{info.alias or name}"
        one, other = getattr(before, name), getattr(after, name)
        if isinstance(one, Options) and isinstance(other, Options):
            found += differences(one, other, f"{key}.")
        elif isinstance(one, dict) and isinstance(other, dict):
            found += [f"{key}.{inner}" for inner in {**one, **other} if one.get(inner) != other.get(inner)]
        elif one != other:
            found.append(key)
    found += [f"{at}{name}" for name in sorted(before.hidden ^ after.hidden) if f"{at}{name}" not in found]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ConnectorRenames:
    """The effects of `renamed_from`, by new name. `taken`: the old names whose offsets it takes over. `refused`: why it must not run.

    `earlier`: all old names that no other definition has or claims, with or without saved offsets: Kafka may have more than a store that
    was lost.
    """

    taken: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    earlier: dict[str, tuple[str, ...]] = field(default_factory=dict)


def find_renames(definitions: Mapping[str, Definition], saved: Collection[str], there: Collection[str]) -> ConnectorRenames:
    """Returns what `renamed_from` leads to. `saved` are the names that have offsets or lanes, `there` those that files define.

    `there` is more than `definitions` where a file is broken or left out: its offsets stay with it all the same (`check` warns).

    Offsets that two definitions claim go to neither, and neither runs: as with two files of one name, choosing would be a guess, and
    starting from the beginning would send everything again. A claim on a name without saved state (it was taken over before) does not
    count, so that `renamed_from` may stay in a definition for ever.
    """
    found = ConnectorRenames()
    free = {name: [old for old in one.renamed_from if old in saved and old not in {name, *there}] for name, one in definitions.items()}
    claimants = Counter(old for olds in free.values() for old in olds)
    for name, olds in free.items():
        twice = [old for old in olds if claimants[old] > 1]
        if twice:
            others = ", ".join(other for other, theirs in free.items() if twice[0] in theirs and other != name)
            found.refused[name] = f"renamed_from: the offsets of {twice[0]} are claimed by {others} too; leave it in one of them"
        elif olds:
            found.taken[name] = tuple(olds)
    named = Counter(old for one in definitions.values() for old in dict.fromkeys(one.renamed_from))
    for name, one in definitions.items():
        found.earlier[name] = tuple(old for old in dict.fromkeys(one.renamed_from) if old not in there and named[old] == 1)
    return found


_log = logs.get("reload")


class Reloader:
    """Loads definitions and runs them. Thread-safe; one reload at a time, the first one included."""

    def __init__(self, files: DefinitionFiles, worker: Worker, store: OffsetStore, started_with: AgentOptions) -> None:
        """`started_with`: the options that apply until the agent is restarted, except `kafka`."""
        self.files = files
        self.options = started_with
        """The effective options."""
        self.paths: Mapping[str, Path] = {}
        """The file of each connector."""
        self.last: ReloadResult | None = None
        self.results: Counter[str] = Counter()
        """Reloads after the first load, by result: `ok` or `problems`."""
        self._started_with = started_with
        self._worker = worker
        self._store = store
        self._lock = threading.Lock()
        self._reported: tuple[object, ...] = ()
        self._warned: set[tuple[str, str]] = set()

    def reload(self, loaded: WantedDefinitions | None = None) -> ReloadResult:
        """Loads everything, unless `loaded` is given, and runs it: equal definitions go on untouched.

        Raises what the offset store raises.
        """
        with self._lock:
            return self._reload(loaded)

    def change(self, name: str, before: bytes | None, content: bytes | None, target: Target | None) -> None:
        """Implements `Control.change_definition`. Undoes a change that does not run afterwards."""
        with self._lock:
            path = self._file_of(name, before)
            problems = () if content is None else self.files.problems_of(path, content)
            if problems:
                raise DefinitionError(problems)
            undo = _written(path, before, content, keeps=self._says_more(name, path, before))
            if target is not None:
                self._worker.expect(name, target)
            kept = self._reload(None).kept.get(name, "")
            runs = self._worker.definitions()
            if content is not None and (kept or name not in runs):
                undo()
                if target is not None:
                    self._worker.expect(name, "running")
                self._reload(None)
                raise DataError(f"connector {name} cannot be defined so: {kept or 'the agent does not run it'}", "nothing was changed")

    def _says_more(self, name: str, path: Path, content: bytes | None) -> bool:
        """Returns whether a file holds more than the running connector: comments, tests, or a change that does not run."""
        if content is None:
            return False
        return has_words(content) or load_content(path, content, self.options).definition != self._worker.definitions().get(name)

    def _file_of(self, name: str, before: bytes | None) -> Path:
        """Returns the definition's file, or that of a new one; never outside the directory. Raises DataError or BusyError."""
        if before is None:
            if not is_name(name):
                raise DataError("the name of a connector has letters a-z, digits and hyphens, at most 63, and begins with no hyphen")
            if name in self._worker.definitions():
                raise BusyError(f"Connector {name} already exists")
            new = self.files.directory / f"{name}.yaml"
            if os.path.lexists(new):
                raise _taken(new)
            return new
        path = self.paths.get(name)
        if path is None:
            raise BusyError(f"no file defines a connector {name} any more")
        if path.is_symlink():
            raise DataError(f"{path.name} is a link to a file elsewhere, which is not changed from here", "change it where it lies")
        return path

    def _reload(self, loaded: WantedDefinitions | None) -> ReloadResult:
        wanted = loaded or self.files.load()
        moves = self._moves(wanted)
        outcome = self._outcome(self._worker.definitions(), wanted, moves)
        for line in outcome.lines():
            self._tell(line, outcome)
        self._reported = outcome.kept, outcome.restart
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

    def _moves(self, wanted: WantedDefinitions) -> ConnectorRenames:
        """Returns which definition takes over whose offsets. A refused one is removed from `wanted`, or keeps running as it is."""
        if not any(definition.renamed_from for definition in wanted.definitions.values()):
            return ConnectorRenames()
        running = self._worker.definitions()
        leaving = running.keys() - wanted.definitions.keys()  # these may save their first offsets only when they end
        there = wanted.definitions.keys() | wanted.left_out | wanted.kept.keys()
        moves = find_renames(wanted.definitions, {*self._store.connectors(), *self._store.connectors_with_lanes(), *leaving}, there)
        for name, why in moves.refused.items():
            if name in running:
                wanted.definitions[name] = running[name]
                wanted.kept[name] = f"{why}; its last good version goes on"
            else:
                del wanted.definitions[name], wanted.paths[name]
                wanted.kept[name] = f"{why}; it is not run"
        return moves

    def _warn(self, wanted: WantedDefinitions) -> None:
        """Logs each warning once. Those of the first load were shown at start."""
        for one in wanted.warnings:
            if (one.path, one.text) not in self._warned and self.last is not None:
                _log.warning("definition may not do what is meant", file=one.path, line=one.line, why=one.text, hint=one.hint)
            self._warned.add((one.path, one.text))

    def _outcome(self, before: Mapping[str, Definition], wanted: WantedDefinitions, moves: ConnectorRenames) -> ReloadResult:
        after = wanted.definitions
        options = differences(self._started_with, wanted.options)
        both = sorted(after.keys() & before.keys())
        return ReloadResult(
            added=tuple(sorted(after.keys() - before.keys())),
            changed={name: differences(before[name], after[name]) for name in both if before[name] != after[name]},
            removed=tuple(sorted(before.keys() - after.keys())),
            kept=dict(sorted(wanted.kept.items())),
            renamed={name: ", ".join(olds) for name, olds in moves.taken.items()},
            restart=tuple(option for option in options if option != "kafka" and not option.startswith("kafka.")),
            problems=wanted.problems,
        )

    def _tell(self, line: str, outcome: ReloadResult) -> None:
        """Logs a line of the diff. Lines about broken files or a needed restart are logged when they have changed."""
        log = _log.bind(connector=line[2:].partition(" ")[0].rstrip(":"))
        if not line.startswith("!"):
            log.info("reload", always=True, diff=line)
        elif (outcome.kept, outcome.restart) != self._reported:
            log.warning("reload", always=True, diff=line)


def _taken(path: Path) -> DataError:
    words = f"{path.name} is there already, and is not the file of a connector that runs"
    return DataError(words, "see: copycat check; remove the file, or choose another name")


def _written(path: Path, before: bytes | None, content: bytes | None, *, keeps: bool) -> Callable[[], object]:
    """Writes `content` to the file, or removes it. Returns a function that undoes a write. Raises CopycatError.

    `keeps`: instead of being removed, the file is renamed so that it is no definition.
    """
    try:
        if content is None:
            assert before is not None
            if keeps:
                put_aside(path, before)
            else:
                remove(path, before)
            return lambda: None
        if before is None:
            create(path, content)
            return lambda: remove(path, content)
        rewrite(path, before, content)
        return lambda: rewrite(path, content, before)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.ENOENT}:
            raise BusyError(f"{path.name} cannot be written now: {error.strerror}", "try again") from None
        hint = "the agent's user has to be able to write there; under systemd see ReadWritePaths= in install.md"
        raise CopycatError(f"{path} cannot be written: {error.strerror}", hint) from None
