"""Why a Spark call failed, in one line that tells an operator something."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from copycat_agent.spark import session

ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) "
    "(127.0.0.1 executor driver): "
)
NO_PROGRAM = 'java.io.IOException: Cannot run program "/opt/copycat/bin/python": error=13, Permission denied'
STACK = "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n"
TRACEBACK = "Traceback (most recent call last):\n"
LOST = "ExecutorLostFailure (executor 1 exited unrelated to the running tasks) Reason: worker lost: Not receiving heartbeat for 60 seconds"
DRIVER = "\nDriver stacktrace:"


JAVA = [
    (f"{NO_PROGRAM}\n{STACK}Caused by: java.io.IOException: error=13, Permission denied\n{STACK}\t... 20 more\n", NO_PROGRAM),
    (f"java.lang.NullPointerException\n{STACK}", "java.lang.NullPointerException"),
    (LOST, "Lost task 0.0 in stage 0.0 (TID 0) (127.0.0.1 executor driver): ExecutorLostFailure (executor 1 exited unrelated"),
    (f"java.lang.OutOfMemoryError: Java heap space\n{STACK}", "java.lang.OutOfMemoryError: Java heap space"),
    (f"org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n{STACK}", "its Python worker was ended"),
]
PYTHON = [
    (
        f'org.apache.spark.api.python.PythonException: {TRACEBACK}  File "/x/worker.py", line 1, in main\n    process()\n{last}\n\n{STACK}',
        last,
    )
    for last in ("ValueError: no such thing", "module.OwnException: no such thing")
]


class JavaException:
    """An exception of the JVM, as py4j hands it on."""

    _target_id = "o1"
    _gateway_client = None

    def __init__(self, message: str) -> None:
        self._message = message

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return self._message


@pytest.mark.parametrize(("text", "reason"), JAVA + PYTHON)
def test_the_cause_is_told_and_not_the_stack(text: str, reason: str) -> None:
    told = session.reason_of(Py4JJavaError("", JavaException(ABORTED + text + DRIVER)))
    assert reason in told
    assert "stage failure" not in told


def test_a_jvm_that_is_gone_is_said_to_be() -> None:
    assert session.reason_of(Py4JNetworkError("gone")) == "the JVM does not answer"
