"""A backfill without PATHs: what the definition matches, from where its connector is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FatalError
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.unit.backfill.conftest import Rig


def test_a_connector_that_was_renamed_goes_on_from_the_offsets_of_its_old_name(rig: Rig) -> None:
    rig.write("a.log", "one", "two")
    rig.follow("old")
    (rig.root / "old.yaml").unlink()
    rig.write("a.log", "one", "two", "three")
    assert rig.follow("new", renamed_from=["old"])["complete"]
    assert rig.lines() == ["one", "two", "three"]


def test_offsets_of_a_name_that_another_definition_has_stay_there(rig: Rig) -> None:
    rig.write("a.log", "one")
    rig.follow("old")
    rig.follow("new", renamed_from=["old"])
    rig.follow("old")
    assert rig.lines() == ["one", "one"]


def test_offsets_that_two_claim_go_to_neither(rig: Rig) -> None:
    rig.write("a.log", "one")
    rig.follow("old")
    (rig.root / "old.yaml").rename(rig.root / "other.yaml")
    other = (rig.root / "other.yaml").read_text().replace("name: old", "name: other\nrenamed_from: [old]")
    (rig.root / "other.yaml").write_text(other)
    with pytest.raises(FatalError, match="claimed by other too"):
        rig.follow("new", renamed_from=["old"])
    assert rig.lines() == ["one"]


def test_what_an_earlier_part_of_a_run_has_lost_is_in_its_account(rig: Rig) -> None:
    *_, lost = (rig.write(f"{name}.log", *(f"{name} {number:030}" for number in range(3000))) for name in "abcd")
    with rig.following("app", rate=20_000, delivery={"max_batch_bytes": "64KiB"}) as work:
        wait_until(lambda: work.status.counts.read > 0, 60)
        lost.write_text("anew\n")
        wait_until(work.store.loss_totals, 60)
        part = work.stop(interrupted=True)
    assert [loss["reason"] for loss in part["losses"]] == ["destroyed"]
    summary = rig.follow("app")
    assert (summary["state"], summary["complete"], summary["losses"]) == ("finished", False, part["losses"])
    assert rig.follow("app")["complete"], "another run has lost nothing"
