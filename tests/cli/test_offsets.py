"""`copycat offsets` and `copycat losses`: what they promise on the file, and through a running agent."""

from __future__ import annotations

import fcntl
import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.model import Loss, SavedRow, SourceOffset, SourcePartition, offsets_in
from copycat_agent.offsets import OffsetStore
from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.spool_dir.rows import part_key
from tests.cli.conftest import Said
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until
from tests.unit.sources.rig import agent_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

LINES = b"one\ntwo\nthree\n"
ODD = os.fsdecode(b"caf\xe9.log")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two files, one of them with a name that is not UTF-8, of which connector `app` has read a line each."""
    directory = tmp_path / "logs"
    directory.mkdir()
    for name in ("a.log", ODD):
        (directory / name).write_bytes(LINES)
    with OffsetStore.open(tmp_path / "state") as store:
        for pattern in ("a*", "c*"):
            agent = agent_for(directory, pattern)
            agent.scan()
            agent.work(lambda: "stop")
            store.reset(agent.saved)
    return directory


def saved(tmp_path: Path) -> Mapping[SourcePartition, SavedRow]:
    with OffsetStore.open(tmp_path / "state") as store:
        return store.saved("app")


def of(tmp_path: Path, path: Path) -> SourceOffset:
    (offset,) = [offset for offset in offsets_in(saved(tmp_path)).values() if offset.path == str(path)]
    return offset


def read_on(tmp_path: Path, logs: Path) -> list[bytes]:
    """What an agent reads that starts now."""
    agent = agent_for(logs)
    agent.saved = {**agent.saved, **saved(tmp_path)}
    agent.restart()
    agent.drain()
    assert agent.losses == []
    return agent.lines


def test_what_is_saved_is_listed_and_shown(offsets: Callable[..., Said], logs: Path) -> None:
    assert offsets("list").out.splitlines()[1].split() == ["app", "2", "0", "8", "at_least_once"]
    shown = offsets("show", "app")
    assert [line.split()[:3] for line in shown.out.splitlines()[1:]] == [["4", "14", "1"]] * 2
    assert f"{logs}/caf\\xe9.log" in shown.out
    assert json.loads(offsets("list", "--format", "json").out) == [
        {"name": "app", "files": 2, "gone": 0, "bytes": 8, "guarantee": "at_least_once", "lanes": []}
    ]


@pytest.mark.parametrize("command", ["list", "show", "export"])
def test_an_unknown_connector_is_1_with_the_known_names(offsets: Callable[..., Said], logs: Path, command: str) -> None:
    said = offsets(command, "ap")
    assert (said.code, said.out) == (1, "")
    assert "there are some for: app" in said.err


def test_no_state_directory_is_1_and_none_is_made(offsets: Callable[..., Said], tmp_path: Path) -> None:
    said = offsets("list", state=tmp_path / "typo")
    assert said.code == 1
    assert "--state-dir" in said.err
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("by", ["path", "key"])
def test_a_file_is_read_on_from_where_it_was_set(offsets: Callable[..., Said], logs: Path, tmp_path: Path, by: str) -> None:
    key = next(one.key for one, offset in offsets_in(saved(tmp_path)).items() if offset.path == str(logs / "a.log"))
    which = ("--path", logs / "a.log") if by == "path" else ("--key", key)
    said = offsets("set", "app", *which, "--position", "8")
    assert said.code == 0
    assert [line[:1] for line in said.out.splitlines()] == ["-", "+"]
    assert "position 4" in said.out.splitlines()[0]
    assert "position 8" in said.out.splitlines()[1]
    assert of(tmp_path, logs / "a.log").records == 2
    assert sorted(read_on(tmp_path, logs)) == [b"three", b"three", b"two"]


@pytest.mark.parametrize(("position", "expected"), [("beginning", 0), ("0", 0), ("end", 14), ("14", 14)])
def test_positions_by_word_and_number(offsets: Callable[..., Said], logs: Path, tmp_path: Path, position: str, expected: int) -> None:
    assert offsets("set", "app", "--path", logs / "a.log", "--position", position).code == 0
    assert of(tmp_path, logs / "a.log").position == expected
    assert len(read_on(tmp_path, logs)) == 2 + LINES[expected:].count(b"\n")


def test_the_end_is_behind_the_last_whole_line(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    with (logs / "a.log").open("ab") as file:
        file.write(b"unfinished")
    offsets("set", "app", "--path", logs / "a.log", "--position", "end")
    assert of(tmp_path, logs / "a.log").position == len(LINES)


@pytest.mark.parametrize("position", ["-1", "abc", "1.5", "", "٣", str(2**63), "0x4", " 4"])
def test_what_is_no_position_is_refused(offsets: Callable[..., Said], logs: Path, tmp_path: Path, position: str) -> None:
    before = saved(tmp_path)
    said = offsets("set", "app", "--path", logs / "a.log", f"--position={position}", "--force")
    assert said.code == 1
    assert "a whole number from 0, or beginning, or end" in said.err
    assert saved(tmp_path) == before


@pytest.mark.parametrize(("position", "words"), [("5", "middle of a line (it begins at 4)"), ("15", "the file is 14 bytes long")])
def test_what_looks_wrong_needs_force_and_says_what_will_happen(
    offsets: Callable[..., Said], logs: Path, tmp_path: Path, position: str, words: str
) -> None:
    said = offsets("set", "app", "--path", logs / "a.log", "--position", position)
    assert said.code == 1
    assert words in said.err
    assert of(tmp_path, logs / "a.log").position == 4
    said = offsets("set", "app", "--path", logs / "a.log", "--position", position, "--force")
    assert said.code == 0
    assert words in said.err
    assert of(tmp_path, logs / "a.log").position == int(position)
    expected = [b"wo", b"three"] if position == "5" else [b"one", b"two", b"three"]
    assert sorted(read_on(tmp_path, logs)) == sorted([*expected, b"two", b"three"])


def test_a_file_that_was_never_seen_can_be_set(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    (logs / "new.log").write_bytes(LINES)
    assert offsets("set", "app", "--path", logs / "new.log", "--position", "8").code == 0
    assert read_on(tmp_path, logs).count(b"three") == 3
    assert read_on(tmp_path, logs).count(b"one") == 0


def test_a_file_that_is_not_there_needs_force(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    (logs / "a.log").unlink()
    said = offsets("set", "app", "--path", logs / "a.log", "--position", "8")
    assert said.code == 1
    assert "without a proof" in said.err
    assert offsets("set", "app", "--path", logs / "a.log", "--position", "8", "--force").code == 0
    assert of(tmp_path, logs / "a.log").position == 8
    said = offsets("set", "app", "--path", logs / "never.log", "--position", "8", "--force")
    assert said.code == 1
    assert "there is no file" in said.err


def test_a_renamed_file_is_found_by_its_key(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    key = next(one.key for one, offset in offsets_in(saved(tmp_path)).items() if offset.path == str(logs / "a.log"))
    (logs / "a.log").rename(logs / "a.log.1")
    assert offsets("set", "app", "--key", key, "--position", "end").code == 0
    assert offsets_in(saved(tmp_path))[SourcePartition("app", key)].fingerprint.tail_bytes == 14


@pytest.fixture
def partition(tmp_path: Path) -> SourcePartition:
    """One of a topic, of which connector `app` has read some."""
    cursor = '{"offset":20,"record_bytes":98,"topic_id":"x"}'
    with OffsetStore.open(tmp_path / "state") as store:
        store.reset({SourcePartition("app", "orders/3"): SourceOffset(20, cursor=cursor, path="orders/3")})
    return SourcePartition("app", "orders/3")


@pytest.mark.parametrize("position", ["1200", '{"offset": 1200}'])
@pytest.mark.parametrize("which", ["--key", "--path"])
def test_a_partition_of_a_topic_goes_on_at_an_offset(
    offsets: Callable[..., Said], partition: SourcePartition, tmp_path: Path, position: str, which: str
) -> None:
    assert offsets("set", "app", which, "orders/3", "--position", position).code == 0
    assert offsets_in(saved(tmp_path))[partition].cursor == '{"offset":1200}'


def test_a_partition_that_was_set_back_goes_on_behind_there(
    offsets: Callable[..., Said], partition: SourcePartition, tmp_path: Path
) -> None:
    exported = json.loads("".join(offsets("export", "app").out))
    exported["offsets"][0]["offset"]["cursor"] = '{"offset":3}'
    (tmp_path / "offsets.json").write_text(json.dumps(exported))
    ways = [("set", "app", "--key", "orders/3", "--position", "5"), ("import", "app", tmp_path / "offsets.json")]
    for way in ways:
        assert offsets(*way).code == 0
        with OffsetStore.open(tmp_path / "state") as store:
            store.commit({partition: SourceOffset(12, cursor='{"offset":12}', path="orders/3")})
        assert offsets_in(saved(tmp_path))[partition].position == 12


@pytest.mark.parametrize("position", ["-1", "1.5", "true", "null", '"5"', "[5]", "{}", '{"offset": "5"}', '{"ofset": 5}', "end"])
def test_a_position_that_its_source_cannot_have_is_refused_with_the_one_it_has(
    offsets: Callable[..., Said], partition: SourcePartition, tmp_path: Path, position: str
) -> None:
    before = saved(tmp_path)
    said = offsets("set", "app", "--key", "orders/3", f"--position={position}")
    assert (said.code, saved(tmp_path)) == (1, before)
    assert "orders/3 of app" in said.err
    assert '{"offset":20,' in said.err


def test_a_position_of_another_form_is_saved_where_a_person_insists(
    offsets: Callable[..., Said], partition: SourcePartition, tmp_path: Path
) -> None:
    assert offsets("set", "app", "--key", "orders/3", "--position", '{"id": 5}', "--force").code == 0
    assert offsets_in(saved(tmp_path))[partition].cursor == '{"id":5}'


def test_offsets_of_a_files_sink_are_changed_with_the_word_that_its_files_decide(
    offsets: Callable[..., Said], partition: SourcePartition, tmp_path: Path
) -> None:
    note = "note: app goes on where its files end"
    written = SourceOffset(20, cursor='{"offset":20,"into":"file:///lake/#app"}', path="orders/3")
    (tmp_path / "offsets.json").write_text(offsets("export", "app").out)
    ways = [("set", "app", "--key", "orders/3", "--position", "5"), ("import", "app", tmp_path / "offsets.json"), ("reset", "app", "--yes")]
    for way in ways:
        with OffsetStore.open(tmp_path / "state") as store:
            store.reset({partition: written})
        said = offsets(*way)
        assert (said.code, note in said.err) == (0, True), said
    assert note not in offsets(*ways[1]).err, "there was nothing of files"
    assert note not in offsets(*ways[0]).err, "these went into topics"


def test_which_file_has_to_be_said_once(offsets: Callable[..., Said], logs: Path) -> None:
    assert offsets("set", "app", "--position", "0").code == 2
    assert offsets("set", "app", "--position", "0", "--path", logs / "a.log", "--key", "1:2:3:0").code == 2
    assert offsets("set", "app", "--position", "0", "--key", "1:2:3:0").code == 1


def test_reset_of_one_file_and_of_all_and_of_nothing(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    said = offsets("reset", "app", "--path", logs / "a.log")
    assert (said.code, said.out[0]) == (0, "-")
    assert {offset.path for offset in offsets_in(saved(tmp_path)).values()} == {str(logs / ODD)}
    assert offsets("reset", "app").code == 0
    assert saved(tmp_path) == {}
    for name in ("app", "unknown"):
        said = offsets("reset", name)
        assert (said.code, said.out) == (0, "")
    assert len(read_on(tmp_path, logs)) == 6


class Terminal(io.StringIO):
    """Stdin with a person at it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "yes", "left"), [("n\n", False, 3), ("", False, 3), ("y\n", False, 0), ("", True, 0)])
def test_reset_asks_a_person(
    offsets: Callable[..., Said], logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, yes: bool, left: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    said = offsets("reset", "app", *(["--yes"] if yes else []))
    assert said.code == (1 if left else 0)
    assert len(saved(tmp_path)) == left
    assert ("a.log" in said.err) is not yes


def test_export_and_import_round_trip_byte_for_byte(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    before, target = saved(tmp_path), tmp_path / "saved.json"
    first = offsets("export", "app").out
    first.encode("ascii")
    assert offsets("export", "app", "--output", target).code == 0
    offsets("reset", "app")
    target.write_text(json.dumps(json.loads(target.read_text()), ensure_ascii=False))  # as another tool may write it
    said = offsets("import", "app", target)
    assert (said.code, len(said.out.splitlines())) == (0, 3)
    assert saved(tmp_path) == before
    assert offsets("export", "app").out == first
    assert offsets("import", "app", target).out == "", "nothing has changed"


def test_an_offset_of_null_deletes_and_others_stay(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    key = next(one.key for one, offset in offsets_in(saved(tmp_path)).items() if offset.path == str(logs / "a.log"))
    (tmp_path / "x.json").write_text(json.dumps({"offsets": [{"key": key, "offset": None}]}))
    before = saved(tmp_path)
    assert offsets("import", "app", tmp_path / "x.json").code == 0
    assert saved(tmp_path) == {one: offset for one, offset in before.items() if one.key != key}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "partitions/offsets need to be provided"),
        ('{"offsets": []}', "partitions/offsets need to be provided"),
        ("[]", "partitions/offsets need to be provided"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": {}}]}', "has no position"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": {"position": -1}}]}', "a whole number from 0, not -1"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": {"position": "1"}}]}', "a whole number from 0, not '1'"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": {"position": true}}]}', "a whole number from 0, not True"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": {"position": 9223372036854775808}}]}', "a whole number from 0"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": {"position": 1, "pos": 1}}]}', "unknown field 'pos'"),
        ('{"offsets": [{"key": "../etc", "offset": {"position": 1}}]}', "no key of a file"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": null}, {"key": "1:2:3:0", "offset": null}]}', "comes twice"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": {"position": 1, "fingerprint": {"head_bytes": 2, "head": "x"}}}]}', "does not fit"),
        ('{"offsets": [{"key": "1:2:3:0", "offset": {"position": 1, "path": "\\ud800"}}]}', "is not UTF-8"),
    ],
)
def test_what_cannot_be_imported_is_refused_whole(offsets: Callable[..., Said], logs: Path, tmp_path: Path, text: str, words: str) -> None:
    before = saved(tmp_path)
    (tmp_path / "x.json").write_text(text)
    said = offsets("import", "app", tmp_path / "x.json")
    assert (said.code, said.out) == (1, "")
    assert words in said.err
    assert saved(tmp_path) == before


def test_rename_moves_everything_and_an_unknown_name_is_1(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    before = saved(tmp_path)
    assert offsets("rename", "app", "new").code == 0
    with OffsetStore.open(tmp_path / "state") as store:
        assert store.connectors() == ("new",)
        assert {one.key: offset for one, offset in store.saved("new").items()} == {one.key: offset for one, offset in before.items()}
    assert offsets("rename", "app", "new").code == 1
    assert offsets("rename", "new", "Bad name").code == 1


def test_ranges_of_a_cut_file_are_exported_and_imported_and_not_set_by_its_path(
    offsets: Callable[..., Said], logs: Path, tmp_path: Path
) -> None:
    path = logs / "cut"
    path.write_bytes(b"one\ntwo\n")
    with path.open("rb") as file:
        whole = identify(file.fileno(), path.stat()).key(0)
    parts = {SourcePartition("app", part_key(whole, at, at + 4)): SourceOffset(at, path=str(path)) for at in (0, 4)}
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit(parts)
    before, target = saved(tmp_path), tmp_path / "saved.json"
    offsets("export", "app", "--output", target)
    offsets("reset", "app")
    assert offsets("import", "app", target).code == 0
    assert saved(tmp_path) == before
    said = offsets("set", "app", "--path", path, "--position", "4")
    assert (said.code, "2 ranges" in said.err) == (1, True)


def test_while_another_process_holds_the_store_nothing_is_changed(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "state"):
        said = offsets("reset", "app")
    assert said.code == 1
    assert f"pid {os.getpid()}" in said.err
    assert "--socket" in said.err
    assert len(saved(tmp_path)) == 3


def test_a_damaged_store_is_said_and_left_where_it_is(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    (tmp_path / "state" / "offsets.db").write_bytes(b"junk" * 999)
    said = offsets("list")
    assert said.code == 1
    assert "damaged" in said.err
    assert (tmp_path / "state" / "offsets.db").read_bytes() == b"junk" * 999


def test_losses_are_shown_with_totals_and_nothing_a_terminal_acts_upon(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    one = Loss(SourcePartition("app", "1:2:3:0"), "/logs/\x1b[31m\n\udce9", 10, 25, 15, 0, "destroyed", "cut\r\x9b", 1_790_000_000_000)
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit({}, losses=[one, one._replace(reason="rejected", records=2), one._replace(partition=SourcePartition("b", "1:2:3:0"))])
    said = offsets("losses", "app")
    assert said.code == 0
    assert said.out.isascii()
    assert not any(ord(character) < 32 for character in said.out.replace("\n", ""))
    lines = said.out.splitlines()
    assert lines[1].startswith("2026-09-21 14:13:20  app        15     2        rejected   10-25  /logs/\\x1b[31m\\n\\xe9  cut\\r\\x9b")
    assert [line.split() for line in lines[-2:]] == [["app", "destroyed", "15", "0", "1"], ["app", "rejected", "15", "2", "1"]]
    assert "1 of 3 entries are shown" in offsets("losses", "--limit", "1").err
    found = json.loads(offsets("losses", "b", "--format", "json").out)
    assert [entry["connector"] for entry in found["losses"]] == ["b"]
    assert found["totals"] == [{"connector": "b", "reason": "destroyed", "size_bytes": 15, "records": 0, "entries": 1}]
    nothing = offsets("losses", "never")
    assert (nothing.code, nothing.out) == (1, "")


def test_the_store_is_free_after_every_command(offsets: Callable[..., Said], logs: Path, tmp_path: Path) -> None:
    for arguments in (("list",), ("show", "nope"), ("set", "app", "--key", "x", "--position", "1")):
        offsets(*arguments)
        with (tmp_path / "state" / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.timeout(900)
def test_offsets_through_the_running_agent(
    agent: AgentProcess, broker: DevBroker, topic: str, offsets: Callable[..., Said], tmp_path: Path
) -> None:
    """Refused while the connector runs; altered, reset and imported while it is stopped; taken up by one of the same name."""
    logs = tmp_path / "app-logs"
    logs.mkdir()
    (logs / ODD).write_bytes(LINES)
    definition = {"source": {"type": "log_file", "include": [f"{logs}/*"]}, "record": {"topic": topic}}
    agent.define("app", definition)
    agent.start()

    def call(*arguments: str) -> Said:
        return offsets(*arguments, state=agent.state_dir)

    def values(count: int) -> list[bytes | None]:
        return [record.value for record in consume(broker.bootstrap, topic, until=count, deadline=180)]

    assert values(3) == [b"one", b"two", b"three"]
    wait_until(lambda: '"position": 14' in call("show", "app", "--format", "json").out)
    path = f"{logs}/{ODD}"
    for change in (("set", "app", "--path", path, "--position", "8"), ("reset", "app"), ("rename", "app", "new")):
        done = call(*change)
        assert done.code == 1
        assert "copycat ctl stop app" in done.err
    assert call("ctl", "stop", "app").code == 0
    exported = call("export", "app").out
    assert call("set", "app", "--path", path, "--position", "8").code == 0
    assert call("ctl", "resume", "app").code == 0
    assert values(4)[3:] == [b"three"]
    assert call("reset", "app", "--force").code == 0
    assert values(7)[4:] == [b"one", b"two", b"three"]
    assert call("ctl", "stop", "app").code == 0
    (tmp_path / "saved.json").write_text(exported)
    assert call("import", "app", str(tmp_path / "saved.json")).code == 0
    assert json.loads(call("export", "app").out) == json.loads(exported)
    assert call("reset", "app", "--path", path).code == 0
    assert call("import", "app", str(tmp_path / "saved.json")).code == 0
    agent.undefine("app")
    assert call("ctl", "reload").code == 0
    with (logs / ODD).open("ab") as file:
        file.write(b"four\n")
    agent.define("app", definition)
    assert call("ctl", "reload").code == 0
    call("ctl", "resume", "app")
    assert values(8)[7:] == [b"four"], "a connector of the same name goes on where the old one was"
    agent.stop()
    assert '"position": 19' in call("show", "app", "--format", "json").out, "the same without the agent"
