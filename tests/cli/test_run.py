"""`copycat run --until-idle`: exactly what is there, once; and what it writes while it works."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.cli.conftest import Done


@pytest.fixture
def run_to_the_end(copycat: Callable[..., Done], connectors: Path, broker: DevBroker, tmp_path: Path) -> Callable[..., Done]:
    """`copycat run --until-idle`, which has to be good."""

    def run(*options: str) -> Done:
        where = ("--state-dir", str(tmp_path / "state"), "--bootstrap-servers", broker.bootstrap)
        done = copycat("run", "--until-idle", connectors, *where, *options)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_each_line_once_over_several_runs_the_unfinished_last_one_included(
    run_to_the_end: Callable[..., Done], define: Callable[..., Path], broker: DevBroker, topic: str
) -> None:
    logs = define("app", topic)
    (logs / "a.log").write_text("".join(f"a {number}\n" for number in range(1000)))
    (logs / "b.log").write_text("b 0\nb 1 without an end")
    assert "app: stopped: 1,002 records read" in run_to_the_end().stdout
    assert "app: stopped: 0 records read" in run_to_the_end().stdout
    with (logs / "a.log").open("a") as log:
        log.write("a 1000\n")
    assert "app: stopped: 1 records read" in run_to_the_end().stdout
    arrived = values(broker.bootstrap, topic)
    assert [value for value in arrived if value and value.startswith(b"a")] == [b"a %d" % number for number in range(1001)]
    assert [value for value in arrived if value and value.startswith(b"b")] == [b"b 0", b"b 1 without an end"]


def test_only_runs_what_it_names(
    run_to_the_end: Callable[..., Done], define: Callable[..., Path], broker: DevBroker, make_topic: Callable[..., str]
) -> None:
    one, other = make_topic(), make_topic()
    for name, topic in (("one", one), ("other", other)):
        (define(name, topic) / "a.log").write_text(f"{name}\n")
    done = run_to_the_end("--only", "other")
    assert done.stdout.startswith("other: stopped: 1 records read")
    assert done.stdout.count("\n") == 1
    assert values(broker.bootstrap, one) == []
    assert values(broker.bootstrap, other) == [b"other"]


def test_the_log_is_one_json_object_per_line_and_holds_no_data_of_users(
    run_to_the_end: Callable[..., Done], define: Callable[..., Path], topic: str
) -> None:
    logs = define("app", topic, "errors: {tolerance: all}\n")
    long_line = "canary-of-a-user" * 100_000  # over line.max_bytes: a bad record
    (logs / "a.log").write_text(f"canary-of-a-user\n{long_line}\ncanary-of-a-user\n")
    done = run_to_the_end("--verbose")
    lines = done.stderr.splitlines()
    assert len(lines) > 5
    for line in lines:
        assert {"ts", "level", "logger", "event"} <= set(json.loads(line))
    assert "canary-of-a-user" not in done.stderr + done.stdout
