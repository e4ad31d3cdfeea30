"""Times as programs write them, recognised without being told which."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from copycat_agent.formats.timestamps import recognise

if TYPE_CHECKING:
    from collections.abc import Iterator

FIVE = datetime(2026, 11, 22, 5, tzinfo=UTC).timestamp()
HOUR = 3600.0


@pytest.fixture(autouse=True)
def host_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The host is in Berlin: UTC+1 in November, UTC+2 in July."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def read(line: str, *, first: str = "", near: float = FIVE + HOUR) -> float | None:
    clock = recognise([first or line], near)
    return clock.read(line) if clock else None


UTC_LINES = {
    "nginx access": '203.0.113.9 - - [22/Nov/2026:05:00:00 +0000] "GET /a?t=2020-01-01T00:00:00Z HTTP/1.1" 200 512 "-" "curl/8"',
    "apache, other zone": '::1 - frank [22/Nov/2026:00:00:00 -0500] "GET / HTTP/1.0" 200 2326',
    "rfc 3339": "2026-11-22T05:00:00Z started",
    "offset with colon": "2026-11-22T06:00:00+01:00 started",
    "offset without": "2026-11-22 06:00:00.000 +0100 started",
    "offset of hours (postgres)": "2026-11-22 06:00:00+01 [71] LOG:  checkpoint starting: time",
    "postgres": "2026-11-22 05:00:00.000 UTC [71] LOG:  database system is ready",
    "mysql": "2026-11-22T05:00:00.000000Z 0 [System] [MY-010931] [Server] /usr/sbin/mysqld: ready for connections.",
    "mysql slow log": "# Time: 2026-11-22T05:00:00.000000Z",
    "containerd": "2026-11-22T05:00:00.000000000Z stdout F 2020-01-01 00:00:00 hello",
    "docker": '{"log":"2020-01-01T00:00:00Z hello\\n","stream":"stdout","time":"2026-11-22T05:00:00.000000000Z"}',
    "bunyan, pino": '{"level":30,"time":1795323600000,"pid":1,"msg":"hello"}',
    "zap": '{"level":"info","ts":1795323600.000,"caller":"main.go:1","msg":"hello"}',
    "elastic": '{"@timestamp":"2026-11-22T05:00:00.000Z","log.level":"INFO","message":"at 2020-01-01T00:00:00Z"}',
    "mongo": '{"t":{"$date":"2026-11-22T05:00:00.000+00:00"},"s":"I","c":"NETWORK"}',
    "json without a known field": '{"when":"2026-11-22T05:00:00Z","what":1}',
    "journalctl -o json": '{"__CURSOR":"s=1","__REALTIME_TIMESTAMP":"1795323600000000","MESSAGE":"hello"}',
    "journalctl -o export": "__CURSOR=s=a1;i=10;b=b2;m=5f;t=660d6596f5400;x=99",
    "journalctl -o short-iso": "2026-11-22T05:00:00+0000 host systemd[1]: Started.",
    "rsyslog, rfc 5424": "<34>1 2026-11-22T05:00:00.000Z host app - - - hello",
    "squid": "1795323600.000    105 192.0.2.9 TCP_MISS/200 4512 GET http://example.test/",
    "epoch ms": "1795323600000 hello",
    "epoch in brackets": "[1795323600] hello",
    "auditd": "type=SYSCALL msg=audit(1795323600.000:24287): arch=c000003e",
    "logfmt": 'level=info time="2026-11-22T05:00:00Z" msg=hello',
    "logfmt, epoch": "ts=1795323600.000 caller=main.go:1 msg=hello",
    "basic": "20261122T050000Z hello",
    "php": "[22-Nov-2026 05:00:00 UTC] PHP Warning:  hello",
    "date": "Sun Nov 22 05:00:00 UTC 2026 hello",
}
LOCAL_LINES = {
    "nginx error": "2026/11/22 06:00:00 [error] 31#31: *5 open() failed",
    "apache error": "[Sun Nov 22 06:00:00.000000 2026] [core:error] [pid 35708] hello",
    "syslog": "Nov 22 06:00:00 host sshd[1234]: Accepted publickey",
    "haproxy": "Nov 22 06:00:00 host haproxy[9]: 192.0.2.1:1 [22/Nov/2026:05:59:59.655] front back/a 10/0 200",
    "logback, log4j": "2026-11-22 06:00:00,000 [main] INFO  org.example.Main - hello",
    "python logging": "2026-11-22 06:00:00,000 - root - INFO - hello",
    "kafka": "[2026-11-22 06:00:00,000] INFO [Log partition=a-0] hello (kafka.log.Log)",
    "tomcat": "22-Nov-2026 06:00:00.000 INFO [main] org.example.Main hello",
    "java.util.logging": "Nov 22, 2026 6:00:00 AM org.example.Main main",
    "redis": "1:M 22 Nov 2026 06:00:00.000 * Ready to accept connections",
    "klog": "I1122 06:00:00.000000       1 main.go:42] hello",
    "glog with its year": "W20261122 06:00:00.000000 140 main.cc:1] hello",
    "ruby": "I, [2026-11-22T06:00:00.000000 #1234]  INFO -- : hello",
    "monolog": "[2026-11-22 06:00:00] app.INFO: hello",
    "not a zone": "2026-11-22 06:00:00 INFO -12 degrees",
    "cisco": "Nov 22 2026 06:00:00: %ASA-6-302014: hello",
    "runit": "2026-11-22_06:00:00.00000 hello",
}


@pytest.mark.parametrize("name", [*UTC_LINES, *LOCAL_LINES])
def test_a_time_is_recognised(name: str) -> None:
    assert read({**UTC_LINES, **LOCAL_LINES}[name]) == FIVE


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "\tat org.example.Main.main(Main.java:42)",
        "05:00:00.123 [main] INFO no day",
        "version 2026-11-22",
        "2026-13-01 05:00:00 no month",
        "22/11/2026 05:00:00 day or month first, who knows",
        "12345 hello",
        "9795323600 hello",
        '{"log": broken',
        '{"time": true}',
        '{"time": [1], "ts": null}',
    ],
)
def test_what_is_no_time_is_none(line: str) -> None:
    assert read(line) is None


def test_fractions_count_with_a_dot_or_a_comma() -> None:
    assert read("2026-11-22T05:00:00.25Z") == read("2026-11-22T05:00:00,250Z") == FIVE + 0.25
    assert read("1795323600250 x") == read("1795323600.25 x") == FIVE + 0.25


@pytest.mark.parametrize(
    ("line", "near", "expected"),
    [
        ("Dec 31 23:59:59 host a: b", "2027-01-01T00:00:05+01:00", "2026-12-31T23:59:59+01:00"),
        ("Jan  1 00:00:01 host a: b", "2027-01-01T00:00:05+01:00", "2027-01-01T00:00:01+01:00"),
        ("Nov 22 06:00:00 host a: b", "2026-11-21T12:00:00+01:00", "2026-11-22T06:00:00+01:00"),  # a clock that is a little ahead
        ("Nov 23 06:00:00 host a: b", "2026-11-21T12:00:00+01:00", "2025-11-23T06:00:00+01:00"),
        ("Feb 29 06:00:00 host a: b", "2027-03-01T00:00:00+01:00", "2024-02-29T06:00:00+01:00"),
        ("E1231 23:59:59.5 1 a.go:1] b", "2027-01-01T00:00:05+01:00", "2026-12-31T23:59:59.5+01:00"),
    ],
)
def test_without_a_year_it_is_the_last_one_before_the_file_was_changed(line: str, near: str, expected: str) -> None:
    assert read(line, near=datetime.fromisoformat(near).timestamp()) == datetime.fromisoformat(expected).timestamp()


def test_an_hour_that_comes_twice_is_the_second_one() -> None:
    assert read("2026-10-25 02:30:00 x") == datetime.fromisoformat("2026-10-25T02:30:00+01:00").timestamp()


def test_summer_time_is_the_hosts() -> None:
    assert read("2026-07-01 02:30:00 x") == datetime.fromisoformat("2026-07-01T02:30:00+02:00").timestamp()


def test_a_leap_second_is_the_next_one() -> None:
    assert read("2016-12-31T23:59:60Z x") == datetime.fromisoformat("2017-01-01T00:00:00+00:00").timestamp()


def test_the_form_that_most_of_the_first_lines_have_is_the_files() -> None:
    lines = ["log of 2020-01-01T00:00:00Z", *["Nov 22 06:00:00 host a: 2020-01-01T00:00:00Z"] * 3]
    clock = recognise(lines, FIVE + HOUR)
    assert clock is not None
    assert clock.read(lines[1]) == FIVE
    assert clock.read(lines[0]) is None


def test_where_times_stand_at_the_front_those_within_the_text_are_text() -> None:
    first = "2026-11-22T05:00:00Z failed"
    assert read("Caused by: expired at 2020-01-01T00:00:00Z", first=first) is None
    assert read("[2026-11-22T05:00:00Z] failed", first=first) == FIVE
