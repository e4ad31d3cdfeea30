"""A real HDFS on loopback: one NameNode and one DataNode, from Hadoop's shaded jar beside PySpark's own two."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from hdfs_native import Client, WriteOptions

from copycat_agent.dev_broker import free_port
from copycat_agent.maven import fetch_jar, java, pyspark_jars
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

_SERVER = "org.apache.hadoop.hdfs.server"
_UP_SECONDS = 120.0


class Hdfs:
    """Its data are below a directory; each process may be killed and started again at the same address."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._port = free_port()
        self._namenode: subprocess.Popen[bytes] | None = None
        self._datanode: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"hdfs://127.0.0.1:{self._port}"

    @property
    def client(self) -> Client:
        """A new one."""
        return Client(self.url, {"dfs.client.failover.max.attempts": "2"})

    def start(self) -> None:
        """Start both processes, and wait until files can be written."""
        (self._root / "conf").mkdir(parents=True, exist_ok=True)
        self._write("core-site", {"fs.defaultFS": self.url, "hadoop.tmp.dir": f"{self._root}/tmp"})
        anywhere = ("dfs.namenode.http-address", "dfs.datanode.address", "dfs.datanode.http.address", "dfs.datanode.ipc.address")
        self._write("hdfs-site", dict.fromkeys(anywhere, "127.0.0.1:0") | {
            "dfs.namenode.name.dir": f"file://{self._root}/names",
            "dfs.datanode.data.dir": f"file://{self._root}/blocks",
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "0",
            "dfs.heartbeat.interval": "1",
        })  # fmt: skip
        if not (self._root / "names").exists():
            subprocess.run(
                [*self._command("namenode.NameNode"), "-format", "-nonInteractive"], check=True, capture_output=True, timeout=120
            )
        self.start_namenode()
        self.start_datanode()
        try:
            wait_until(self._takes_files, _UP_SECONDS, self._words)
        except BaseException:
            self.stop()
            raise

    def start_namenode(self) -> None:
        """Start it. It answers some seconds later."""
        self._namenode = self._popen("namenode.NameNode")

    def start_datanode(self) -> None:
        """Start it. It is known to the NameNode some seconds later."""
        self._datanode = self._popen("datanode.DataNode")

    def kill_namenode(self) -> None:
        """Kill it, as a power failure would."""
        _kill(self._namenode)

    def kill_datanode(self) -> None:
        """Kill it, as a power failure would."""
        _kill(self._datanode)

    def stop(self) -> None:
        """Kill both: nothing is kept."""
        _kill(self._namenode)
        _kill(self._datanode)

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    def _write(self, name: str, settings: dict[str, str]) -> None:
        found = "".join(f"<property><name>{one}</name><value>{value}</value></property>" for one, value in settings.items())
        (self._root / "conf" / f"{name}.xml").write_text(f"<configuration>{found}</configuration>")

    def _command(self, server: str) -> list[str]:
        [api] = pyspark_jars("hadoop-client-api-*.jar")
        version = api.stem.rpartition("-")[2]
        jars = [fetch_jar(f"org.apache.hadoop:hadoop-client-minicluster:{version}"), api.parent / "*"]
        classes = os.pathsep.join(map(str, [self._root / "conf", *jars]))
        return [java(), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, f"{_SERVER}.{server}"]

    def _popen(self, server: str) -> subprocess.Popen[bytes]:
        with (self._root / f"{server}.log").open("ab") as log:
            return subprocess.Popen(self._command(server), stdout=log, stderr=subprocess.STDOUT, cwd=self._root)

    def _takes_files(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            with contextlib.suppress(OSError, RuntimeError), self.client.create("/up", WriteOptions(overwrite=True)) as file:
                file.write(b"up")
            with contextlib.suppress(OSError, RuntimeError):
                return self.client.read("/up").read() == b"up"
        return False

    def _words(self) -> str:
        return "\n".join(one.read_text("utf-8", "replace")[-2000:] for one in self._root.glob("*.log"))


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait()
