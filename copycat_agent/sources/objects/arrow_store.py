"""A store for the file systems of pyarrow other than S3 and local trees. They cannot list from a name on, so all names are listed."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from copycat_agent.extending import Address, file_system_at
from copycat_agent.sources.objects.blocks import BlockFile, ReplacedError
from copycat_agent.sources.objects.listing_schedule import NameRange
from copycat_agent.sources.objects.stores import ListedObject, NotificationQueue, directory_of

T = TypeVar("T")

_TREES = ("hdfs", "viewfs", "file")
"""Schemes with directories. In a bucket, a prefix without objects is empty, not missing."""


class ArrowStore:
    """A `Store` for a directory tree or a bucket."""

    lists_behind = False
    refused: Mapping[str, str] = MappingProxyType({})

    def __init__(self, address: Address) -> None:
        self._address = address
        self.prefix = directory_of(address.inside) or "/"
        self._bucket = "" if address.scheme in _TREES else self.prefix.partition("/")[0]
        self._is_hadoop = address.scheme in ("hdfs", "viewfs")
        self._files: Any = None

    def _ask(self, what: str, ask: Callable[[Any], T]) -> T:
        try:
            if self._files is None:
                self._files = file_system_at(self._address.root)
            return ask(self._files)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "there is no such file or directory") from None
        except PermissionError:
            raise PermissionError(errno.EACCES, f"it is not allowed ({what})") from None
        except (pa.ArrowException, OSError, ValueError) as error:
            lines = str(error).splitlines()
            raise OSError(errno.EIO, lines[0][:200] if lines else type(error).__name__) from None

    def shown(self, name: str) -> str:
        return self._address.at(name).shown

    def name_at(self, path: str) -> str:
        return self._address._replace(path=path).inside

    def listed(self, names: NameRange) -> Iterator[ListedObject]:
        selector = fs.FileSelector(self.prefix, recursive=True, allow_not_found=bool(self._bucket))
        found = self._ask("list", lambda files: files.get_file_info(selector))
        if not found and self._bucket:
            self._look_at_bucket()
        listed = (_of_arrow(one) for one in found if one.type == fs.FileType.File and not self._is_unfinished(one.path))
        yield from sorted(one for one in listed if one.name in names)

    def _is_unfinished(self, name: str) -> bool:
        """Returns whether Hadoop's tools write under such a name, and rename it once it is complete."""
        below = f"/{name.removeprefix(self.prefix)}"
        return self._is_hadoop and ("/_" in below or "/." in below or below.endswith("._COPYING_"))

    def _look_at_bucket(self) -> None:
        """Raises FileNotFoundError if the bucket does not exist. The right to list may come without one to look at the bucket."""
        with contextlib.suppress(PermissionError):
            if self._ask("look at", lambda files: files.get_file_info(self._bucket)).type == fs.FileType.NotFound:
                raise FileNotFoundError(errno.ENOENT, "there is no such bucket")

    def look(self, name: str, *, is_certain: bool = True) -> ListedObject:  # noqa: ARG002 - pyarrow tells no missing container
        found = self._ask("look at", lambda files: files.get_file_info(name))
        if found.type != fs.FileType.File:
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return _of_arrow(found)

    def open(self, found: ListedObject) -> BlockFile:
        file = self._ask("open", lambda files: files.open_input_file(found.name))
        if file.size() != found.size:
            raise ReplacedError(errno.ESTALE, "it was replaced before it was opened")

        def fetch(position: int, size: int) -> bytes:
            data: bytes = self._ask("read", lambda _: file.read_at(size, position))
            if self.look(found.name) != found:
                raise ReplacedError(errno.ESTALE, "it was replaced while it was read")
            return data

        return BlockFile(found.size, fetch, file.close)

    def queue(self, url: str) -> NotificationQueue:
        raise NotImplementedError

    def delete(self, found: ListedObject) -> None:
        try:
            self._ask("delete", lambda files: files.delete_file(found.name))
        except FileNotFoundError:
            return

    def copy(self, found: ListedObject, to: str) -> None:
        """Copies it. HDFS renames it instead, so that `delete` finds nothing: a rename is atomic, and the name has all bytes or none."""

        def ask(files: Any) -> None:  # noqa: ANN401 - pyarrow has no types
            files.create_dir(to.rpartition("/")[0], recursive=True)
            (files.move if self._is_hadoop else files.copy_file)(found.name, to)

        self._ask("copy", ask)

    def tag(self, name: str, tag: str, value: str) -> None:
        raise NotImplementedError


def _of_arrow(found: Any) -> ListedObject:  # noqa: ANN401 - as above
    mtime_ns = found.mtime_ns or 0
    return ListedObject(found.path, found.size or 0, mtime_ns // 1_000_000, f"{found.size}:{mtime_ns}")
