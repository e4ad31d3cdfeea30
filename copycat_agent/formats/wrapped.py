r"""Lines that a container runtime has wrapped: what the program wrote, to which of its streams, and whether the line goes on.

CRI: `2026-11-21T05:00:00.123456789Z stdout F message`. Docker's json-file: `{"log":"message\n","stream":"stdout","time":"..."}`.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_CRI = re.compile(r"\d{4}-\d\d-\d\dT[^ ]+ (stdout|stderr) ([FP])(?::[^ ]*)?(?: (.*))?\Z", re.DOTALL)
_DOCKER = re.compile(r'\{"log":("(?:[^"\\]|\\.)*"),"stream":"(stdout|stderr)"')
_SIGNS = (b" stdout ", b" stderr ", b'"stream":"std')


_PARTS = (b" stdout P", b" stderr P")
_WHOLE, _STREAM = b'\\n","stream":"std', b'"stream":"std'


class Wrapped(NamedTuple):
    """One line. `stream` is "" when it is not wrapped; `unfinished` when the next line of its stream goes on with the message."""

    message: str
    stream: str = ""
    unfinished: bool = False


def may_be_wrapped(block: bytes) -> bool:
    """Whether a look at each line is worth while."""
    return any(sign in block for sign in _SIGNS)


def may_hold_parts(block: bytes) -> bool:
    """Whether one of its lines may go on in the next."""
    return any(sign in block for sign in _PARTS) or block.count(_STREAM) != block.count(_WHOLE)


def unwrap(line: str) -> Wrapped:
    """The message in a line; a line that is not wrapped is its own."""
    if cri := _CRI.match(line):
        return Wrapped(cri[3] or "", cri[1], cri[2] == "P")
    if docker := _DOCKER.match(line):
        try:
            message = str(json.loads(docker[1]))
        except ValueError:  # an escape that JSON does not know
            return Wrapped(line)
        return Wrapped(message.removesuffix("\n"), docker[2], not message.endswith("\n"))
    return Wrapped(line)
