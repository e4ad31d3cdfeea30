"""What the JVM writes is heard at the level it deserves, and what is said of those that ended is what became of them."""

from __future__ import annotations

import pytest

from copycat_agent.spark.host import JvmEnd, gave_up
from copycat_agent.spark.jvm import is_complaint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ERROR SparkContext: Error initializing SparkContext. java.net.BindException", True),
        ("FATAL SparkUncaughtExceptionHandler: out of memory", True),
        ("java.lang.OutOfMemoryError: Java heap space", True),
        ('Exception in thread "main" java.lang.NoClassDefFoundError: x', True),
        ("[0.012s][error][cds] An error has occurred while processing the shared archive file", True),
        ("# There is insufficient memory for the Java Runtime Environment to continue.", True),
        ("Traceback (most recent call last):", False),
        ("ValueError: ERROR SparkContext: a record that looks like one", False),
        ("    raise ERROR X: y", False),
        ("WARNING: Using incubator modules: jdk.incubator.vector", False),
    ],
)
def test_errors_of_java_and_spark_are_told_from_what_workers_print(text: str, expected: bool) -> None:
    assert is_complaint(text) is expected


@pytest.mark.parametrize(
    ("up_seconds", "expected"),
    [
        ((None, None, None), "Spark did not come up 3 times in a row: SIGKILL"),
        ((1.0, 0.1, 9.0), "Spark's JVM ended 3 times within 13 s, each time soon after it had come up: SIGKILL"),
        ((None, 1.0, None), "Spark failed 3 times within 13 s, 2 of them before it was up and 1 soon after: SIGKILL"),
    ],
)
def test_a_jvm_that_never_came_up_is_told_from_one_that_did_not_stay(up_seconds: tuple[float | None, ...], expected: str) -> None:
    assert gave_up([JvmEnd("SIGKILL", at, up) for at, up in zip((100.0, 103.0, 112.5), up_seconds, strict=True)]) == expected
