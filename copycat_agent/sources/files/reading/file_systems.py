"""The file system of pyarrow for an address. For HDFS it is hdfs-native's, if that is installed: pyarrow's own needs libhdfs and a JVM."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hdfs_native import FileStatus
    from pyarrow import fs

HADOOP_CONF = {
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "2000",
    "dfs.client.socket-timeout": "15000",
}
"""Few and short retries: with the defaults a NameNode that is away holds up a request for three minutes."""
_COPIED_BYTES = 4 * 2**20
_UNCHANGED = 2**64 - 1
"""The access time that Hadoop takes for -1: none, which clusters without access times need."""


def file_system_at(root: str) -> fs.FileSystem:
    """Returns the file system of an `Address.root`. Sends no request. Raises what pyarrow raises; so does each use, and RuntimeError."""
    from pyarrow import fs  # noqa: PLC0415 - 0.15 s that local files need not wait for

    scheme, _, place = root.partition("://")
    if scheme in ("hdfs", "viewfs") and find_spec("hdfs_native") is not None:
        return fs.PyFileSystem(fs.FSSpecHandler(_hadoop(scheme, place.partition("/")[0])))
    return fs.FileSystem.from_uri(root)[0]


def _hadoop(scheme: str, authority: str) -> Any:  # noqa: ANN401 - fsspec has no types
    from hdfs_native import fsspec  # noqa: PLC0415 - an extra

    class FileSystem(fsspec.HdfsFileSystem if scheme == "hdfs" else fsspec.ViewfsFileSystem):  # type: ignore[misc]
        """Names times as pyarrow expects them. A copy appears complete, with the time of its source."""

        def _convert_file_status(self, file_status: FileStatus) -> dict[str, object]:
            mtime = datetime.fromtimestamp(file_status.modification_time / 1000, UTC)
            return {**super()._convert_file_status(file_status), "mtime": mtime}

        def cp_file(self, path1: str, path2: str, **_: object) -> None:
            """Copies a file, over one that is there."""
            found, beside = self.client.get_file_info(path1), f"{path2}._COPYING_"
            with self.open(path1, "rb") as source, self.open(beside, "wb") as target:
                shutil.copyfileobj(source, target, _COPIED_BYTES)
            self.client.set_times(beside, found.modification_time, _UNCHANGED)
            self.client.rename(beside, path2, overwrite=True)

    host, _, port = authority.rpartition("@")[2].partition(":")
    return FileSystem(host or None, int(port) if port else None, **HADOOP_CONF)
