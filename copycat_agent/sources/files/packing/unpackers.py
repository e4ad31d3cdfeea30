"""Unpacking that goes on in the next batch, so that a large archive is not unpacked from its beginning in each."""

from __future__ import annotations

import threading
import time

from copycat_agent.formats import Reader
from copycat_agent.model import SourcePartition
from copycat_agent.sources.files.packing.limits import UnpackOptions
from copycat_agent.sources.files.packing.unpacking import Unpacker

KEPT = 4
"""Files whose unpacking a process keeps between two batches; each takes up to `KEEP_BYTES` and what its codec needs."""
IDLE_SECONDS = 60.0
"""One that is not asked for this long is dropped when another one comes or goes."""


class Unpackers:
    """The idle ones of this process, by partition. No file is held open. Thread-safe."""

    def __init__(self) -> None:
        self._idle: dict[SourcePartition, tuple[float, Unpacker]] = {}
        self._lock = threading.Lock()

    def take(self, partition: SourcePartition, codec: str, source: Reader, size: int, limits: UnpackOptions | None = None) -> Unpacker:
        """The one that was unpacking this file, if `source` (packed bytes, `size` of them) still is what it was; else a new one."""
        with self._lock:
            self._drop_old()
            _, unpacker = self._idle.pop(partition, (0.0, None))
        if unpacker is not None and unpacker.codec == codec and unpacker.goes_on(source, size):
            unpacker.look_again()
            return unpacker
        return Unpacker(codec, limits)

    def give_back(self, partition: SourcePartition, unpacker: Unpacker) -> None:
        """Keep it for the next batch."""
        with self._lock:
            self._drop_old()
            self._idle[partition] = (time.monotonic(), unpacker)
            while len(self._idle) > KEPT:
                del self._idle[next(iter(self._idle))]

    def _drop_old(self) -> None:
        oldest = time.monotonic() - IDLE_SECONDS
        self._idle = {partition: one for partition, one in self._idle.items() if one[0] > oldest}


PROCESS = Unpackers()
"""Those of this process."""
