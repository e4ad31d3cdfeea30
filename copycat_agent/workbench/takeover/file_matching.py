"""Matches a peer's positions with the files that definitions read: which are taken over, and what becomes of every file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from copycat_agent.definitions.source_rules import patterns_of
from copycat_agent.errors import CopycatError, DataError, RetriableError
from copycat_agent.logs import Log
from copycat_agent.model import SavedRow, SourceOffset, SourcePartition, state_partition
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES, FileView, create_source
from copycat_agent.sources.files.paths.matching import excluded_by, mismatch
from copycat_agent.sources.log_file.beginning.manual_position import LineRules, place
from copycat_agent.sources.log_file.rotation import log_of, rotation_family
from copycat_agent.sources.log_file.succession.last_look import as_if_looked
from copycat_agent.workbench.takeover.counted_lines import in_bytes
from copycat_agent.workbench.takeover.finding import PeerFile, PeerFileFinder
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition, PeerState
from copycat_agent.workbench.takeover.proving import Evidence, prove

LOOK_EARLIER_MS = 120_000
"""A peer's last scan of its directories may be this much older than its state; in doubt a rotated file counts as unseen. Fluent Bit scans
every minute by default."""


class Successor(NamedTuple):
    """A definition that takes over. `rules` say what a line is in its files.

    `pipelines` are the peer's pipelines that it replaces; None: any position may be for it.
    """

    definition: Definition
    rules: LineRules
    pipelines: frozenset[str] | None = None

    @property
    def name(self) -> str:
        """The connector's name."""
        return self.definition.name

    def reads(self, path: str) -> bool:
        """Returns whether a pattern matches the path."""
        include, exclude = patterns_of(self.definition.source)
        return mismatch(include, path) is None and not excluded_by(exclude, path)

    def follows(self, path: str) -> bool:
        """Returns whether a pattern matches the path, or the log that a file of this name was rotated from."""
        return bool(self.live_name(path))

    def live_name(self, path: str) -> str:
        """Returns the name of the file at `path` that a pattern matches: its own, or that of its log; "" if none matches."""
        return next((name for name in (path, "/".join(log_of(path))) if name.startswith("/") and self.reads(name)), "")


class FileDecision(NamedTuple):
    """The decision about one file. `connector` is "" if no definition reads it, `position` None if the peer does not know it.

    `taken`: the agent goes on at `position`. `is_there`: the file that the peer read exists, as far as it is known. `why` gives the reason,
    `then` what the agent does with the file of that name.
    """

    connector: str
    path: str
    position: int | None
    taken: bool
    is_there: bool
    why: str
    then: str = ""


@dataclass(frozen=True, slots=True)
class Takeover:
    """The rows to save, by connector, and a decision on every file."""

    rows: Mapping[str, Mapping[SourcePartition, SavedRow]]
    decisions: tuple[FileDecision, ...]


def take_over(successors: Sequence[Successor], state: PeerState, log: Log, *, trust_names: bool = False) -> Takeover:
    """Judges every position of a peer by the present files. Changes nothing."""
    sides = [_SuccessorState(successor, *_look(successor.definition, {}, log)) for successor in successors]
    unclaimed = []
    for position in state.positions:
        claimed = [side.judge(position, state.saved_ns, trust_names=trust_names) for side in sides if side.is_meant(position)]
        if not any(claimed):
            unclaimed.append(_unread(position, sides))
    judged = [one for side in sides for one in side.conclude(state.saved_ns, log)]
    return Takeover({side.successor.name: side.rows for side in sides if side.rows}, (*judged, *unclaimed))


class _FilesToFollow(NamedTuple):
    """The files that a connector would follow, and why it does not read others that match its patterns."""

    views: Sequence[FileView]
    passed_over: Mapping[str, str]


def _look(definition: Definition, rows: Mapping[SourcePartition, SavedRow], log: Log) -> _FilesToFollow:
    """Returns what a connector's source finds when it starts from these rows. Raises CopycatError."""
    kind = SOURCES[definition.source.type]
    with closing(create_source(kind.make, definition, rows, log, only_looks=True)) as source:
        try:
            source.scan()
        except RetriableError as error:
            raise CopycatError(f"the files of {definition.name} cannot be looked at: {error.message}", error.hint) from None
        views = source.files()
        reasons = dict(source.passed_over()) | {view.path: view.why for view in views if not view.key}
        return _FilesToFollow([view for view in views if view.key], reasons)


@dataclass(slots=True)
class _SuccessorState:
    """One successor, the files that it finds, and the decisions on them so far."""

    successor: Successor
    views: Sequence[FileView]
    passed_over: Mapping[str, str]
    rows: dict[SourcePartition, SavedRow] = field(default_factory=dict)
    _judged: list[tuple[str, FileDecision]] = field(default_factory=list)  # with the file's key, "" if it is not followed
    _anew: dict[SourcePartition, SavedRow] = field(default_factory=dict)
    finder: PeerFileFinder = field(init=False)
    at_path: Mapping[str, FileView] = field(init=False)

    def __post_init__(self) -> None:
        """Builds the indexes."""
        self.finder = PeerFileFinder(self.views, self.successor.follows)
        self.at_path = {view.path: view for view in self.views}

    def is_meant(self, position: PeerPosition) -> bool:
        """Returns whether the position may belong to this definition's pipeline."""
        return not position.pipeline or self.successor.pipelines is None or position.pipeline in self.successor.pipelines

    def judge(self, position: PeerPosition, saved_ns: int, *, trust_names: bool) -> bool:
        """Judges a position. Returns False if it does not concern this definition."""
        found = [] if position.path in self.passed_over else self.finder.candidates(position)
        proofs = [(one, self._prove(one, position, saved_ns, trust_names=trust_names)) for one in found]
        if position.inode is None and position.head is not None and len(proofs) > 1:
            proofs = _only_one(proofs, position.head)
        if position.is_by_name and len(proofs) > 1:
            alike = Evidence(f"{len(proofs)} files have this name, and the peer keeps nothing else")
            proofs = [(one, alike) for one, _ in proofs]
        for one, proof in proofs:
            self._note(one, position, proof)
        if not proofs and position.path and self._is_ours(position.path):
            self._note_missing(position, saved_ns)
            return True
        return bool(proofs)

    def _prove(self, one: PeerFile, position: PeerPosition, saved_ns: int, *, trust_names: bool) -> Evidence:
        name, definition, archives = self.successor.name, self.successor.definition, self.finder.archives_of(one)
        if position.in_lines:
            position = in_bytes(position, one.path, definition, saved_ns)
        return prove(name, one.path, position, self.successor.rules, saved_ns, archives, trust_names=trust_names)

    def _is_ours(self, path: str) -> bool:
        """Returns whether this definition would read a file of this name; SpoolDir's names have no directory."""
        return self.successor.follows(path) if path.startswith("/") else self.successor.pipelines is not None

    def _note(self, one: PeerFile, position: PeerPosition, proof: Evidence) -> None:
        renamed, name = not one.key, position.path or one.path
        live = self.successor.live_name(name) if renamed else ""  # saved under this name, the agent looks for the rotated file
        if proof.partition is None or proof.offset is None:
            key = self._begin_anew(one.path, live) if renamed and rotation_family(one.path) == rotation_family(name) else one.key
            self._judged.append((key, FileDecision(self.successor.name, one.path, position.position, False, True, proof.why)))
            return
        offset, why = replace(proof.offset, path=live or one.path), proof.why
        why = f"{why}; it is {one.path} now" if renamed else why
        before = self.rows.get(proof.partition)
        if isinstance(before, SourceOffset) and before.position < offset.position:
            why = f"{why}; the peer also read it at {before.position:,}, which is taken: the lesser of the two"
            offset = before
        self.rows[proof.partition] = offset
        told = FileDecision(self.successor.name, name if renamed else one.path, offset.position, True, True, why)
        self._judged.append((proof.partition.key, told))

    def _begin_anew(self, path: str, live: str) -> str:
        """Sets a rotated file without a pattern, whose position is not proven, to its beginning. Returns its key, "" on an error."""
        try:
            found = place(self.successor.name, {}, "0", path=path, rules=self.successor.rules)
        except (DataError, OSError):
            return ""
        self._anew[found.partition] = replace(found.offset, path=live)
        return found.partition.key

    def _note_missing(self, position: PeerPosition, saved_ns: int) -> None:
        """Judges a position whose file is missing; another file may have its name."""
        path, name, key = position.path, self.successor.name, ""
        view = self.at_path.get(path)
        is_there = path in self.passed_over
        if is_there:
            why = self.passed_over[path]
        elif view is None or position.is_by_name:
            why = "gone: there is no such file" if position.inode is None else "gone: no file of that inode is beside it"
        else:
            key, why = view.key, f"gone: {prove(name, path, position, self.successor.rules, saved_ns, (), trust_names=False).why}"
        self._judged.append((key, FileDecision(name, path, position.position, False, is_there, why)))

    def conclude(self, saved_ns: int, log: Log) -> Iterator[FileDecision]:
        """Yields every decision with what the agent will do, and one on each file that the peer did not know."""
        definition = self.successor.definition
        self.rows.update((partition, row) for partition, row in self._anew.items() if partition not in self.rows)
        if self._judged and definition.source.type == "log_file":
            self.rows[state_partition(definition.name)] = as_if_looked(max(1, saved_ns // 1_000_000 - LOOK_EARLIER_MS))
        views = _look(definition, self.rows, log).views
        now, named = {view.key: view for view in views}, {view.path: view for view in views}
        known = set()
        for key, one in self._judged:
            view = now.get(key) or named.get(one.path)
            known.add(view.key if view is not None else key)
            yield one._replace(then=_then(view)) if view is not None and not one.taken else one
        for key, view in now.items():
            if key not in known:
                yield FileDecision(definition.name, view.path, None, False, True, "the peer knows nothing of it", _then(view))


def _only_one(proofs: list[tuple[PeerFile, Evidence]], head: HeadProof) -> list[tuple[PeerFile, Evidence]]:
    """Returns the proofs, unless several files match the first bytes, which alone identify the file: then none is proven."""
    possible = [one for one, proof in proofs if not proof.is_another]
    if len(possible) > 1:
        alike = Evidence(f"{len(possible)} files have the same {head.what}, and the peer keeps nothing else")
        return [(one, proof if proof.is_another else alike) for one, proof in proofs]
    return [(one, proof) for one, proof in proofs if one in possible] or proofs


def _then(view: FileView) -> str:
    """Returns text such as `it is read from byte 14 (14 bytes): start_at end: ...`, without a reason at the beginning of a file."""
    if not view.position:
        return f"it is read from the beginning ({view.size:,} bytes)"
    where = f"record {view.position:,}" if view.counts_records else f"byte {view.position:,}"
    return f"it is read from {where} ({view.size:,} bytes)" + (f": {view.why}" if view.why else "")


def _unread(position: PeerPosition, sides: Iterable[_SuccessorState]) -> FileDecision:
    """Returns the decision on a position that concerns no definition."""
    others = sorted({side.successor.name for side in sides})
    path = position.path or (f"inode {position.inode}" if position.inode is not None else f"a file with a certain {_what(position)}")
    is_there = position.path.startswith("/") and os.path.exists(position.path)  # noqa: PTH110 - names may be odd bytes; texts stay texts
    why = f"none of {', '.join(others) or 'no definitions'} reads it" if position.path else "no file that is read is that one"
    return FileDecision("", path, position.position, False, is_there, position.unusable or why)


def _what(position: PeerPosition) -> str:
    return position.head.what if position.head is not None else "beginning"
