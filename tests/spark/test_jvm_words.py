"""What the JVM writes is heard at the level it deserves."""

from __future__ import annotations

import pytest

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
