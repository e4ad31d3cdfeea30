"""Which definitions an agent on a cluster runs, and what it says of those that it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from copycat_agent.agent import DefinitionFiles

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.agent import WantedDefinitions
    from copycat_agent.agent.executor_choice import Elsewhere

JOURNALD: dict[str, Any] = {"type": "journald"}
LOG: dict[str, Any] = {"type": "log_file", "include": ["/l/*"]}
SPOOL: dict[str, Any] = {"type": "spool_dir", "dir": "/s"}


def load(
    directory: Path, *, elsewhere: Elsewhere = "on a cluster", sink: dict[str, Any] | None = None, **sources: dict[str, Any]
) -> WantedDefinitions:
    """What is wanted of a definition per source, by name."""
    for name, source in sources.items():
        more = {"sink": sink} if sink else {"record": {"topic": "t"}}
        (directory / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, "source": source, **more}), "utf-8")
    return DefinitionFiles(directory, None, {"kafka.bootstrap_servers": ("127.0.0.1:1",)}, elsewhere=elsewhere).load()


@pytest.mark.parametrize("source", [LOG, SPOOL, JOURNALD], ids=lambda one: one["type"])
def test_what_is_of_one_host_is_not_run_there_and_says_what_to_do(tmp_path: Path, source: dict[str, Any]) -> None:
    wanted = load(tmp_path, app=source, lake={"type": "kafka", "topics": ["o"]})
    assert list(wanted.definitions) == ["lake"]
    assert f"source {source['type']} is not read on a cluster: " in wanted.kept["app"]
    assert (
        "run it by a second agent on this host, without --master and with a state directory of its own; it is not run" in wanted.kept["app"]
    )
    assert wanted.problems == ()


@pytest.mark.parametrize("source", [LOG, SPOOL, JOURNALD], ids=lambda one: one["type"])
def test_it_is_run_without_a_cluster_and_may_be_there_disabled(tmp_path: Path, source: dict[str, Any]) -> None:
    assert list(load(tmp_path, elsewhere="", app=source).definitions) == ["app"]
    (tmp_path / "app.yaml").write_text(
        yaml.safe_dump({"name": "app", "enabled": False, "source": source, "record": {"topic": "t"}}), "utf-8"
    )
    assert list(load(tmp_path).definitions) == ["app"]


def test_a_path_is_warned_of_and_an_address_is_not(tmp_path: Path) -> None:
    paths = load(tmp_path, app={"type": "objects", "uri": "file:///mnt/a/"}).warnings
    assert [one.text for one in paths] == ["source.uri is a path: every host that runs the connector has to find the same directory there"]
    sink = {"type": "files", "uri": "file:///mnt/lake/", "format": "jsonl"}
    paths = load(tmp_path, app={"type": "kafka", "topics": ["o"]}, sink=sink).warnings
    assert [one.text for one in paths] == ["sink.uri is a path: every host that runs the connector has to find the same directory there"]
    assert load(tmp_path, app={"type": "objects", "uri": "s3://bucket/a/"}).warnings == ()
    assert load(tmp_path, elsewhere="", app={"type": "objects", "uri": "file:///mnt/a/"}).warnings == ()
