"""HDFS through hdfs-native, an extra: a client of Hadoop's own protocol that needs neither a JVM nor libhdfs. Every error is an OSError."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hdfs_native import Client, FileReader, FileStatus
from pyarrow import fs

_CONF = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "2000",
    "dfs.client.socket-timeout": "15000",
}
"""Few and short retries: with the defaults a NameNode that is away holds up a request for three minutes."""
_RPC = re.compile(r"RPCError\(\"(?:\w+\.)*(?:\w+\$)?(\w+)\"")
_OURS = re.compile(r"(\w+)\(\"?([^\\\"]*)")


def client_of(scheme: str, authority: str) -> Client:
    """Returns a client for the file system of an address; without an authority, for `fs.defaultFS`. Raises OSError. Sends no request."""
    if "@" in authority:
        raise OSError(errno.EINVAL, "the address names a user: set HADOOP_USER_NAME instead")
    with plain_errors():
        return Client(f"{scheme}://{authority}" if authority else None, _CONF)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Raises errors of hdfs-native as OSError. `strerror` has the name of Hadoop's exception, and never pages of a NameNode's stack.

    FileNotFoundError, FileExistsError and PermissionError mean what they say. The errno is EINVAL for a wrong setting, EOPNOTSUPP for
    what hdfs-native cannot do, EIO for all else.
    """
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such file or directory") from None
    except FileExistsError:
        raise FileExistsError(errno.EEXIST, "it exists already") from None
    except NotImplementedError as error:
        raise OSError(errno.EOPNOTSUPP, f"hdfs-native cannot do it ({_first_line(error)})") from None
    except RuntimeError as error:
        raise _of_runtime(str(error)) from None
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or _first_line(error)) from None
    except ValueError as error:
        raise OSError(errno.EINVAL, _first_line(error)) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise OSError(errno.EIO, f"hdfs-native failed ({_first_line(error)})") from None


def _of_runtime(text: str) -> OSError:
    if rpc := _RPC.match(text):
        if rpc[1] == "AccessControlException":
            return PermissionError(errno.EACCES, "it is not allowed (AccessControlException)")
        return OSError(errno.EIO, rpc[1])
    ours = _OURS.match(text)
    if ours is None:
        return OSError(errno.EIO, text.split("\n", 1)[0][:200])
    return OSError(errno.EINVAL if ours[1] == "InvalidArgument" else errno.EIO, f"{ours[1]}: {ours[2][:200]}")


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:200] or type(error).__name__


def statuses_below(client: Client, directory: str, *, recursive: bool = True) -> Iterator[FileStatus]:
    """Yields what is below a directory. One below it that disappears meanwhile has nothing. Raises what the client raises."""
    below = list(client.list_status(directory))
    while below:
        found = below.pop()
        yield found
        if recursive and found.isdir:
            with contextlib.suppress(FileNotFoundError):
                below += client.list_status(found.path)


class HadoopFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """HDFS for `pyarrow.fs.PyFileSystem`: what is needed to read, to delete and to move.

    Not fsspec's: it leaves directories out that it fails to list, and cuts names at `#` and `?`.
    """

    def __init__(self, scheme: str, authority: str) -> None:
        self._url = f"{scheme}://{authority}"
        self._client = client_of(scheme, authority)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopFiles) and other._url == self._url

    def __hash__(self) -> int:
        return hash(self._url)

    def get_type_name(self) -> str:
        """Returns "hdfs"."""
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        """Returns the path."""
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Returns what is at each path."""
        return [self._look(path) for path in paths]

    def _look(self, path: str) -> fs.FileInfo:
        try:
            with plain_errors():
                return _info(self._client.get_file_info(path))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Returns what is below a directory."""
        try:
            with plain_errors():
                return [_info(one) for one in statuses_below(self._client, selector.base_dir, recursive=selector.recursive)]
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    def open_input_file(self, path: str) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Opens a file for reads at any position."""
        with plain_errors():
            return pa.PythonFile(_ReadErrors(self._client.read(path)), mode="r")

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - pyarrow's interface
        """Makes a directory, unless it exists."""
        with plain_errors():
            self._client.mkdirs(path, create_parent=recursive)

    def delete_file(self, path: str) -> None:
        """Deletes a file. Raises FileNotFoundError if there is none."""
        with plain_errors():
            if not self._client.delete(path):
                raise FileNotFoundError

    def move(self, source: str, target: str) -> None:
        """Renames a file, in place of one that is there."""
        with plain_errors():
            self._client.rename(source, target, overwrite=True)

    def _unused(self, *_: object) -> None:
        raise NotImplementedError

    copy_file = delete_dir = delete_dir_contents = delete_root_dir_contents = _unused
    open_append_stream = open_input_stream = open_output_stream = _unused


class _ReadErrors(FileReader):
    """Raises plain errors."""

    def __init__(self, found: FileReader) -> None:
        super().__init__(found.inner)

    def read(self, size: int = -1) -> bytes:
        with plain_errors():
            return super().read(size)

    def seek(self, offset: int, whence: int = 0) -> None:  # type: ignore[override]
        with plain_errors():
            super().seek(offset, whence)


def _info(found: FileStatus) -> fs.FileInfo:
    if found.isdir:
        return fs.FileInfo(found.path, fs.FileType.Directory)
    mtime = datetime.fromtimestamp(found.modification_time / 1000, UTC)
    return fs.FileInfo(found.path, fs.FileType.File, size=found.length, mtime=mtime)
