r"""Lines that a container runtime has wrapped: what the program wrote, to which of its streams, and whether the line goes on.

CRI: `2026-11-21T05:00:00.123456789Z stdout F message`. Docker's json-file: a JSON object with the texts log, stream and time, in any order
and with any blanks, as `{"log":"message\n","stream":"stdout","time":"..."}`; a message goes on where its log does not end with a newline.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

_CRI = re.compile(r"\d{4}-\d\d-\d\dT[^ ]+ (stdout|stderr) ([FP])(?::[^ ]*)?(?: (.*))?\Z", re.DOTALL)
_SIGNS = (b" stdout ", b" stderr ")
_PARTS = (b" stdout P", b" stderr P")


class Wrapped(NamedTuple):
    """One line. `stream` is "" when it is not wrapped; `unfinished` when the next line of its stream goes on with the message."""

    message: str
    stream: str = ""
    unfinished: bool = False


def may_be_wrapped(block: bytes) -> bool:
    """Whether a look at each line is worth while. Where it says no, none is wrapped."""
    return any(sign in block for sign in _SIGNS) or _may_be_docker(block)


def _may_be_docker(block: bytes) -> bool:
    """A name in JSON may be written with escapes of its letters."""
    return b"{" in block and ((b'"log"' in block and b'"stream"' in block) or b"\\u" in block)


def may_hold_parts(lines: list[bytes]) -> bool:
    """Whether one of the lines may go on in the next. Where it says no, none does."""
    block = b"\n".join(lines)
    return any(sign in block for sign in _PARTS) or (_may_be_docker(block) and any(map(_is_open, lines)))


def _is_open(line: bytes) -> bool:
    message = _object(line).get("log")
    return isinstance(message, str) and not message.endswith("\n")


def _object(line: bytes) -> dict[str, Any]:
    """The fields of a JSON object; none for anything else."""
    try:
        value = orjson.loads(line)
    except ValueError:
        return {}
    return value if type(value) is dict else {}


def unwrap(line: str) -> Wrapped:
    """The message in a line; a line that is not wrapped is its own."""
    if cri := _CRI.match(line):
        return Wrapped(cri[3] or "", cri[1], cri[2] == "P")
    if not line.lstrip().startswith("{"):
        return Wrapped(line)
    fields = _object(line.encode("utf-8", "surrogatepass"))
    message, stream, when = fields.get("log"), fields.get("stream"), fields.get("time")
    if not (isinstance(message, str) and isinstance(stream, str) and isinstance(when, str) and stream):
        return Wrapped(line)
    return Wrapped(message.removesuffix("\n"), stream, not message.endswith("\n"))
