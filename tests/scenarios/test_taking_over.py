"""Another product stops, and the agent goes on where it was: no line is lost, and none comes twice."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.connect_jars import class_path
from benchmarks.tools import connect
from copycat_agent.cli.main import app
from copycat_agent.dev_broker import DevBroker
from copycat_agent.errors import CopycatError
from tests.rig.agent import AgentProcess
from tests.rig.kafka import consume
from tests.unit.workbench.takeover.test_filebeat_registry import Registry, of_log

CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONFIGURATION = "name=shop\nconnector.class=FileStreamSource\nfile={log}\ntopic={topic}\nbootstrap.servers={bootstrap}\n"


def lines(begin: int, end: int) -> bytes:
    return b"".join(b"line %06d of a log\n" % number for number in range(begin, end))


@pytest.mark.timeout(900)  # the first time its jars are fetched
def test_connects_worker_stops_in_a_growing_log_and_the_agent_goes_on_there(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    class_path()
    log, work, topic = tmp_path / "app.log", tmp_path / "connect", make_topic()
    log.write_bytes(lines(0, 5000) + b"begun")
    (worker,) = connect(work, broker.bootstrap, {"shop": {"connector.class": CLASS, "file": str(log), "topic": topic}})
    try:
        consume(broker.bootstrap, topic, until=5000, deadline=90)
        worker.send_signal(signal.SIGTERM)
        worker.wait(60)
    finally:
        worker.kill()
    with log.open("ab") as file:
        file.write(b" and ended\n" + lines(5000, 6000))
    configuration = tmp_path / "shop.properties"
    configuration.write_text(CONFIGURATION.format(log=log, topic=topic, bootstrap=broker.bootstrap))
    options = ["--positions", work / "connect.offsets", "--trust-names", "--write", "-o", agent.connectors_dir]
    done = CliRunner().invoke(app, [*map(str, ("import", "connect", configuration, *options, "--state-dir", agent.state_dir))])
    assert done.exit_code == 0, done.output
    assert f"goes on at byte {len(lines(0, 5000)):,}: same name" in done.output
    agent.start()
    expected = [*lines(0, 5000).splitlines(), b"begun and ended", *lines(5000, 6000).splitlines()]
    found = [one.value for one in consume(broker.bootstrap, topic, until=len(expected), deadline=90)]
    assert found == expected


def test_positions_go_through_an_agent_that_runs_and_it_goes_on_there_with_the_next_definition(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    log, registry, topic = tmp_path / "app.log", Registry(tmp_path / "registry"), make_topic()
    log.write_bytes(lines(0, 100))
    registry.set(*of_log(log, len(lines(0, 60))))
    configuration = tmp_path / "filebeat.yml"
    inputs = f"filebeat.inputs: [{{type: log, id: shop, paths: ['{log}']}}]\n"
    configuration.write_text(f"{inputs}output.kafka: {{hosts: ['{broker.bootstrap}'], topic: {topic}}}\n")
    other = make_topic()
    (tmp_path / "other.log").write_bytes(b"other\n")
    agent.define("other", {"source": {"type": "log_file", "include": [str(tmp_path / "other.log")]}, "record": {"topic": other}})
    agent.start()
    consume(broker.bootstrap, other, until=1, deadline=60)
    call = ["import", "filebeat", configuration, "--positions", registry.directory, "--state-dir", agent.state_dir, "--write"]
    done = CliRunner().invoke(app, [*map(str, call), "-o", str(agent.connectors_dir)])
    assert done.exit_code == 0, done.output
    assert [one.value for one in consume(broker.bootstrap, topic, until=40, deadline=60)] == lines(60, 100).splitlines()
    with pytest.raises(CopycatError, match="saved already of shop"):
        CliRunner().invoke(app, [*map(str, call)], catch_exceptions=False)
