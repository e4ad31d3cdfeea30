"""Loads definitions from files, keeps the last good version of broken ones, and follows changes.

A definition that cannot be read (a broken file, a directory that vanished, a second file with the same name) keeps its last good version:
only a missing file counts as removed.
"""

from __future__ import annotations

import operator
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from copycat_agent import logs
from copycat_agent.agent.executor_choice import Elsewhere, doubts_about, refused
from copycat_agent.definitions import NO_ADDRESS, LoadedFile, beside, digest_of, find_agent_file, load_agent, load_directory
from copycat_agent.errors import DefinitionError, Problem
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.small_files import ContentCache
from copycat_agent.sources.files import clock
from copycat_agent.wake import Wake
from copycat_agent.watch import Watcher

AGENT_FILE = "agent.yaml"
"""Name under which a broken agent.yaml is reported."""
_SEEN_BYTES_MAX = 4 * 2**20
_REFERENCE = re.compile(rb"\$\{(file|cred):([^}]*)\}")
_MAY_NAME_FILES = re.compile(rb"\$\{(file|cred):|schema|\\")
"""Matches every definition that may refer to other files, also when the reference is spelled with escapes."""
_SCHEMA = re.compile(rb"""\bschema["']?:[ \t]*["']?(/[^\n"',{}#]*[^\s"',{}#])""")
"""A schema's file, by its absolute path: its text is part of the definition."""


@dataclass(frozen=True, slots=True)
class WantedDefinitions:
    """The definitions in files. `definitions` and `paths` are by name, disabled ones included, with the last good version of broken files.

    `kept` says for each broken file (by the connector's name, or the file's when it has none) what is wrong, and what runs instead.
    `left_out` are the names of other definitions, which `only` excludes.
    """

    options: AgentOptions
    definitions: dict[str, Definition] = field(default_factory=dict)
    paths: dict[str, Path] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


class DefinitionFiles:
    """Loads the directory and agent.yaml. Remembers the last good versions. Not thread-safe."""

    def __init__(
        self,
        directory: Path,
        config: Path | None,
        overrides: Mapping[str, object],
        only: Collection[str] = (),
        *,
        elsewhere: Elsewhere = "",
    ) -> None:
        """`overrides` replace options of agent.yaml, see `load_agent`. `only`: other names are left out. Both apply to all loads.

        `elsewhere`: definitions that only this host can read are refused.
        """
        self.directory = directory
        self.overrides = {option: value for option, value in overrides.items() if value is not None}
        self._config = config
        self._only = frozenset(only)
        self.elsewhere = elsewhere
        self._options: AgentOptions | None = None
        self._good: dict[Path, Definition] = {}
        self._loaded: tuple[AgentOptions | None, dict[Path, LoadedFile]] = (None, {})
        """The agent's options at the last load, and the files that loaded without a problem."""
        self._contents = ContentCache(_SEEN_BYTES_MAX, is_local=clock.is_local)
        self.seen: dict[str, bytes] = {}
        """The result of `look` just before the last load."""
        self.agent_file: Path | None = None
        """The agent.yaml that was read last, None without one."""

    def load(self) -> WantedDefinitions:
        """Loads everything. Raises DefinitionError for a broken agent.yaml the first time only: later the last good one applies."""
        self.seen = self.look()
        options, agent_problems = self._load_options()
        loaded = load_directory(self.directory, options, known=self._unchanged(options))
        self._loaded = options, {file.path: file for file in loaded.files if file.digest and not file.problems}
        if not loaded.files and any(problem.path == str(self.directory) for problem in loaded.problems):
            return self._all_kept(options, agent_problems, loaded.problems)
        files = self._beside_kept(loaded.files)
        runs = [file for file in files if self._is_good(file)]
        warnings = (*loaded.warnings, *(doubts_about(runs) if self.elsewhere else ()))
        wanted = WantedDefinitions(options, problems=(*agent_problems, *_problems_of(files)), warnings=warnings)
        self._note_agent_file(wanted, agent_problems)
        good = {file.path: file.definition for file in runs if file.definition}
        for path, definition in good.items():
            wanted.definitions[definition.name], wanted.paths[definition.name] = definition, path
        for file in files:
            if file.path not in good:
                self._keep(file, files, wanted)
        self._good = {wanted.paths[name]: definition for name, definition in wanted.definitions.items()}
        return self._chosen(wanted)

    def _unchanged(self, options: AgentOptions) -> dict[Path, LoadedFile]:
        """Returns good files that did not change since the last load, and depend on nothing but their text and `options`."""
        before, files = self._loaded
        if before != options:
            return {}
        seen = {path: self.seen.get(str(path), b"") for path in files}
        alone = (path for path, content in seen.items() if not _MAY_NAME_FILES.search(content))
        return {path: files[path] for path in alone if files[path].digest == digest_of(seen[path])}

    def problems_of(self, path: Path, content: bytes) -> tuple[Problem, ...]:
        """Returns the problems in the file at `path`, and in others because of it, if it held `content`. Called after a load."""
        options = self._options or AgentOptions()
        before = load_directory(self.directory, options, known=self._loaded[1])
        after = load_directory(self.directory, options, known=self._loaded[1], drafts={path: content})
        return tuple(one for one in _problems_of(self._beside_kept(after.files)) if one not in before.problems or one.path == str(path))

    def look(self) -> dict[str, bytes]:
        """Returns all that a load would read, by path, to compare with a later look: the content, or the error of reading it.

        Includes the files that `${file:}`, `${cred:}` and a converter's `schema` name.
        """
        seen: dict[str, bytes] = {}
        prefix = str(self.directory / "_")[:-1]  # before a name that makes the path as `load_directory` has it
        try:
            names = os.listdir(self.directory)  # noqa: PTH208 - hot: a thousand files every few seconds
        except OSError as error:
            return {str(self.directory): str(error).encode()}
        agent_file = find_agent_file(self.directory, self._config)
        paths = [prefix + name for name in names if name.endswith((".yaml", ".yml")) and not name.startswith(".")]
        for path in [*paths, str(agent_file)] if agent_file else paths:
            seen[path] = content = self._content(path)
            for named in _named_in(content):
                seen[named] = self._content(named)
        self._contents.forget_all_but(seen)
        return seen

    def _content(self, path: str) -> bytes:
        try:
            return self._contents.of(path)
        except (OSError, ValueError) as error:
            return str(getattr(error, "errno", None)).encode()

    def _load_options(self) -> tuple[AgentOptions, tuple[Problem, ...]]:
        """Returns agent.yaml's options, or the last good ones and the problems. A missing file is a problem: it may be about to return."""
        file = find_agent_file(self.directory, self._config)
        if file is None and self.agent_file is not None and self._options is not None:
            text, hint = "agent.yaml is gone", "put it back, or restart the agent to go on without it"
            return self._options, (Problem(str(self.agent_file), 0, 0, "unreadable", text, hint),)
        try:
            self._options = load_agent(file, self.overrides)
            self.agent_file = file
        except DefinitionError as error:
            if self._options is None:
                raise
            return self._options, error.problems
        return self._options, ()

    def _hindrance(self, definition: Definition) -> str:
        """Returns why a definition that loads is not run, "" when it is."""
        if not definition.enabled:
            return ""
        if not definition.kafka.bootstrap_servers:
            return NO_ADDRESS
        error = refused(definition, self.elsewhere)
        return f"{error.message}; {error.hint}" if error else ""

    def _is_good(self, file: LoadedFile) -> bool:
        return file.definition is not None and not self._hindrance(file.definition)

    def _beside_kept(self, files: Sequence[LoadedFile]) -> Sequence[LoadedFile]:
        """Returns the files; those do not load that must not run beside what goes on although its file does not load.

        Each file that is refused may keep its own last good version, beside which others must not run.
        """
        while True:
            names = {file.name for file in files if self._is_good(file)}
            last = [self._last_good(file, files) for file in files if not self._is_good(file)]
            kept = [LoadedFile(path, one.name, one, ()) for path, one in last if one and one.name not in names]
            judged = [beside(file, kept) if self._is_good(file) else file for file in files]
            if all(map(operator.is_, judged, files)):
                return files
            files = judged

    def _last_good(self, file: LoadedFile, files: Iterable[LoadedFile]) -> tuple[Path, Definition | None]:
        """Returns the path and the definition of a file's last good version, also when the file was renamed since."""
        last = self._good.get(file.path)
        if last is None and file.name:
            present = {one.path for one in files}
            return next(((p, d) for p, d in self._good.items() if d.name == file.name and p not in present), (file.path, None))
        return file.path, last

    def _keep(self, file: LoadedFile, files: Iterable[LoadedFile], wanted: WantedDefinitions) -> None:
        """Keeps the last good version of a file that does not load."""
        path, last = self._last_good(file, files)
        if last is None and not file.name and not os.path.lexists(file.path):
            return  # it was removed while it was looked at
        why = _in_words(file.problems[0], len(file.problems)) if file.problems else ""
        why = why or (self._hindrance(file.definition) if file.definition else NO_ADDRESS)
        if last is not None and last.name not in wanted.definitions:
            wanted.definitions[last.name], wanted.paths[last.name] = last, path
            wanted.kept[last.name] = f"{why}; its last good version goes on"
        else:
            wanted.kept.setdefault(file.name or file.path.name, f"{why}; it is not run")

    def _all_kept(self, options: AgentOptions, agent_problems: tuple[Problem, ...], problems: tuple[Problem, ...]) -> WantedDefinitions:
        """Returns the last good version of everything. Called when the directory cannot be read, which does not count as removal."""
        wanted = WantedDefinitions(options, problems=(*agent_problems, *problems))
        self._note_agent_file(wanted, agent_problems)
        for path, definition in self._good.items():
            wanted.definitions[definition.name], wanted.paths[definition.name] = definition, path
        wanted.kept[str(self.directory)] = f"{problems[0].text}; everything goes on as it was"
        return self._chosen(wanted)

    def _note_agent_file(self, wanted: WantedDefinitions, problems: tuple[Problem, ...]) -> None:
        if problems:
            wanted.kept[AGENT_FILE] = f"{_in_words(problems[0], len(problems))}; its last good version holds"

    def _chosen(self, wanted: WantedDefinitions) -> WantedDefinitions:
        if self._only:
            for name in wanted.definitions.keys() - self._only:
                wanted.left_out.add(name)
                del wanted.definitions[name], wanted.paths[name]
            for name in wanted.kept.keys() - self._only - {AGENT_FILE, str(self.directory)}:
                wanted.left_out.add(name)
                del wanted.kept[name]
        return wanted


def _problems_of(files: Iterable[LoadedFile]) -> Iterator[Problem]:
    return (problem for file in files for problem in file.problems)


def _in_words(problem: Problem, count: int) -> str:
    where = f"{problem.path}:{problem.line}:{problem.column}" if problem.line else problem.path
    more = f" (and {count - 1} more)" if count > 1 else ""
    return f"{where}: {problem.text}{more}" + (f"; {problem.hint.rstrip('.')}" if problem.hint else "")


def _named_in(definition: bytes) -> Iterator[str]:
    """Yields paths of the files that the text of a definition refers to."""
    if not _MAY_NAME_FILES.search(definition):
        return
    for kind, name in _REFERENCE.findall(definition):
        base = os.environ.get("CREDENTIALS_DIRECTORY", "") if kind == b"cred" else ""
        yield os.path.join(base, os.fsdecode(name))  # noqa: PTH118 - bytes of a file, whatever they are
    yield from map(os.fsdecode, _SCHEMA.findall(definition))


SCAN_SECONDS = 10.0
"""Time between two looks without an event: events may be lost, and the targets of links and references cause none."""
QUIET_SECONDS = 0.3
"""Quiet time before changed files are read: editors write in several steps."""
UNQUIET_SECONDS = 2.0
"""Longest wait for quiet."""
_JOIN_SECONDS = 5.0

_log = logs.get("reload")


class DefinitionWatcher:
    """A thread that calls `reload` when the files differ from those of the last load, when `ask` was called, or the last call failed."""

    def __init__(self, files: DefinitionFiles, watcher: Watcher, reload: Callable[[], object], scan_seconds: float = SCAN_SECONDS) -> None:
        """`files` have been loaded before."""
        self._files = files
        self._watcher = watcher
        self._reload = reload
        self._scan_seconds = scan_seconds
        self._wake = Wake()
        self._asked = self._again = self._busy = False
        self._closing = False
        self._thread = threading.Thread(target=self._follow, name="definitions", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def ask(self) -> None:
        """Requests a reload, even if no file has changed. Returns at once."""
        self._asked = True
        self._wake.wakeup()

    @property
    def reloading(self) -> bool:
        """Returns whether a requested reload has not ended yet, or another look or reload is under way."""
        return self._asked or self._busy

    def close(self) -> None:
        """Starts no reload from now on. Waits up to `_JOIN_SECONDS` for one under way."""
        self._closing = True
        self._wake.wakeup()
        self._thread.join(_JOIN_SECONDS)
        self._watcher.unwatch(self._wake)

    def _follow(self) -> None:
        while not self._closing:
            self._watch()
            self._wait()
            if not self._closing:
                self._look()

    def _watch(self) -> None:
        """Watches the directory, and that of agent.yaml when there is one."""
        directories = {self._files.directory, *([self._files.agent_file.parent] if self._files.agent_file else [])}
        self._watcher.watch(self._wake, [str(one.absolute()) for one in directories])

    def _wait(self) -> None:
        """Waits for an event and then for some quiet, or for the time of the next look."""
        self._wake.wait(self._scan_seconds)
        until = time.monotonic() + UNQUIET_SECONDS
        while self._happened() and not (self._asked or self._closing) and time.monotonic() < until:
            self._wake.wait(QUIET_SECONDS, deaf=True)

    def _happened(self) -> bool:
        grown, other = self._wake.take()
        return bool(grown) or other

    def _look(self) -> None:
        self._busy = True
        asked, again, self._asked, self._again = self._asked, self._again, False, False
        try:
            if asked or again or self._files.look() != self._files.seen:
                self._reload()
        except Exception as error:  # noqa: BLE001 - the thread has to go on following the definitions
            self._again = True  # the files count as seen, but do not run
            _log.error("definitions could not be reloaded, everything goes on as it was", error=error)
        finally:
            self._busy = False
