"""Archives for tests: tar and zip files of what is in memory, whole and hostile."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

from tests.unit.sources.packing import PACK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TAR_FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def tar(files: Mapping[str, bytes], form: str = "gnu") -> bytes:
    """A tar with a directory, a link and a device before its files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=TAR_FORMATS[form]) as archive:
        for name, kind in (("logs", tarfile.DIRTYPE), ("logs/link", tarfile.SYMTYPE), ("logs/null", tarfile.CHRTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip with a directory before its files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.mkdir("logs")
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


class _Pipe(io.BytesIO):
    """Cannot go back: sizes follow what they are of."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError


def streamed(files: Mapping[str, bytes]) -> bytes:
    """A zip as a program writes it into a pipe."""
    out = _Pipe()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(content)
    return out.getvalue()


ARCHIVES: dict[str, Callable[[Mapping[str, bytes]], bytes]] = {
    "tar": tar,
    "pax": lambda files: tar(files, "pax"),
    "tar.gz": lambda files: PACK["gzip"](tar(files)),
    "tar.zst": lambda files: PACK["zstd"](tar(files)),
    "zip": zipped,
    "zip stored": lambda files: zipped(files, zipfile.ZIP_STORED),
    "zip bzip2": lambda files: zipped(files, zipfile.ZIP_BZIP2),
    "zip streamed": streamed,
    "zip behind a program": lambda files: b"PK\x03\x04" + zipped(files),
}
"""Kinds of archives."""
