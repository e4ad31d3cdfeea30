"""The archive: parts that worked and parts that did not, and a manifest that says which."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

PART_BYTES_MAX = 8 * 2**20
"""Of one part; of a longer one the end is kept."""


class Part(NamedTuple):
    """A file of the archive. Of one that could not be had `content` is empty, and `why` says so."""

    name: str
    about: str
    content: str = ""
    why: str = ""


def line_of(part: Part) -> str:
    """One line about it, for the manifest."""
    return f"{part.name:<34} {part.about}{f': MISSING, {part.why}' if part.why else ''}"


def packed(parts: Sequence[Part], mask: Callable[[str], str], head: str) -> bytes:
    """A .tar.gz of the parts and a manifest, all of it through `mask`. `head` is how the manifest begins."""
    stream, folder = io.BytesIO(), f"copycat-bundle-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    manifest = Part("MANIFEST.txt", "", f"{head}\n" + "".join(f"{line_of(part)}\n" for part in parts))
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for part in (manifest, *parts):
            if part.content:
                _add(archive, f"{folder}/{part.name}", mask(part.content).encode("utf-8", "backslashreplace")[-PART_BYTES_MAX:])
    return stream.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
    archive.addfile(entry, io.BytesIO(content))
