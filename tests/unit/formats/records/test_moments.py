"""Times that Python can hold are its own; all others are text that says exactly the same."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.formats.records.schemas import clocks, day, moments

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_microsecond_that_python_knows_is_a_datetime(moment: datetime) -> None:
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    assert moments(10**6, utc=True)(micros) == moment
    assert moments(10**9, utc=True)(micros * 1000) == moment
    assert moments(10**6, utc=False)(micros) == moment.replace(tzinfo=None)


@given(st.datetimes(timezones=st.just(UTC)), st.integers(1, 999))
def test_nanoseconds_are_text_that_begins_as_the_microsecond_does(moment: datetime, nanos: int) -> None:
    count = (moment - EPOCH) // timedelta(microseconds=1) * 1000 + nanos
    text = moments(10**9, utc=True)(count)
    assert isinstance(text, str)
    micros = f"{moment:%H:%M:%S}.{moment.microsecond:06d}{nanos:03d}"
    assert text == f"{moment.year:04d}-{moment:%m-%d}T{micros}+00:00"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (253402300800, "+10000-01-01T00:00:00+00:00"),
        (-62135596801, "0000-12-31T23:59:59+00:00"),
        (-62167219201, "-0001-12-31T23:59:59+00:00"),
        (2**63 - 1, "+292277026596-12-04T15:30:07+00:00"),
        (-(2**63), "-292277022657-01-27T08:29:52+00:00"),
    ],
)
def test_years_that_python_does_not_know_are_text(count: int, text: str) -> None:
    assert moments(1, utc=True)(count) == text
    assert moments(1, utc=False)(count) == text.removesuffix("+00:00")


@given(st.dates())
def test_days(one: date) -> None:
    assert day((one - date(1970, 1, 1)).days) == one


def test_days_that_python_does_not_know_are_text() -> None:
    assert (day(2932897), day(-719163)) == ("+10000-01-01", "0000-12-31")
    assert (day(2932896), day(-719162)) == (date.max, date.min)


@given(st.times())
def test_times_of_day(one: time) -> None:
    micros = ((one.hour * 60 + one.minute) * 60 + one.second) * 10**6 + one.microsecond
    assert clocks(10**6)(micros) == one
    assert clocks(10**9)(micros * 1000) == one


def test_times_of_day_that_python_does_not_know_are_text() -> None:
    assert clocks(10**9)(3_600_000_000_001) == "01:00:00.000000001"
    assert clocks(10**3)(86_400_000) == "24:00:00"
