"""Definitions change while data flows: nothing is lost, nothing repeats, and who is not meant does not notice."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.api import AgentClient
from tests.rig.agent import AgentProcess
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.ledger import Ledger, LedgerWriter


class Load:
    """Writes lines into several files until the end of the block."""

    def __init__(self, writers: list[LedgerWriter]) -> None:
        self._writers = writers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.wait(0.005):
            for writer in self._writers:
                writer.write(5)


def source(directory: Path) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    return {"type": "log_file", "include": [f"{directory}/*.log"], "scan_interval": "200ms"}


def diffs(agent: AgentProcess) -> list[str]:
    """What reloads have said so far, line by line."""
    return [entry["diff"] for entry in _said(agent, "reload")]


def _said(agent: AgentProcess, event: str) -> Iterator[dict[str, Any]]:
    for line in agent.log.splitlines():
        if line.startswith("{") and line.endswith("}") and (entry := json.loads(line))["event"] == event:
            yield entry


def wait_diff(agent: AgentProcess, start: str, count: int = 1) -> None:
    def seen() -> bool:
        return sum(line.startswith(start) for line in diffs(agent)) >= count

    wait_until(seen, 60, lambda: f"{start}: {diffs(agent)}; {agent.log[-2000:]}")


def descriptors(agent: AgentProcess, directory: Path) -> dict[str, str]:
    """Numbers and names of the driver's descriptors below a directory."""
    names = {}
    for link in Path(f"/proc/{agent.pid}/fd").iterdir():
        with suppress(OSError):  # it was closed meanwhile
            names[link.name] = str(link.readlink())
    return {number: name for number, name in names.items() if name.startswith(f"{directory}/")}


def connectors(agent: AgentProcess) -> list[str]:
    """Names of those that run, or end just now."""
    return [one["name"] for one in AgentClient(agent.state_dir / "agent.sock").get("/v1/connectors")["connectors"]]


@pytest.fixture(scope="module")
def agent(broker: DevBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One for all, not started: it goes on without any definition."""
    with AgentProcess(tmp_path_factory.mktemp("reload"), broker.bootstrap) as agent:
        yield agent


def test_reloads_under_load_lose_nothing_repeat_nothing_and_leave_the_others_alone(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], ledger: Ledger, tmp_path: Path
) -> None:
    topics = {name: make_topic() for name in ("still", "moved", "back")}
    logs = {name: tmp_path / f"{name}-logs" for name in topics}

    def define(name: str, file: str = "", connector: str = "", **sections: Any) -> Path:
        definition = {"name": connector or name, "source": source(logs[name]), "record": {"topic": topics[name]}, **sections}
        return agent.define(file or name, definition)

    for name in topics:
        define(name)
    writers = [ledger.writer(logs[name] / "a.log", name) for name in topics]
    agent.start()
    with Load(writers):
        for topic in topics.values():
            consume(broker.bootstrap, topic, until=50, deadline=180)
        before = descriptors(agent, logs["still"])
        assert before
        agent.undefine("back")
        wait_diff(agent, "- back")
        define("moved", delivery={"tasks_max": 1}, record={"topic": topics["moved"], "headers": {"v": "2"}})
        wait_diff(agent, "~ moved (record.headers.v, delivery.tasks_max)")
        agent.define("still", "name: still\nsource: {type: log_fil}\n")
        wait_diff(agent, "! still: ")
        define("back")
        wait_diff(agent, "+ back", 2)
        define("moved", connector="renamed", renamed_from=["moved"])
        wait_diff(agent, "+ renamed (offsets of moved)")
        define("still")
        agent.signal(signal.SIGHUP)
        wait_until(lambda: list(_said(agent, "agent is asked to reload")), message="the signal is told")
        assert descriptors(agent, logs["still"]) == before, "an untouched connector keeps its open files"
        so_far = sum(writer.written for writer in writers)
        wait_until(lambda: sum(writer.written for writer in writers) > so_far + 100, message="it is written on")
    arrived = []
    for name, topic in topics.items():
        count = next(writer.written for writer in writers if writer.file == name)
        arrived += consume(broker.bootstrap, topic, until=count, deadline=60)
    verdict = ledger.verify(arrived)
    assert verdict, f"{verdict}; {diffs(agent)}"
    for name in ("still", "renamed", "back"):
        (agent.connectors_dir / f"{'moved' if name == 'renamed' else name}.yaml").unlink()
    wait_until(lambda: {"- still", "- renamed", "- back"} <= set(diffs(agent)) and not connectors(agent), 60, lambda: f"{diffs(agent)}")
    assert ledger.verify([record for topic in topics.values() for record in consume(broker.bootstrap, topic)])


def test_every_connector_is_replaced_in_one_reload_and_an_empty_directory_ends_nothing(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    old, new = make_topic(), make_topic()
    names = ("a", "b", "c")

    def runs() -> int:
        """How often one of them began to run."""
        return sum(entry["connector"] in names and entry["state"] == "running" for entry in _said(agent, "connector state"))

    for name in names:
        agent.define(name, {"source": source(tmp_path / name), "record": {"topic": old}})
        (tmp_path / name / "x.log").write_text(f"{name} 1\n")
    if not agent.is_running:
        agent.start()
    assert {record.value for record in consume(broker.bootstrap, old, until=3, deadline=180)} == {b"a 1", b"b 1", b"c 1"}
    agent.connectors_dir.rename(tmp_path / "aside")  # every file changes at once
    for name in names:
        text = (tmp_path / "aside" / f"{name}.yaml").read_text().replace(old, new)
        (tmp_path / "aside" / f"{name}.yaml").write_text(text)
    (tmp_path / "aside").rename(agent.connectors_dir)
    agent.signal(signal.SIGHUP)
    wait_until(lambda: {f"~ {name} (record.topic)" for name in names} <= set(diffs(agent)), 60, lambda: f"{diffs(agent)}")
    # What is written before the old ones have ended may go where they send it.
    wait_until(lambda: runs() >= 2 * len(names), 60, lambda: agent.log[-2000:])
    for name in names:
        with (tmp_path / name / "x.log").open("a") as file:
            file.write(f"{name} 2\n")
    assert {record.value for record in consume(broker.bootstrap, new, until=3)} == {b"a 2", b"b 2", b"c 2"}
    for name in names:
        agent.undefine(name)
    wait_until(lambda: {f"- {name}" for name in names} <= set(diffs(agent)), 60, lambda: f"{diffs(agent)}")
    agent.define("a", {"source": source(tmp_path / "a"), "record": {"topic": new}})
    with (tmp_path / "a" / "x.log").open("a") as file:
        file.write("a 3\n")
    assert consume(broker.bootstrap, new, until=4)[-1].value == b"a 3"
    agent.stop()
    assert len(consume(broker.bootstrap, old)) == 3
