"""Promise: lines of well-known formats are parsed whole, by regex, grok and syslog, none of them in part."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.unit.transforms.log_lines import Lines
from tests.unit.transforms.steps import after, draft, step

SYSLOG: dict[str, Any] = {"syslog": {"zone": "UTC"}}
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("apache", {"regex": r"^\[(?P<ts>[^\]]+)\] \[(?P<level>\w+)\] (?:\[client (?P<client>[^\]]+)\] )?(?P<message>.*)$"}),
    ("apache", {"grok": "^%{HTTPD20_ERRORLOG}$"}),
    ("openssh", SYSLOG),
    ("openssh", {"grok": "^%{SYSLOGLINE}$"}),
    ("linux", SYSLOG),
    ("linux", {"grok": "^%{SYSLOGLINE}$"}),
    ("hdfs", {"regex": r"^(?P<date>\d{6}) (?P<time>\d{6}) (?P<pid>\d+) (?P<level>[A-Z]+) (?P<component>[^:]+): (?P<message>.*)$"}),
    ("hdfs", {"grok": r"^(?<date>\d{6}) (?<time>\d{6}) %{INT:pid:int} %{LOGLEVEL:level} %{JAVACLASS:component}: %{GREEDYDATA:message}$"}),
    (
        "zookeeper",
        {"regex": r"^(?P<ts>\S+ \S+) - (?P<level>[A-Z]+) +\[(?P<thread>.*):(?P<class>[^:@]+)@(?P<id>\d+)\] - (?P<message>.*)$"},
    ),
    (
        "zookeeper",
        {"grok": r"^%{TIMESTAMP_ISO8601:ts} - %{LOGLEVEL:level} +\[%{DATA:thread}:%{JAVACLASS:c}@%{INT:id}\] - %{GREEDYDATA:message}$"},
    ),
    ("spark", {"regex": r"^(?P<ts>\S+ \S+) (?P<level>[A-Z]+) (?P<component>[^:]+): (?P<message>.*)$"}),
    ("spark", {"grok": "^(?<ts>%{YEAR}/%{MONTHNUM}/%{MONTHDAY} %{TIME}) %{LOGLEVEL:level} %{NOTSPACE:component}: %{GREEDYDATA:message}$"}),
    (
        "android",
        {"regex": r"^(?P<ts>\S+ \S+) +(?P<pid>\d+) +(?P<tid>\d+) (?P<level>[VDIWEF]) (?P<component>.*?) *: (?P<message>.*)$"},
    ),
    ("android", {"grok": r"^(?<date>[\d-]+) %{TIME:at} +%{INT:pid} +%{INT:tid} (?<level>\w) %{DATA:component} *: %{GREEDYDATA:message}$"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "item"), STEPS, ids=[f"{name}-{next(iter(item))}" for name, item in STEPS])
def test_every_line_is_parsed(name: str, item: dict[str, Any]) -> None:
    work = step(item)
    for line in Lines().of(name):
        record = draft(line)
        assert work(record) is True
        fields = cast("dict[str, Any]", record.value)
        assert line.decode().endswith(fields["message"])
        assert len(fields["message"]) < len(line) - 20
        if "syslog" in item:
            assert {fields["hostname"]} < {"LabSZ", "combo", None}
            assert fields["appname"]


def test_syslog_and_grok_agree() -> None:
    for line in [*Lines().of("openssh", 20), *Lines().of("linux", 20)]:
        one, other = after(SYSLOG, line), after({"grok": "^%{SYSLOGLINE}$"}, line)
        assert (one["hostname"], one["appname"]) == (other["host"]["hostname"], other["process"]["name"])
        assert one["message"] == other["message"]
