"""Another product stops, and the agent goes on where it was: no line is lost, and none comes twice."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.connect_jars import class_path
from benchmarks.tools import connect
from copycat_agent.cli.main import app
from copycat_agent.dev_broker import DevBroker
from copycat_agent.errors import CopycatError
from copycat_agent.workbench.takeover import connect_offsets
from copycat_agent.workbench.takeover.peer_state import PeerPosition
from tests.rig.agent import AgentProcess
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until
from tests.unit.workbench.takeover.test_filebeat_registry import Registry, of_log

CLASS = "org.apache.kafka.connect.file.FileStreamSourceConnector"
CONFIGURATION = "name=shop\nconnector.class=FileStreamSource\nfile={log}\ntopic={topic}\nbootstrap.servers={bootstrap}\n"


def positions_of(offsets: Path) -> tuple[PeerPosition, ...]:
    """What a worker has saved; it may be writing just now."""
    try:
        return connect_offsets.read(offsets).positions
    except CopycatError:
        return ()


def lines(begin: int, end: int) -> bytes:
    return b"".join(b"line %06d of a log\n" % number for number in range(begin, end))


@pytest.fixture(scope="module")
def shared(broker: DevBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path_factory.mktemp("shared") / "agent", broker.bootstrap) as agent:
        yield agent


@pytest.fixture
def running(shared: AgentProcess, make_topic: Callable[..., str], tmp_path: Path) -> AgentProcess:
    """An agent that runs, and sends; connectors that others have defined may be there."""
    topic, log = make_topic(), tmp_path / "other.log"
    log.write_bytes(b"other\n")
    shared.define("other", {"source": {"type": "log_file", "include": [str(log)]}, "record": {"topic": topic}})
    if not shared.is_running:
        shared.start()
    consume(shared.bootstrap, topic, until=1, deadline=180)
    return shared


@pytest.mark.timeout(900)  # the first time its jars are fetched
def test_connects_worker_stops_in_a_growing_log_and_the_agent_goes_on_there(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    class_path()
    log, work, topic = tmp_path / "app.log", tmp_path / "connect", make_topic()
    log.write_bytes(lines(0, 5000) + b"begun")
    (worker,) = connect(work, broker.bootstrap, {"shop": {"connector.class": CLASS, "file": str(log), "topic": topic}})
    try:
        consume(broker.bootstrap, topic, until=5000, deadline=180)
        worker.send_signal(signal.SIGTERM)
        worker.wait(120)
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
    found = [one.value for one in consume(broker.bootstrap, topic, until=len(expected), deadline=180)]
    assert found == expected


@pytest.mark.long
@pytest.mark.timeout(900)
def test_connects_worker_is_killed_and_no_line_is_lost_and_only_those_come_twice_that_it_had_sent_and_not_saved(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    class_path()
    log, work, topic = tmp_path / "app.log", tmp_path / "connect", make_topic()
    log.write_bytes(lines(0, 1000))
    offsets = work / "connect.offsets"
    flush = {"offset.flush.interval.ms": "1000"}
    (worker,) = connect(work, broker.bootstrap, {"shop": {"connector.class": CLASS, "file": str(log), "topic": topic}}, more=flush)
    try:
        consume(broker.bootstrap, topic, until=1000, deadline=240)
        wait_until(lambda: any(one.position for one in positions_of(offsets)), 120.0, "the worker has saved a position")
        with log.open("ab") as file:
            file.write(lines(1000, 3000))
        consume(broker.bootstrap, topic, until=1500, deadline=90)
    finally:
        worker.kill()
        worker.wait(60)
    (saved,) = [one.position for one in positions_of(offsets)]
    with log.open("ab") as file:
        file.write(lines(3000, 4000))
    configuration = tmp_path / "shop.properties"
    configuration.write_text(CONFIGURATION.format(log=log, topic=topic, bootstrap=broker.bootstrap))
    options = ["--positions", offsets, "--trust-names", "--write", "-o", agent.connectors_dir, "--state-dir", agent.state_dir]
    done = CliRunner().invoke(app, [*map(str, ("import", "connect", configuration, *options))])
    assert done.exit_code == 0, done.output
    sent = len(consume(broker.bootstrap, topic))
    agent.start()
    behind = lines(0, 4000)[saved:].splitlines()
    found = [one.value for one in consume(broker.bootstrap, topic, until=sent + len(behind), deadline=90)]
    assert set(found) == set(lines(0, 4000).splitlines())
    assert {line for line in set(found) if found.count(line) > 1} <= set(behind)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("runs", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_connector_that_sends_exactly_once_goes_on_where_the_other_product_was(
    running: AgentProcess,
    make_agent: Callable[..., AgentProcess],
    broker: DevBroker,
    make_topic: Callable[..., str],
    tmp_path: Path,
    runs: bool,
) -> None:
    """Whether its positions are saved by the command, or by an agent that runs, and again after a restart."""
    agent = running if runs else make_agent(broker.bootstrap)
    log, registry, topic = tmp_path / "app.log", Registry(tmp_path / "registry"), make_topic()
    log.write_bytes(lines(0, 100))
    registry.set(*of_log(log, len(lines(0, 60))))
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(lines(100, 110))
    configuration = tmp_path / "filebeat.yml"
    inputs = f"filebeat.inputs: [{{type: log, id: exactly, paths: ['{log}']}}]\n"
    configuration.write_text(f"{inputs}output.kafka: {{hosts: ['{broker.bootstrap}'], topic: {topic}}}\n")
    made = tmp_path / "made"
    call = ["import", "filebeat", configuration, "--positions", registry.directory, "--state-dir", agent.state_dir, "--write", "-o", made]
    done = CliRunner().invoke(app, [*map(str, call)])
    assert done.exit_code == 0, done.output
    agent.define("exactly", (made / "exactly.yaml").read_text() + "delivery: {guarantee: exactly_once}\n")
    if not runs:
        agent.start()
    expected = lines(60, 110).splitlines()
    assert [one.value for one in consume(broker.bootstrap, topic, "read_committed", until=50, deadline=120)] == expected
    agent.stop()
    with log.open("ab") as file:
        file.write(lines(110, 120))
    agent.start()
    found = [one.value for one in consume(broker.bootstrap, topic, "read_committed", until=60, deadline=120)]
    assert found == [*expected, *lines(110, 120).splitlines()]


def test_positions_go_through_an_agent_that_runs_and_it_goes_on_there_with_the_next_definition(
    running: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    log, registry, topic = tmp_path / "app.log", Registry(tmp_path / "registry"), make_topic()
    log.write_bytes(lines(0, 100))
    registry.set(*of_log(log, len(lines(0, 60))))
    configuration = tmp_path / "filebeat.yml"
    inputs = f"filebeat.inputs: [{{type: log, id: through, paths: ['{log}']}}]\n"
    configuration.write_text(f"{inputs}output.kafka: {{hosts: ['{broker.bootstrap}'], topic: {topic}}}\n")
    call = ["import", "filebeat", configuration, "--positions", registry.directory, "--state-dir", running.state_dir, "--write"]
    done = CliRunner().invoke(app, [*map(str, call), "-o", str(running.connectors_dir)])
    assert done.exit_code == 0, done.output
    assert [one.value for one in consume(broker.bootstrap, topic, until=40, deadline=120)] == lines(60, 100).splitlines()
    with pytest.raises(CopycatError, match="saved already of through"):
        CliRunner().invoke(app, [*map(str, call)], catch_exceptions=False)


def test_an_agent_that_went_ahead_goes_back_with_force_to_where_the_product_was(
    running: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Its definition was there before the positions, and began at the end; the log was rotated since."""
    log, registry, topic = tmp_path / "app.log", Registry(tmp_path / "registry"), make_topic()
    log.write_bytes(lines(0, 100))
    registry.set(*of_log(log, len(lines(0, 60))))
    configuration, made = tmp_path / "filebeat.yml", tmp_path / "made"
    inputs = f"filebeat.inputs: [{{type: log, id: ahead, paths: ['{log}'], tail_files: true}}]\n"
    configuration.write_text(f"{inputs}output.kafka: {{hosts: ['{broker.bootstrap}'], topic: {topic}}}\n")
    call = ["import", "filebeat", configuration, "--positions", registry.directory, "--state-dir", running.state_dir]
    assert CliRunner().invoke(app, [*map(str, call), "-o", str(made)]).exit_code == 0
    running.define("ahead", (made / "ahead.yaml").read_text())
    show = ["offsets", "show", "ahead", "--state-dir", str(running.state_dir)]
    wait_until(lambda: str(log) in CliRunner().invoke(app, show).output, 60.0, "it has begun at the end")
    with log.open("ab") as file:
        file.write(lines(100, 110))
    consume(broker.bootstrap, topic, until=10, deadline=120)
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(lines(110, 120))
    consume(broker.bootstrap, topic, until=20, deadline=120)
    done = CliRunner().invoke(app, [*map(str, call), "--write", "--force"])
    assert done.exit_code == 0, done.output
    found = [one.value for one in consume(broker.bootstrap, topic, until=70, deadline=120)]
    assert set(found) == set(lines(60, 120).splitlines())
