"""What lies in a store of one partition's chain: where it begins, its claims and checkpoints, and what is pending."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.sinks.file_names import CONTROL, padded
from copycat_agent.sinks.sink_stores import SinkStore

CHECKPOINT = "checkpoint-"
"""What the keys of checkpoints begin with: the listing that shows claims shows them, too."""
CHECKPOINTS = 3
"""So many stay, the greatest."""


class ClaimedFile(NamedTuple):
    """A file of a claim: its final key, and what is in it."""

    key: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ClaimedRange:
    """A range, who claimed it, and its files: none where no record of it is kept."""

    first: int
    last: int
    token: str
    files: tuple[ClaimedFile, ...]

    @property
    def end(self) -> int:
        """The first offset behind it."""
        return self.last + 1


class ClaimNames(NamedTuple):
    """First offsets of claims, and checkpoints, in order."""

    firsts: list[int]
    checkpoints: list[int]

    @property
    def checkpoint(self) -> int:
        """The greatest one; 0 for none."""
        return max(self.checkpoints, default=0)


class ChainObjects:
    """Each method is a few requests; `Claims` says in which order. Raises what a store raises."""

    def __init__(self, store: SinkStore, connector: str, topic: str, partition: int) -> None:
        self.store = store
        self.name = f"{topic}-{partition}"
        self._start, self.claims, self._pending = (
            f"{CONTROL}/{connector}/{kind}/{topic}/{partition}" for kind in ("starts", "claims", "pending")
        )

    def start(self) -> int | None:
        """Where the chain begins, None where nobody has begun it."""
        data = self.store.get(self._start)
        return None if data is None else int(json.loads(data)["start"])

    def begin(self, start: int) -> None:
        """Begin it there, unless somebody has begun it."""
        self.store.put_if_absent(self._start, json.dumps({"start": start}).encode())

    def listed(self) -> ClaimNames:
        """The claims and checkpoints that are there."""
        names = [key.rpartition("/")[2] for key in self.store.list(self.claims)]
        checkpoints = [int(one.removeprefix(CHECKPOINT)) for one in names if one.startswith(CHECKPOINT)]
        return ClaimNames(sorted(int(one) for one in names if one.isdecimal()), sorted(checkpoints))

    def is_void(self, first: int) -> bool:
        """Whether a claim that is known to be there must not be published: it came too late, or was published before it was pruned."""
        return self.listed().checkpoint > first

    def read(self, first: int) -> ClaimedRange | None:
        """The claim at an offset."""
        key = self.claim_key(first)
        data = self.store.get(key)
        return None if data is None else _parsed(data, self.store.shown(key))

    def put(self, claim: ClaimedRange) -> ClaimedRange | None:
        """Claim, unless somebody has; returns the claim that is there. None: it was refused, and none is seen."""
        data = json.dumps(asdict(claim), separators=(",", ":")).encode()
        return claim if self.store.put_if_absent(self.claim_key(claim.first), data) else self.read(claim.first)

    def withdraw(self, claim: ClaimedRange) -> None:
        """Delete a void claim."""
        self.store.delete([self.claim_key(claim.first)])

    def upload(self, claim: ClaimedRange, files: Sequence[Path]) -> None:
        """Before the claim is put: where it fails, what was sent is deleted, for the claim never comes."""
        pending = list(self._moves(claim))
        try:
            self.store.upload(dict(zip(pending, files, strict=True)))
        except CopycatError:
            with contextlib.suppress(CopycatError):
                self.store.delete(pending)
            raise

    def publish(self, claim: ClaimedRange) -> None:
        """Of a valid claim."""
        self.store.publish(self._moves(claim))

    def discard(self, claim: ClaimedRange) -> None:
        """Delete what is pending of a claim that is void, or was not put."""
        self.store.delete(self._moves(claim))

    def finish(self, claim: ClaimedRange) -> None:
        """Publish the last claim, then delete what is pending of others up to there: their claims never come."""
        self.publish(claim)
        moves = self._moves(claim)
        self.store.delete([key for key, first in self.pending() if key not in moves and first <= claim.first])

    def pending(self) -> list[tuple[str, int]]:
        """Keys that are not published, and the first offsets of their ranges."""
        return [(key, int(key.rsplit("/", 2)[1].partition("-")[0])) for key in self.store.list(self._pending)]

    def unpublished(self, claim: ClaimedRange) -> int:
        """Files of it that are not visible yet."""
        return sum(1 for key, _ in self.pending() if key in self._moves(claim))

    def prune(self, checkpoint: int) -> None:
        """First the checkpoint, at a valid claim before which all is published; then claims below, void ones too, and old checkpoints."""
        self.store.put_if_absent(f"{self.claims}/{CHECKPOINT}{padded(checkpoint)}", b"{}")
        listed = self.listed()
        if listed.checkpoint < checkpoint:  # a put may be refused, though nothing is there
            return
        gone = [self.claim_key(one) for one in listed.firsts if one < checkpoint]
        self.store.delete(gone + [f"{self.claims}/{CHECKPOINT}{padded(one)}" for one in listed.checkpoints[:-CHECKPOINTS]])

    def claim_key(self, first: int) -> str:
        """Where the claim at an offset is."""
        return f"{self.claims}/{padded(first)}"

    def _moves(self, claim: ClaimedRange) -> dict[str, str]:
        """Temporary key -> final key of each file."""
        directory = f"{self._pending}/{padded(claim.first)}-{claim.token}"
        return {f"{directory}/{number}": one.key for number, one in enumerate(claim.files)}


def _parsed(data: bytes, where: str) -> ClaimedRange:
    try:
        found = json.loads(data)
        return ClaimedRange(found["first"], found["last"], found["token"], tuple(ClaimedFile(*one) for one in found["files"]))
    except (ValueError, KeyError, TypeError):
        raise FatalError(f"{where} is not a claim", f"let nobody else write below {CONTROL}") from None
