"""Exactly once into files: a range of a partition is claimed before its files are seen, and the claims make one chain.

::

    claims = Claims(store, "orders-lake")
    first = claims.resume("orders", 3, start=0, known=hint)        # where the chain ends: the next offset to read
    ...                                                            # read [first, last], write complete local files
    done = claims.commit(Range("orders", 3, first, last), files, "parquet")
    done.end, done.is_mine                                         # where the chain ends now; whether it has these files

`first` is what `resume` or `commit` has returned, however long ago and in whatever process. Below `<root>/_copycat/<connector>/`:
`starts/<topic>/<partition>` says where the chain begins; `claims/<topic>/<partition>/<first>` holds the last offset and the files of a
range; `checkpoint-<offset>` beside the claims says that those below are gone; `pending/<topic>/<partition>/<first>-<token>/<n>` are files
to be published. A writer 1. uploads to pending, 2. puts its claim unless one is there, 3. looks for a checkpoint above it,
which makes it void, 4. publishes: what is pending goes to its final name, and nothing is done where nothing is pending.

Why no offset is ever visible twice or left out, whoever stops, dies, wakes or is answered late, at any place:

- A claim is *valid* if no checkpoint was above it when it came. At one place one is valid at most: another one can come only after the
  first was deleted, so after a checkpoint above both. No checkpoint is ever changed, and the greatest three are not deleted: a listing
  shows the greatest that was there when it began or, had it to last that long, one of the next.
- Nobody publishes a claim, his own or another's, before he has looked for checkpoints *after* he knew that it was there. So only files
  of valid claims are seen, each under one name and with the same bytes, whoever publishes them and how often.
- A claim is put at the end of the chain (`first`), by somebody for whom all before it was published. So of valid claims only the last may
  be unpublished, ranges neither overlap nor leave a gap, and a successor has one claim to finish. A checkpoint is at a valid claim,
  and what is deleted lies before it.
- What is pending of a valid claim goes only by being published, so that its absence proves it: it is deleted only where another claim
  is at its place, or a checkpoint above it. Whoever does not know what became of his put deletes nothing, and asks `resume`.
- "There is one" may be one's own put, sent twice: its token tells.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from copycat_agent import failpoints
from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.sinks.chain_objects import ChainObjects, ClaimedFile, ClaimedRange
from copycat_agent.sinks.file_names import CONTROL, FileName, final_keys, parse_name
from copycat_agent.sinks.sink_stores import SinkStore

Range = FileName
"""Offsets `[first, last]` of a partition of a topic, which are claimed together."""
KEPT = 100
"""Claims that stay when older ones are deleted, which is done once there are twice as many."""
_TRIES = 10


class LocalFile(NamedTuple):
    """A local file with records of one range, complete and closed. `directory` is where it goes below the root ("" is the root itself)."""

    path: Path
    directory: str
    records: int


class Committed(NamedTuple):
    """Where the chain ends now, and whether the files of this `commit` are those that it holds for the range."""

    end: int
    is_mine: bool


class Chain(NamedTuple):
    """How a partition's chain is, for people: `[start, end)` is claimed, and `unpublished` files of the last claim are not visible yet.

    `claims` counts those that are not pruned.
    """

    start: int
    end: int
    claims: int
    last: ClaimedRange | None
    unpublished: int


class Claims:
    """The chains of a connector in a store. Keeps nothing between two calls; any number may work at once, in any processes."""

    def __init__(self, store: SinkStore, connector: str, *, kept: int = KEPT, token: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._store = store
        self._connector = connector
        self._kept = kept
        self._token = token

    def resume(self, topic: str, partition: int, start: int, known: int = 0) -> int:
        """The end of the chain, up to which all is published. `start` is where it begins if nobody has begun it.

        `known` is the greatest end that the caller has heard of: BlockedError where the store has less, as behind a mount that is missing.
        Costs six small requests. Raises what a store raises.
        """
        chain = self._chain(topic, partition)
        begin = self._begin(chain, start, known)
        firsts, claim = self._last(chain, begin)
        end = begin if claim is None else claim.end
        if claim is not None:
            chain.finish(claim)
        if end < known:
            raise self._forgotten(chain, known)
        if len(firsts) >= 2 * self._kept:
            chain.prune(firsts[-self._kept])
        return end

    def commit(self, at: Range, files: Sequence[LocalFile], extension: str = "") -> Committed:
        """Claim a range and publish its files, unless somebody else has claimed at its first offset: then his files count, not these.

        Raises what a store raises; whether the range is claimed is not known then: `resume` says it.
        """
        assert at.first <= at.last, "a range has one offset at least"
        chain = self._chain(at.topic, at.partition)
        keys = final_keys(at, [one.directory for one in files], extension)
        claimed = tuple(ClaimedFile(key, one.records, _size(one.path)) for key, one in zip(keys, files, strict=True))
        claim = ClaimedRange(at.first, at.last, self._token(), claimed)
        chain.upload(claim, [one.path for one in files])
        failpoints.hit("files-uploaded")
        there = chain.put(claim)
        failpoints.hit("files-claimed")
        is_mine, is_void = there is not None and there.token == claim.token, chain.is_void(at.first)
        if is_mine and not is_void:
            failpoints.hit("files-checked")
            chain.publish(claim)
            failpoints.hit("files-published")
            return Committed(claim.end, is_mine=True)
        if there is None and not is_void:
            raise RetriableError(f"a claim at {at.first} of {chain.name} was refused, and none is there", "it is tried again")
        if is_mine:
            chain.withdraw(claim)
        chain.discard(claim)
        return Committed(self.resume(at.topic, at.partition, at.first), is_mine=False)

    def chain(self, topic: str, partition: int) -> Chain | None:
        """How a chain is now, None where none is begun. Changes nothing."""
        chain = self._chain(topic, partition)
        start = chain.start()
        if start is None:
            return None
        firsts, claim = self._last(chain, start)
        if claim is None:
            return Chain(start, start, 0, None, 0)
        return Chain(start, claim.end, len(firsts), claim, chain.unpublished(claim))

    def partitions(self) -> list[tuple[str, int]]:
        """All topics and partitions that have a chain."""
        found = [key.rsplit("/", 2)[1:] for key in self._store.list(f"{CONTROL}/{self._connector}/starts")]
        return sorted((topic, int(partition)) for topic, partition in found)

    def files_with(self, topic: str, partition: int, offset: int, below: str = "") -> list[ClaimedFile] | None:
        """Files of the range that an offset is in, one of which has its record if any has; None where it is in no range.

        From the claim or, once that is pruned, by listing all names in the directory `below`: the sizes are not known then (-1).
        """
        chain = self._chain(topic, partition)
        firsts = [one for one in chain.listed().firsts if one <= offset]
        claim = chain.read(firsts[-1]) if firsts else None
        if claim is not None and claim.first <= offset <= claim.last and not chain.is_void(claim.first):
            return list(claim.files)
        names = ((key, parse_name(key)) for key in self._store.list(below) if not key.startswith(f"{CONTROL}/"))
        found = [key for key, name in names if name and name[:2] == (topic, partition) and name.first <= offset <= name.last]
        return [ClaimedFile(key, -1, -1) for key in found] or None

    def _chain(self, topic: str, partition: int) -> ChainObjects:
        return ChainObjects(self._store, self._connector, topic, partition)

    def _begin(self, chain: ChainObjects, start: int, known: int) -> int:
        """Where the chain begins: of several starts, the one that came first."""
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
        """First offsets of the claims that were not pruned, and the last claim, which is valid. None where there is no claim yet."""
        for _ in range(_TRIES):
            listed = chain.listed()
            firsts = [one for one in listed.firsts if one >= max(begin, listed.checkpoint)]
            if not firsts and not listed.checkpoint:
                return [], None
            claim = chain.read(firsts[-1]) if firsts else None
            if claim is not None and not chain.is_void(claim.first):
                return firsts, claim
        raise RetriableError(f"claims below {self._store.shown(chain.claims)} are missing", "look at who deletes there")

    def _forgotten(self, chain: ChainObjects, known: int) -> BlockedError:
        msg = f"{self._store.shown()} lacks what it had of {chain.name}: all offsets below {known}"
        return BlockedError(msg, "look whether it is mounted, and the right one; nothing is written until it has them")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise RetriableError(f"{path} is gone: {error.strerror}", "look at who deletes there") from None
