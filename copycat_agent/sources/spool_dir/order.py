"""Which of the files that are ready is begun next."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from functools import total_ordering
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copycat_agent.sources.spool_dir.spool_file import SpoolFile
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions


def sort_key(options: SpoolDirOptions, path: str, size: int, mtime_ns: int) -> tuple[Any, str]:
    """Files with the least of these go first. `order_by: none` makes them equal but for their names."""
    name = path.rpartition("/")[2]
    values: dict[str, int | str] = {"mtime": mtime_ns, "size": size, "name": name}
    value = values.get(options.order_by, 0)
    return (_Reversed(value) if options.descending else value), path


@total_ordering
class _Reversed:
    """Sorts the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: int | str) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.value == other.value

    def __lt__(self, other: _Reversed) -> bool:
        return other.value < self.value  # type: ignore[operator]  # both of one kind

    def __hash__(self) -> int:
        return hash(self.value)


class Queue:
    """The files that are ready, in the order in which they are begun. Begun ones go first, but with `order_by: none` to the end."""

    def __init__(self, options: SpoolDirOptions) -> None:
        self._options = options
        self._heap: list[tuple[tuple[Any, ...], int, SpoolFile]] = []
        self._members: dict[SpoolFile, int] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, file: object) -> bool:
        return file in self._members

    def __iter__(self) -> Iterator[SpoolFile]:
        return iter(self._members)

    def add(self, file: SpoolFile) -> None:
        """It is ready; one that is in keeps its place."""
        if file not in self._members:
            number = self._members[file] = next(self._numbers)
            heapq.heappush(self._heap, (self._key(file, number), number, file))

    def discard(self, file: SpoolFile) -> None:
        """Take it out, if it is in."""
        self._members.pop(file, None)

    def pop(self) -> SpoolFile | None:
        """Take out the next one; None when there is none."""
        while self._heap:
            _, number, file = heapq.heappop(self._heap)
            if self._members.get(file) == number:
                del self._members[file]
                return file
        return None

    def _key(self, file: SpoolFile, number: int) -> tuple[Any, ...]:
        if self._options.order_by == "none":
            return (number,)
        return (not file.is_begun, *sort_key(self._options, file.path, file.size, file.mtime_ns))
