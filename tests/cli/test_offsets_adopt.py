"""`copycat offsets adopt`, and the other commands where offsets belong to lanes: what they promise on the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import CopiedError
from copycat_agent.model import OFFSETS_TOPIC, Head, OffsetsPartition, SourceOffset, SourcePartition
from copycat_agent.offsets import LaneCommit, OffsetStore
from copycat_agent.transactions.opening import LaneGroup, LaneSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.offsets.lanes import SavedLanes
    from tests.cli.conftest import Said

PLACE = OffsetsPartition(OFFSETS_TOPIC, 7)
ONE, TWO = SourcePartition("app", "fe00:1f:18b0:0"), SourcePartition("app", "fe00:20:18b0:0")
OTHER_AGENT = "9696774b-02a7-4c03-8d39-3b06caae5cc1"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A connector `app` with two files and a lane, and `plain` without any."""
    with OffsetStore.open(tmp_path / "state") as store:
        store.lanes_opened("app", "cluster-1", PLACE, LaneSnapshot("cluster-1", {0: Head(5, store.identity.nonce, 50)}, ()))
        offsets = {ONE: SourceOffset(10, path="/l/a", size=20), TWO: SourceOffset(4, path="/l/b", size=4)}
        store.commit(offsets, moved=LaneCommit("app", {0: Head(6, store.identity.nonce, 60)}, {ONE, TWO}))
        store.commit({SourcePartition("plain", "fe00:21:18b0:0"): SourceOffset(1, path="/l/c", size=1)})
    return tmp_path / "state"


def kept(state: Path, name: str = "app") -> SavedLanes:
    with OffsetStore.open(state) as store:
        return store.lanes(name)


def unpublished(state: Path, name: str = "app") -> dict[str, int | None]:
    with OffsetStore.open(state) as store:
        return {one.key: row.position if isinstance(row, SourceOffset) else None for one, row in store.unpublished(name, 9).items()}


def test_the_guarantee_is_listed_and_lanes_are_shown(offsets: Callable[..., Said], state: Path) -> None:
    assert [line.split()[-1] for line in offsets("list").out.splitlines()] == ["guarantee", "exactly_once", "at_least_once"]
    listed = {one["name"]: one for one in json.loads(offsets("list", "--format", "json").out)}
    assert (listed["app"]["lanes"][0]["step"], listed["plain"]["lanes"]) == (6, [])
    shown = offsets("show", "app").out.splitlines()
    assert shown[-2:] == [
        "exactly once: positions in partition 7 of __copycat_offsets, Kafka cluster cluster-1",
        "lane 0: step 6, at offset 60",
    ]
    document = json.loads(offsets("show", "app", "--format", "json").out)
    assert (document["lanes"]["cluster"], document["lanes"]["heads"][0]["offset"]) == ("cluster-1", 60)
    assert "exactly once" not in offsets("show", "plain").out
    assert json.loads(offsets("show", "plain", "--format", "json").out)["lanes"] is None


def test_adopt_goes_on_from_here_unless_told_otherwise(offsets: Callable[..., Said], state: Path) -> None:
    said = offsets("adopt", "app")
    assert (said.code, kept(state).adopt) == (0, "local")
    assert "app goes on from the positions of this host: what is before them is not sent again" in said.out
    assert "copycat ctl restart app" in said.out
    assert offsets("show", "app").out.splitlines()[-1] == "goes on from the positions of this host when it starts"
    said = offsets("adopt", "app", "--from-topic", "--format", "json")
    assert json.loads(said.out) == {"connector": "app", "from": "topic", "agent": "", "identity": ""}
    assert kept(state).adopt == "topic"


def test_a_copy_becomes_an_agent_of_its_own_and_says_so(offsets: Callable[..., Said], state: Path) -> None:
    with OffsetStore.open(state) as store:
        store.lanes_refused("app", CopiedError("a copy"))
        uuid = store.agent_uuid
    assert "this host is a copy, or was copied" in offsets("show", "app").out
    said = offsets("adopt", "app")
    assert "every other exactly-once connector here" in said.out
    with OffsetStore.open(state) as store:
        assert store.agent_uuid != uuid
        assert f"this agent is {store.agent_uuid} from now on" in said.out
    assert not kept(state).copied


def test_the_positions_of_an_agent_that_is_gone_are_taken_over_with_a_warning(offsets: Callable[..., Said], state: Path) -> None:
    said = offsets("adopt", "fresh", "--from-topic", "--agent", OTHER_AGENT)
    assert said.code == 0
    assert "That agent must never start again" in said.out
    assert kept(state, "fresh").before == (LaneGroup("fresh", OffsetsPartition(OFFSETS_TOPIC, -1), agent=OTHER_AGENT),)
    assert f"takes over fresh of agent {OTHER_AGENT} when it starts" in offsets("show", "fresh").out


def test_it_can_be_said_before_the_new_agent_starts_for_the_first_time(offsets: Callable[..., Said], tmp_path: Path) -> None:
    assert offsets("adopt", "app", state=tmp_path / "new").code == 1
    assert not (tmp_path / "new").exists()
    assert offsets("adopt", "app", "--from-topic", "--agent", OTHER_AGENT, state=tmp_path / "new").code == 0
    assert [one.agent for one in kept(tmp_path / "new").before] == [OTHER_AGENT]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["app", "--agent", OTHER_AGENT], 2, "--agent goes with --from-topic"),
        (["app", "--from-topic", "--agent", "me"], 1, "is not the uuid of an agent"),
        (["nobody"], 1, "no offsets are saved for nobody; there are some for: app, plain"),
        (["../x"], 1, "no connector can have the name"),
    ],
)
def test_what_cannot_be_meant_is_refused(offsets: Callable[..., Said], state: Path, arguments: list[str], code: int, words: str) -> None:
    said = offsets("adopt", *arguments)
    assert (said.code, words in said.err, said.out) == (code, True, "")
    assert kept(state).adopt == ""


def test_to_take_over_ones_own_positions_makes_no_sense(offsets: Callable[..., Said], state: Path) -> None:
    with OffsetStore.open(state) as store:
        own = store.agent_uuid
    said = offsets("adopt", "app", "--from-topic", "--agent", own)
    assert said.code == 1
    assert "that is this agent" in said.err


def test_a_reset_takes_back_what_kafka_says(offsets: Callable[..., Said], state: Path) -> None:
    assert offsets("reset", "app").out.count("- /l/") == 2
    assert kept(state).adopt == "local"
    assert unpublished(state) == {ONE.key: None, TWO.key: None}


def test_a_reset_of_one_file_is_about_that_file(offsets: Callable[..., Said], state: Path) -> None:
    assert offsets("reset", "app", "--path", "/l/a").code == 0
    assert (kept(state).adopt, unpublished(state)) == ("", {ONE.key: None})


def test_what_was_exported_comes_back_and_is_told(offsets: Callable[..., Said], state: Path, tmp_path: Path) -> None:
    exported = offsets("export", "app").out
    (tmp_path / "saved.json").write_text(exported)
    offsets("reset", "app")
    assert offsets("import", "app", tmp_path / "saved.json").code == 0
    assert unpublished(state) == {ONE.key: 10, TWO.key: 4}


def test_a_renamed_connector_takes_its_lanes_along(offsets: Callable[..., Said], state: Path) -> None:
    before = kept(state, "app")
    assert offsets("rename", "app", "new").code == 0
    after = kept(state, "new")
    assert (after.id, after.place, after.heads, after.before) == (before.id, PLACE, before.heads, ())


def test_a_store_begun_anew_can_be_looked_at_and_decided_about(offsets: Callable[..., Said], state: Path) -> None:
    (state / "offsets.db").write_bytes(b"junk")
    OffsetStore.open(state, rebuild=True).close()
    assert offsets("list").code == 0
    assert offsets("reset", "plain").code == 0
    with OffsetStore.open(state, rebuild=True) as store:
        assert (store.undecided("plain"), bool(store.undecided("else"))) == ("", True)
