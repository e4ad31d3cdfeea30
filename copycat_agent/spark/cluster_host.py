"""ClusterHost: starts and keeps a Spark session on a cluster. The driver is this process with its own JVM."""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import socket
import sys
import time
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import copycat_agent
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.options import HIDDEN, Definition, SparkOptions
from copycat_agent.spark import java, rundir
from copycat_agent.spark.cluster_job import ControlListener
from copycat_agent.spark.current_session import Session
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.jvm import Jvm, child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark import SparkContext


TRUSTED = "spark.copycat.trustedNetwork"
"""A setting of this project: the network between driver and executors is protected by other means."""

MASTER_SECONDS = 60.0
"""How long a master that was reached before may be unreachable: a restart takes seconds."""

_PROBE_SECONDS = 5.0
_LOCAL = re.compile(r"local(\[[^]]*\])?")
_PASSED_ON = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "KUBECONFIG", "KRB5_CONFIG", "KRB5CCNAME")
"""Environment variables that name the configuration files of cluster managers; the JVM gets them."""

_DEFAULTS = {
    "spark.app.name": "copycat",
    "spark.executor.memory": "512m",  # no record ever passes through an executor's JVM
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",  # see java.JVM_OPTIONS
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
}
_FIXED = {
    "spark.submit.deployMode": "client",
    "spark.ui.enabled": "false",
    "spark.io.encryption.enabled": "true",
    "spark.io.encryption.commons.config.cipher.classes": "org.apache.commons.crypto.cipher.JceCipher",
    "spark.python.unix.domain.socket.enabled": "false",  # its directory would have to be there on every host
    "spark.python.worker.reuse": "true",
    "spark.python.use.daemon": "true",
    "spark.eventLog.enabled": "false",
    "spark.speculation": "false",  # two attempts at one batch would both produce
    "spark.task.maxFailures": "1",  # a failed batch is planned again, from committed offsets
}
"""Settings that `spark.conf` of agent.yaml may not change."""


def is_cluster(master: str) -> bool:
    """Returns whether a master is anything but this process's own host and JVM."""
    return _LOCAL.fullmatch(master) is None


def addresses(master: str) -> list[tuple[str, int]]:
    """Returns host and port of each master in `spark://a:7077,b:7077` or `k8s://https://host:443`; none for other kinds."""
    match = re.fullmatch(r"spark://(.+)|k8s://(?:https?://)?(.+)", master)
    found = [re.fullmatch(r"\[?([^\]/]+?)\]?(?::(\d+))?/?", one) for one in (match[1] or match[2]).split(",")] if match else []
    return [(one[1], int(one[2] or (7077 if master.startswith("spark") else 443))) for one in found if one]


def driver_host(master: str, conf: Mapping[str, str]) -> str:
    """Returns this host's address for executors: `spark.driver.host`, else the one that routes to the master; "" leaves it to Spark."""
    if named := conf.get("spark.driver.host"):
        return named
    if master.startswith("local-cluster"):
        return "127.0.0.1"
    for host, port in addresses(master):
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(address)  # sends nothing
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return ""


def refusal(definition: object, conf: Mapping[str, str], master: str) -> FatalError | None:
    """Returns why a definition must not be sent to executors: it holds secrets, and the connection is not encrypted. None when it may."""
    if not isinstance(definition, Definition) or HIDDEN not in str(definition.masked()):
        return None
    host = driver_host(master, conf)
    is_loopback = host in ("localhost", "::1") or host.startswith("127.")
    encrypted = _on(conf, "spark.authenticate") and any(
        _on(conf, name) for name in ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")
    )
    if is_loopback or encrypted or _on(conf, "spark.ssl.rpc.enabled") or _on(conf, TRUSTED):
        return None
    msg = f"definition {definition.name} holds secrets, and what Spark sends to its executors is not encrypted"
    hint = (
        "set spark.authenticate and spark.network.crypto.enabled to true under spark.conf of agent.yaml and on the cluster; "
        f"or {TRUSTED}: true where the network itself is private"
    )
    return FatalError(msg, hint)


@lru_cache(maxsize=256)
def _judged(pickled: bytes, conf: tuple[tuple[str, str], ...], master: str) -> FatalError | None:
    return refusal(pickle.loads(pickled), dict(conf), master)  # noqa: S301 - our own


def _on(conf: Mapping[str, str], name: str) -> bool:
    return conf.get(name, "").lower() == "true"


def settings(master: str, conf: Mapping[str, str], host: str, local_dir: Path) -> dict[str, str]:
    """Returns all of Spark's settings for a session on a cluster; `host` as `driver_host` returns it."""
    address = {"spark.driver.host": host, "spark.driver.bindAddress": host} if host else {}
    given = {name: value for name, value in conf.items() if name != TRUSTED}
    return {
        **_DEFAULTS,
        **address,
        **given,
        **_FIXED,
        "spark.master": master,
        "spark.local.dir": str(local_dir),
    }


class ClusterHost(SparkHost):
    """A `SparkHost` on a cluster. It probes the master first: Spark would report only after a minute that it cannot be reached."""

    failure_hint = "see that the master's address is right and that it runs; the JVM's messages come with log level debug"

    def __init__(
        self,
        options: SparkOptions,
        run_dir: Path,
        master: str,
        tasks: int | None,
        *,
        on_failure: Callable[[FatalError], None] = lambda _: None,
    ) -> None:
        """`tasks` is the number of cores to ask for, a batch each; None: all that the cluster gives, up to `spark.cores.max`.

        Raises FatalError when `master` is local.
        """
        if not is_cluster(master):
            raise FatalError(f"{master} is no cluster", "leave --master out for this host")
        if tasks:
            options = options.model_copy(update={"conf": {"spark.cores.max": str(tasks), **options.conf}})
        super().__init__(options, run_dir, tasks or 1, on_failure=on_failure)
        self.master = master
        self.exchange: ControlListener | None = None

    @property
    def conf(self) -> Mapping[str, str]:
        """Returns `spark.conf` of agent.yaml."""
        return self._options.conf

    def refusal_of(self, pickled: bytes) -> FatalError | None:
        """Returns `refusal` for a pickled definition."""
        return _judged(pickled, tuple(self.conf.items()), self.master)

    def own_addresses(self) -> tuple[str, str]:
        """Returns the address to listen on for executors, and the one that they reach it by. Raises OSError if this host's is unknown."""
        host = driver_host(self.master, self.conf) or socket.gethostbyname(socket.gethostname())
        return self.conf.get("spark.driver.bindAddress", host), host

    def close(self) -> None:
        if self.exchange is not None:
            self.exchange.close()
        super().close()

    def _connect(self, jvm: Jvm) -> Session:
        self._await_master(MASTER_SECONDS if self._current.count else 0.0)
        self._address = driver_host(self.master, self._options.conf)
        if self.exchange is None and self._address:
            self.exchange = ControlListener(self._options.conf.get("spark.driver.bindAddress", self._address), self._address)
        return super()._connect(jvm)

    def _await_master(self, seconds: float) -> None:
        """Raises RetriableError when none of the masters can be reached within `seconds`; tries once at least."""
        end = time.monotonic() + seconds
        while why := unreachable(self.master):
            if time.monotonic() > end or self._closing.wait(0.5):
                raise RetriableError(f"the Spark master {self.master} cannot be reached: {why}")

    def _environment(self) -> dict[str, str]:
        environ = child_environment(
            os.environ,
            TMPDIR=str(self.run_dir / rundir.TEMPORARY),
            SPARK_HOME=str(java.spark_home()),
            SPARK_SCALA_VERSION="2.13",  # `local-cluster` starts its executors with it
            **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        )
        host = driver_host(self.master, self._options.conf)
        for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"):  # of this host alone, as it is set for a local session
            environ.pop(name)
            if host:
                environ[name] = host
        return environ

    def _settings(self) -> dict[str, str]:
        return settings(self.master, self._options.conf, self._address, self.run_dir / rundir.LOCAL)

    def _made(self, context: SparkContext) -> None:
        """Ships this package with each job, and chooses the executors' Python. Its other requirements have to be installed there."""
        context.pythonExec = self._options.conf.get("spark.pyspark.python") or self._python()
        path = list(sys.path)
        context.addPyFile(str(zip_package(self.run_dir / rundir.TEMPORARY)))
        sys.path[:] = path

    def _python(self) -> str:
        """Returns the executors' Python: on this host the agent's own, elsewhere the one in PATH."""
        return sys.executable if self._address.startswith("127.") else "python3"


def unreachable(master: str) -> str:
    """Returns why none of the masters in `master` can be reached; "" when one can, or where it names no address."""
    known = addresses(master)
    problems = [problem for address in known if (problem := _unreachable(address))]
    return "; ".join(problems) if len(problems) == len(known) else ""


def _unreachable(address: tuple[str, int]) -> str:
    """Returns why a TCP connection to the address fails, "" when it succeeds."""
    try:
        socket.create_connection(address, _PROBE_SECONDS).close()
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return ""


def zip_package(directory: Path) -> Path:
    """Writes this package into `directory` as a file that travels with the jobs. Returns its path. Raises OSError.

    Executors need the package's dependencies installed, not the package itself.

    Modules that Python has compiled already are included compiled as well: an executor's Python of the same version uses them if the
    source's time and size agree, which saves each of its processes a second.
    """
    root = Path(copycat_agent.__file__).resolve().parent
    path = directory / "copycat_agent.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False) as archive:
        for source in sorted(path for path in root.rglob("*") if path.is_file() and path.parent.name != "__pycache__"):
            name = source.relative_to(root.parent)
            archive.write(source, name)
            if source.suffix != ".py":  # data, such as the patterns of grok
                continue
            compiled = Path(importlib.util.cache_from_source(str(source)))
            if compiled.is_file():
                archive.write(compiled, name.with_suffix(".pyc"))
    path.chmod(0o600)
    return path
