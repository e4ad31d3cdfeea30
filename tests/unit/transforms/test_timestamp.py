"""Promises of the step `timestamp`: which time a record has, where the moment is kept, and what is no time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from copycat_agent.errors import DataError
from copycat_agent.options import ValidationError
from copycat_agent.templates import SplitMeta
from tests.unit.transforms.steps import columns, draft, options, step

FIVE = 1795237200000
"""2026-11-21T05:00:00Z in milliseconds."""


def stamped(value: Any, /, **timestamp: Any) -> int | None:
    record = draft({"ts": value})
    assert step({"timestamp": {"field": "ts", "zone": "UTC", **timestamp}})(record)
    assert record.value == {"ts": value}
    return record.timestamp_ms


@pytest.mark.parametrize(
    ("value", "timestamp", "offset_ms"),
    [
        ("2026-11-21T05:00:00Z", {}, 0),
        ("2026-11-21 05:00:00,999", {}, 999),
        ("21/Nov/2026:05:00:00 +0000", {"format": "%d/%b/%Y:%H:%M:%S %z"}, 0),
        ("21.11.2026", {"format": ("%F", "%d.%m.%Y")}, -5 * 3_600_000),
        ("2026-11-21T05:00:00", {"zone": "+02:00"}, -2 * 3_600_000),
        ("1795237200.5", {"format": "unix"}, 500),
        (1795237200, {"format": "unix"}, 0),
        (1795237200.123, {"format": "unix"}, 123),
        (Decimal("1795237200.1239"), {"format": "unix"}, 123),
        (1795237200123, {"format": ("unix", "unix_ms")}, 123),
        (1795237200123999999, {"format": "unix_ns"}, 123),
        (20261121, {"format": "%Y%m%d"}, -5 * 3_600_000),
        (datetime(2026, 11, 21, 5, tzinfo=UTC), {}, 0),
        (datetime(2026, 11, 21, 5, 0, 0, 999999, tzinfo=timezone(timedelta(hours=1))), {"format": "unix"}, 999 - 3_600_000),
        (datetime(2026, 11, 21, 5), {"zone": "Asia/Tokyo"}, -9 * 3_600_000),  # noqa: DTZ001 - as Parquet has them
        (date(2026, 11, 21), {}, -5 * 3_600_000),
    ],
)  # fmt: skip
def test_a_field_becomes_the_records_time_and_stays(value: Any, timestamp: dict[str, Any], offset_ms: int) -> None:
    assert stamped(value, **timestamp) == FIVE + offset_ms


@pytest.mark.parametrize(
    ("value", "timestamp", "why"),
    [
        ("yesterday-secret", {}, "no time as in iso8601"),
        ("", {"format": ("%F", "unix")}, "any of the 2 formats"),
        (None, {}, "null"),
        (True, {"format": "unix"}, "neither a text, a number nor a time"),
        ({"a": 1}, {}, "neither"),
        (["2026-11-21"], {}, "neither"),
        (b"2026-11-21", {}, "neither"),
        (-1, {"format": "unix"}, "outside of the years"),
        (float("nan"), {"format": "unix"}, "outside of the years"),
        (float("inf"), {"format": "unix"}, "outside of the years"),
        (Decimal("NaN"), {"format": "unix"}, "outside of the years"),
        (Decimal("1e999999"), {"format": "unix_ms"}, "outside of the years"),
        pytest.param(10**5000, {"format": "unix"}, "outside of the years", id="digits"),
        pytest.param(10**5000, {"format": "%Y%m%d"}, "no time", id="digits of a day"),
        (17952372000000, {"format": "unix"}, "outside of the years"),
        (date(1969, 12, 31), {}, "outside of the years"),
        (datetime(1, 1, 1), {"zone": "+10:00"}, "outside of the years"),  # noqa: DTZ001 - see above
        (datetime(1, 1, 1), {"zone": "Asia/Tokyo"}, ""),  # noqa: DTZ001 - see above
    ],
)
def test_what_is_no_time_is_a_data_error_without_the_data(value: Any, timestamp: dict[str, Any], why: str) -> None:
    record = draft({"ts": value})
    with pytest.raises(DataError, match=f"field 'ts': .*{why}") as caught:
        step({"timestamp": {"field": "ts", "zone": "UTC", **timestamp}})(record)
    assert "secret" not in str(caught.value)
    assert record.timestamp_ms is None
    assert record.value == {"ts": value}


def test_a_missing_field_is_a_data_error_which_keep_passes_over() -> None:
    with pytest.raises(DataError, match="missing"):
        step({"timestamp": "ts"})(draft({"a": 1}))
    record = draft({"a": 1})
    assert step({"timestamp": "ts", "on_error": "keep"})(record)
    assert (record.timestamp_ms, record.kept) == (None, 1)


def test_a_raw_line_is_its_message_and_a_path_leads_into_objects() -> None:
    record = draft(b"2026-11-21T05:00:00Z")
    assert step({"timestamp": "message"})(record)
    assert record.timestamp_ms == FIVE
    inner = {"at": "2026-11-21T05:00:00Z"}
    record = draft({"event": inner})
    assert step({"timestamp": {"field": "event.at", "into": "event.time", "as": "unix"}})(record)
    assert record.value == {"event": {"at": "2026-11-21T05:00:00Z", "time": FIVE // 1000}}
    assert inner == {"at": "2026-11-21T05:00:00Z"}, "what is inside of a field is replaced, never changed"


@pytest.mark.parametrize(
    ("as_", "value"),
    [("timestamp", datetime(2026, 11, 21, 4, 0, 0, 123456, tzinfo=UTC)), ("unix", FIVE // 1000 - 3600), ("unix_ms", FIVE - 3_599_877),
     ("unix_us", FIVE * 1000 - 3_599_876_544)],
)  # fmt: skip
def test_into_keeps_the_moment(as_: str, value: Any) -> None:
    record = draft({"ts": "2026-11-21T05:00:00.123456789+01:00"})
    assert step({"timestamp": {"field": "ts", "into": "ts", "as": as_}})(record)
    assert record.value == {"ts": value}
    assert record.timestamp_ms == FIVE - 3_599_877


def test_the_year_comes_from_the_file() -> None:
    def year(mtime_ms: int) -> int:
        record = draft({"ts": "Dec 31 23:59:59"})
        item = {"timestamp": {"field": "ts", "format": "%b %d %H:%M:%S", "zone": "UTC"}}
        assert step(item, SplitMeta("/f", 1, "h", "c", mtime_ms))(record)
        assert record.timestamp_ms is not None
        return datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).year

    assert year(FIVE) == 2025
    assert year(FIVE + 45 * 86_400_000) == 2026


def test_declared_fields() -> None:
    assert columns({"timestamp": "ts"}, ts="string") == {"ts": "string"}
    assert columns({"timestamp": {"field": "ts", "into": "at"}}, ts="string") == {"ts": "string", "at": "timestamp"}
    assert columns({"timestamp": {"field": "ts", "into": "ts", "as": "unix_ms"}}, ts="string") == {"ts": "bigint"}


@pytest.mark.parametrize(
    "timestamp",
    [{}, {"field": "a..b"}, {"field": "ts", "format": "%Q"}, {"field": "ts", "format": ()}, {"field": "ts", "zone": "Nowhere/Land"},
     {"field": "ts", "into": "a[0]"}, {"field": "ts", "as": "text"}, 5],
)  # fmt: skip
def test_what_cannot_work_is_refused_when_it_is_loaded(timestamp: Any) -> None:
    with pytest.raises(ValidationError):
        options({"timestamp": timestamp})
