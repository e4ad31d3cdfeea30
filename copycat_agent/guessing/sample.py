"""A little of a file, packed or not: what people hand over as a sample."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from copycat_agent.errors import CopycatError
from copycat_agent.sources.packing import packed

BYTES_MAX = 256 * 2**10
"""So much of a sample is looked at, unpacked."""
LINES_MAX = 400
_PARQUET, _AVRO, _XML = b"PAR1", b"Obj\x01", (b"<?xml", b"<")


class Sample(NamedTuple):
    """The beginning of a file. `content` are its bytes, whole lines; `lines` their text. `kind` is what its first bytes name, or ""."""

    path: Path
    content: bytes
    lines: tuple[str, ...]
    kind: str
    is_packed: bool


def look(path: Path) -> Sample:
    """Read the beginning of a file. Raises `CopycatError` for one that cannot be read, is no file, or is empty."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise CopycatError(f"{path}: {error.strerror}", "name a file that can be read, with some lines of the log") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CopycatError(f"{path}: not a regular file", "write some lines into a file and name that")
        return _looked(path, descriptor)
    except OSError as error:
        raise CopycatError(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _looked(path: Path, descriptor: int) -> Sample:
    def read(position: int, size: int) -> bytes:
        return os.pread(descriptor, size, position)

    codec = packed.recognise(read(0, packed.MAGIC_BYTES))
    content = packed.head_of(read, codec, BYTES_MAX) if codec else read(0, BYTES_MAX)
    if not content.strip():
        raise CopycatError(f"{path}: nothing in it", "a sample needs some lines; ten are good, a few hundred are better")
    kind = "parquet" if content.startswith(_PARQUET) else "avro" if content.startswith(_AVRO) else ""
    whole = _whole_lines(content, is_all=len(content) < BYTES_MAX)
    text = whole.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
    if not kind and text.lstrip().startswith("<?xml"):
        kind = "xml"
    return Sample(path, whole, lines, kind, bool(codec))


def _whole_lines(content: bytes, *, is_all: bool) -> bytes:
    """At most `LINES_MAX` lines, the last one whole."""
    lines = content.split(b"\n")
    if not is_all and len(lines) > 1:
        del lines[-1]
    kept = lines[:LINES_MAX]
    return b"\n".join(kept) + (b"\n" if kept[-1] else b"")
