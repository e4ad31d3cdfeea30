"""Every address gives what the agent says, and turns what it refuses into words."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from copycat_agent import logs
from copycat_agent.api import HOST, AgentClient, MissingError, RefusedRequestError, address, handlers
from copycat_agent.api.handlers import sample
from copycat_agent.api.rate_history import RateHistory, means
from copycat_agent.api.server import ApiServer
from copycat_agent.errors import BusyError, CopycatError, FatalError, UnknownConnectorError
from copycat_agent.model import Fingerprint, Head, OffsetsPartition, Sample, SourceOffset, SourcePartition
from copycat_agent.offsets.lanes import SavedLanes
from copycat_agent.sources import FileView
from tests.unit.api.conftest import DEFINITION, Answer
from tests.unit.api.doubles import CANARY, LoudError, MemoryControl

OFFSET = SourceOffset(41, 3, path="/var/log/\udcff.log", size=50, fingerprint=Fingerprint(10, "ab", 4, "cd"))
UUID = "9696774b-02a7-4c03-8d39-3b06caae5cc1"
PARTITION = SourcePartition("app", "8-1:2:3:0")


def test_the_agent_and_its_connectors_are_told_with_everything_that_is_known(client: AgentClient, control: MemoryControl) -> None:
    assert client.get("/v1")["pid"] == 7
    (app,) = client.get("/v1/connectors")["connectors"]
    assert (app["name"], app["state"], app["counts"]["acknowledged"], app["lag"]["bytes"]) == ("app", "running", 7, 50)
    assert app["path"] == str(control.paths["app"])
    assert app["losses"] == {"destroyed": {"size_bytes": 10, "records": 0, "entries": 1}}
    assert app["clients"][0]["brokers"] == [{"name": "k1:9092/1", "state": "UP", "rtt_ms": 1.25}]
    assert client.get("/v1/connectors/app") == app


def test_a_store_that_cannot_be_read_hides_no_connector(
    client: AgentClient, control: MemoryControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise FatalError("offsets.db was removed or replaced while the agent runs")

    monkeypatch.setattr(control, "loss_totals", broken)
    (app,) = client.get("/v1/connectors")["connectors"]
    assert (app["state"], app["losses"]) == ("running", {})
    assert client.get("/v1/connectors/app") == app
    assert client.post("/v1/connectors/app/pause")["state"] == "paused"


def test_files_are_told_up_to_a_limit_and_how_many_there_are(client: AgentClient) -> None:
    answer = client.get("/v1/connectors/app/files?limit=2")
    assert [one["path"] for one in answer["files"]] == ["/var/log/0.log", "/var/log/1.log"]
    assert answer["total"] == 3


def test_files_in_trouble_are_told_before_others(client: AgentClient, control: MemoryControl, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = FileView("/z.log", "", 0, 0, 0, "failing", is_open=False, why="Permission denied")
    followed = (*control.files("app"), bad)
    monkeypatch.setattr(control, "files", lambda _: followed)
    assert [one["path"] for one in client.get("/v1/connectors/app/files?limit=2")["files"]] == ["/z.log", "/var/log/0.log"]


def test_rates_of_the_last_15_minutes_are_told_in_as_many_points_as_one_asks_for(
    client: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.get("/v1/rates") == {"seconds": 900.0, "rates": {}}
    rates = {"app": [1.0] * 12 + [3.0] * 12, "new": [0.25]}
    monkeypatch.setattr(RateHistory, "lines", lambda _history, points: {name: means(known, points) for name, known in rates.items()})
    assert client.get("/v1/rates?points=15")["rates"] == {"app": [1.0, 3.0], "new": [0.25]}
    assert client.get("/v1/rates?connector=new&points=60")["rates"] == {"new": [0.25]}
    assert len(client.get("/v1/rates")["rates"]["app"]) == 24
    for points in ("-1", "181", "x"):
        with pytest.raises(RefusedRequestError):
            client.get(f"/v1/rates?points={points}")


def test_losses_are_told_of_one_connector_or_all(client: AgentClient) -> None:
    assert client.get("/v1/losses")["losses"][0]["reason"] == "destroyed"
    assert client.get("/v1/losses?connector=app")["totals"] == [
        {"connector": "app", "reason": "destroyed", "size_bytes": 10, "records": 0, "entries": 1}
    ]
    assert client.get("/v1/losses?connector=other") == {"losses": [], "totals": []}


@pytest.mark.parametrize(("verb", "state"), [("pause", "paused"), ("stop", "stopped"), ("resume", "running"), ("restart", "running")])
def test_a_change_answers_with_the_state_it_led_to(client: AgentClient, verb: str, state: str) -> None:
    assert client.post(f"/v1/connectors/app/{verb}")["state"] == state
    assert client.get("/v1/connectors/app")["state"] == state


def test_a_reload_answers_with_its_diff(client: AgentClient) -> None:
    done = client.post("/v1/reload")
    assert done["lines"] == ["+ new", "~ app (record.topic)", "! bad: a tab"]
    assert not done["clean"]


def test_the_level_of_the_log_is_changed_for_a_while_or_until_the_end(client: AgentClient, control: MemoryControl) -> None:
    assert client.get("/v1")["log_level"] == "info"
    assert client.post("/v1/log", {"level": "debug"}) == {"level": "debug", "until": None}
    done = client.post("/v1/log", {"level": "error", "seconds": 600})
    assert (done["level"], done["until"] > 0, control.log) == ("error", True, ("error", 600))


@pytest.mark.parametrize(
    "body",
    [{}, {"level": "loud"}, {"level": ["debug"]}, {"level": "debug", "seconds": 0}, {"level": "debug", "seconds": "10m"},
     {"level": "debug", "seconds": True}, {"level": "debug", "seconds": 1e9}, {"level": "debug", "for": 5}],
)  # fmt: skip
def test_a_level_that_makes_no_sense_is_refused(client: AgentClient, control: MemoryControl, body: dict[str, object]) -> None:
    with pytest.raises(RefusedRequestError, match=r"level is none of|seconds is no number|unknown field"):
        client.post("/v1/log", body)
    assert control.log == ("info", None)


def test_the_latest_lines_of_the_log_can_be_asked_for(client: AgentClient) -> None:
    logs.setup("info", "text", io.StringIO())
    logs.get("worker").info("something happened", connector="app")
    assert [line.rpartition("worker: ")[2] for line in client.get("/v1/log")["lines"]] == ["something happened connector=app"]
    logs.setup()


def test_offsets_go_out_and_come_back_unchanged(client: AgentClient, control: MemoryControl) -> None:
    client.post("/v1/connectors/app/stop")
    control.saved[PARTITION] = OFFSET
    shown = client.get("/v1/offsets/app")
    assert client.get("/v1/offsets") == {"connectors": ["app"]}
    control.saved.clear()
    assert client.put("/v1/offsets/app", {"offsets": shown["offsets"]}) == {"connector": "app", "set": 1, "deleted": 0}
    assert control.saved == {PARTITION: OFFSET}


def test_a_null_deletes_one_offset_and_leaves_the_others(client: AgentClient, control: MemoryControl) -> None:
    client.post("/v1/connectors/app/stop")
    control.saved = {PARTITION: OFFSET, SourcePartition("app", "other"): OFFSET}
    client.put("/v1/offsets/app", {"offsets": [{"key": PARTITION.key, "offset": None}]})
    assert list(control.saved) == [SourcePartition("app", "other")]


def test_offsets_are_deleted_by_key_or_all_and_again_without_complaint(client: AgentClient, control: MemoryControl) -> None:
    client.post("/v1/connectors/app/stop")
    control.saved = {SourcePartition("app", key): OFFSET for key in "abc"}
    assert client.delete("/v1/offsets/app", {"keys": ["a"]})["deleted"] == 1
    assert client.delete("/v1/offsets/app")["deleted"] == 2
    assert client.delete("/v1/offsets/app")["deleted"] == 0


def test_offsets_move_to_another_name(client: AgentClient, control: MemoryControl) -> None:
    control.saved = {SourcePartition("old", "k"): OFFSET}
    assert client.post("/v1/offsets/old/rename", {"to": "new"})["renamed"] == 1
    assert control.saved == {SourcePartition("new", "k"): OFFSET}
    with pytest.raises(RefusedRequestError, match="to is no name"):
        client.post("/v1/offsets/old/rename", {"to": "../x"})


def test_lanes_are_shown_and_which_positions_count_is_decided(client: AgentClient, control: MemoryControl) -> None:
    assert client.get("/v1/offsets/app")["lanes"] is None
    control.lanes["app"] = SavedLanes("c1", OffsetsPartition("__copycat_offsets", 7), {0: Head(12, "ab", 345)}, copied=True)
    shown = client.get("/v1/offsets/app")["lanes"]
    assert (shown["cluster"], shown["partition"], shown["copied"]) == ("c1", 7, True)
    assert shown["heads"] == [{"lane": 0, "step": 12, "start": "ab", "offset": 345}]
    with pytest.raises(BusyError, match="app is running"):
        client.post("/v1/offsets/app/adopt", {"from": "local"})
    assert client.post("/v1/offsets/app/adopt", {"from": "local", "force": True}) == {"connector": "app", "identity": "new"}
    client.post("/v1/offsets/other/adopt", {"from": "topic", "agent": UUID})
    assert control.adopted == [("app", "local", ""), ("other", "topic", UUID)]


@pytest.mark.parametrize(
    "body", [{}, {"from": "there"}, {"from": "local", "agent": UUID}, {"from": "topic", "agent": "me"}, {"from": "topic", "agent": 5}]
)
def test_a_decision_that_makes_no_sense_is_refused(client: AgentClient, control: MemoryControl, body: dict[str, object]) -> None:
    with pytest.raises(RefusedRequestError, match="from is local or topic"):
        client.post("/v1/offsets/other/adopt", body)
    assert control.adopted == []


def test_offsets_of_a_connector_that_runs_are_refused_with_the_way_out_unless_forced(client: AgentClient, control: MemoryControl) -> None:
    with pytest.raises(BusyError, match="copycat ctl stop app"):
        client.put("/v1/offsets/app", {"offsets": [{"key": "k", "offset": {"position": 0}}]})
    assert not control.saved
    client.put("/v1/offsets/app", {"offsets": [{"key": "k", "offset": {"position": 0}}], "force": True})
    assert control.saved == {SourcePartition("app", "k"): SourceOffset(0)}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "offsets need to be provided"),
        ({"offsets": []}, "offsets need to be provided"),
        ({"offsets": [{"key": "k"}]}, "not of the form"),
        ({"offsets": [{"key": "", "offset": None}]}, "key of an offset has to be"),
        ({"offsets": [{"key": "k", "offset": {}}]}, "has no position"),
        ({"offsets": [{"key": "k", "offset": {"position": -1}}]}, "position of k has to be a whole number"),
        ({"offsets": [{"key": "k", "offset": {"position": "7"}}]}, "position of k has to be a whole number"),
        ({"offsets": [{"key": "k", "offset": {"position": True}}]}, "position of k has to be a whole number"),
        ({"offsets": [{"key": "k", "offset": {"position": 2**63}}]}, "position of k has to be a whole number"),
        ({"offsets": [{"key": "k", "offset": {"position": 1, "path": 5}}]}, "path of k has to be text"),
        ({"offsets": [{"key": "k", "offset": {"position": 1, "done": 1}}]}, "done of k has to be true or false"),
        ({"offsets": [{"key": "k", "offset": {"position": 1, "oops": 1}}]}, "unknown field 'oops'"),
        ({"offsets": [{"key": "k", "offset": {"position": 1, "fingerprint": {"head": 1}}}]}, "head of k has to be text"),
        ({"offsets": [{"key": "k", "offset": None}, {"key": "k", "offset": None}]}, "comes twice"),
        ({"offsets": 5}, "offsets need to be provided"),
        ({"force": "yes"}, "force is neither"),
        ({"ofsets": []}, "unknown field 'ofsets'"),
    ],
)
def test_offsets_that_make_no_sense_are_refused_and_nothing_is_saved(
    client: AgentClient, control: MemoryControl, body: dict[str, object], words: str
) -> None:
    client.post("/v1/connectors/app/stop")
    with pytest.raises(RefusedRequestError, match=words):
        client.put("/v1/offsets/app", body)
    assert not control.saved


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/connectors/nope"), ("GET", "/v1/connectors/nope/files"), ("GET", "/v1/connectors/nope/definition"),
        ("GET", "/v1/connectors/nope/tap"), ("POST", "/v1/connectors/nope/pause"), ("POST", "/v1/connectors/nope/restart"),
    ],
)  # fmt: skip
def test_a_connector_that_is_not_there_is_named_and_the_way_to_find_it(send: Callable[..., Answer], method: str, path: str) -> None:
    answer = send(method, path)
    assert answer.status == 404
    assert answer.json == {"error": "there is no connector nope", "hint": "see: copycat ls", "kind": "unknown_connector"}


def test_a_tap_ends_at_its_limit_with_what_was_sent_byte_for_byte(client: AgentClient) -> None:
    first, second = client.stream("/v1/connectors/app/tap?limit=2")
    assert (first["key"], first["value"], first["topic"], first["start"]) == ("10.0.0.1", "größe", "logs.app", 0)
    assert first["headers"] == [{"name": "host", "value": "h1"}, {"name": "odd", "value_base64": "/w=="}]
    assert (second["key"], second["value_base64"], second["path"]) == (None, "/gA=", "/var/log/\udcff.log")
    assert len(list(client.stream("/v1/connectors/app/tap?limit=1"))) == 1


def test_a_tap_that_breaks_off_says_why(client: AgentClient, control: MemoryControl) -> None:
    control.fail = FatalError("the agent stops", "start it again")
    found = client.stream("/v1/connectors/app/tap")
    next(found), next(found)
    with pytest.raises(CopycatError, match="the agent stops; start it again"):
        next(found)


def test_a_value_that_was_cut_inside_a_character_is_still_text() -> None:
    text = ("x" * 4095 + "ö").encode()[:4096]
    assert sample(Sample("t", None, text, (), None, "/p", 0, 1))["value"] == "x" * 4095


@pytest.mark.parametrize(
    "path", ["/v1/connectors/app/tap?limit=x", "/v1/connectors/app/tap?seconds=-1", "/v1/losses?limit=nan", "/v1/losses?limit=1e99"]
)
def test_numbers_that_make_no_sense_are_refused(client: AgentClient, path: str) -> None:
    with pytest.raises(RefusedRequestError, match="is no number from 0"):
        client.get(path)


def test_errors_of_the_agent_keep_their_words_and_faults_keep_them_to_themselves(
    client: AgentClient, control: MemoryControl, send: Callable[..., Answer]
) -> None:
    control.fail = LoudError("the store is full", "free some space")
    with pytest.raises(CopycatError, match="the store is full; free some space"):
        client.get("/v1")
    control.fail = KeyError(CANARY)
    answer = send("GET", "/v1")
    assert answer.status == 500
    assert answer.json["error"] == "the agent failed on this request: KeyError"
    assert b"Traceback" not in answer.body
    assert CANARY.encode() not in answer.body


def test_a_secret_is_in_no_answer(tmp_path: Path, socket_path: Path) -> None:
    directory = tmp_path / "connectors.d"
    directory.mkdir()
    (tmp_path / "password").write_text(CANARY)
    kafka = "kafka:\n  security: {protocol: SASL_SSL, mechanism: PLAIN, username: '${cred:password}', password: '${cred:password}'}\n"
    (directory / "app.yaml").write_text(DEFINITION + kafka + "  client: {client.rack: '${cred:password}'}\n")
    control = MemoryControl(directory, environ={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    server = ApiServer(control, socket_path)
    server.start()
    try:
        client = AgentClient(socket_path)
        shown = [client.get(path) for path in ("/v1", "/v1/connectors", "/v1/connectors/app", "/v1/connectors/app/definition")]
        assert "********" in json.dumps(shown)
        assert CANARY not in json.dumps([*shown, client.get("/v1/connectors/app/files"), client.post("/v1/reload")])
    finally:
        server.close()


def test_addresses_of_names_that_no_connector_has_are_not_made() -> None:
    assert address("connectors", "app", "/files") == "/v1/connectors/app/files"
    for name in ("", "../x", "a b", "A", "x\n", "-a", "a" * 64, "\udcff"):
        with pytest.raises(UnknownConnectorError, match="no connector can have the name"):
            address("connectors", name)


def test_an_address_that_is_not_there_says_so(client: AgentClient) -> None:
    with pytest.raises(MissingError, match="nothing at this address"):
        client.get("/v2")


def test_the_client_says_a_host_that_the_server_takes() -> None:
    assert HOST == "copycat"


def test_paths_are_told_so_that_they_hold_in_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent was perhaps started with `connectors.d`, and who asks is elsewhere."""
    monkeypatch.chdir(tmp_path)
    assert (handlers.absolute("connectors.d"), handlers.absolute("")) == (str(tmp_path / "connectors.d"), "")
