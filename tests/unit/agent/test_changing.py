"""A definition that a client writes runs when it is answered; one that cannot run leaves everything as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.definitions.writing import create
from copycat_agent.errors import BusyError, CopycatError, DataError, DefinitionError
from copycat_agent.worker import State
from tests.rig.waiting import wait_until
from tests.unit.agent.conftest import Host

if TYPE_CHECKING:
    from copycat_agent.watch import Watcher
    from copycat_agent.worker.handle import Target


def text(host: Host, name: str, **sections: Any) -> bytes:
    """What `host.define` would write."""
    path = host.define(name, "draft.disabled", **sections)
    content = path.read_bytes()
    path.unlink()
    return content


def change(host: Host, name: str, before: bytes | None, content: bytes | None, target: Target | None = None) -> None:
    assert host.reloader is not None
    host.reloader.change(name, before, content, target)


def there(host: Host) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in host.directory.iterdir()}


@pytest.fixture
def running(host: Host) -> Host:
    """With a connector `a`."""
    host.define("a")
    host.reload()
    return host


@pytest.mark.parametrize(("target", "state"), [("paused", State.PAUSED), ("stopped", State.STOPPED)])
def test_a_new_connector_is_what_it_is_to_be_from_its_beginning(running: Host, target: Target, state: State) -> None:
    change(running, "b", None, text(running, "b"), target)
    assert running.names == ["a", "b"]
    wait_until(lambda: running.worker.status("b").state is state)
    assert running.store.targets()["b"] == target


def test_one_that_comes_back_does_not_remember_that_it_was_stopped(running: Host) -> None:
    running.worker.halt("a")
    content = there(running)["a.yaml"]
    change(running, "a", content, None)
    assert running.names == []
    change(running, "a", None, content, "running")
    wait_until(lambda: running.worker.status("a").state is State.RUNNING)


def test_a_changed_one_runs_as_its_file_says_and_keeps_its_state(running: Host) -> None:
    running.worker.halt("a")
    content = text(running, "a", record={"topic": "other"})
    change(running, "a", there(running)["a.yaml"], content)
    assert running.worker.definition("a").record.topic == "other"
    assert running.worker.status("a").state is State.STOPPED
    assert there(running) == {"a.yaml": content}


def test_who_has_seen_an_older_file_changes_nothing(running: Host) -> None:
    before = there(running)
    for content in (text(running, "a", record={"topic": "other"}), None):
        with pytest.raises(BusyError, match="somebody changed it meanwhile"):
            change(running, "a", b"name: a", content)
    assert there(running) == before


def test_what_check_would_refuse_is_not_written(running: Host) -> None:
    logs = running.root / "a-logs"
    taker = {"type": "spool_dir", "dir": str(logs), "cleanup": {"policy": "delete"}}
    before = there(running)
    for content, words in (
        (text(running, "b", nope=1), "nope"),
        (text(running, "a"), "the name 'a' is taken by"),
        (text(running, "b", source=taker), "deletes files that a"),
        (b"name: [", ""),
        (text(running, "b", record={"topic": "t", "key": "${file:/nowhere}"}), "cannot read /nowhere"),
    ):
        with pytest.raises(DefinitionError) as caught:
            change(running, "b", None, content, "running")
        assert words in " ".join(one.text for one in caught.value.problems)
    assert there(running) == before
    assert running.names == ["a"]


def test_what_must_not_run_beside_a_last_good_version_is_not_written(host: Host) -> None:
    taker = {"type": "spool_dir", "dir": f"{host.root}/a-logs", "cleanup": {"policy": "delete"}}
    path = host.define("a", source=taker)
    host.reload()
    path.write_text("name: [")
    host.reload()
    before = there(host)
    with pytest.raises(DefinitionError, match="a deletes files that b"):
        change(host, "b", None, text(host, "b", source=taker | {"cleanup": {"policy": "none"}}), "running")
    assert there(host) == before
    assert host.names == ["a"]


def test_a_file_that_is_there_is_not_taken_for_a_connector_that_is_not(running: Host) -> None:
    (running.directory / "b.yaml").write_text("name: [")
    with pytest.raises(DataError, match=r"b\.yaml is there already"):
        change(running, "b", None, text(running, "b"), "running")
    for name in ("../b", "a/b", "", "B", ".b", "x" * 64):
        with pytest.raises(DataError, match="the name of a connector has letters"):
            change(running, name, None, text(running, "b"), "running")


def test_who_comes_second_is_told_to_look_again(running: Host) -> None:
    content = there(running)["a.yaml"]
    with pytest.raises(BusyError, match="Connector a already exists"):
        change(running, "a", None, content, "running")
    change(running, "a", content, None)
    for new in (None, content):
        with pytest.raises(BusyError, match="no file defines a connector a any more"):
            change(running, "a", content, new)
    assert there(running) == {}


def test_a_link_is_not_followed_out_of_the_directory(host: Host) -> None:
    host.define("a")
    outside = host.root / "outside.yaml"
    (host.directory / "a.yaml").rename(outside)
    (host.directory / "a.yaml").symlink_to(outside)
    host.reload()
    before = outside.read_bytes()
    for content in (text(host, "a", record={"topic": "other"}), None):
        with pytest.raises(DataError, match="is a link to a file elsewhere"):
            change(host, "a", before, content)
    assert outside.read_bytes() == before
    assert (host.directory / "a.yaml").is_symlink()


def test_a_file_with_comments_is_put_aside_when_its_connector_is_deleted(running: Host) -> None:
    path = running.directory / "a.yaml"
    path.write_text(f"# A person's.\n{path.read_text()}")
    running.reload()
    content = path.read_bytes()
    change(running, "a", content, None)
    assert there(running) == {"a.yaml.disabled": content}
    assert running.names == []


@pytest.mark.parametrize("edit", [("name: a", "name: other"), ("name: a", "name: a\nenabled: false"), ("name: a", "name: [")])
def test_a_file_that_somebody_has_changed_meanwhile_is_put_aside_too(running: Host, edit: tuple[str, str]) -> None:
    path = running.directory / "a.yaml"
    path.write_text(path.read_text().replace(*edit))
    content = path.read_bytes()
    change(running, "a", content, None)
    assert there(running) == {"a.yaml.disabled": content}


def test_one_that_may_not_run_is_undone(tmp_path: Any, watcher: Watcher) -> None:
    host = Host(tmp_path, watcher, only=["a"])
    try:
        host.define("a")
        host.reload()
        before = there(host)
        with pytest.raises(DataError, match="connector b cannot be defined so: the agent does not run it; nothing was changed"):
            change(host, "b", None, text(host, "b"), "stopped")
        assert there(host) == before
        assert host.store.targets().get("b") != "stopped"
    finally:
        host.close()


def test_a_directory_that_cannot_be_written_is_told_with_its_next_step(running: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.link", read_only)
    with pytest.raises(CopycatError, match=r"b\.yaml cannot be written: Read-only file system; the agent's user"):
        change(running, "b", None, text(running, "b"), "stopped")
    assert list(there(running)) == ["a.yaml"]
    monkeypatch.undo()
    create(running.directory / "b.yaml", text(running, "b"))
    assert running.reload().lines() == ["+ b"]
    wait_until(lambda: running.worker.status("b").state is State.RUNNING)
