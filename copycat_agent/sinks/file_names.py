"""Names of files: `<directory>/<topic>+<partition>+<first>+<last>[.<n>].<extension>`, offsets with 20 digits."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from copycat_agent.errors import FatalError, FileError

CONTROL = "_copycat"
"""Directory below the root for everything but the files of the lake. Spark, Hive, Trino and pyarrow skip names that begin with `_`."""
DIGITS = 20
"""Digits of an offset in a name, padded with zeros so that names sort as offsets do."""

_NAME = re.compile(r"(?:(.*)/)?([A-Za-z0-9._-]{1,249})\+(\d{1,9})\+(\d{20})\+(\d{20})(?:\.(\d+))?\.([a-z][a-z0-9.]*)", re.DOTALL)


NAME_BYTES = 255
"""Longest name of a file or directory in a tree of them."""


class FileName(NamedTuple):
    """The offsets that the name of a file gives: it holds records of `[first, last]` of a partition."""

    topic: str
    partition: int
    first: int
    last: int


def padded(offset: int) -> str:
    """Returns an offset as it is written in names and keys."""
    return f"{offset:0{DIGITS}}"


def final_keys(name: FileName, directories: Sequence[str], extension: str) -> tuple[str, ...]:
    """Returns the keys of the files of one range, one per directory given ("" is the root); several in one directory are numbered.

    Directories count as one if some file system takes their names as equal: it ignores case, or how characters are composed.
    """
    alike = [unicodedata.normalize("NFKD", one.casefold()).casefold() for one in directories]
    many, seen = Counter(alike), Counter[str]()
    stem = f"{name.topic}+{name.partition}+{padded(name.first)}+{padded(name.last)}"
    keys = []
    for directory, one in zip(directories, alike, strict=True):
        number = f".{seen[one]}" if many[one] > 1 else ""
        seen[one] += 1
        keys.append(f"{directory}/{stem}{number}.{extension}".removeprefix("/"))
    return tuple(keys)


def tree_parts(key: str) -> list[str]:
    """Returns the names that a key consists of, in a tree of directories.

    Raises FatalError for a key that no tree takes, FileError for one with a name that is too long: a long topic holds up no other.
    """
    parts = key.split("/") if key else []
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise FatalError("a key has a part that is empty, . or ..", "look at sink.path")
    if long := next((part for part in parts if len(os.fsencode(part)) > NAME_BYTES), ""):
        words = f"file systems take no name of more than {NAME_BYTES} bytes: {long}"
        raise FileError(words, "leave the topic out (source.exclude), or write to an object store")
    return parts


def parse_name(key: str) -> FileName | None:
    """Returns the offsets in the name of a file, None if the name does not have this form."""
    found = _NAME.fullmatch(key)
    return FileName(found[2], int(found[3]), int(found[4]), int(found[5])) if found else None
