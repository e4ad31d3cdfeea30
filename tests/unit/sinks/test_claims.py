"""The chain of claims on real stores; what becomes of it under any interleaving is `test_claims_histories`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from copycat_agent.errors import BlockedError, FatalError, RetriableError
from copycat_agent.sinks.chain_objects import CHECKPOINT
from copycat_agent.sinks.claims import Claims, CommitResult, LocalFile, Range
from copycat_agent.sinks.sink_stores import SinkStore


def files(store: SinkStore, at: Range, *directories: str) -> list[LocalFile]:
    """One with a line of text for each directory."""
    found = []
    for number, directory in enumerate(directories):
        path = store.scratch() / f"{at.first}-{number}"
        path.write_text(f"{at.first} to {at.last} in {directory}\n")
        found.append(LocalFile(path, directory, 1))
    return found


def commit(claims: Claims, store: SinkStore, at: Range, *directories: str) -> CommitResult:
    return claims.commit(at, files(store, at, *directories), "jsonl")


def visible(store: SinkStore) -> list[str]:
    return [key for key in store.list("") if not key.startswith("_copycat/")]


def pending(store: SinkStore) -> list[str]:
    return list(store.list("_copycat/lake/pending"))


def stem(first: int, last: int) -> str:
    return f"orders+3+{first:020}+{last:020}"


@pytest.fixture
def claims(store: SinkStore) -> Claims:
    return Claims(store, "lake", kept=2)


def test_a_chain_begins_where_its_first_writer_said(claims: Claims) -> None:
    assert claims.resume("orders", 3, 40) == 40
    assert claims.resume("orders", 3, 0) == 40


def test_files_are_visible_once_their_range_is_committed(store: SinkStore, claims: Claims) -> None:
    claims.resume("orders", 3, 0)
    assert commit(claims, store, Range("orders", 3, 0, 9), "dt=1", "dt=2") == (10, True)
    assert visible(store) == [f"dt=1/{stem(0, 9)}.jsonl", f"dt=2/{stem(0, 9)}.jsonl"]
    assert store.get(f"dt=2/{stem(0, 9)}.jsonl") == b"0 to 9 in dt=2\n"
    assert pending(store) == []
    assert claims.resume("orders", 3, 0) == 10


def test_files_of_one_directory_are_numbered(store: SinkStore, claims: Claims) -> None:
    commit(claims, store, Range("orders", 3, 0, 9), "", "a", "")
    assert visible(store) == sorted([f"{stem(0, 9)}.0.jsonl", f"{stem(0, 9)}.1.jsonl", f"a/{stem(0, 9)}.jsonl"])


def test_a_range_without_records_is_claimed_too(store: SinkStore, claims: Claims) -> None:
    assert commit(claims, store, Range("orders", 3, 0, 9)) == (10, True)
    assert claims.resume("orders", 3, 0) == 10
    assert visible(store) == []


def test_claims_keep_what_was_lost_in_their_range(store: SinkStore, claims: Claims) -> None:
    claims.resume("t", 0, 0)
    for first in (0, 10, 20):
        claims.commit(Range("t", 0, first, first + 9), [], lost=[("t/0", first, first + 3, "gone")])
    gone = [["t/0", first, first + 3, "gone"] for first in (0, 10, 20)]
    assert [claims.lost("t", 0, start, end) for start, end in ((0, 30), (10, 30), (0, 10), (5, 30), (30, 30))] == [
        gone,
        gone[1:],
        gone[:1],
        [],
        [],
    ]


def test_a_claim_of_an_earlier_version_has_lost_nothing(store: SinkStore, claims: Claims) -> None:
    claims.resume("t", 0, 0)
    claims.commit(Range("t", 0, 0, 9), [])
    (key,) = store.list("_copycat/lake/claims")
    claim = json.loads(store.get(key) or b"")
    del claim["lost"]
    store.delete([key])
    store.put_if_absent(key, json.dumps(claim).encode())
    assert claims.lost("t", 0, 0, 10) == []
    assert claims.resume("t", 0, 0) == 10


def test_who_claims_later_deletes_what_is_his_and_goes_on_behind_the_other(store: SinkStore, claims: Claims) -> None:
    commit(claims, store, Range("orders", 3, 0, 9), "a")
    commit(claims, store, Range("orders", 3, 10, 19), "a")
    assert commit(claims, store, Range("orders", 3, 0, 4), "a") == (20, False)
    assert visible(store) == [f"a/{stem(0, 9)}.jsonl", f"a/{stem(10, 19)}.jsonl"]
    assert pending(store) == []


class Failing:
    """A store that fails to publish."""

    def __init__(self, store: SinkStore) -> None:
        self._store = store

    def publish(self, moves: Mapping[str, str]) -> None:
        raise RetriableError("cut off")

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_a_successor_publishes_what_was_claimed(store: SinkStore, claims: Claims) -> None:
    claims.resume("orders", 3, 0)
    with pytest.raises(RetriableError, match="cut off"):
        commit(Claims(Failing(store), "lake"), store, Range("orders", 3, 0, 9), "a", "b")  # type: ignore[arg-type]
    assert visible(store) == []
    before = claims.chain("orders", 3)
    assert before
    assert (before.end, before.unpublished) == (10, 2)
    assert claims.resume("orders", 3, 0) == 10
    assert visible(store) == [f"a/{stem(0, 9)}.jsonl", f"b/{stem(0, 9)}.jsonl"]
    assert pending(store) == []


def test_what_a_dead_writer_uploaded_goes_once_the_chain_is_beyond_it(store: SinkStore, claims: Claims, tmp_path: Path) -> None:
    claims.resume("orders", 3, 0)
    left = tmp_path / "left"
    left.write_bytes(b"x")
    store.upload({f"_copycat/lake/pending/orders/3/{0:020}-dead/0": left})
    claims.resume("orders", 3, 0)
    assert len(pending(store)) == 1
    commit(claims, store, Range("orders", 3, 0, 9), "a")
    claims.resume("orders", 3, 0)
    assert pending(store) == []


def test_old_claims_are_pruned_and_what_comes_at_their_place_is_void(store: SinkStore, claims: Claims) -> None:
    for first in range(0, 50, 10):
        commit(claims, store, Range("orders", 3, claims.resume("orders", 3, 0), first + 9), "a")
    chain = claims.chain("orders", 3)
    assert chain
    assert (chain.start, chain.end, chain.claims) == (0, 50, 3)
    before = visible(store)
    assert commit(claims, store, Range("orders", 3, 10, 14), "a") == (50, False)
    assert visible(store) == before
    assert pending(store) == []
    assert len([one for one in store.list("_copycat/lake/claims") if CHECKPOINT not in one]) <= 4


def test_at_most_three_checkpoints_stay(store: SinkStore, claims: Claims) -> None:
    for _ in range(12):
        first = claims.resume("orders", 3, 0)
        commit(claims, store, Range("orders", 3, first, first))
    assert len([one for one in store.list("_copycat/lake/claims") if CHECKPOINT in one]) == 3
    assert claims.resume("orders", 3, 0) == 12


def test_a_chain_whose_claims_somebody_deleted_does_not_begin_anew(store: SinkStore, claims: Claims) -> None:
    for _ in range(6):
        first = claims.resume("orders", 3, 0)
        commit(claims, store, Range("orders", 3, first, first))
    store.delete([one for one in store.list("_copycat/lake/claims") if CHECKPOINT not in one])
    with pytest.raises(RetriableError, match="are missing"):
        claims.resume("orders", 3, 0)


def test_the_files_with_an_offset_are_found_by_claims_and_by_names(store: SinkStore, claims: Claims) -> None:
    claims.resume("orders", 3, 5)
    for first in range(10, 60, 10):
        commit(claims, store, Range("orders", 3, claims.resume("orders", 3, 5), first + 9), "a", "b")
    recent = claims.files_with("orders", 3, 55)
    assert recent is not None
    assert [(one.key, one.records) for one in recent] == [(f"a/{stem(50, 59)}.jsonl", 1), (f"b/{stem(50, 59)}.jsonl", 1)]
    old = claims.files_with("orders", 3, 12)
    assert old is not None
    assert [one.key for one in old] == [f"a/{stem(5, 19)}.jsonl", f"b/{stem(5, 19)}.jsonl"]
    assert claims.files_with("orders", 3, 4) is None
    assert claims.files_with("orders", 3, 60) is None


def test_partitions_and_topics_have_chains_of_their_own(store: SinkStore, claims: Claims) -> None:
    for topic, partition in (("orders", 3), ("orders", 10), ("a.b-c_d", 0)):
        claims.resume(topic, partition, 7)
    commit(claims, store, Range("orders", 10, 7, 9), "a")
    assert claims.partitions() == [("a.b-c_d", 0), ("orders", 3), ("orders", 10)]
    assert claims.resume("orders", 3, 0) == 7
    assert claims.chain("orders", 4) is None
    assert Claims(store, "other").partitions() == []


def test_a_store_that_knows_less_than_it_did_is_not_written_to(store: SinkStore, claims: Claims) -> None:
    with pytest.raises(BlockedError, match="lacks what it had of orders/3: all offsets below 20"):
        claims.resume("orders", 3, 0, known=20)
    assert list(store.list("")) == []
    claims.resume("orders", 3, 0)
    commit(claims, store, Range("orders", 3, 0, 9), "a")
    with pytest.raises(BlockedError, match="all offsets below 20"):
        claims.resume("orders", 3, 0, known=20)
    assert claims.resume("orders", 3, 0, known=10) == 10


def test_a_chain_of_an_earlier_topic_is_not_gone_on_with(store: SinkStore, claims: Claims) -> None:
    assert claims.resume("orders", 3, 0, topic_id="A") == 0
    assert claims.resume("orders", 3, 0) == 0, "an id that is not known is accepted"
    with pytest.raises(FatalError, match=r"the files of orders/3 at .* hold records of an earlier topic orders") as raised:
        claims.resume("orders", 3, 0, topic_id="B")
    assert "another name, without renamed_from, and another uri or path" in raised.value.hint
    assert claims.resume("orders", 4, 0, topic_id="B") == 0


def test_claims_tell_the_topic_of_a_chain_that_began_without_its_id(store: SinkStore, claims: Claims) -> None:
    start = "_copycat/lake/starts/orders/3"
    assert store.put_if_absent(start, b'{"start": 0}')
    assert claims.resume("orders", 3, 0, topic_id="A") == 0
    at = Range("orders", 3, 0, 9)
    with pytest.raises(RetriableError, match="cut off"):
        Claims(Failing(store), "lake").commit(at, files(store, at, "a"), "jsonl", "A")  # type: ignore[arg-type]
    with pytest.raises(FatalError, match="earlier topic"):
        claims.resume("orders", 3, 0, topic_id="B")
    assert visible(store) == [f"a/{stem(0, 9)}.jsonl"], "what was claimed of the earlier topic is published first"
    with pytest.raises(FatalError, match="earlier topic"):
        claims.commit(at, files(store, at, "a"), "jsonl", "B")
    assert claims.resume("orders", 3, 0, topic_id="A") == 10
