"""Opens a SparkContext on a running JVM, and resets pyspark's state when the JVM has ended.

SQL is not loaded: a session for batches alone does not need it. No secret is on a command line, in an environment or in Spark's
configuration: the JVM makes py4j's token and Spark's own keys, and passes the token on in a private file.
"""

# ruff: noqa: SLF001 - pyspark keeps its process-wide state in private class attributes; a restart has to reset them

from __future__ import annotations

import contextlib
import logging
import pickle
import re
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import JavaGateway, java_import
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.conf import SparkConf
from pyspark.core.files import SparkFiles
from pyspark.core.rdd import RDD
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

# The imports of pyspark.java_gateway.launch_gateway, which needs a secret in os.environ to use a running JVM.
_JAVA_IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)

_TEST_HELPERS = "pyspark.testing.utils"

DEFAULTS = {
    "spark.app.name": "copycat",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    # All runs in one process: heartbeats between its threads are useless, and a laptop that slept has lost nothing.
    "spark.executor.heartbeatInterval": "300s",
    "spark.network.timeout": "3600s",
    "spark.executor.metrics.pollingInterval": "0",
    "spark.metrics.executorMetricsSource.enabled": "false",
    "spark.metrics.staticSources.enabled": "false",
    "spark.cleaner.periodicGC.interval": "24h",
    "spark.rdd.compress": "false",
}
"""Settings that `spark.conf` of agent.yaml may change."""

_OF_CLUSTERS = "spark.authenticate.secret"  # a local session makes its own

PRIVATE = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",  # its secret is made by the JVM and stays in its memory
    "spark.io.encryption.enabled": "true",  # definitions travel in closures: what Spark spills is not readable
    "spark.io.encryption.commons.config.cipher.classes": "org.apache.commons.crypto.cipher.JceCipher",  # no native library in /tmp
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "copycat_agent.spark.daemon",
    "spark.python.worker.reuse": "true",
    "spark.python.use.daemon": "true",
    "spark.eventLog.enabled": "false",
    "spark.executor.killOnFatalError.depth": "0",  # a query that takes too much memory fails for its record, and ends no other work
    "spark.speculation": "false",  # two attempts at one batch would both produce
}
"""Settings that it may not change. They keep the session on the loopback interface and private to this user."""


def configuration(conf: Mapping[str, str], slots: int, local_dir: Path, socket_dir: Path) -> dict[str, str]:
    """Returns Spark's settings. Spark does not repeat a failed task: the agent plans it again, from committed offsets."""
    return {
        **DEFAULTS,
        **{name: value for name, value in conf.items() if name != _OF_CLUSTERS},
        **PRIVATE,
        "spark.master": f"local[{slots},1]",
        "spark.local.dir": str(local_dir),
        "spark.python.unix.domain.socket.dir": str(socket_dir),
    }


def open_context(port: int, secret: str, conf: Mapping[str, str]) -> SparkContext:
    """Connects to the JVM's gateway and starts Spark in it. Raises what py4j raises.

    Must not be called on the main thread, where SparkContext would replace the SIGINT handler.
    """
    _spare_test_helpers()
    logging.getLogger().addFilter(_not_py4j)  # py4j logs the stack of every connection that a dead JVM leaves, partly to the root logger
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    for name in _JAVA_IMPORTS:
        java_import(gateway.jvm, name)
    spark_conf = SparkConf(loadDefaults=False, _jvm=gateway.jvm)
    for name, value in conf.items():
        spark_conf.set(name, value)
    path = list(sys.path)
    try:
        context = SparkContext(conf=spark_conf, gateway=gateway)
    except BaseException:
        _reset(gateway)
        raise
    sys.path[:] = path  # SparkContext adds its directory of files
    context.pythonExec = sys.executable  # the default is PATH's python3
    _quiet_accumulators(context)
    return context


def _spare_test_helpers() -> None:
    """Keeps PySpark from importing its test helpers in this process, by a stub.

    `NumpyArrayConverter` asks them before each value that goes to the JVM whether numpy is installed. They import unittest, and if
    installed pandas, numpy and pyarrow: 80 MiB and a third of a second. No arrays are sent from here, so the stub says no.
    """
    if _TEST_HELPERS not in sys.modules:
        helpers = types.ModuleType(_TEST_HELPERS)
        helpers.have_numpy = False  # type: ignore[attr-defined]
        sys.modules[_TEST_HELPERS] = helpers


def run_task(context: SparkContext, function: Callable[[Iterable[Any]], Iterator[bytes]], item: object) -> list[bytes]:
    """Runs `function` as the only task of a Spark job, over a partition with `item`, and returns what it yields.

    Blocks until the job ends. Raises what py4j raises if it fails. `item` may be large and secret: it goes through the JVM's memory.
    `context.parallelize`, or a broadcast of a large closure, would leave a socket to the garbage collector, and a file without encryption.
    """
    partition = context._jsc.parallelize([pickle.dumps(item, pickle.HIGHEST_PROTOCOL)], 1)
    return RDD(partition, context, CPickleSerializer()).mapPartitions(function).collect()


def forget_context(context: SparkContext) -> None:
    """Resets pyspark's state in this process after the JVM has ended. Raises nothing, and does not call the JVM."""
    if SparkContext._active_spark_context is not context:
        return
    server = context._accumulatorServer
    server.server_shutdown = True
    threading.Thread(target=server.shutdown, name="spark-forget", daemon=True).start()  # waits for its own poll, up to 1 s
    _reset(SparkContext._gateway)


def _reset(gateway: JavaGateway | None) -> None:
    """Resets what pyspark keeps in its classes."""
    if gateway is not None:
        with contextlib.suppress(Exception):
            gateway._gateway_client.finalizer_deque.append(SHUTDOWN_FINALIZER_WORKER)  # ends a thread of py4j
            gateway.close()
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    SparkFiles._sc = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


_CAUSES_MAX = 10
_NO_REASONS = ("at ", "File ", "^", "Driver stacktrace:")
_ABORTED = re.compile("^Job aborted due to stage failure: .*most recent failure: ")
_JAVA_CAUSE = re.compile(r"[\w.$]+Exception: (?!Traceback \(most recent call last\)).+")


def reason_of(error: BaseException) -> str:
    """Returns one line about why a Spark call failed, without the stack.

    It is the last line of a Python traceback if there is one, else the first Java exception with a message, which says more than its
    causes.
    """
    text = _message_of(error)
    if text is None:
        return "the JVM does not answer"
    if "exited unexpectedly" in text:
        return "its Python worker was ended"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(_NO_REASONS)]
    telling = [line for line in lines if "Error: " in line or line.endswith("Error")]
    causes = [found[0] for line in lines if (found := _JAVA_CAUSE.search(line))]
    return _ABORTED.sub("", (telling or causes[:1] or lines or [type(error).__name__])[-1])[:300]


def words_of(error: BaseException) -> str:
    """Returns the texts of a failed call and its causes, "" if there are none. They are to be searched, not shown."""
    words = [_message_of(error) or "", error._stackTrace or "" if isinstance(error, CapturedException) else ""]
    with contextlib.suppress(Py4JError, OSError):
        cause = error.java_exception.getCause() if isinstance(error, Py4JJavaError) else None
        while cause is not None and len(words) < _CAUSES_MAX:
            words.append(str(cause.toString()))
            cause = cause.getCause()
    return "\n".join(words)


def _message_of(error: BaseException) -> str | None:
    """Returns the JVM's message; None if it no longer answers."""
    if isinstance(error, CapturedException):  # pyspark converts all errors to it in a process that has used SQL
        return str(error._desc)
    if isinstance(error, Py4JJavaError):
        with contextlib.suppress(Py4JError, OSError):
            return str(error.java_exception.getMessage())
    return None if isinstance(error, (Py4JError, OSError)) else ""


def _not_py4j(record: logging.LogRecord) -> bool:
    return "/py4j/" not in record.pathname


def _quiet_accumulators(context: SparkContext) -> None:
    """Keeps socketserver from printing a stack when an ending JVM closes the accumulator's connection."""
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
