"""The digest of a whole file: what tells a file that is dropped a second time from another one under its name."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.sources.files.reading.handles import Handle

MOST_BYTES = 8 * 2**30
"""Longer files have none: reading them once more takes too long for what it yields."""
_BLOCK_BYTES = 2**20


def digest_of(handle: Handle, size: int) -> str:
    """BLAKE2b, 128 bits, hex, of the first `size` bytes as they stand on the disk; "" when there are fewer. Raises OSError."""
    state, position = hashlib.blake2b(digest_size=16), 0
    while position < size:
        data = handle.pread(min(_BLOCK_BYTES, size - position), position)
        if not data:
            return ""
        state.update(data)
        position += len(data)
    return state.hexdigest()
