"""Where a bad record lies: bytes of most files, a record's number in those of formats that count records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.batch.policy import ErrorPolicy, RecordOutcome, StopAt
from copycat_agent.batch.progress import SplitProgress
from copycat_agent.errors import DataError
from copycat_agent.formats import Draft, Unparsed
from copycat_agent.model import SourceOffset, SourcePartition, Split
from tests.unit.batch.rig import definition

if TYPE_CHECKING:
    from typing import Any

BAD = DataError("why")
ALL = {"tolerance": "all", "dlq": {"topic": "d"}}


def bad(record: Draft, *, by_record: bool = True, **errors: Any) -> tuple[RecordOutcome, SplitProgress, ErrorPolicy]:
    progress = SplitProgress(Split(SourcePartition("app", "k"), "/spool/a.parquet", "", SourceOffset(0), 99))
    policy = ErrorPolicy(definition("b:1", "t", errors=errors or ALL), "dlq", by_record=by_record)
    return policy.bad(progress, RecordOutcome(record), "record", BAD), progress, policy


def losses(outcome: RecordOutcome, progress: SplitProgress, policy: ErrorPolicy) -> list[tuple[int, int, int, int]]:
    policy.count(progress, [outcome])
    return [(loss.start, loss.end, loss.size_bytes, loss.records) for loss in progress.sent.losses]


def headers(outcome: RecordOutcome) -> dict[str, bytes]:
    ((*_, found),) = outcome.messages
    return dict(found)


def test_a_record_without_bytes_is_lettered_with_its_fields_and_nothing_is_lost() -> None:
    outcome, progress, policy = bad(Draft({"a": 1}, 7, 8, 8))
    assert outcome.messages[0][1] == b'{"a":1}'
    assert (headers(outcome)["copycat.length"], headers(outcome)["copycat.places"]) == (b"7", b"records")
    assert headers(outcome)["copycat.raw"].startswith(b"rendered: ")
    assert (outcome.kept_bytes, losses(outcome, progress, policy)) == (None, [])


def test_what_the_letter_leaves_out_is_lost_as_one_record() -> None:
    outcome, progress, policy = bad(Draft({"a": 1}, 7, 8, 8), tolerance="all", dlq={"topic": "d", "include_raw": False})
    assert losses(outcome, progress, policy) == [(7, 8, 7, 1)]
    outcome, progress, policy = bad(Draft(Unparsed("no text"), 7, 8, 8))
    assert headers(outcome)["copycat.raw"] == b"omitted: the file holds no bytes of this record alone"
    assert losses(outcome, progress, policy) == [(7, 8, 0, 1)]
    outcome, progress, policy = bad(Draft({"a": 1}, 7, 8, 8), tolerance="all")
    assert (outcome.counts_as, losses(outcome, progress, policy)) == ("rejected", [(7, 8, 7, 1)])


def test_bytes_are_lettered_as_before() -> None:
    outcome, progress, policy = bad(Draft({"a": "1"}, 70, 74, 8, b"1\n"), by_record=False)
    assert outcome.messages[0][1] == b"1\n"
    assert headers(outcome)["copycat.length"] == b"4"
    assert not {"copycat.raw", "copycat.places"} & set(headers(outcome))
    assert losses(outcome, progress, policy) == []


@pytest.mark.parametrize(("by_record", "place"), [(True, "record 8"), (False, "bytes 7 to 9")])
def test_words_name_the_place(by_record: bool, place: str) -> None:
    with pytest.raises(StopAt) as stop:
        bad(Draft({"a": 1}, 7, 9, 8), by_record=by_record, tolerance="none")
    assert stop.value.error.message == f"'/spool/a.parquet', {place}, stage record: why"
