"""The objects of one partition's chain in a store: its start, its claims and checkpoints, and its pending files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.sinks.file_names import CONTROL, padded
from copycat_agent.sinks.sink_stores import SinkStore

CHECKPOINT = "checkpoint-"
"""Prefix of the keys of checkpoints, which lie beside the claims so that one listing shows both."""
CHECKPOINTS = 3
"""Checkpoints that are kept, the greatest ones."""


class ClaimedFile(NamedTuple):
    """A file of a claim: its final key, its number of records and its size."""

    key: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ClaimedRange:
    """A claimed range, the token of the writer's attempt, its files (none if no record of the range was kept), and the topic's id.

    `lost` is what the writer found lost in the range: fields of losses, which only the part that saves them knows.
    """

    first: int
    last: int
    token: str
    files: tuple[ClaimedFile, ...]
    topic_id: str = ""
    lost: tuple[Sequence[Any], ...] = ()

    @property
    def end(self) -> int:
        """The first offset after the range."""
        return self.last + 1


class ChainStart(NamedTuple):
    """The offset at which a chain begins, and the id of the topic then; "" if it was not known."""

    offset: int
    topic_id: str


class ClaimNames(NamedTuple):
    """First offsets of claims, and offsets of checkpoints, both ascending."""

    firsts: list[int]
    checkpoints: list[int]

    @property
    def checkpoint(self) -> int:
        """The greatest checkpoint, 0 if there is none."""
        return max(self.checkpoints, default=0)


class ChainObjects:
    """Reads and writes these objects, each method with a few requests; `Claims` decides on the order. Raises as `SinkStore` does."""

    def __init__(self, store: SinkStore, connector: str, topic: str, partition: int, topic_id: str = "") -> None:
        """`topic_id` is the topic's present id, "" if it is not known."""
        self.store = store
        self.topic, self.topic_id = topic, topic_id
        self.name = f"{topic}/{partition}"
        self._start, self.claims, self._pending = (
            f"{CONTROL}/{connector}/{kind}/{topic}/{partition}" for kind in ("starts", "claims", "pending")
        )

    def start(self) -> ChainStart | None:
        """Returns where the chain begins, None if it does not exist."""
        data = self.store.get(self._start)
        if data is None:
            return None
        found = json.loads(data)
        return ChainStart(int(found["start"]), found.get("topic_id", ""))

    def begin(self, start: int) -> None:
        """Begins the chain at this offset, unless it exists (put-if-absent)."""
        self.store.put_if_absent(self._start, json.dumps({"start": start, "topic_id": self.topic_id}).encode())

    def listed(self) -> ClaimNames:
        """Lists claims and checkpoints."""
        names = [key.rpartition("/")[2] for key in self.store.list(self.claims)]
        checkpoints = [int(one.removeprefix(CHECKPOINT)) for one in names if one.startswith(CHECKPOINT)]
        return ClaimNames(sorted(int(one) for one in names if one.isdecimal()), sorted(checkpoints))

    def is_void(self, first: int) -> bool:
        """Returns whether a claim that exists must not be published: it was put too late, or was published before it was pruned."""
        return self.listed().checkpoint > first

    def read(self, first: int) -> ClaimedRange | None:
        """Returns the claim at a first offset, None if there is none. Raises FatalError for an object that is not a claim."""
        key = self.claim_key(first)
        data = self.store.get(key)
        return None if data is None else _parsed(data, self.store.shown(key))

    def put(self, claim: ClaimedRange) -> ClaimedRange | None:
        """Puts the claim if absent. Returns the claim that holds the offset, None if the put was refused and yet no claim is found."""
        data = json.dumps(asdict(claim), separators=(",", ":")).encode()
        return claim if self.store.put_if_absent(self.claim_key(claim.first), data) else self.read(claim.first)

    def withdraw(self, claim: ClaimedRange) -> None:
        """Deletes a void claim."""
        self.store.delete([self.claim_key(claim.first)])

    def upload(self, claim: ClaimedRange, files: Sequence[Path]) -> None:
        """Uploads files to pending, before the claim is put. If that fails, deletes them, since the claim will not be put."""
        pending = list(self._moves(claim))
        try:
            self.store.upload(dict(zip(pending, files, strict=True)))
        except CopycatError:
            with contextlib.suppress(CopycatError):
                self.store.delete(pending)
            raise

    def publish(self, claim: ClaimedRange) -> None:
        """Publishes the pending files of a valid claim."""
        self.store.publish(self._moves(claim))

    def discard(self, claim: ClaimedRange) -> None:
        """Deletes the pending files of a claim that is void, or was not put."""
        self.store.delete(self._moves(claim))

    def finish(self, claim: ClaimedRange) -> None:
        """Publishes the last claim, then deletes pending files of other writers up to there, whose claims cannot be put any more."""
        self.publish(claim)
        moves = self._moves(claim)
        self.store.delete([key for key, first in self.pending() if key not in moves and first <= claim.first])

    def pending(self) -> list[tuple[str, int]]:
        """Returns the pending keys, each with the first offset of its range."""
        return [(key, int(key.rsplit("/", 2)[1].partition("-")[0])) for key in self.store.list(self._pending)]

    def unpublished(self, claim: ClaimedRange) -> int:
        """Returns how many files of the claim are not visible yet."""
        return sum(1 for key, _ in self.pending() if key in self._moves(claim))

    def prune(self, checkpoint: int) -> None:
        """Puts a checkpoint at a valid claim, all before which is published, then deletes all claims below it and old checkpoints."""
        self.store.put_if_absent(f"{self.claims}/{CHECKPOINT}{padded(checkpoint)}", b"{}")
        listed = self.listed()
        if listed.checkpoint < checkpoint:  # a put may be refused although there is no object
            return
        gone = [self.claim_key(one) for one in listed.firsts if one < checkpoint]
        self.store.delete(gone + [f"{self.claims}/{CHECKPOINT}{padded(one)}" for one in listed.checkpoints[:-CHECKPOINTS]])

    def claim_key(self, first: int) -> str:
        """Returns the key of the claim at a first offset."""
        return f"{self.claims}/{padded(first)}"

    def _moves(self, claim: ClaimedRange) -> dict[str, str]:
        """Returns the final key of each file by its pending key."""
        directory = f"{self._pending}/{padded(claim.first)}-{claim.token}"
        return {f"{directory}/{number}": one.key for number, one in enumerate(claim.files)}


def _parsed(data: bytes, where: str) -> ClaimedRange:
    try:
        found = json.loads(data)
        files = tuple(ClaimedFile(*one) for one in found["files"])
        return ClaimedRange(found["first"], found["last"], found["token"], files, found.get("topic_id", ""), tuple(found.get("lost", ())))
    except (ValueError, KeyError, TypeError):
        raise FatalError(f"{where} is not a claim", f"let nobody else write below {CONTROL}") from None
