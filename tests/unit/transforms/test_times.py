"""Promises of times in texts: the same moments that Python finds, in every zone, and nothing but a DataError for anything else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.transforms.time_layouts import EPOCH_UNITS, NAMES
from copycat_agent.transforms.times import compile_times

_at = datetime.fromisoformat
MOMENTS = st.datetimes(_at("1971-01-01"), _at("9998-12-31"), timezones=st.just(UTC))
OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Monrovia", "UTC")
NAMED = (*NAMES, *EPOCH_UNITS)

FORMATS = (
    "%d/%b/%Y:%H:%M:%S %z", "%Y-%m-%d %H:%M:%S,%f %z", "%Y-%m-%dT%H:%M:%S.%f%z", "%Y%m%d%H%M%S%f %z", "%A, %d %B %Y %I:%M:%S %p %z",
    "%a %b %d %H:%M:%S %Y %z", "%m/%d/%Y %I:%M %p %z", "%Y.%j %H:%M:%S %z", "%Y-%m-%d", "%% %d.%m.%Y %z", "%H:%M %z %d %b %Y",
)  # fmt: skip


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def read(form: str, text: str, zone: str = "UTC", near: str = "2026-11-21T00:00:00Z") -> str:
    """The moment as text."""
    near_ms = micros(datetime.fromisoformat(near)) // 1000
    found = compile_times((form,), zone).bind_us(near_ms)(text)
    return (_at("1970-01-01") + timedelta(microseconds=found)).isoformat()


@pytest.mark.parametrize(
    ("form", "text", "moment"),
    [
        ("%d/%b/%Y:%H:%M:%S %z", "21/Nov/2026:05:00:00 +0100", "2026-11-21T04:00:00"),
        ("%d/%b/%Y:%H:%M:%S %z", "1/NOV/2026:5:00:00 -05:30", "2026-11-01T10:30:00"),
        ("%Y-%m-%d %H:%M:%S,%f", "2026-11-21 05:00:00,123", "2026-11-21T05:00:00.123000"),
        ("%Y-%m-%d %H:%M:%S.%f", "2026-11-21 05:00:00.123456789", "2026-11-21T05:00:00.123456"),
        ("%Y-%m-%d %H:%M:%S.%L", "2026-11-21 05:00:00.5", "2026-11-21T05:00:00.500000"),
        ("%Y-%m-%d %T%.3f %:z", "2026-11-21 05:00:00.125 +02:00", "2026-11-21T03:00:00.125000"),
        ("%y%m%d %H%M%S", "081109 203615", "2008-11-09T20:36:15"),
        ("%y/%m/%d %H:%M:%S", "17/06/09 20:10:40", "2017-06-09T20:10:40"),
        ("%m-%d %H:%M:%S.%f", "03-17 16:13:38.811", "2026-03-17T16:13:38.811000"),
        ("%b %d %H:%M:%S", "Nov  1 05:00:01", "2026-11-01T05:00:01"),
        ("%B %e %Y", "sept 5 2026", "2026-09-05T00:00:00"),
        ("%a %b %d %H:%M:%S %Y", "Sun Dec 04 04:47:44 2005", "2005-12-04T04:47:44"),
        ("%a %b %d %H:%M:%S %Z %Y", "Sat Nov 21 05:00:00 CET 2026", "2026-11-21T04:00:00"),
        ("%Y-%m-%d %I:%M:%S %p", "2026-11-21 12:00:00 AM", "2026-11-21T00:00:00"),
        ("%Y-%m-%d %l:%M %p", "2026-11-21 12:01 p.m.", "2026-11-21T12:01:00"),
        ("%H:%M:%S %Z%z %d.%m.%Y", "05:00:00 GMT+0200 21.11.2026", "2026-11-21T03:00:00"),
        ("%Y-%m-%d %H:%M:%S %Z", "2026-11-21 05:00:00 GMT+08:00", "2026-11-20T21:00:00"),
        ("%Y-%j", "2024-366", "2024-12-31T00:00:00"),
        ("%s.%f", "1732165200.25", "2024-11-21T05:00:00.250000"),
        ("%s", "-1", "1969-12-31T23:59:59"),
        ("%F %T", "2026-12-31 23:59:60", "2027-01-01T00:00:00"),
        ("%F %T", " 2026-12-31 23:59:59\t", "2026-12-31T23:59:59"),
        ("%F %T%n%z", "2026-12-31 23:59:59Z", None),
        ("[%F %T]", "[2026-12-31 23:59:59]", "2026-12-31T23:59:59"),
        ("%d.%m.%y 100%%", "01.02.69 100%", "1969-02-01T00:00:00"),
        ("%d.%m.%y", "01.02.68", "2068-02-01T00:00:00"),
        ("rfc3339", "2026-11-21T05:00:00Z", "2026-11-21T05:00:00"),
        ("rfc3339", "2026-11-21t05:00:00.1234567-00:00", "2026-11-21T05:00:00.123456"),
        ("ISO8601", "2026-11-21 05:00:00Z", "2026-11-21T05:00:00"),
        ("UNIX_MS", "1795237200123", "2026-11-21T05:00:00.123000"),
        ("rfc3339", "2026-11-21 05:00:00+05:30", "2026-11-20T23:30:00"),
        ("rfc3339", "2016-12-31T23:59:60Z", "2017-01-01T00:00:00"),
        ("rfc3339", "2026-11-21T05:00:00", None),
        ("rfc3339", "2026-11-21", None),
        ("iso8601", "2026-11-21T05:00:00", "2026-11-21T05:00:00"),
        ("iso8601", "2026-11-21 05:00:00,123+01", "2026-11-21T04:00:00.123000"),
        ("iso8601", "20261121T050000Z", "2026-11-21T05:00:00"),
        ("iso8601", "2026-11-21 05:00:00.123 +0100", "2026-11-21T04:00:00.123000"),
        ("iso8601", "2026-11-21T05:00", "2026-11-21T05:00:00"),
        ("iso8601", "2026-11-21", "2026-11-21T00:00:00"),
        ("iso8601", "2026-1121", None),
        ("iso8601", "2026-02-30", None),
        ("iso8601", "2026-11-21T24:00:00", None),
        ("iso8601", "0000-01-01T00:00:00Z", None),
        ("iso8601", "٢٠٢٦-11-21", None),
        ("rfc2822", "Sat, 21 Nov 2026 05:00:00 +0100", "2026-11-21T04:00:00"),
        ("rfc2822", "21 Nov 26 05:00 CST", "2026-11-21T11:00:00"),
        ("rfc2822", "Sat, 21-Nov-2026 05:00:00 GMT (a word)", "2026-11-21T05:00:00"),
        ("unix", "1732165200", "2024-11-21T05:00:00"),
        ("unix", "1732165200.1234567", "2024-11-21T05:00:00.123456"),
        ("unix", "1732165200123", None),
        ("unix", "1e9", None),
        ("unix", "1_000", None),
        ("unix", "-0.5", "1969-12-31T23:59:59.500000"),
        ("unix_ms", "1732165200123", "2024-11-21T05:00:00.123000"),
        ("unix_us", "1732165200123456", "2024-11-21T05:00:00.123456"),
        ("unix_ns", "1732165200123456789", "2024-11-21T05:00:00.123456"),
        ("%F %T %Z", "2026-11-21 05:00:00 CST", None),
        ("%F %T %Z", "2026-11-21 05:00:00 IST", None),
        ("%F %T %Z", "2026-11-21 05:00:00 ", None),
        ("%F %T %z", "2026-11-21 05:00:00 +2500", None),
        ("%F %T %z", "2026-11-21 05:00:00 +0175", None),
        ("%F %H:%M:%S", "2026-11-21 05:61:00", None),
        ("%F %T", "2026-11-21 05:00:00 x", None),
        ("%Y%m%d", "2026111", None),
        ("%d %b %Y", "21 Nix 2026", None),
    ],
)
def test_each_format_finds_its_moment(form: str, text: str, moment: str | None) -> None:
    if moment is not None:
        assert read(form, text) == moment
        return
    with pytest.raises(DataError, match=r"^no time as in ") as caught:
        read(form, text)
    assert text.strip() not in str(caught.value)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("", "directives"),
        ("yyyy-MM-dd", "directives"),
        ("%Y-%m-%d %", "at the end"),
        ("%Y-%m-%d %Q", "no directive"),
        ("%c", "locale"),
        ("%Y %U %a", "weeks"),
        ("%H:%M:%S", "needs a day"),
        ("%Y-%m", "needs a day"),
        ("%b %d %Y %m", "twice"),
        ("%Y-%m-%d %y", "both the year"),
        ("%F %I:%M", "belong together"),
        ("%F %H:%M %p", "belong together"),
        ("%F %M", "need an hour"),
        ("%F %H:%S", "need minutes"),
        ("%F %H:%M.%f", "needs seconds"),
        ("%j %H", "needs a year"),
        ("%F %H:%M:%f %S", "behind its seconds"),
        ("%H:%M:%S %F %f", "behind its seconds"),
        ("%s %Y-%m-%d", "all of a time"),
    ],
)
def test_a_format_that_cannot_work_is_refused(form: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        compile_times((form,))


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../etc/passwd", "Europe", "+25:00", "0200"])
def test_a_zone_that_is_none_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        compile_times(("iso8601",), zone)


@given(MOMENTS, OFFSETS, st.sampled_from(FORMATS))
def test_formats_mean_what_strptime_means(moment: datetime, offset: timezone, form: str) -> None:
    text = moment.astimezone(offset).strftime(form)
    expected = datetime.strptime(text, form)  # noqa: DTZ007 - see below
    expected = expected if expected.tzinfo else expected.replace(tzinfo=UTC)
    assert compile_times((form,), "UTC").bind_us()(text) == micros(expected)


@given(MOMENTS, OFFSETS)
def test_what_standards_write_is_read_back(moment: datetime, offset: timezone) -> None:
    there = moment.astimezone(offset)
    for name in ("rfc3339", "iso8601"):
        assert compile_times((name,)).bind_us()(there.isoformat()) == micros(moment)
    whole = there.replace(microsecond=0)
    assert compile_times(("rfc2822",)).bind_us()(format_datetime(whole)) == micros(whole)
    for name, per_second in EPOCH_UNITS.items():
        exact = micros(moment) * 1000
        text = f"{exact // per_second}.{exact % per_second:0{len(str(per_second)) - 1}d}" if per_second > 1 else str(exact)
        assert compile_times((name,)).bind_us()(text) == micros(moment)


@given(st.datetimes(_at("1900-01-01"), _at("2100-01-01")), st.sampled_from(ZONES))
@example(_at("2026-03-29T02:30:00"), "Europe/Berlin")
@example(_at("2026-10-25T02:30:00"), "Europe/Berlin")
@example(_at("2011-12-30T12:00:00"), "Pacific/Apia")
@example(_at("1972-01-07T00:44:45"), "Africa/Monrovia")
def test_a_time_without_a_zone_is_of_the_one_that_is_set(moment: datetime, zone: str) -> None:
    """The first of two, and as if a clock that is set on had not been."""
    expected = micros(moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC))
    assert compile_times(("iso8601",), zone).bind_us()(moment.isoformat()) == expected


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_local_is_the_zone_of_this_host() -> None:
    for text in ("2026-07-01T12:00:00", "2026-12-01T12:00:00", "2026-03-29T02:30:00", "2026-10-25T02:30:00", "1971-01-01T00:00:30"):
        assert read("iso8601", text, "local") == read("iso8601", text, "Europe/Berlin")
    assert read("iso8601", "2026-07-01T12:00:00", "local") == "2026-07-01T10:00:00"
    assert read("%F %T %Z", "2026-07-01 12:00:00 CEST", "local") == "2026-07-01T10:00:00"


def test_a_zones_own_names_mean_it() -> None:
    assert read("%F %T %Z", "2026-11-21 05:00:00 CST", "Asia/Shanghai") == "2026-11-20T21:00:00"
    assert read("%F %T %Z", "2026-11-21 05:00:00 CST", "America/Chicago") == "2026-11-21T11:00:00"
    assert read("%F %T %Z", "2026-11-21 05:00:00 IST", "Asia/Kolkata") == "2026-11-20T23:30:00"
    assert read("%F %T %Z", "2026-10-25 02:30:00 CET", "Europe/Berlin") == "2026-10-25T01:30:00"
    assert read("%F %T %Z", "2026-10-25 02:30:00 CEST", "Europe/Berlin") == "2026-10-25T00:30:00"


@pytest.mark.parametrize("zone", ZONES)
def test_what_is_remembered_of_a_minute_is_true_of_all_of_it(zone: str) -> None:
    """One reader for all texts, from both sides of each change of the clocks."""
    form = compile_times(("iso8601", "%b %d %H:%M:%S %Y"), zone).bind_us()
    for around in ("1972-01-07T00:44:00", "2011-12-31T00:00:00", "2026-03-29T02:00:00", "2026-10-25T02:00:00", "2026-11-01T01:00:00"):
        for seconds in (0, 59, -1, 61, 29.5, 60, 3599, 3601, 1, -0.25):
            moment = _at(around) + timedelta(seconds=seconds)
            expected = micros(moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC))
            assert form(moment.isoformat()) == expected
            if not moment.microsecond:
                assert form(moment.strftime("%b %d %H:%M:%S %Y")) == expected
    assert form("2026-12-31T23:59:60") == form("2027-01-01T00:00:00")
    assert form("2026-12-31T23:59:58") == form("2027-01-01T00:00:00") - 2_000_000


def test_a_zones_own_name_means_what_it_meant_then() -> None:
    moscow = compile_times(("%F %T %Z",), "Europe/Moscow").bind()
    assert moscow("2012-01-01 04:00:00 MSK") == micros(_at("2012-01-01T00:00:00Z")) // 1000
    assert moscow("2016-01-01 03:00:00 MSK") == micros(_at("2016-01-01T00:00:00Z")) // 1000


@pytest.mark.parametrize(
    ("text", "near", "year"),
    [
        ("Nov 21 05:00:00", "2026-11-21T05:00:00Z", 2026),
        ("Dec 31 23:59:59", "2027-01-01T00:00:03Z", 2026),
        ("Jan  1 00:00:05", "2026-12-31T23:59:59Z", 2027),
        ("Jan  1 00:00:05", "2026-12-20T00:00:00Z", 2026),
        ("Feb  3 00:00:00", "2026-12-31T23:59:59Z", 2026),
        ("Dec  3 00:00:00", "2026-11-21T00:00:00Z", 2025),
        ("Feb 29 12:00:00", "2028-03-01T00:00:00Z", 2028),
        ("Feb 29 12:00:00", "2027-03-01T00:00:00Z", 2024),
        ("Feb 29 12:00:00", "2103-03-01T00:00:00Z", 2096),
        ("Feb 28 12:00:00", "2027-03-01T00:00:00Z", 2027),
    ],
)
def test_a_time_without_a_year_is_the_latest_that_the_file_can_hold(text: str, near: str, year: int) -> None:
    assert int(read("%b %d %H:%M:%S", text, near=near)[:4]) == year


@pytest.mark.parametrize("near_ms", [-(2**80), -62_135_596_800_000, -1, 253_402_300_800_000, 2**63, 2**80])
def test_a_file_that_was_changed_at_no_possible_time_says_nothing_about_the_year(near_ms: int) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    assert compile_times(("%b %d %H:%M:%S",), "UTC").bind_us(near_ms)(now.strftime("%b %d %H:%M:%S")) == micros(now)


def test_a_file_that_was_changed_at_the_end_of_the_calendar_names_its_last_year() -> None:
    assert read("%b %d %H:%M:%S", "Dec 31 12:00:00", near="9999-12-31T23:59:59Z").startswith("9999")


def test_without_a_file_the_year_is_found_from_now() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    assert compile_times(("%b %d %H:%M:%S",), "UTC").bind_us()(now.strftime("%b %d %H:%M:%S")) == micros(now)


def test_a_day_that_no_year_has_is_no_time() -> None:
    with pytest.raises(DataError):
        read("%b %d", "Feb 30")


def test_several_formats_are_tried_in_order_and_a_unit_that_is_too_large_gives_way() -> None:
    times = compile_times(("%d.%m.%Y", "%m/%d/%Y", "unix", "unix_ms"), "UTC").bind()
    assert [times(text) for text in ("21.11.2026", "11/21/2026")] == [1795219200000] * 2
    assert times("1732165200") == times("1732165200000") == 1732165200000
    with pytest.raises(DataError, match="any of the 4 formats"):
        times("x")


def test_a_records_time_is_between_1970_and_the_end_of_9999() -> None:
    times = compile_times(("iso8601",), "UTC").bind()
    assert times("1970-01-01T00:00:00Z") == 0
    assert times("9999-12-31T23:59:59.9999Z") == 253_402_300_799_999
    for text in ("1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59-01:00"):
        with pytest.raises(DataError, match="outside of the years"):
            times(text)


def test_what_is_remembered_is_bounded_and_stays_right() -> None:
    times = compile_times(("%Y-%m-%d %H:%M:%S %Z",), "Europe/Berlin").bind()
    for turn in range(2):
        for second in range(0, 10_000 * 61, 61):
            moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
            assert times(moment.strftime("%Y-%m-%d %H:%M:%S UTC")) == micros(moment) // 1000, turn
    assert len(times.__self__) < 5000  # type: ignore[attr-defined]


@given(st.text(max_size=200) | st.text("0123456789:-+., TZz/apm", max_size=40), st.sampled_from((*FORMATS, *NAMED, "%b %d %T %Z")))
@example("9" * 5000, "unix")
@example("0001-01-01T00:00:00+23:59", "iso8601")
@example("9999-12-31T23:59:60-23:59", "iso8601")
def test_any_text_is_a_time_or_a_data_error(text: str, form: str) -> None:
    for zone in ("Europe/Berlin", "local"):
        try:
            found = compile_times((form,), zone).bind()(text)
        except DataError:
            continue
        assert 0 <= found <= 253_402_300_799_999


def test_a_text_of_more_than_128_characters_is_no_time_so_that_none_is_remembered() -> None:
    assert read("%Y-%m-%d %H:%M", f"{'2026-11-21':123}10:00") == "2026-11-21T10:00:00"
    with pytest.raises(DataError, match="no time as in"):
        read("%Y-%m-%d %H:%M", f"{'2026-11-21':124}10:00")
