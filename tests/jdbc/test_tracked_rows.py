"""Which rows are new, by the values of columns: random histories of a table, without a database. None is lost in silence, or repeated."""

from __future__ import annotations

import json
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.sources.contract import LostRecords, as_text
from copycat_agent.sources.jdbc.database import TableError
from copycat_agent.sources.jdbc.key_values import LOWEST, from_json, micros_of_text, to_json
from copycat_agent.sources.jdbc.numbered_reader import GAPS_MOST, NumberedRows
from copycat_agent.sources.jdbc.statements import Dialect
from copycat_agent.sources.jdbc.timed_reader import RECENT_MOST, TimedRows

if TYPE_CHECKING:
    from collections.abc import Iterator

H2 = Dialect("h2")
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - as of a column without a zone
GAP_SECONDS = 60
SEEDS = [*range(13), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(13, 40))]


@dataclass
class Inserted:
    """A row, by its transaction: when it took its number, when it is committed, None: rolled back."""

    number: int
    taken_ms: int
    committed_ms: int | None
    deleted_ms: int = 2**62

    def is_seen(self, now_ms: int) -> bool:
        return self.committed_ms is not None and self.committed_ms <= now_ms < self.deleted_ms


@dataclass
class Numbered:
    """A table, and who reads it. `gone`: what was given up, by numbers up to which."""

    rng: random.Random
    limit: int
    rows: list[Inserted] = field(default_factory=list)
    now_ms: int = 1_700_000_000_000
    position: dict[str, Any] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)
    lost: list[LostRecords] = field(default_factory=list)
    given_up: int = LOWEST
    biggest: int = 0

    def __post_init__(self) -> None:
        self.reader = NumberedRows(H2, "id", GAP_SECONDS)

    def meet(self) -> None:
        top = max((one.number for one in self.rows if one.is_seen(self.now_ms)), default=None)
        self.position = {"last": None, "gaps": [], "top": top, "missing": 0, "asked_ms": 0}

    def _found(self, limit: int | None = None) -> list[dict[str, Any]]:
        seen = sorted(one.number for one in self.rows if one.is_seen(self.now_ms))
        found: list[int] = []
        for first, last in self.reader.ranges(self.position):
            begin = 0 if first is None else bisect_left(seen, first)
            found += seen[begin : len(seen) if last is None else bisect_right(seen, last)]
        return [{"id": number} for number in sorted(found)[:limit]]

    def look(self, most_wait_ms: int = 0, *, dies: bool = False) -> bool:
        """A look and a batch. Whether there was anything to do."""
        overdue = self.reader.overdue(self.position, self.now_ms)
        if not self._found() and overdue is None:
            return False
        self.now_ms += self.rng.randrange(most_wait_ms + 1)
        pairs = self.reader.records(iter(self._found(self.limit + 1)), self.position, limit=self.limit, overdue=overdue)
        all_pairs = list(pairs)
        stop = self.rng.randrange(len(all_pairs) + 1) if dies else len(all_pairs)
        records = [pair for pair in all_pairs[:stop] if not isinstance(pair[0], LostRecords)]
        is_finished = stop == len(all_pairs)
        if not records and not is_finished:
            return True  # nothing was saved
        last = all_pairs[-1][1] if is_finished and all_pairs else records[-1][1] if records else None
        before = records[-1][1]["sent"] if records else 0
        losses = [(one, at) for one, at in all_pairs if isinstance(one, LostRecords) and (is_finished or at["sent"] < before)]
        self.sent += [int(row["id"]) for row, _ in records if isinstance(row, dict)]
        self.lost += [one for one, _ in losses]
        self.given_up = max([self.given_up, *(at["given"] for _, at in losses)])
        old = self.position
        self.position = json.loads(as_text(self.reader.behind(self.position, last, self.now_ms, overdue)))
        assert self.position != old or self.position["asked_ms"] == self.now_ms
        assert len(self.position["gaps"]) <= 2 * GAPS_MOST + 2
        self.biggest = max(self.biggest, len(as_text(self.position)))
        return True

    def settle(self) -> None:
        """Look until there is nothing more, and nothing to wait for."""
        for _ in range(10_000):
            if not self.look():
                if not self.position["gaps"]:
                    return
                self.now_ms += 10_000
        raise AssertionError(f"it never ends: {self.position}")


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_in_any_order_of_commits(seed: int) -> None:
    rng = random.Random(seed)
    table = Numbered(rng, limit=rng.choice([1, 3, 20, 1000]))
    number = rng.choice([1, -40, 10**25])
    met_after = rng.choice([0, 0, 50])
    for step in range(250):
        if step == met_after:
            table.meet()
        for _ in range(rng.choice([0, 1, 1, 4])):
            late_ms = rng.choice([0, 0, 500, 20_000, GAP_SECONDS * 1000 - 1, 90_000])
            committed = None if rng.random() < 0.1 else table.now_ms + rng.randint(0, late_ms)
            deleted = table.now_ms + rng.randrange(100_000) if rng.random() < 0.05 else 2**62
            table.rows.append(Inserted(number, table.now_ms, committed, deleted))
            number += 1 if rng.random() < 0.95 else rng.randint(2, 50)
        if step >= met_after and rng.random() < 0.7:
            table.look(rng.choice([0, 3000, 70_000]), dies=rng.random() < 0.3)
        table.now_ms += rng.choice([10, 1000, 9000])
    table.now_ms += 200_000
    table.settle()
    assert len(table.sent) == len(set(table.sent)), "each row once"
    first = table.sent[0] if table.sent else 0
    for row in table.rows:
        if not row.is_seen(2**61) or row.number in table.sent:
            continue
        assert row.committed_ms is not None
        assert row.committed_ms - row.taken_ms >= GAP_SECONDS * 1000, f"lost within the promise: {row}"
        assert row.number <= table.given_up or row.number < first, f"lost in silence: {row}"


def test_what_a_table_lacks_when_it_is_met_is_told_once() -> None:
    table = Numbered(random.Random(1), limit=500)
    table.rows = [Inserted(number, 0, 0) for number in range(10, 20_000, 2)]
    table.meet()
    table.settle()
    assert table.sent == list(range(10, 20_000, 2))
    (lost,) = table.lost
    assert lost.why.startswith("9,994 ranges of id up to 19998 had no rows when the table was first read: deleted")
    assert table.position["top"] is None
    table.rows += [Inserted(20_001, 0, 0)]
    table.settle()
    assert table.lost[1].why.startswith("no rows with id 19999 to 20000 came in time")


@pytest.mark.parametrize("step", [2, 10, 10**30])
def test_numbers_that_grow_by_steps_move_on_and_a_position_stays_small(step: int) -> None:
    table = Numbered(random.Random(2), limit=10_000)
    table.meet()
    table.rows = [Inserted(10**37 + number * step, 0, 0) for number in range(5_000)]
    table.settle()
    assert table.sent == [one.number for one in table.rows]
    assert table.biggest < 256 * 1024
    assert len(table.lost) >= 5


def test_a_number_is_asked_for_once_more_after_any_pause_before_it_is_given_up() -> None:
    table = Numbered(random.Random(3), limit=100)
    table.meet()
    table.rows = [Inserted(1, 0, 0), Inserted(2, 0, table.now_ms + 5_000), Inserted(3, 0, 0), Inserted(4, 0, None), Inserted(5, 0, 0)]
    assert table.look()
    table.now_ms += 3_600_000
    table.settle()
    assert table.sent == [1, 3, 5, 2]
    assert [one.why for one in table.lost] == [
        "no rows with id 4 came in time: rolled back, or of a transaction that takes longer than gap_timeout"
    ]


def test_rows_that_are_deleted_between_a_look_and_the_reading() -> None:
    reader = NumberedRows(H2, "id", GAP_SECONDS)
    start = {"last": 5, "gaps": [[2, 3, 0]], "top": None, "missing": 0, "asked_ms": 0}
    ((lost, position),) = reader.records(iter([]), start, limit=10, overdue=3)
    assert isinstance(lost, LostRecords)
    assert reader.behind(start, position, 7)["gaps"] == []
    assert list(reader.records(iter([]), start, limit=10, overdue=None)) == []
    assert reader.behind(start, None, 7) == {**start, "asked_ms": 7}, "another look follows"


def numbers(values: list[Any], limit: int = 10) -> Iterator[Any]:
    start: dict[str, Any] = {"last": None, "gaps": [], "top": None, "missing": 0, "asked_ms": 0}
    return NumberedRows(H2, "id", GAP_SECONDS).records([{"id": one} for one in values], start, limit=limit, overdue=None)


@pytest.mark.parametrize("values", [["1"], [True], [None], [1.5], [Decimal("1.5")], [float("nan")], [Decimal("NaN")], [float("inf")]])
def test_a_column_that_is_no_number(values: list[Any]) -> None:
    with pytest.raises(TableError, match="no whole number"):
        list(numbers(values))


def test_a_number_that_several_rows_have_blocks_the_table_before_any_of_them_is_sent() -> None:
    rows = numbers([1, 2, 2, 3])
    assert next(rows)[0] == {"id": 1}
    with pytest.raises(TableError, match="several rows have the same id"):
        next(rows)
    rows = numbers([1, 2, 2], limit=2)
    next(rows)
    with pytest.raises(TableError, match="several rows"):
        next(rows)


def test_decimals_and_names_in_another_case_are_numbers_too() -> None:
    start = {"last": Decimal(4), "gaps": [], "top": None, "missing": 0, "asked_ms": 0}
    reader = NumberedRows(H2, "id", GAP_SECONDS)
    ((_, position),) = reader.records([{"ID": Decimal(2**64 - 1)}], start, limit=1, overdue=None)
    assert reader.behind({**start, "last": 4}, position, 9)["last"] == 2**64 - 1
    with pytest.raises(TableError, match="the rows have no column id"):
        list(reader.records([{"Id": 5, "ID": 5}], start, limit=1, overdue=None))


def test_the_condition_on_numbers() -> None:
    reader = NumberedRows(H2, 'a"b', GAP_SECONDS)
    start: dict[str, Any] = {"last": None, "gaps": [], "top": None, "missing": 0, "asked_ms": 0}
    assert reader.condition(start) == '("a""b" IS NOT NULL)'
    assert reader.condition({**start, "last": -3, "gaps": [[-9, -7, 0]]}) == '("a""b" >= -2 OR "a""b" BETWEEN -9 AND -7)'


LOOK_BACK = 60.0


@dataclass
class Changed:
    """A row version: its time, and when it is seen, both in microseconds."""

    key: int
    micros: int
    from_us: int
    to_us: int = 2**62


@dataclass
class Timed:
    """A table with times, and who reads it."""

    rng: random.Random
    limit: int
    has_key: bool = True
    look_back: float = LOOK_BACK
    rows: list[Changed] = field(default_factory=list)
    now_us: int = 1_700_000_000_000_000
    sent: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = TimedRows(H2, "at", ("id",) if self.has_key else (), self.look_back)
        empty: dict[str, Any] = {"last": None, "since": None, "at": None, "after": None, "recent": [], "floor": None}
        self.position: dict[str, Any] = {**empty, "zoned": False, "passes": 0}

    def seen(self) -> list[Changed]:
        return [one for one in self.rows if one.from_us <= self.now_us < one.to_us]

    def _found(self) -> list[dict[str, Any]]:
        begin, after = self.reader.begin_of(self.position), self.position["after"]
        behind = None if after is None else (begin, from_json(after[0]))
        found = sorted(
            (one.micros, one.key)
            for one in self.seen()
            if (begin is None or one.micros >= begin) and (behind is None or (one.micros, one.key) > behind)
        )
        return [{"at": EPOCH + timedelta(microseconds=micros), "id": key} for micros, key in found]

    def batch(self, *, dies: bool = False, waits: int = 0) -> bool:
        """One batch. Whether the pass is over."""
        self.now_us += self.rng.randrange(waits + 1)
        limit = self.limit + len(self.position["recent"])
        pairs = list(self.reader.records(self._found()[:limit], self.position))
        stop = self.rng.randrange(len(pairs) + 1) if dies else len(pairs)
        if not stop and pairs:
            return False
        last = pairs[stop - 1][1] if stop else None
        self.sent += [((row["at"] - EPOCH) // timedelta(microseconds=1), row["id"]) for row, _ in pairs[:stop] if isinstance(row, dict)]
        before = self.position
        self.position = json.loads(as_text(self.reader.behind(before, last, limit, finished=stop == len(pairs))))
        assert self.position != before, "progress"
        return self.position["at"] is None

    def settle(self) -> None:
        for _ in range(2):
            while not self.batch():
                pass


@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_times_in_any_order_of_commits(seed: int, has_key: bool) -> None:
    rng = random.Random(seed)
    table = Timed(rng, limit=rng.choice([1, 3, 50]), has_key=has_key)
    grain = rng.choice([1, 1_000_000, 5_000_000])
    promised: set[tuple[int, int]] = set()
    for key in range(200):
        for _ in range(rng.choice([0, 1, 2])):
            micros, late = table.now_us // grain * grain, rng.choice([0, 0, 1_000_000, 20_000_000, 50_000_000, 90_000_000])
            ends = table.now_us + rng.randrange(100_000_000) if rng.random() < 0.1 else 2**62
            table.rows.append(Changed(key, micros, table.now_us + late, ends))
        if table.rows and rng.random() < 0.2:
            old = rng.choice(table.rows)
            if old.from_us <= table.now_us < old.to_us:
                old.to_us = table.now_us
                table.rows.append(Changed(old.key, table.now_us // grain * grain, table.now_us))
        while rng.random() < 0.6:
            table.batch(dies=rng.random() < 0.3, waits=rng.choice([0, 2_000_000]))
        table.now_us += rng.choice([1000, 900_000, 4_000_000])
    table.now_us += 100_000_000
    newest = 0
    for row in sorted(table.rows, key=lambda one: one.from_us):
        if row.to_us == 2**62 and newest - row.micros <= LOOK_BACK * 1_000_000:
            promised.add((row.micros, row.key))
        newest = max(newest, row.micros)
    table.settle()
    assert promised <= set(table.sent), f"lost within the promise: {promised - set(table.sent)}"
    most = {pair: sum((one.micros, one.key) == pair for one in table.rows) for pair in table.sent}
    assert all(table.sent.count(pair) <= count for pair, count in most.items()), "each once"


@pytest.mark.parametrize("limit", [pytest.param(100, marks=pytest.mark.long), 1_000, 6_000, 30_000])
def test_more_rows_of_one_time_than_are_remembered(limit: int) -> None:
    table = Timed(random.Random(4), limit=limit)
    start = table.now_us - 1_000_000
    table.rows = [Changed(key, start + (key > 12_000) + (key > 12_002), 0) for key in range(12_010)]
    while not table.batch(dies=table.rng.random() < 0.3):
        pass
    table.settle()
    assert sorted(table.sent) == sorted((one.micros, one.key) for one in table.rows)
    table.rows.append(Changed(12_010, start + 5_000_000, 0))
    table.settle()
    assert len(table.sent) == 12_011


def test_more_rows_of_one_time_than_are_remembered_need_a_key() -> None:
    table = Timed(random.Random(5), limit=6_000, has_key=False)
    table.rows = [Changed(key, 5, 0) for key in range(12_010)]
    with pytest.raises(FatalError, match="more than 5,000 rows have the same at"):
        table.settle()


def test_a_position_with_all_that_is_remembered_stays_small() -> None:
    table = Timed(random.Random(6), limit=10 * RECENT_MOST, has_key=False)
    far = 253_402_300_799_000_000
    table.rows = [Changed(1, far + key % 2, 0) for key in range(RECENT_MOST)]
    table.settle()
    assert len(table.position["recent"]) == RECENT_MOST
    assert len(table.sent) == RECENT_MOST


@pytest.mark.parametrize("key", [("id",), ()])
def test_a_row_that_changes_within_the_same_time_is_sent_again(key: tuple[str, ...]) -> None:
    reader = TimedRows(H2, "at", key, LOOK_BACK)
    start: dict[str, Any] = {"last": None, "since": None, "at": None, "after": None, "recent": [], "floor": None}
    position = {**start, "zoned": False, "passes": 0}
    for value, is_new in [("first", True), ("first", False), ("second", True), ("second", False)]:
        pairs = list(reader.records([{"at": EPOCH, "id": 1, "value": value}], position))
        assert [row["value"] for row, _ in pairs if isinstance(row, dict)] == [value] * is_new
        position = reader.behind(position, pairs[-1][1] if pairs else None, 10, finished=True)


def test_a_pass_is_not_over_because_its_last_rows_were_known() -> None:
    reader = TimedRows(H2, "at", ("id",), LOOK_BACK)
    start: dict[str, Any] = {"last": None, "since": None, "at": None, "after": None, "recent": [], "floor": None}
    start |= {"zoned": False, "passes": 0}
    rows = [{"at": EPOCH + timedelta(seconds=one), "id": one} for one in range(4)]
    first = reader.behind(start, list(reader.records(rows[2:3], start))[-1][1], 2, finished=True)
    assert first["passes"] == 1
    pairs = list(reader.records(rows[1:3], first))
    assert [row["id"] for row, _ in pairs if isinstance(row, dict)] == [1]
    assert reader.behind(first, pairs[-1][1], 2, finished=True)["at"] == 1_000_000


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (datetime(2026, 5, 1, 12, 0, 0, 5), "TIMESTAMP '2026-05-01 12:00:00.000005'"),  # noqa: DTZ001 - a column without a zone
        (datetime(2026, 5, 1, 12, tzinfo=UTC), "TIMESTAMP WITH TIME ZONE '2026-05-01 12:00:00.000000+00:00'"),
        (date(2026, 5, 1), "TIMESTAMP '2026-05-01 00:00:00.000000'"),
    ],
)
def test_the_condition_on_times_has_their_kind(value: Any, literal: str) -> None:
    reader = TimedRows(H2, "at", ("id",), 0.0)
    start: dict[str, Any] = {"last": None, "since": None, "at": None, "after": None, "recent": [], "floor": None}
    start |= {"zoned": True, "passes": 0}
    assert reader.condition(start, None) == '"at" IS NOT NULL'
    (pair,) = reader.records([{"AT": value, "ID": 1}], start)
    done = reader.behind(start, pair[1], 10, finished=True)
    ago = H2.seconds_ago(5.0, zoned=done["zoned"])
    assert reader.condition(done, 5.0) == f'"at" <= {ago} AND "at" >= {literal}'


def test_the_look_back_ends_where_times_begin() -> None:
    oldest = datetime(1, 1, 1)  # noqa: DTZ001 - what some programs write for no time
    micros = (oldest - EPOCH) // timedelta(microseconds=1)
    position: dict[str, Any] = {
        "last": micros,
        "since": micros,
        "at": None,
        "after": None,
        "recent": [],
        "floor": None,
        "zoned": False,
        "passes": 1,
    }
    assert TimedRows(H2, "at", (), 60.0).condition(position, None) == "\"at\" >= TIMESTAMP '0001-01-01 00:00:00.000000'"


def test_a_column_that_is_no_time() -> None:
    start: dict[str, Any] = {"last": None, "since": None, "at": None, "after": None, "recent": [], "floor": None}
    with pytest.raises(TableError, match="holds something else"):
        list(TimedRows(H2, "at", (), 0.0).records([{"at": "2026-01-01"}], {**start, "zoned": True, "passes": 0}))


@pytest.mark.parametrize(
    ("text", "micros", "zoned"),
    [
        ("1970-01-01 00:00:01", 1_000_000, False),
        ("1970-01-01 00:00:01.5", 1_500_000, False),
        ("1970-01-01 00:00:01.1234567 +01:00", 1_123_456 - 3_600_000_000, True),
        ("1970-01-01 00:00:01.5+01", 1_500_000 - 3_600_000_000, True),
        ("1970-01-02", 86_400_000_000, False),
    ],
)
def test_times_as_drivers_write_them(text: str, micros: int, zoned: bool) -> None:
    assert micros_of_text(text) == (micros, zoned)
    with pytest.raises(TableError, match="cannot be read"):
        micros_of_text(f"{text} Europe/Berlin")


@pytest.mark.parametrize("value", [1, True, b"\x00\xff", "a'b\\", Decimal("1.50"), date(2026, 1, 2), datetime(2026, 1, 2, 3, tzinfo=UTC)])
def test_values_of_keys_come_back_as_they_were(value: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize("value", [None, 1.5, [1]])
def test_values_that_are_no_key(value: Any) -> None:
    with pytest.raises(TableError, match="cannot be compared"):
        to_json(value)
