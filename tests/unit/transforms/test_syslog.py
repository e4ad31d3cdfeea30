"""Promises of the step `syslog`: both standards and what is written in their name, with the same fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.options import ValidationError
from copycat_agent.templates import SplitMeta
from tests.unit.transforms.steps import columns, draft, options, step

FIELDS = ["timestamp", "hostname", "facility", "severity", "appname", "procid", "msgid", "structured_data", "message"]
LATE_2020 = 1_606_000_000_000
"""2020-11-21T23:06:40Z, as the last change of a file."""
META = SplitMeta("/var/log/syslog", 1, "host", "name", LATE_2020)


def parsed(line: str | bytes, **more: Any) -> tuple[dict[str, Any], int | None]:
    """What is said (without nulls), and the record's time."""
    record = draft(line if isinstance(line, bytes) else line.encode())
    assert step({"syslog": {"zone": "UTC", **more}}, META)(record) is True
    assert isinstance(record.value, dict)
    assert list(record.value) == FIELDS
    return {name: value for name, value in record.value.items() if value is not None}, record.timestamp_ms


@pytest.mark.parametrize(
    ("line", "said", "at_ms"),
    [
        (  # the examples of RFC 5424
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff'su root' failed for lonvick on /dev/pts/8",
            {"timestamp": "2003-10-11T22:14:15.003Z", "hostname": "mymachine.example.com", "facility": "auth", "severity": "crit",
             "appname": "su",
             "msgid": "ID47", "message": "'su root' failed for lonvick on /dev/pts/8"},
            1065910455003,
        ),
        (
            "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
            {"timestamp": "2003-08-24T05:14:15.000003-07:00", "hostname": "192.0.2.1", "facility": "local4", "severity": "notice",
             "appname": "myproc", "procid": "8710", "message": "%% It's time to make the do-nuts."},
            1061727255000,
        ),
        (
            '<165>1 2003-10-11T22:14:15.003Z h evntslog - ID47 [exampleSDID@32473 iut="3" eventID="1011"][p@32473 class="high"] An event',
            {"timestamp": "2003-10-11T22:14:15.003Z", "hostname": "h", "facility": "local4", "severity": "notice", "appname": "evntslog",
             "msgid": "ID47", "structured_data": {"exampleSDID@32473": {"iut": "3", "eventID": "1011"}, "p@32473": {"class": "high"}},
             "message": "An event"},
            1065910455003,
        ),
        (
            r'<0>1 - - - - - [a b="q\" b\\ c\] d\n"][e][a b="2" x=""]',
            {"facility": "kern", "severity": "emerg", "structured_data": {"a": {"b": 'q" b\\ c] d\\n, 2', "x": ""}, "e": {}}},
            None,
        ),
        ("<191>1 - - - - - -", {"facility": "local7", "severity": "debug"}, None),
        ("<191>1 - - - - - - ", {"facility": "local7", "severity": "debug", "message": ""}, None),
        (
            "39 <34>1 - h su - ID47 - it has a length",
            {"hostname": "h", "facility": "auth", "severity": "crit", "appname": "su", "msgid": "ID47", "message": "it has a length"},
            None,
        ),
    ],
)  # fmt: skip
def test_rfc_5424(line: str, said: dict[str, Any], at_ms: int | None) -> None:
    assert parsed(line) == (said, at_ms)
    assert parsed(line, format="rfc5424") == (said, at_ms)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("<34>Oct 11 22:14:15 mymachine su: 'su root' failed", ["2020-10-11T22:14:15.000Z", "mymachine", "su", None, "'su root' failed"]),
        ("Nov 21 05:00:00 web-1 sshd[123]: Failed password", ["2020-11-21T05:00:00.000Z", "web-1", "sshd", "123", "Failed password"]),
        ("Dec  1 05:00:00 web-1 sshd[123]: last year", ["2019-12-01T05:00:00.000Z", "web-1", "sshd", "123", "last year"]),
        ("Jun 14 15:16:01 combo sshd(pam_unix)[1]: x", ["2020-06-14T15:16:01.000Z", "combo", "sshd(pam_unix)", "1", "x"]),
        ("Jun 14 15:16:01 combo syslogd 1.4.1: restart.", ["2020-06-14T15:16:01.000Z", "combo", None, None, "syslogd 1.4.1: restart."]),
        (
            "Jun 14 15:16:01 combo last message repeated",
            ["2020-06-14T15:16:01.000Z", "combo", None, None, "last message repeated"],
        ),
        ("Nov 21 05:00:00 su: without a host", ["2020-11-21T05:00:00.000Z", None, "su", None, "without a host"]),
        ("Nov 21 05:00:00 fe80::1 kernel: [ 1.2] x", ["2020-11-21T05:00:00.000Z", "fe80::1", "kernel", None, "[ 1.2] x"]),
        ("Nov 21 05:00:00 h a.b.c[4] (x.y): z", ["2020-11-21T05:00:00.000Z", "h", "a.b.c", "4", "(x.y): z"]),
        ("Nov 21 05:00:00.25 h x: y", ["2020-11-21T05:00:00.250Z", "h", "x", None, "y"]),
        ("<189>Nov 21 2024 05:00:00.123: %SYS-5-CONFIG_I: done", ["2024-11-21T05:00:00.123Z", None, "%SYS-5-CONFIG_I", None, "done"]),
        ("2026-11-22T05:00:00.123456+01:00 host prog[1]: x", ["2026-11-22T05:00:00.123456+01:00", "host", "prog", "1", "x"]),
        ("<13>2026-11-22T05:00:00Z host prog: x", ["2026-11-22T05:00:00Z", "host", "prog", None, "x"]),
        ("2026-11-22 05:00:00,5 host prog: x", ["2026-11-22T05:00:00.500Z", "host", "prog", None, "x"]),
        ("<13>tag: hello", [None, None, "tag", None, "hello"]),
        ("<13>hello world", [None, None, None, None, "hello world"]),
        ("22 <13>tag[7]: it is so", [None, None, "tag", "7", "it is so"]),
        ("Nov 21 05:00:00 host", ["2020-11-21T05:00:00.000Z", "host", None, None, ""]),
        ("Nov 21 05:00:00", ["2020-11-21T05:00:00.000Z", None, None, None, ""]),
    ],
)
def test_rfc_3164_and_what_is_written_in_its_name(line: str, said: list[str | None]) -> None:
    found, at_ms = parsed(line)
    assert [found.get(name) for name in ("timestamp", "hostname", "appname", "procid", "message")] == said
    assert ("facility" in found) == ("<" in line)
    assert (at_ms is None) == (said[0] is None)


def test_a_date_without_a_zone_is_in_the_zone_that_is_given() -> None:
    assert parsed("Jul 14 05:00:00 h x: y", zone="Europe/Berlin")[0]["timestamp"] == "2020-07-14T03:00:00.000Z"


def test_priorities_are_named() -> None:
    assert [parsed(f"<{number}>x: y")[0]["severity"] for number in range(8)] == [
        "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
    ]  # fmt: skip
    assert [parsed(f"<{8 * number}>x: y")[0]["facility"] for number in (0, 9, 10, 16, 23)] == [
        "kern",
        "cron",
        "authpriv",
        "local0",
        "local7",
    ]


@pytest.mark.parametrize(
    ("line", "words", "more"),
    [
        ("secret", "neither a priority", {}),
        ("", "neither a priority", {}),
        ("<192>secret", "the highest priority is 191", {}),
        ("<34>1 2003-13-11T22:14:15Z secret b c d -", "no time", {}),
        ("Feb 30 05:00:00 secret x: y", "no time", {}),
        ("<34>1 - a b c d [secret", r"structured data that begins at character 17", {}),
        ('<34>1 - a b c d [x y="secret]', "structured data", {}),
        ("<34>1 - a b c d [x]secret", "at character 20", {}),
        ("<34>1 - secret", "not a line of RFC 5424", {}),
        ("Nov 21 05:00:00 secret x: y", "not a line of RFC 5424", {"format": "rfc5424"}),
    ],
)
def test_what_is_no_syslog_is_a_bad_record(line: str, words: str, more: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=words) as caught:
        parsed(line, **more)
    assert "secret" not in str(caught.value)


def test_format_rfc3164_takes_a_version_for_text() -> None:
    assert parsed("<34>x: 1", format="rfc3164")[0]["message"] == "1"


def test_a_wrong_zone_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(ValidationError, match="no time zone"):
        options({"syslog": {"zone": "Berlin"}})


def test_a_field_is_parsed_like_a_line() -> None:
    record = draft({"line": "<13>tag: x", "more": 1})
    assert step({"syslog": {"field": "line", "into": "log"}}, META)(record)
    assert isinstance(record.value, dict)
    assert (record.value["more"], record.value["log"]["appname"]) == (1, "tag")
    assert "line" not in record.value


def test_its_columns_are_the_same_for_every_line() -> None:
    found = columns({"syslog": {}}, message="string")
    assert found is not None
    assert list(found) == FIELDS
    assert found["structured_data"] == "map<string, map<string, string>>"


def test_values_of_a_name_that_is_there_any_number_of_times_are_joined() -> None:
    """Joined one by one, they would take longer than a test may."""
    many = 1_500_000
    said, _ = parsed("<34>1 - - - - - [a" + ' b=""' * many + ' c="d" b="e"]')
    assert said["structured_data"] == {"a": {"b": ", " * many + "e", "c": "d"}}


HEADS = ["<34>1 - - - - - ", "<34>1 2003-10-11T22:14:15Z h a p m [", "Nov 21 05:00:00 ", "<13>", "2026-11-22T05:00:00Z ", "12 <1>", ""]


@given(st.sampled_from(HEADS), st.text(alphabet='ab:[]<>="\\ 1\n-\ufeffé', max_size=40))
def test_no_line_breaks_it_and_the_message_is_the_end_of_the_line(head: str, rest: str) -> None:
    try:
        found, _ = parsed(head + rest)
    except DataError:
        return
    assert (head + rest).endswith(found.get("message", ""))


@given(st.binary(max_size=60))
def test_no_bytes_break_it(line: bytes) -> None:
    try:
        parsed(line)
    except DataError:
        return
