"""What a reload decides: who goes on untouched, who is replaced, who goes on although its file is broken."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.agent.definition_files import DefinitionWatcher
from copycat_agent.agent.reloading import differences
from copycat_agent.errors import DefinitionError
from copycat_agent.model import STATE_KEY, SourceOffset, SourcePartition
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.worker import State
from tests.rig.waiting import wait_until
from tests.unit.agent.conftest import Host

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.watch import Watcher


KEY = "1:1:0:0"
"""Of a file that is not there."""


def test_the_first_load_adds_everything_and_a_second_one_nothing(host: Host) -> None:
    host.define("a")
    host.define("b")
    assert host.reload().lines() == ["+ a", "+ b"]
    before = host.connector("a")
    again = host.reload()
    assert (again.lines(), again.clean) == ([], True)
    assert host.connector("a") is before


def test_changed_tests_of_a_definition_leave_its_connector_alone(host: Host) -> None:
    host.define("a")
    host.reload()
    before = host.connector("a")
    host.define("a", tests=[{"input": "a line", "expect": [{"value": "a line"}]}])
    assert host.reload().lines() == []
    assert host.connector("a") is before


def test_only_what_differs_is_replaced_and_the_diff_names_the_options(host: Host) -> None:
    for name in "abc":
        host.define(name)
    host.reload()
    untouched = host.connector("a")
    host.define("b", record={"topic": "other"}, delivery={"tasks_max": 1})
    (host.directory / "c.yaml").unlink()
    host.define("d")
    outcome = host.reload()
    assert outcome.lines() == ["+ d", "~ b (record.topic, delivery.tasks_max)", "- c"]
    assert host.connector("a") is untouched
    assert host.names == ["a", "b", "d"]
    assert host.worker.definition("b").record.topic == "other"


def test_a_comment_or_another_way_to_write_the_same_is_no_change(host: Host) -> None:
    path = host.define("a", delivery={"linger": "500ms"})
    host.reload()
    before = host.connector("a")
    path.write_text("# a comment\n" + path.read_text().replace("500ms", "0.5s"))
    assert host.reload().lines() == []
    assert host.connector("a") is before


def test_all_connectors_can_be_replaced_at_once(host: Host) -> None:
    for name in ("a", "b", "c"):
        host.define(name)
    host.reload()
    for name in ("a", "b", "c"):
        host.define(name, record={"topic": "other"})
    assert sorted(host.reload().changed) == ["a", "b", "c"]
    wait_until(lambda: all(status.state is State.RUNNING for status in host.worker.statuses()), message="they run")


def test_a_broken_file_keeps_its_last_good_version_and_says_where_it_is_broken(host: Host) -> None:
    path = host.define("a")
    host.define("b")
    host.reload()
    before = host.connector("a")
    path.write_text(path.read_text() + "delivry: {}\n")
    outcome = host.reload()
    assert not outcome.clean
    (line,) = outcome.lines()
    assert line.startswith(f"! a: {path}:")
    assert "did you mean" in line
    assert "last good version goes on" in line
    assert host.connector("a") is before
    path.write_text("name: [\n")
    assert host.reload().kept.keys() == {"a"}, "also when not even its name can be read"
    assert host.connector("a") is before
    host.define("a")
    assert host.reload().lines() == []
    assert host.connector("a") is before


def test_a_file_that_was_broken_from_the_start_is_told_and_not_run_until_it_is_repaired(host: Host) -> None:
    (host.directory / "bad.yaml").write_text("name: bad\n")
    (host.directory / "worse.yaml").write_text("{")
    host.define("good")
    outcome = host.reload()
    assert outcome.added == ("good",)
    assert set(outcome.kept) == {"bad", "worse.yaml"}
    assert all(why.endswith("it is not run") for why in outcome.kept.values())
    host.define("bad")
    assert host.reload().added == ("bad",)


def test_another_name_in_a_file_is_a_removal_and_an_addition(host: Host) -> None:
    host.define("a", file="x.yaml")
    host.reload()
    host.define("b", file="x.yaml")
    assert host.reload().lines() == ["+ b", "- a"]


def test_a_file_with_another_name_is_no_change_also_when_it_is_broken_at_the_same_time(host: Host) -> None:
    path = host.define("a", file="x.yaml")
    host.reload()
    before = host.connector("a")
    path = path.rename(host.directory / "y.yaml")
    assert host.reload().lines() == []
    path = path.rename(host.directory / "z.yaml")
    path.write_text("name: a\nsource: {}\n")
    assert host.reload().kept.keys() == {"a"}
    assert host.connector("a") is before


def test_of_two_files_with_one_name_the_one_that_runs_goes_on(host: Host) -> None:
    host.define("a", record={"topic": "one"})
    host.reload()
    before = host.connector("a")
    twin = host.define("a", file="twin.yaml", record={"topic": "two"})
    outcome = host.reload()
    assert outcome.kept.keys() == {"a"}
    assert str(twin) in outcome.kept["a"]
    assert host.connector("a") is before
    twin.unlink()
    assert host.reload().lines() == []


def spooling(host: Host, directory: str, policy: str) -> dict[str, Any]:
    (host.root / directory).mkdir(exist_ok=True)
    return {"type": "spool_dir", "dir": f"{host.root}/{directory}", "pattern": ["*.csv"], "cleanup": {"policy": policy}}


def spoil(path: Path) -> None:
    path.write_text(path.read_text() + "delivry: {}\n")


@pytest.mark.parametrize("broken", [False, True])
def test_what_must_not_run_beside_a_last_good_version_does_not_begin(host: Host, broken: bool) -> None:
    collect = host.define("collect", source=spooling(host, "in", "delete"))
    host.reload()
    if broken:
        spoil(collect)
    host.define("audit", source=spooling(host, "in", "none"))
    kept = host.reload().kept
    assert kept["collect"].endswith("its last good version goes on")
    assert "collect deletes files that audit" in kept["audit"]
    assert kept["audit"].endswith("it is not run")
    assert host.names == ["collect"]
    host.define("collect", source=spooling(host, "in", "none"))
    assert host.reload().kept == {}
    assert host.names == ["audit", "collect"]


def test_a_version_that_must_not_begin_leaves_its_last_good_one_which_counts_as_well(host: Host) -> None:
    path = host.define("collect", source=spooling(host, "in", "delete"))
    host.define("audit", source=spooling(host, "other", "none"))
    host.reload()
    before = host.connector("audit")
    spoil(path)
    host.define("audit", source=spooling(host, "in", "none"))
    host.define("sweep", source=spooling(host, "other", "delete"))
    assert host.reload().kept.keys() == {"collect", "audit", "sweep"}
    assert host.names == ["audit", "collect"]
    assert host.connector("audit") is before


def test_a_definition_that_moves_to_another_file_replaces_the_last_good_version_of_its_broken_one(host: Host) -> None:
    path = host.define("collect", source=spooling(host, "in", "delete"))
    host.reload()
    path.write_text("name: [\n")
    host.define("collect", file="moved.yaml", source=spooling(host, "in", "delete"), record={"topic": "other"})
    assert host.reload().kept.keys() == {"collect.yaml"}
    assert host.worker.definition("collect").record.topic == "other"


def test_files_of_the_same_names_as_those_of_a_last_good_version_are_not_begun(host: Host) -> None:
    sections: dict[str, Any] = {
        "source": {"type": "kafka", "topics": ["orders"]},
        "sink": {"type": "files", "uri": f"file://{host.root}/lake", "format": "jsonl"},
    }
    east = host.define("east", **sections)
    host.reload()
    spoil(east)
    host.define("west", **sections)
    assert "in files of the same names" in host.reload().kept["west"]
    assert host.names == ["east"]


def test_a_directory_that_cannot_be_read_for_a_moment_removes_nothing(host: Host) -> None:
    host.define("a")
    host.reload()
    before = host.connector("a")
    away = host.directory.rename(host.root / "away")
    outcome = host.reload()
    assert outcome.lines() == [f"! {host.directory}: cannot read the directory: No such file or directory; everything goes on as it was"]
    assert host.connector("a") is before
    away.rename(host.directory)
    assert host.reload().lines() == []
    assert host.connector("a") is before


def test_a_directory_that_is_emptied_leaves_an_agent_that_waits(host: Host) -> None:
    path = host.define("a")
    host.reload()
    path.unlink()
    assert host.reload().lines() == ["- a"]
    host.define("a")
    assert host.reload().lines() == ["+ a"]


def test_what_only_leaves_out_stays_out(tmp_path: Path, watcher: Watcher) -> None:
    host = Host(tmp_path, watcher, only=["a"])
    host.define("a")
    host.define("b")
    assert host.reload().lines() == ["+ a"]
    (host.directory / "b.yaml").write_text("broken")
    host.define("c")
    assert host.reload().lines() == []
    host.close()


def test_agent_yaml_reaches_connectors_and_names_what_needs_a_restart(tmp_path: Path, watcher: Watcher) -> None:
    host = Host(tmp_path, watcher)
    agent_file = tmp_path / "agent.yaml"
    agent_file.write_text("kafka: {client: {linger.ms: 5}}\n")
    host.define("a")
    host.define("b", kafka={"client": {"linger.ms": 7}})
    host.reload()
    untouched = host.connector("b")
    agent_file.write_text("kafka: {client: {linger.ms: 6}, bootstrap_servers: [other:1]}\nspark: {driver_memory: 600m}\n")
    outcome = host.reload()
    assert outcome.lines() == ["~ a (kafka.client.linger.ms)", "! agent.yaml: spark.driver_memory changed; restart the agent"]
    assert host.worker.definition("a").kafka.bootstrap_servers == ("127.0.0.1:1",), "the command line's word holds"
    assert host.connector("b") is untouched
    assert host.reloader is not None
    assert host.reloader.options.spark.driver_memory == 512 * 2**20, "what holds, not what is wanted"
    host.close()


@pytest.mark.parametrize("breakage", ["broken", "gone"])
def test_a_broken_agent_yaml_keeps_the_old_one(tmp_path: Path, watcher: Watcher, breakage: str) -> None:
    host = Host(tmp_path, watcher)
    agent_file = tmp_path / "agent.yaml"
    agent_file.write_text("kafka: {client: {linger.ms: 5}}\n")
    host.define("a")
    host.reload()
    if breakage == "broken":
        agent_file.write_text("kafk: {}\n")
    else:
        agent_file.unlink()
    host.define("b")
    outcome = host.reload()
    assert outcome.added == ("b",)
    assert outcome.kept.keys() == {"agent.yaml"}
    assert host.worker.definition("b").kafka.client == {"linger.ms": "5"}
    host.close()


def test_a_broken_agent_yaml_at_the_start_is_an_error(host: Host) -> None:
    (host.root / "agent.yaml").write_text("kafk: {}\n")
    with pytest.raises(DefinitionError):
        host.reload()


def offsets_of(host: Host, name: str) -> set[str]:
    return {partition.key for partition in host.store.saved(name)}


def save(host: Host, name: str, key: str = KEY) -> None:
    host.store.commit({SourcePartition(name, key): SourceOffset(7, path="/x")})


def test_a_new_name_takes_over_offsets_and_what_a_person_wanted(host: Host) -> None:
    host.define("old", file="x.yaml")
    host.reload()
    save(host, "old")
    host.worker.pause("old")
    host.define("new", file="x.yaml", renamed_from=["old"])
    outcome = host.reload()
    assert outcome.lines() == ["+ new (offsets of old)", "- old"]
    wait_until(lambda: host.worker.status("new").state is State.PAUSED, message=lambda: f"{host.worker.statuses()}")
    assert (offsets_of(host, "old"), offsets_of(host, "new")) == (set(), {KEY, STATE_KEY})
    assert host.store.targets().get("new") == "paused"
    assert host.reload().lines() == [], "and once only"


def test_offsets_of_a_name_that_is_still_in_use_stay_there_with_a_warning(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    old = host.define("old")
    save(host, "old")
    host.reload()
    host.define("new", renamed_from=["old"])
    assert host.reload().renamed == {}
    assert host.reload().renamed == {}
    said = [record for record in caplog.records if "still there" in str(vars(record))]
    assert len(said) == 1
    wait_until(host.worker.started, message="they run")
    assert KEY in offsets_of(host, "old")
    old.unlink()
    assert host.reload().renamed == {"new": "old"}
    wait_until(lambda: KEY in offsets_of(host, "new"), message="they come when the name is free")


def test_offsets_that_two_claim_go_to_neither(host: Host) -> None:
    save(host, "old")
    host.define("a")
    host.reload()
    host.define("a", renamed_from=["old"])
    host.define("b", renamed_from=["old"])
    outcome = host.reload()
    assert "claimed by b too" in outcome.kept["a"]
    assert outcome.kept["a"].endswith("its last good version goes on")
    assert outcome.kept["b"].endswith("it is not run")
    assert host.names == ["a"]
    assert offsets_of(host, "old") == {KEY}
    host.define("b")
    assert host.reload().renamed == {"a": "old"}
    wait_until(lambda: KEY in offsets_of(host, "a"), message="the one that is left has them")


def test_offsets_stay_with_a_name_whose_file_is_broken_or_was_not_asked_for(tmp_path: Path, watcher: Watcher) -> None:
    host = Host(tmp_path, watcher, only=["new"])
    save(host, "old")
    path = host.define("old")
    host.define("new", renamed_from=["old"])
    assert host.reload().renamed == {}
    path.write_text("name: old\nsource: 7\n")
    assert host.reload().renamed == {}
    path.unlink()
    assert host.reload().renamed == {"new": "old"}
    host.close()


def test_earlier_names_that_nobody_has_are_told_to_the_worker_though_nothing_is_saved_for_them(host: Host) -> None:
    """Kafka may know them still, where the store was lost; names that others have or claim it is not for us to take."""
    for name in ("there", "once"):
        host.define(name)
    host.define("new", renamed_from=["gone", "there", "both"])
    host.define("other", renamed_from=["both"])
    (host.directory / "broken.yaml").write_text("name: broken\nsource: 7\n")
    host.define("once", renamed_from=["once", "broken", "former"])
    assert host.reload().renamed == {}
    earlier = {name: life.earlier for name, life in host.worker._handles.items()}
    assert earlier == {"new": ("gone",), "once": ("former",), "other": (), "there": ()}


def test_a_name_that_has_saved_nothing_yet_hands_over_what_it_saves_at_its_end(host: Host) -> None:
    (host.root / "old-logs").mkdir()
    (host.root / "old-logs" / "a").write_text("one\n")
    commit, held = host.store.commit, threading.Event()
    host.store.commit = lambda *values, **more: (held.wait(10), commit(*values, **more))[1]  # type: ignore[method-assign]
    path = host.define("old")
    host.reload()
    source = {"type": "log_file", "include": [f"{host.root}/old-logs/*"], "scan_interval": "100ms"}
    path.unlink()
    host.define("new", source=source, renamed_from=["old"])
    threading.Timer(0.3, held.set).start()
    assert host.reload().renamed == {"new": "old"}
    wait_until(lambda: host.worker.status("new").state is State.RUNNING, message="it runs")
    assert offsets_of(host, "old") == set()


def test_a_stopped_connector_takes_over_offsets_too(host: Host) -> None:
    save(host, "old")
    host.store.set_target("old", "stopped")
    host.define("new", renamed_from=["old"])
    host.reload()
    assert host.worker.status("new").state is State.STOPPED
    assert offsets_of(host, "new") == {KEY}


def test_a_changed_secret_is_a_change_and_its_value_is_nowhere(host: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = tmp_path / "password"
    secret.write_text("canary-one")
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "u", "password": f"${{file:{secret}}}"}
    host.define("a", kafka={"security": security})
    host.reload()
    secret.write_text("canary-two")
    outcome = host.reload()
    assert outcome.lines() == ["~ a (kafka.security.password)"]
    assert "canary" not in repr(outcome) + "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)


def test_the_log_tells_changes_once_and_nothing_when_nothing_changed(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "copycat_agent.reload")
    bad = host.directory / "bad.yaml"
    bad.write_text("name: bad\n")
    host.define("a")
    host.reload()

    def told() -> list[str]:
        found = [record.fields["diff"] for record in caplog.records if record.getMessage() == "reload"]  # type: ignore[attr-defined]
        caplog.clear()
        return found

    first = told()
    assert first[0] == "+ a"
    assert first[1].startswith("! bad: ")
    host.reload()
    assert told() == []
    bad.unlink()
    host.reload()
    assert told() == []


def test_a_warning_that_a_change_brings_is_told_once(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    first = host.define("a")
    host.reload()
    (host.directory / "b.yaml").write_text(first.read_text().replace("name: a", "name: b"))
    host.reload()
    host.reload()
    said = [record for record in caplog.records if "may not do what is meant" in record.getMessage()]
    assert [record.fields["file"] for record in said] == [str(host.directory / "b.yaml")]  # type: ignore[attr-defined]


def test_differences_are_named_by_their_dotted_options() -> None:
    one, other = AgentOptions(), AgentOptions(kafka=KafkaOptions(client={"a.b": "1"}), state_dir="/x")
    assert differences(one, one) == ()
    assert differences(one, other) == ("kafka.client.a.b", "state_dir")


def test_options_of_another_kind_are_named_as_a_whole() -> None:
    assert differences(KafkaOptions(), AgentOptions(), "source.") == ("source",)


def following(host: Host, watcher: Watcher, scan_seconds: float) -> DefinitionWatcher:
    host.reload()
    assert host.reloader is not None
    follower = DefinitionWatcher(host.files, watcher, host.reloader.reload, scan_seconds)
    follower.start()
    return follower


def test_a_change_is_seen_by_its_event(host: Host, watcher: Watcher) -> None:
    host.define("a")
    follower = following(host, watcher, 3600.0)
    wait_until(lambda: watcher.watches(str(host.directory)), message="it watches")
    host.define("b")
    wait_until(lambda: host.names == ["a", "b"], message="the new one")
    (host.directory / "b.yaml").unlink()
    wait_until(lambda: host.names == ["a"], message="it is gone")
    follower.close()


def test_a_change_without_an_event_is_seen_by_a_scan_behind_links_and_references_too(host: Host, watcher: Watcher) -> None:
    elsewhere = host.root / "elsewhere"
    versions = [elsewhere / version for version in ("v1", "v2")]
    for number, version in enumerate(versions):
        version.mkdir(parents=True)
        host.define("a", record={"topic": f"t{number}"}).rename(version / "a.yaml")
    current = elsewhere / "current"
    current.symlink_to("v1")
    (host.directory / "a.yaml").symlink_to(current / "a.yaml")
    follower = following(host, watcher, 0.1)
    new = elsewhere / "new"
    new.symlink_to("v2")
    new.rename(current)  # as a ConfigMap is swapped
    wait_until(lambda: host.worker.definition("a").record.topic == "t1", message="the other version")
    follower.close()


def test_a_reload_that_goes_wrong_does_not_end_the_following(host: Host, watcher: Watcher) -> None:
    host.define("a")
    host.reload()
    calls: list[int] = []

    def stumble() -> None:
        calls.append(1)
        raise KeyError

    follower = DefinitionWatcher(host.files, watcher, stumble, 3600.0)
    follower.start()
    for number in (1, 2):
        follower.ask()
        wait_until(lambda: len(calls) == number and not follower.reloading, message="it is over, and not well")  # noqa: B023 - called at once
    follower.close()


def test_a_change_whose_reload_failed_is_tried_again(host: Host, watcher: Watcher) -> None:
    path = host.define("a")
    host.reload()
    calls: list[int] = []

    def fail_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            host.files.load()  # what is there has been seen
            raise OSError
        host.reload()

    follower = DefinitionWatcher(host.files, watcher, fail_once, 0.1)
    follower.start()
    path.write_text(path.read_text().replace("topic: t", "topic: other"))
    wait_until(lambda: host.worker.definition("a").record.topic == "other", message="the second time")
    follower.close()


def test_a_pipe_among_the_definitions_holds_nobody_up(host: Host) -> None:
    os.mkfifo(host.directory / "pipe.yaml")
    host.define("a")
    assert host.reload().added == ("a",)


def test_only_files_that_have_changed_are_loaded_again(host: Host) -> None:
    host.define("a")
    changed = host.define("b")
    first = host.files.load().definitions
    changed.write_text(changed.read_text() + "enabled: false\n")
    second = host.files.load().definitions
    assert second["a"] is first["a"]
    assert not second["b"].enabled
    host.files.overrides["kafka.bootstrap_servers"] = ("127.0.0.1:2",)
    third = host.files.load().definitions
    assert third["a"].kafka.bootstrap_servers == ("127.0.0.1:2",)


def test_a_file_that_names_another_one_is_loaded_again(host: Host) -> None:
    secret = host.root / "password"
    login = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "u", "password": f"${{file:{secret}}}"}
    host.define("a", kafka={"security": login})
    for word in ("one", "two"):
        secret.write_text(word)
        password = host.files.load().definitions["a"].kafka.security.password
        assert password is not None
        assert password.get_secret_value() == word


def test_a_file_that_was_bad_and_is_put_back_is_good_again(host: Host) -> None:
    path = host.define("a")
    good = path.read_text()
    first = host.files.load()
    path.write_text("nonsense: 1\n")
    assert host.files.load().problems
    path.write_text(good)
    again = host.files.load()
    assert (again.problems, again.definitions) == ((), first.definitions)
