"""The file system of pyarrow for an address. HDFS is read through hdfs-native if that is installed: pyarrow needs libhdfs and a JVM."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import fs


def file_system_at(root: str) -> fs.FileSystem:
    """Returns the file system of an `Address.root`. Sends no request. Raises what pyarrow raises, and OSError."""
    from pyarrow import fs  # noqa: PLC0415 - 0.15 s that local files need not wait for

    scheme, _, rest = root.partition("://")
    if scheme not in ("hdfs", "viewfs") or find_spec("hdfs_native") is None:
        return fs.FileSystem.from_uri(root)[0]
    from copycat_agent.sources.files.reading.hadoop import HadoopFiles  # noqa: PLC0415 - imports hdfs-native, an extra

    place, _, query = rest.partition("?")
    if query:
        raise ValueError("an address of HDFS has no options: they are in the files of HADOOP_CONF_DIR")
    return fs.PyFileSystem(HadoopFiles(scheme, place.partition("/")[0]))
