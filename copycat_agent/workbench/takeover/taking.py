"""Each position of a peer and the files that our definitions read: which goes where, what is taken, and what becomes of every file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from copycat_agent.definitions.source_rules import patterns_of
from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.formats import Reader
from copycat_agent.logs import Log
from copycat_agent.model import SavedRow, SourceOffset, SourcePartition, state_partition
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES, FileView, create_source
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.paths.matching import excluded_by, mismatch
from copycat_agent.sources.files.paths.opening import open_regular
from copycat_agent.sources.log_file.beginning.placing import LineRules
from copycat_agent.sources.log_file.rotation import log_of
from copycat_agent.sources.log_file.succession.last_look import as_if_looked
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition, PeerState
from copycat_agent.workbench.takeover.proving import Evidence, prove

LOOK_EARLIER_MS = 60_000
"""A peer's last look at its directories may be so much older than its state: in doubt a rotated file counts as unseen."""


class Heir(NamedTuple):
    """A definition that takes over. `rules` say what a line is in its files.

    `pipelines` are the peer's names of what it was made of; None: any position may be for it.
    """

    definition: Definition
    rules: LineRules
    pipelines: frozenset[str] | None = None

    @property
    def name(self) -> str:
        """The connector's name."""
        return self.definition.name

    def reads(self, path: str) -> bool:
        """Whether a pattern names the path."""
        include, exclude = patterns_of(self.definition.source)
        return mismatch(include, path) is None and not excluded_by(exclude, path)

    def follows(self, path: str) -> bool:
        """Whether a pattern names the path, or the log that a file of this name was rotated from."""
        return bool(self.live_name(path))

    def live_name(self, path: str) -> str:
        """The name under which a pattern has, or had, the file at `path`: its own, or that of its log; "" when none has."""
        return next((name for name in (path, "/".join(log_of(path))) if name.startswith("/") and self.reads(name)), "")


class Judgement(NamedTuple):
    """What becomes of one file. `connector` is "" where no definition reads it, `position` None where the peer knows nothing of it.

    `taken`: the agent goes on at `position`. `is_there`: the file that the peer read is there, as far as anybody can say. `why` is for
    people, `then` what the agent does with the file of that name.
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
    """What is to be saved, by connector, and the judgement on every file."""

    rows: Mapping[str, Mapping[SourcePartition, SavedRow]]
    judgements: tuple[Judgement, ...]


def take_over(heirs: Sequence[Heir], state: PeerState, log: Log, *, trust_names: bool = False) -> Takeover:
    """Judge every position of a peer by the files that are there. Changes nothing."""
    sides = [_Side(heir, *_look(heir.definition, {}, log)) for heir in heirs]
    unclaimed = []
    for position in state.positions:
        claimed = [side.judge(position, state.saved_ns, trust_names=trust_names) for side in sides if side.is_meant(position)]
        if not any(claimed):
            unclaimed.append(_unread(position, sides))
    judged = [one for side in sides for one in side.conclude(state.saved_ns, log)]
    return Takeover({side.heir.name: side.rows for side in sides if side.rows}, (*judged, *unclaimed))


class _Looked(NamedTuple):
    """The files that a connector would follow, and why it does not read others that its patterns name."""

    views: Sequence[FileView]
    passed_over: Mapping[str, str]


def _look(definition: Definition, rows: Mapping[SourcePartition, SavedRow], log: Log) -> _Looked:
    """What a connector would begin with from these rows, as its source says it."""
    kind = SOURCES[definition.source.type]
    with closing(create_source(kind.make, definition, rows, log, only_looks=True)) as source:
        try:
            source.scan()
        except RetriableError as error:
            raise CopycatError(f"the files of {definition.name} cannot be looked at: {error.message}", error.hint) from None
        views = source.files()
        reasons = dict(source.passed_over()) | {view.path: view.why for view in views if not view.key}
        return _Looked([view for view in views if view.key], reasons)


@dataclass(slots=True)
class _Side:
    """One heir, the files that it finds, and what was judged of them so far."""

    heir: Heir
    views: Sequence[FileView]
    passed_over: Mapping[str, str]
    rows: dict[SourcePartition, SavedRow] = field(default_factory=dict)
    _judged: list[tuple[str, Judgement]] = field(default_factory=list)  # with the keys of the files, "" for those that are not followed
    _heads: dict[tuple[object, str], object] = field(default_factory=dict)

    def is_meant(self, position: PeerPosition) -> bool:
        """Whether the position may be of a file of this definition's pipeline."""
        return not position.pipeline or self.heir.pipelines is None or position.pipeline in self.heir.pipelines

    def judge(self, position: PeerPosition, saved_ns: int, *, trust_names: bool) -> bool:
        """Judge a position. False when this definition has nothing to do with it."""
        files = self._candidates(position)
        for path, key in files:
            proof = prove(self.heir.name, path, position, self.heir.rules, saved_ns, trust_names=trust_names)
            if len(files) > 1 and position.head is not None and position.inode is None:
                proof = Evidence(f"{len(files)} files have the same {position.head.what}, and the peer keeps nothing else")
            self._note(path, key, position, proof)
        if not files and position.path and self._is_ours(position.path):
            self._note_missing(position, saved_ns)
            return True
        return bool(files)

    def _candidates(self, position: PeerPosition) -> list[tuple[str, str]]:
        """Paths and keys of the files that the position may be of."""
        if position.inode is not None:
            return [(view.path, view.key) for view in self._at_inode(position)] or self._renamed(position)
        if position.head is not None:
            found = [(view.path, view.key) for view in self.views if self._head(position.head, view.path) == position.head.value]
            return found or self._renamed(position)
        whole = position.path.startswith("/")
        return [(view.path, view.key) for view in self.views if (view.path if whole else _name(view.path)) == position.path]

    def _at_inode(self, position: PeerPosition) -> list[FileView]:
        """Those with its inode; of several devices the peer's, or, where it keeps none, those in the directory that the file was in."""
        found = [view for view in self.views if Identity.parse(view.key)[0].inode == position.inode]
        if position.device is not None:
            return [one for one in found if Identity.parse(one.key)[0].device == position.device or one.path == position.path]
        beside = [one for one in found if _directory(one.path) == _directory(position.path)]
        return beside if len(found) > 1 and beside else found

    def _renamed(self, position: PeerPosition) -> list[tuple[str, str]]:
        """The file where it was rotated to a name beside its old one that no pattern has; of several links to it one.

        Where the peer keeps no name, the old one may be that of any file that is there.
        """
        if position.path in self.passed_over:
            return []
        names = [position.path] if position.path else [view.path for view in self.views]
        of_directory: dict[str, list[str]] = {}
        for path in names:
            if path.startswith("/") and self.heir.follows(path):
                of_directory.setdefault(_directory(path), []).append(_name(path))
        found = [path for directory, ours in of_directory.items() for path in self._found_in(directory, ours, position)]
        return [(one, "") for one in (found if position.inode is None else found[:1])]

    def _found_in(self, directory: str, names: list[str], position: PeerPosition) -> list[str]:
        """Files of a directory that are the peer's by inode, or, under a name that begins with one of `names`, by their first bytes."""
        try:
            with os.scandir(directory) as listing:
                entries = [entry for entry in listing if entry.is_file(follow_symlinks=False)]
        except OSError:
            return []
        if position.inode is not None:
            return [entry.path for entry in entries if entry.inode() == position.inode]
        head, related = position.head, [entry.path for entry in entries if entry.name.startswith(tuple(names))]
        return [] if head is None else [path for path in related if self._head(head, path) == head.value]

    def _is_ours(self, path: str) -> bool:
        """Whether a file of this name would be read; SpoolDir's names have no directory."""
        return self.heir.follows(path) if path.startswith("/") else self.heir.pipelines is not None

    def _head(self, head: HeadProof, path: str) -> object:
        """What the file's first bytes come to; None where they cannot be read, or are too few."""
        place = head.of, path
        if place not in self._heads:
            self._heads[place] = _first_bytes(head, path)
        return self._heads[place]

    def _note(self, path: str, key: str, position: PeerPosition, proof: Evidence) -> None:
        if proof.partition is None or proof.offset is None:
            self._judged.append((key, Judgement(self.heir.name, path, position.position, False, True, proof.why)))
            return
        renamed, why = not key, proof.why
        live = self.heir.live_name(position.path or path) if renamed else ""  # so the agent looks for it, as for one that it followed
        offset = replace(proof.offset, path=live or path)
        why = f"{why}; it is {path} now" if renamed else why
        before = self.rows.get(proof.partition)
        if isinstance(before, SourceOffset) and before.position < offset.position:
            why = f"{why}; the peer also read it at {before.position:,}, which is taken: the lesser of the two"
            offset = before
        self.rows[proof.partition] = offset
        self._judged.append((proof.partition.key, Judgement(self.heir.name, position.path or path, offset.position, True, True, why)))

    def _note_missing(self, position: PeerPosition, saved_ns: int) -> None:
        """No file is the peer's: another one has its name, or none."""
        path, name, key = position.path, self.heir.name, ""
        view = next((one for one in self.views if one.path == path), None)
        is_there = path in self.passed_over
        if is_there:
            why = self.passed_over[path]
        elif view is None or position.is_by_name:
            why = "gone: there is no such file" if position.inode is None else "gone: no file of that inode is beside it"
        else:
            key, why = view.key, f"gone: {prove(name, path, position, self.heir.rules, saved_ns, trust_names=False).why}"
        self._judged.append((key, Judgement(name, path, position.position, False, is_there, why)))

    def conclude(self, saved_ns: int, log: Log) -> Iterator[Judgement]:
        """Every judgement with what the agent will do, and one on each file that the peer did not know."""
        definition = self.heir.definition
        if self.rows and definition.source.type == "log_file":
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
                yield Judgement(definition.name, view.path, None, False, True, "the peer knows nothing of it", _then(view))


def _first_bytes(head: HeadProof, path: str) -> object:
    try:
        fd, _ = open_regular(path, follow_symlinks=True)
    except OSError:
        return None
    try:
        read: Reader = fingerprint.reader(fd)
        return head.of(read)
    except OSError:
        return None
    finally:
        os.close(fd)


def _then(view: FileView) -> str:
    """`it is read from byte 14 (14 bytes): start_at end: ...`. Why one is read from its beginning need not be said."""
    if not view.position:
        return f"it is read from the beginning ({view.size:,} bytes)"
    where = f"record {view.position:,}" if view.counts_records else f"byte {view.position:,}"
    return f"it is read from {where} ({view.size:,} bytes)" + (f": {view.why}" if view.why else "")


def _unread(position: PeerPosition, sides: Iterable[_Side]) -> Judgement:
    """A position that no definition has to do with."""
    others = sorted({side.heir.name for side in sides})
    path = position.path or (f"inode {position.inode}" if position.inode is not None else f"a file with a certain {_what(position)}")
    is_there = position.path.startswith("/") and os.path.exists(position.path)  # noqa: PTH110 - names may be odd bytes; texts stay texts
    why = f"none of {', '.join(others) or 'no definitions'} reads it" if position.path else "no file that is read is that one"
    return Judgement("", path, position.position, False, is_there, position.unusable or why)


def _what(position: PeerPosition) -> str:
    return position.head.what if position.head is not None else "beginning"


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _directory(path: str) -> str:
    return path.rpartition("/")[0] or "/"
