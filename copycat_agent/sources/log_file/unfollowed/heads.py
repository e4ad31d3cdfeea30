"""Saved offsets by what the heads of their files hash to, and by their names: which of them may a newly met file go on with?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.log_file.rotation import kin

if TYPE_CHECKING:
    from copycat_agent.model import SourceOffset, SourcePartition

_ALIKE = 64
"""So many with one head are looked at, the latest: files that are all alike are no reason to compare for ever."""

_Place = tuple[str, int, str]


class Heads:
    """A lookup costs a hash for each length of head that files of the name have, however many files there are."""

    def __init__(self) -> None:
        self._lengths: dict[str, dict[int, dict[str, dict[SourcePartition, str]]]] = {}
        self._places: dict[SourcePartition, _Place] = {}

    def add(self, partition: SourcePartition, offset: SourceOffset) -> None:
        """No effect for one of which nothing was read: nothing proves it."""
        proof = offset.fingerprint
        if proof.head_bytes and offset.position:
            place = self._places[partition] = (kin(offset.path), proof.head_bytes, proof.head)
            alike = self._lengths.setdefault(place[0], {}).setdefault(place[1], {}).setdefault(place[2], {})
            alike[partition] = offset.path.rpartition("/")[0]

    def discard(self, partition: SourcePartition) -> None:
        """Forget one, if it is there."""
        place = self._places.pop(partition, None)
        if place is None:
            return
        name, length, head = place
        lengths = self._lengths[name]
        del lengths[length][head][partition]
        if not lengths[length][head]:
            del lengths[length][head]
        if not lengths[length]:
            del lengths[length]
        if not lengths:
            del self._lengths[name]

    def has_kin(self, path: str) -> bool:
        """Whether there are any with a related name."""
        return kin(path) in self._lengths

    def has_longer(self, path: str, size: int) -> bool:
        """Whether `size` bytes of a file at `path` are too few to tell whether it has the head of one with a related name."""
        return any(length > size for length in self._lengths.get(kin(path), ()))

    def find(self, path: str, head: bytes) -> list[SourcePartition]:
        """Those with a related name whose head a file at `path` begins with. In another directory only a whole head counts."""
        found: list[SourcePartition] = []
        directory = path.rpartition("/")[0]
        for length, heads in self._lengths.get(kin(path), {}).items():
            if length <= len(head):
                alike = heads.get(fingerprint.digest(head[:length]), {})
                near = [one for one, place in alike.items() if length == fingerprint.HEAD_BYTES or place == directory]
                found += near[-_ALIKE:]
        return found
