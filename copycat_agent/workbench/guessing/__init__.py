"""Makes a definition from a sample of a file.

`look` reads the beginning of the sample, packed or not, `guess` recognises its format, `draft` writes the definition. Nothing here depends
on Kafka or the terminal.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from copycat_agent.errors import CopycatError
from copycat_agent.sources.files.packing import compressions
from copycat_agent.workbench.guessing import log_layouts, structured_lines
from copycat_agent.workbench.guessing.drafting import Case, DefinitionDraft, draft, name_for
from copycat_agent.workbench.guessing.guesses import Guess, Recogniser

__all__ = ["RECOGNISERS", "Case", "DefinitionDraft", "Guess", "SampleFile", "draft", "guess", "look", "name_for"]

RECOGNISERS: Mapping[str, Recogniser] = {
    "access": log_layouts.access_log,
    "w3c": log_layouts.w3c_log,
    "syslog": log_layouts.syslog_lines,
    "containers": structured_lines.recogniser((structured_lines.json_lines, structured_lines.logfmt)),
    "json": structured_lines.json_lines,
    "layouts": log_layouts.program_log,
    "logfmt": structured_lines.logfmt,
    "key_value": structured_lines.key_value,
    "csv": structured_lines.delimited,
    "plain": log_layouts.plain_text,
}


def guess(lines: Sequence[str]) -> Guess:
    """Returns the best guess of all recognisers, the earlier of equals; plain text if nothing else fits."""
    found = [one for recognise in RECOGNISERS.values() if (one := recognise(lines)) is not None]
    return max(found, key=lambda one: one.score)


BYTES_MAX = 256 * 2**10
"""Most bytes of a sample that are read, unpacked."""
LINES_MAX = 400
_PARQUET, _AVRO = b"PAR1", b"Obj\x01"
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MOST_CONTROLS = 0.02
"""Content with a larger share of control characters is binary. A few of them, and a hole left by copytruncate, are tolerated."""
_MOST_NOT_WIDE = 0.3


class SampleFile(NamedTuple):
    """The beginning of a file. `content` are its bytes, cut at a line's end; `lines` are the lines' texts.

    `kind` is `parquet`, `avro`, `xml` or `binary` if the file has no lines of text, else "". `encoding` is the option of that name, "" for
    UTF-8. `is_cut`: not even the first line is complete.
    """

    path: Path
    content: bytes
    lines: tuple[str, ...]
    kind: str
    is_packed: bool
    encoding: str = ""
    is_cut: bool = False


def look(path: Path) -> SampleFile:
    """Reads the beginning of a file. Raises CopycatError for one that cannot be read, is no regular file, or is empty."""
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


def _looked(path: Path, descriptor: int) -> SampleFile:
    def read(position: int, size: int) -> bytes:
        return os.pread(descriptor, size, position)

    codec = compressions.recognise(read(0, compressions.MAGIC_BYTES))
    content = compressions.head_of(read, codec, BYTES_MAX) if codec else read(0, BYTES_MAX)
    if not content.strip():
        raise CopycatError(f"{path}: nothing in it", "a sample needs some lines; ten are good, a few hundred are better")
    option, encoding = _encoding(content)
    is_all = len(content) < BYTES_MAX
    whole = _whole_lines(content, "\n".encode(encoding), is_all=is_all)
    text = whole.decode(encoding, "replace").removeprefix("\ufeff")
    lines = tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
    kind = _kind(content, text, encoding)
    is_cut = not kind and not is_all and not text.endswith("\n")
    return SampleFile(path, whole, lines, kind, bool(codec), "" if kind else option, is_cut)


def _kind(content: bytes, text: str, encoding: str) -> str:
    if content.startswith(_PARQUET):
        return "parquet"
    if content.startswith(_AVRO):
        return "avro"
    if text.lstrip().startswith("<?xml"):
        return "xml"
    full = content.strip(b"\0")
    is_wide = encoding.startswith("utf-16")
    return "binary" if not is_wide and len(_CONTROLS.findall(full)) > _MOST_CONTROLS * len(full) else ""


def _encoding(content: bytes) -> tuple[str, str]:
    """Returns the value of option `encoding`, "" for its default, and the codec."""
    for mark, codec in _MARKS.items():
        if content.startswith(mark):
            return "auto", codec
    half = max(1, len(content) // 2)
    for codec, first in (("utf-16-le", 1), ("utf-16-be", 0)):  # most characters of a log are ASCII: every other byte is 0
        zeros, others = content[first::2].count(0), content[1 - first :: 2].count(0)
        if zeros > (1 - _MOST_NOT_WIDE) * half and not others:
            return codec, codec
    try:
        codecs.getincrementaldecoder("utf-8")().decode(content)  # the last character may be cut
    except UnicodeDecodeError as error:
        is_rare = content.count(b"\n", 0, error.start) > LINES_MAX
        return ("", "utf-8") if is_rare else ("latin-1", "latin-1")
    return "", "utf-8"


def _whole_lines(content: bytes, end: bytes, *, is_all: bool) -> bytes:
    """Returns at most `LINES_MAX` lines, without an incomplete last one, unless it is the only one."""
    lines = content.split(end)
    is_cut = not is_all and len(lines) == 1
    kept = lines[: len(lines) - 1 if not is_all and not is_cut else None][:LINES_MAX]
    return end.join(kept) + (end if kept[-1] and not is_cut else b"")
