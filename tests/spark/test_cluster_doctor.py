"""What the doctor says of a Spark cluster: of none, and of a real one without room, with an unfit Python, or with all it takes."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from copycat_agent.options import SparkOptions
from copycat_agent.workbench.doctor.master_checks import examine_master
from tests.rig.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.workbench.doctor import CheckStep

LACKING = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "orjson" else find(name, *more)
"""
C1 = {"spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


def steps(master: str, seconds: float = 120, *, runs: bool = False, **conf: str) -> dict[str, CheckStep]:
    """By name. `conf` with `_` for `.`."""
    options = SparkOptions(conf={**C1, **{name.replace("_", "."): value for name, value in conf.items()}})
    return {step.name: step for step in examine_master(options, master, runs=runs, executor_seconds=seconds)}


def test_this_host_is_no_cluster_and_a_master_that_is_not_there_is_said_to_be() -> None:
    assert not steps("local[2]")
    with socket.socket() as deaf:  # has the port, and does not listen
        deaf.bind(("127.0.0.1", 0))
        found = steps(f"spark://127.0.0.1:{deaf.getsockname()[1]}")
    assert (found["master"].verdict, found["cores"].verdict, found["executor"].verdict) == ("fail", "skip", "skip")
    assert "Connection refused" in found["master"].text


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_real_cluster_gives_an_executor_for_a_moment_or_it_is_said_why_not(tmp_path: Path, cache: None) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(LACKING)
    (tmp_path / "cluster").mkdir()
    with SparkCluster(tmp_path / "cluster", 1, cores=2) as cluster:
        good = steps(cluster.url)
        assert {name: step.verdict for name, step in good.items()} == {"master": "ok", "cores": "ok", "executor": "ok"}, good
        unfit = steps(cluster.url, spark_executorEnv_PYTHONPATH=str(tmp_path / "path"))
        assert (unfit["executor"].verdict, "its Python lacks orjson" in unfit["executor"].text) == ("fail", True), unfit
        for runs in (False, True):
            none = steps(cluster.url, 2, runs=runs, spark_executor_memory="3g")
            assert (none["cores"].verdict, none["executor"].verdict) == ("warn" if runs else "fail", "skip")
            assert "spark.executor.memory" in none["cores"].fix
