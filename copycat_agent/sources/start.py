"""Where a file that was never seen before begins."""

from __future__ import annotations

import os
from datetime import datetime

from copycat_agent.formats import LineOptions
from copycat_agent.model import SourceOffset
from copycat_agent.sources import fingerprint


class StartAt:
    """`start_at`: applies to files that are there when the connector looks for the first time. Later ones are new from byte 0."""

    def __init__(self, start_at: str, line: LineOptions) -> None:
        """`start_at` is beginning, end or an RFC 3339 time. Raises ValueError for anything else."""
        self._end = start_at == "end"
        self._since = None if start_at in ("beginning", "end") else datetime.fromisoformat(start_at).timestamp()
        self._delimiter = line.delimiter.encode()
        self._look_back = line.max_bytes + len(self._delimiter)

    def offset(self, fd: int, info: os.stat_result, path: str, *, first: bool) -> SourceOffset:
        """The first offset of a new file. `first`: it was there when the connector first looked. Raises OSError."""
        at_end = self._end or (self._since is not None and info.st_mtime < self._since)
        if not (first and at_end) or not info.st_size:
            return SourceOffset(0, path=path)
        begin = max(0, info.st_size - self._look_back)
        cut = os.pread(fd, info.st_size - begin, begin).rfind(self._delimiter)
        if cut >= 0:  # a line that is being written counts as new when it is complete
            position, skipping = begin + cut + len(self._delimiter), False
        else:
            position, skipping = (0, False) if begin == 0 else (info.st_size, True)
        if not position:
            return SourceOffset(0, path=path)
        proof = fingerprint.take(fingerprint.reader(fd), position)
        return SourceOffset(position, skipping=skipping, path=path, fingerprint=proof)
