"""Exactly once into files: a range of a partition is claimed before its files become visible, and the claims form one chain.

::

    claims = Claims(store, "orders-lake")
    first = claims.resume("orders", 3, start=0, known=hint)        # where the chain ends: the next offset to read
    ...                                                            # read [first, last], write complete local files
    done = claims.commit(Range("orders", 3, first, last), files, "parquet")
    done.end, done.is_mine                                         # where the chain ends now; whether it has these files

`first` is a value that `resume` or `commit` has returned, at any earlier time and in any process. Below `<root>/_copycat/<connector>/`,
`starts/<topic>/<partition>` holds the offset at which the chain begins, and the topic's id; `claims/<topic>/<partition>/<first>` the last
offset and the files of a range, and that id; `checkpoint-<offset>` beside the claims says that those below are deleted;
`pending/<topic>/<partition>/<first>-<token>/<n>` are files to be published. A writer 1. uploads its files to pending, 2. puts its claim
with put-if-absent, 3. looks for a checkpoint above the claim, which makes it void, 4. publishes: each pending file moves to its final
name, and a file that is not pending is skipped.

Why no offset is ever visible twice or left out, wherever a writer stops, dies, resumes late or gets a late answer:

- A claim is *valid* if there was no checkpoint above it when it was put. At most one claim per first offset is valid: a second one can be
  put only after the first was deleted, hence after a checkpoint above both. Checkpoints are never changed, and the greatest three are never
  deleted: a listing shows the greatest checkpoint that existed when it began or, if it takes long enough for that one to go, a later one.
- No writer publishes a claim, its own or another's, before it has looked for checkpoints *after* it knew that the claim exists. So only
  files of valid claims become visible, each under one name and with the same bytes, whoever publishes them and however often.
- A claim is put at the end of the chain (`first`), by a writer for which all claims before it were published. So only the last valid claim
  may be unpublished, ranges neither overlap nor leave a gap, and a successor has at most one claim to finish. A checkpoint is always at
  a valid claim, and only what lies before it is deleted.
- Pending files of a valid claim disappear only by being published, so their absence proves that they were. Pending files are
  otherwise deleted only when another claim holds their first offset, or a checkpoint lies above it. A writer whose put has an unknown
  outcome deletes nothing and calls `resume`.
- A put that is refused because a claim exists may have met itself, sent twice: the token in the claim tells.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from copycat_agent import failpoints
from copycat_agent.errors import BlockedError, FatalError, RetriableError
from copycat_agent.sinks.chain_objects import ChainObjects, ChainStart, ClaimedFile, ClaimedRange
from copycat_agent.sinks.file_names import CONTROL, FileName, final_keys, parse_name
from copycat_agent.sinks.sink_stores import SinkStore

Range = FileName
"""Offsets `[first, last]` of one partition, claimed together."""
KEPT = 100
"""Claims that are kept when older ones are deleted, which happens once there are twice as many."""
MOST_OF_BATCH = 20
"""Claims that `lost` reads at most, a request each. A batch makes one for a split, or a few if dead letters were refused."""
_TRIES = 10
"""Listings before RetriableError: each may be outdated by a concurrent prune."""


class LocalFile(NamedTuple):
    """A local file with records of one range, complete and closed, and its destination `directory` below the root ("" is the root)."""

    path: Path
    directory: str
    records: int


class CommitResult(NamedTuple):
    """The outcome of a `commit`: the end of the chain, and whether the range has the files of this commit (`is_mine`)."""

    end: int
    is_mine: bool


class ChainState(NamedTuple):
    """The state of a partition's chain, to be shown: `[start, end)` is claimed, `unpublished` files of the last claim are not visible yet.

    `claims` counts the claims that were not pruned.
    """

    start: int
    end: int
    claims: int
    last: ClaimedRange | None
    unpublished: int


class Claims:
    """The chains of a connector in a store. Keeps no state between calls; any number of instances may be used at once, in any processes."""

    def __init__(self, store: SinkStore, connector: str, *, kept: int = KEPT, token: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._store = store
        self._connector = connector
        self._kept = kept
        self._token = token

    def resume(self, topic: str, partition: int, start: int, known: int = 0, topic_id: str = "") -> int:
        """Publishes what the last claim left pending and returns the end of the chain. A chain that does not exist begins at `start`.

        `known` is the greatest end that the caller knows of: raises BlockedError if the store has less, for instance because a mount is
        missing. Raises FatalError if the chain is of a topic with another id than `topic_id`; an id that is not known ("") equals all.
        Costs six small requests. Raises as `SinkStore` does.
        """
        chain = self._chain(topic, partition, topic_id)
        begin = self._begin(chain, start, known)
        firsts, claim = self._last(chain, begin.offset)
        end = begin.offset if claim is None else claim.end
        if claim is not None:
            chain.finish(claim)
        written = {begin.topic_id, claim.topic_id if claim else ""} - {""}
        if topic_id and written - {topic_id}:
            raise self._made_anew(chain)
        if end < known:
            raise self._forgotten(chain, known)
        if len(firsts) >= 2 * self._kept:
            chain.prune(firsts[-self._kept])
        return end

    def commit(
        self, at: Range, files: Sequence[LocalFile], extension: str = "", topic_id: str = "", lost: Sequence[Sequence[Any]] = ()
    ) -> CommitResult:
        """Claims a range and publishes its files, unless another writer holds a claim at its first offset: then that claim's files count.

        `lost`: see `ClaimedRange`.

        Raises as `SinkStore` does; the outcome of the claim is then unknown, and `resume` finds it out.
        """
        assert at.first <= at.last, "a range has one offset at least"
        chain = self._chain(at.topic, at.partition)
        keys = final_keys(at, [one.directory for one in files], extension)
        claimed = tuple(ClaimedFile(key, one.records, _size(one.path)) for key, one in zip(keys, files, strict=True))
        claim = ClaimedRange(at.first, at.last, self._token(), claimed, topic_id, tuple(lost))
        for key in keys:
            self._store.shown(key)  # one that the store refuses could never be published, and would stay claimed
        chain.upload(claim, [one.path for one in files])
        failpoints.hit("files-uploaded")
        there = chain.put(claim)
        failpoints.hit("files-claimed")
        is_mine, is_void = there is not None and there.token == claim.token, chain.is_void(at.first)
        if is_mine and not is_void:
            failpoints.hit("files-checked")
            chain.publish(claim)
            failpoints.hit("files-published")
            return CommitResult(claim.end, is_mine=True)
        if there is None and not is_void:
            raise RetriableError(f"a claim at {at.first} of {chain.name} was refused, and none is there", "it is tried again")
        if is_mine:
            chain.withdraw(claim)
        chain.discard(claim)
        return CommitResult(self.resume(at.topic, at.partition, at.first, topic_id=topic_id), is_mine=False)

    def lost(self, topic: str, partition: int, start: int, end: int) -> list[Sequence[Any]]:
        """Returns what was lost in `[start, end)` by the claims from `start` on, the first `MOST_OF_BATCH` of them: see `ClaimedRange`."""
        chain, found = self._chain(topic, partition), list[Sequence[Any]]()
        for _ in range(MOST_OF_BATCH):
            claim = chain.read(start) if start < end else None
            if claim is None:
                break
            found += claim.lost
            start = claim.end
        return found

    def chain(self, topic: str, partition: int) -> ChainState | None:
        """Returns the present state of a chain, None if it does not exist. Changes nothing."""
        chain = self._chain(topic, partition)
        begin = chain.start()
        if begin is None:
            return None
        start = begin.offset
        firsts, claim = self._last(chain, start)
        if claim is None:
            return ChainState(start, start, 0, None, 0)
        return ChainState(start, claim.end, len(firsts), claim, chain.unpublished(claim))

    def partitions(self) -> list[tuple[str, int]]:
        """Returns all topics and partitions that have a chain, sorted."""
        found = [key.rsplit("/", 2)[1:] for key in self._store.list(f"{CONTROL}/{self._connector}/starts")]
        return sorted((topic, int(partition)) for topic, partition in found)

    def files_with(self, topic: str, partition: int, offset: int, below: str = "") -> list[ClaimedFile] | None:
        """Returns the files of the range that contains an offset, one of which has its record if it was kept; None if no range does.

        Reads the claim or, if that was pruned, lists all names in the directory `below`; records and bytes are then unknown (-1).
        """
        chain = self._chain(topic, partition)
        firsts = [one for one in chain.listed().firsts if one <= offset]
        claim = chain.read(firsts[-1]) if firsts else None
        if claim is not None and claim.first <= offset <= claim.last and not chain.is_void(claim.first):
            return list(claim.files)
        names = ((key, parse_name(key)) for key in self._store.list(below) if not key.startswith(f"{CONTROL}/"))
        found = [key for key, name in names if name and name[:2] == (topic, partition) and name.first <= offset <= name.last]
        return [ClaimedFile(key, -1, -1) for key in found] or None

    def _chain(self, topic: str, partition: int, topic_id: str = "") -> ChainObjects:
        return ChainObjects(self._store, self._connector, topic, partition, topic_id)

    def _begin(self, chain: ChainObjects, start: int, known: int) -> ChainStart:
        """Returns where the chain begins: of several writers that begin it at once, the first decides."""
        found = chain.start()
        if found is None:
            if known:
                raise self._forgotten(chain, known)
            chain.begin(start)
            found = chain.start()
        if found is None:
            raise RetriableError(f"a start of {chain.name} was refused, and none is there", "it is tried again")
        return found

    def _last(self, chain: ChainObjects, begin: int) -> tuple[list[int], ClaimedRange | None]:
        """Returns the first offsets of the claims that were not pruned, and the last claim, which is valid (None without claims)."""
        for _ in range(_TRIES):
            listed = chain.listed()
            firsts = [one for one in listed.firsts if one >= max(begin, listed.checkpoint)]
            if not firsts and not listed.checkpoint:
                return [], None
            claim = chain.read(firsts[-1]) if firsts else None
            if claim is not None and not chain.is_void(claim.first):
                return firsts, claim
        raise RetriableError(f"claims below {self._store.shown(chain.claims)} are missing", "look at who deletes there")

    def _made_anew(self, chain: ChainObjects) -> FatalError:
        msg = f"the files of {chain.name} at {self._store.shown()} hold records of an earlier topic {chain.topic}"
        return FatalError(msg, "give the connector another name, without renamed_from, and another uri or path")

    def _forgotten(self, chain: ChainObjects, known: int) -> BlockedError:
        msg = f"{self._store.shown()} lacks what it had of {chain.name}: all offsets below {known}"
        return BlockedError(msg, "look whether it is mounted, and the right one; nothing is written until it has them")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise RetriableError(f"{path} is gone: {error.strerror}", "look at who deletes there") from None
