"""The result of a load, and the rules across files: names, sources that others read too, and cleanup of files that others read."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copycat_agent.definitions.source_rules import patterns_of
from copycat_agent.errors import Problem
from copycat_agent.options import Definition
from copycat_agent.producer.topic_ranges import is_name, stands_for
from copycat_agent.sources.files.paths.matching import literal_prefix, shared_name
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

NO_ADDRESS = "no Kafka address is known: set kafka.bootstrap_servers in agent.yaml, or --bootstrap-servers"
"""The reason why a definition without an address cannot run."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """The result of loading one file.

    `name` is the connector's as far as it could be read, also from a file that does not load. `definition` is None if there are problems,
    and for a valid file with unresolved references that matter (`resolve_env=False`). `name_at`: line, column and text of the line with the
    name. `doubts` are warnings about this file alone. `assumed` are references that a name stands for (`offline`), as far as they affect
    samples. `digest` is that of its content, empty if it was not read.
    """

    path: Path
    name: str | None
    definition: Definition | None
    problems: tuple[Problem, ...]
    name_at: tuple[int, int, str] = (0, 0, "")
    doubts: tuple[Problem, ...] = ()
    assumed: tuple[str, ...] = ()
    digest: bytes = b""

    @property
    def enabled(self) -> Definition | None:
        """The definition, None if it did not load or is disabled."""
        return self.definition if self.definition is not None and self.definition.enabled else None

    def problem(self, code: str, text: str, hint: str) -> Problem:
        """Returns a problem at the position of the connector's name."""
        line, column, source_line = self.name_at
        return Problem(str(self.path), line, column, code, text, hint, source_line)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """A directory of definitions. `warnings` are about what is allowed but probably not intended."""

    files: tuple[LoadedFile, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    @property
    def definitions(self) -> dict[str, Definition]:
        """The definitions that loaded, by name, in the order of the files; disabled ones too."""
        return {file.definition.name: file.definition for file in self.files if file.definition is not None}

    @property
    def paths(self) -> dict[str, Path]:
        """The file of each of `definitions`."""
        return {file.definition.name: file.path for file in self.files if file.definition is not None}


def without_twins(files: Sequence[LoadedFile]) -> tuple[LoadedFile, ...]:
    """Returns the files with a problem for each of several with one name; none of those loads."""
    claims = Counter(file.name for file in files if file.name)
    return tuple(_refuse_twin(file, files) if file.name and claims[file.name] > 1 else file for file in files)


def _refuse_twin(file: LoadedFile, files: Iterable[LoadedFile]) -> LoadedFile:
    others = ", ".join(str(other.path) for other in files if other.name == file.name and other.path != file.path)
    hint = "names are the keys of offsets: choose another, or rename one file to *.disabled"
    problem = file.problem("duplicate-name", f"the name {file.name!r:.80} is taken by {others}", hint)
    return replace(file, definition=None, problems=(*file.problems, problem))


def warnings(files: Sequence[LoadedFile]) -> tuple[Problem, ...]:
    """Returns warnings for connectors that send what another one already sends to the same topic.

    Judges by patterns; `doctor` and `plan` check existing files.
    """
    found: list[Problem] = []
    before = _OverlapCandidates()
    for file in files:
        if (own := file.enabled) is None:
            continue
        near = before.of(own)
        twin = next((other for other, theirs in near if theirs.source == own.source and _same_topic(theirs, own)), None)
        if twin is None:
            found += _overlaps(file, own, near)
            before.add(file, own)
            continue
        text = f"{file.name} reads the same files into the same topic as {twin.name} ({twin.path}): every record arrives twice"
        hint = "delete one of them, or send it to another topic"
        found.append(file.problem("same-source", text, hint))
    return tuple(found)


class _OverlapCandidates:
    """Files whose patterns may match the same paths, found by the patterns' beginnings. Comparing 1,000 with each other takes minutes."""

    def __init__(self) -> None:
        self._files: list[tuple[LoadedFile, Definition]] = []
        self._by_prefix: dict[str, list[int]] = {}
        self._prefixes: list[str] = []  # sorted

    def add(self, file: LoadedFile, definition: Definition) -> None:
        """Adds a file."""
        for prefix in _prefixes(definition):
            if prefix not in self._by_prefix:
                self._by_prefix[prefix] = []
                insort(self._prefixes, prefix)
            self._by_prefix[prefix].append(len(self._files))
        self._files.append((file, definition))

    def of(self, definition: Definition) -> list[tuple[LoadedFile, Definition]]:
        """Returns files with a pattern that begins like one of the definition's, up to a wildcard; in the order of `add`."""
        found: set[int] = set()
        for prefix in _prefixes(definition):
            for length in range(len(prefix)):
                found.update(self._by_prefix.get(prefix[:length], ()))
            for index in range(bisect_left(self._prefixes, prefix), len(self._prefixes)):
                if not self._prefixes[index].startswith(prefix):
                    break
                found.update(self._by_prefix[self._prefixes[index]])
        return [self._files[index] for index in sorted(found)]


def _prefixes(definition: Definition) -> set[str]:
    """Returns the prefixes of its patterns; a source without patterns is compared with all others like it."""
    return {literal_prefix(pattern) for pattern in patterns_of(definition.source)[0]} or {""}


def _overlaps(file: LoadedFile, own: Definition, others: Iterable[tuple[LoadedFile, Definition]]) -> list[Problem]:
    """Returns problems of connectors whose patterns match the same path, though they differ."""
    found = []
    for other, theirs in others:
        name = shared_name(patterns_of(own.source), patterns_of(theirs.source)) if _same_topic(own, theirs) else ""
        if name:
            text = f"{file.name} and {other.name} ({other.path}) both read files like {name!r}, into one topic: every record arrives twice"
            hint = "narrow include, or exclude in one of them, or send to another topic"
            found.append(file.problem("shared-files", text, hint))
    return found


def _same_topic(one: Definition, other: Definition) -> bool:
    return one.record.topic == other.record.topic and one.kafka == other.kafka


def without_takers(files: Sequence[LoadedFile]) -> tuple[LoadedFile, ...]:
    """Returns the files with a problem for each enabled connector that removes what another one reads: it does not load.

    The other one may not have read it yet: its records would be lost. Judges by patterns, and among definitions that load.
    """
    return tuple(_refuse_taker(file, files) for file in files)


def _refuse_taker(file: LoadedFile, files: Iterable[LoadedFile]) -> LoadedFile:
    found = [problem for other in files if other is not file and (problem := _taking(file, other))]
    return replace(file, definition=None, problems=(*file.problems, *found)) if found else file


def _taking(file: LoadedFile, other: LoadedFile) -> Problem | None:
    source, theirs = file.enabled.source if file.enabled else None, other.enabled
    if not isinstance(source, SpoolDirOptions | LogFileOptions) or source.cleanup.policy == "none":
        return None
    name = shared_name(patterns_of(source), patterns_of(theirs.source)) if theirs else ""
    if not name:
        return None
    does = "deletes" if source.cleanup.policy == "delete" else "moves away"
    text = f"{file.name} {does} files that {other.name} ({other.path}) reads too, like {name!r}: perhaps before it has read them"
    hint = "narrow the patterns of one, or set cleanup.policy: none in both, or let one read a directory of its own"
    return file.problem("cleanup-shared", text, hint)


def without_clashes(files: Sequence[LoadedFile]) -> tuple[LoadedFile, ...]:
    """Returns the files with a problem for each enabled connector that would write files with the names of another one's: neither loads.

    Judges by patterns, and among definitions that load. A file's name has topic, partition and offsets, but no cluster.
    """
    return tuple(_refuse_clash(file, files) for file in files)


def _refuse_clash(file: LoadedFile, files: Iterable[LoadedFile]) -> LoadedFile:
    found = [problem for other in files if other is not file and (problem := _clash(file, other))]
    return replace(file, definition=None, problems=(*file.problems, *found)) if found else file


def _clash(file: LoadedFile, other: LoadedFile) -> Problem | None:
    own, theirs = file.enabled, other.enabled
    if own is None or theirs is None or own.sink.has_topics or theirs.sink.has_topics or theirs.target != own.target:
        return None
    name = _shared_topic(own.source, theirs.source) or _shared_topic(theirs.source, own.source)
    if not name:
        return None
    text = f"{file.name} and {other.name} ({other.path}) write records of topic {name} to {own.target}, in files of the same names"
    return file.problem("files-shared", text, "give one of them another sink.uri, or another fixed part of sink.path")


def beside(file: LoadedFile, running: Iterable[LoadedFile]) -> LoadedFile:
    """Returns the file with a problem for each connector beside which it must not run, if those go on whatever their files say now."""
    pairs = ((file, other) for other in running)
    found = [one for pair in pairs for one in (_taking(*pair), _taking(*reversed(pair)), _clash(*pair)) if one]
    at_name = [file.problem(one.code, one.text, one.hint) for one in found]
    return replace(file, definition=None, problems=(*file.problems, *at_name)) if found else file


def _shared_topic(one: Any, other: Any) -> str:  # noqa: ANN401 - of source kafka
    """Returns a topic, or pattern, of `one` that `other` reads, too; "" if there is none, or if that is not known."""
    for name in one.topics:
        is_same = name in other.topics if not is_name(name) else stands_for(name, other.topics, other.exclude)
        if is_same and not (is_name(name) and stands_for(name, one.exclude, ())):
            return str(name)
    return ""


def reread(files: Sequence[LoadedFile]) -> tuple[Problem, ...]:
    """Returns warnings for files that are moved where another connector reads them into the same topic once more."""
    return tuple(problem for file in files if (own := file.enabled) for problem in _rereadings(file, own, files))


def _rereadings(file: LoadedFile, own: Definition, files: Sequence[LoadedFile]) -> Iterator[Problem]:
    source = own.source
    if not isinstance(source, SpoolDirOptions) or source.cleanup.to is None or source.cleanup.policy not in ("move", "move_by_date"):
        return
    to = source.cleanup.to
    moved = [f"{to.rstrip('/')}/**/{name}" for name in ("*", *source.pattern)]
    for other in files:
        theirs = other.enabled
        if other is file or theirs is None or not _same_topic(own, theirs) or not shared_name((moved, ()), patterns_of(theirs.source)):
            continue
        text = (
            f"{file.name} moves files to {to}, where {other.name} ({other.path}) reads them into the same topic: every record arrives twice"
        )
        yield file.problem("shared-files", text, "move them elsewhere, or let the other one send to another topic")


def renamed(files: Sequence[LoadedFile]) -> tuple[Problem, ...]:
    """Returns warnings for earlier names that another file still has: no offsets move while both are there."""
    there = {file.name: file for file in files}
    return tuple(
        file.problem(
            "still-there",
            f"{own.name} was renamed from {old}, which is still there ({there[old].path}), so it does not take over its offsets",
            "remove one of the two, or renamed_from",
        )
        for file in files
        if (own := file.enabled)
        for old in dict.fromkeys(own.renamed_from)
        if old in there and old != own.name
    )
