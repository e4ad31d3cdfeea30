"""What `status` and `top` show of known values, at the widths people have; nothing is cut, what says least is left out."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from copycat_agent.api import AgentClient, AgentUnreachableError
from copycat_agent.api.status_text import connector_facts, is_degraded
from copycat_agent.cli import status, top
from copycat_agent.cli.screen import AgentSnapshot, AgentWatch, Rates, TableColumn, fitting, table
from copycat_agent.cli.status import connectors_table
from copycat_agent.cli.top import body, head
from copycat_agent.cli.top_screen import TopSnapshot
from copycat_agent.cli.value_text import exactly_once_facts, spark
from copycat_agent.display import age, rate, size, visible

NOW = 1_763_776_800.0
AGENT: dict[str, Any] = {
    "version": "1.2",
    "pid": 42,
    "uuid": "u",
    "started": NOW - 7200,
    "state_dir": "/s",
    "directory": "/d",
    "agent_file": "",
    "spark": "running",
    "java_pid": 43,
    "offsets_unsaved": "",
    "stopping": False,
    "reloads": {},
    "stuck": [],
    "last_reload": None,
}


def connector(name: str, **changes: Any) -> dict[str, Any]:
    """A connector as the API shows it."""
    counts = {
        "read": 0,
        "read_bytes": 0,
        "acknowledged": 1_234_567,
        "dead_lettered": 0,
        "dropped": 0,
        "rejected": 0,
        "too_long": 0,
        "kept": 0,
    }
    lag = {"bytes": 0, "files": 0, "known_files": 1, "open_files": 1, "oldest_unread_ms": 0, "troubled_files": 0}
    one: dict[str, Any] = {
        "name": name,
        "state": "running",
        "reason": "",
        "since": NOW - 180,
        "enabled": True,
        "unsaved": False,
        "retries": 0,
        "counts": counts,
        "lag": lag,
        "clients": [],
        "losses": {},
        "errors": [],
    }
    for key, value in changes.items():
        one[key] = {**one[key], **value} if isinstance(one.get(key), dict) else value
    return one


QUIET = [connector("nginx-access"), connector("payments", state="paused", reason="paused on request")]
BUSY = [
    connector(
        "nginx-access",
        lag={"bytes": 3 * 2**30, "files": 12, "oldest_unread_ms": int((NOW - 300) * 1000)},
        retries=17,
        counts={"dead_lettered": 5, "rejected": 2},
        losses={"destroyed": {"size_bytes": 2048, "records": 0, "entries": 1}},
        clients=[
            {
                "at": NOW,
                "queue_records": 900,
                "queue_bytes": 10_240,
                "retries": 3,
                "brokers": [{"name": "k1:9092/1", "state": "UP", "rtt_ms": 1.5}, {"name": "k2:9092/2", "state": "DOWN", "rtt_ms": None}],
            },
            {
                "at": NOW,
                "queue_records": 100,
                "queue_bytes": 0,
                "retries": 0,
                "brokers": [{"name": "k1:9092/1", "state": "UP", "rtt_ms": 7.25}],
            },
        ],
    ),
    connector("payments", state="blocked", reason="topic pay is missing; create it"),
    connector("old-one", state="stopped", enabled=False),
]


def look(connectors: list[dict[str, Any]], **agent: Any) -> AgentSnapshot:
    """Two looks, a second apart, in which each connector moved by 500 records."""
    rates = Rates()
    before = copy.deepcopy(connectors)
    for one in before:
        one["counts"]["acknowledged"] -= 500
    rates.look(before, 100.0)
    rates.look(connectors, 101.0)
    return AgentSnapshot({**AGENT, **agent}, connectors, NOW, rates=rates)


def top_of(seen: AgentSnapshot) -> TopSnapshot:
    """The same with a line for each connector."""
    return TopSnapshot(seen, {one["name"]: [0.0, 250.0, 500.0] for one in seen.connectors})


def drawn(what: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False, markup=False)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_wide_table_shows_everything() -> None:
    seen = look(BUSY)
    assert drawn(connectors_table(seen.connectors, seen.rates, NOW, 160), 160) == [
        "connector     state     since  records/s  acknowledged      lag  files  oldest unread  retries  DLQ  kept  passed over     lost",
        "nginx-access  RUNNING      3m        500     1,234,567  3.0 GiB     12             5m       17    5     0            2  2.0 KiB",
        "payments      BLOCKED      3m        500     1,234,567      0 B      0              -        0    0     0            0      0 B",
        "old-one       DISABLED     3m        500     1,234,567      0 B      0              -        0    0     0            0      0 B",
    ]


def test_the_guarantee_is_a_column_where_some_connector_promises_more() -> None:
    seen = look([connector("a", guarantee="exactly_once"), connector("b", guarantee="at_least_once")])
    shown = drawn(connectors_table(seen.connectors, seen.rates, NOW, 160), 160)
    assert shown[0].split()[:4] == ["connector", "state", "since", "guarantee"]
    assert ("exactly once" in shown[1], "at least once" in shown[2]) == (True, True)


def test_describe_says_what_exactly_once_means_and_where_the_lanes_are() -> None:
    lanes: dict[str, Any] = {"guarantee": "exactly_once", "cluster": "c1", "place": None, "lanes": [], "lane_outcomes": {}}
    assert list(exactly_once_facts(connector("a"))) == []
    promise, nowhere = exactly_once_facts(connector("a", **lanes))
    assert "isolation.level=read_committed" in promise
    assert nowhere == "positions: not read yet"
    lanes |= {
        "place": {"topic": "__copycat_offsets", "partition": 7},
        "lanes": [{"number": 0, "seq": 1200, "offset": 4}, {"number": 1, "seq": 3, "offset": 9}],
        "lane_outcomes": {"committed": 1201, "unknown": 1, "openings": 2},
    }
    assert list(exactly_once_facts(connector("a", **lanes)))[1:] == [
        "positions: partition 7 of __copycat_offsets, cluster c1; lanes: 0 at step 1,200, 1 at step 3",
        "transactions since the start: 1,201 committed, 0 given up, 1 whose outcome had to be asked for; lanes were opened 2 times",
    ]


def test_files_are_exactly_once_by_claims_and_their_lag_is_in_records() -> None:
    one = connector("a", guarantee="exactly_once", sink="files")
    one["lag"] |= {"bytes": 0, "records": 1200, "waiting_records": 1100}
    (promise,) = exactly_once_facts(one)
    assert "claims" in promise
    seen = look([one])
    head, row = drawn(connectors_table(seen.connectors, seen.rates, NOW, 160), 160)
    assert ("wait for a file" in head, "1,200 records" in row, "1,100" in row, "exactly once" in row) == (True, True, True, True)
    facts = connector_facts({**one, "acknowledged_at": 0, "errors": []}, NOW)
    assert facts["lag"] == "1,200 records, 1,100 of them wait until they make a file"


def test_a_narrow_table_leaves_out_what_says_nothing_first() -> None:
    seen = look(QUIET)
    assert drawn(connectors_table(seen.connectors, seen.rates, NOW, 80), 80) == [
        "connector     state    since  records/s  acknowledged  lag  oldest unread  lost",
        "nginx-access  RUNNING     3m        500     1,234,567  0 B              -   0 B",
        "payments      PAUSED      3m        500     1,234,567  0 B              -   0 B",
    ]


def test_a_column_that_says_something_outlives_one_that_counts_more_and_says_nothing() -> None:
    busy, idle = TableColumn("busy", ["7"], rank=9), TableColumn("idle", ["0"], rank=1, is_idle=True)
    name = TableColumn("name", ["n"])
    assert fitting([name, idle, busy], 16) == [name, idle, busy]
    assert fitting([name, idle, busy], 15) == [name, busy]
    assert fitting([name, idle, busy], 5) == [name]


def test_a_narrow_table_of_trouble_keeps_what_counts_most() -> None:
    seen = look(BUSY)
    assert drawn(connectors_table(seen.connectors, seen.rates, NOW, 80), 80) == [
        "connector     state     records/s  acknowledged      lag  oldest unread     lost",
        "nginx-access  RUNNING         500     1,234,567  3.0 GiB             5m  2.0 KiB",
        "payments      BLOCKED         500     1,234,567      0 B              -      0 B",
        "old-one       DISABLED        500     1,234,567      0 B              -      0 B",
    ]


def test_a_long_value_goes_on_in_the_next_line() -> None:
    value = "/var/log/" + "x" * 100
    columns = [
        TableColumn("name", ["n"], left=True),
        TableColumn("idle", ["0"], rank=1),
        TableColumn("value", [value], left=True, wraps=True),
    ]
    lines = drawn(table(columns, 40), 40)
    assert lines[0].split() == ["name", "idle", "value"]
    assert "".join(line[len("name  idle  ") :] for line in lines[1:]) == value


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 160, 240])
def test_no_line_of_top_is_wider_than_the_terminal(width: int) -> None:
    for line in drawn(top.frame(top_of(look(BUSY)), width, NOW), width):
        assert len(line) <= width


def test_top_shows_the_agent_its_connectors_why_and_the_brokers() -> None:
    lines = drawn(top.frame(top_of(look(BUSY)), 160, NOW), 160)
    assert lines[0] == "copycat 1.2  pid 42  up 2h  spark running  1,500 records/s  3.0 GiB unread"
    assert "500  ▁▅█" in lines[3]
    assert "payments: topic pay is missing; create it" in lines
    assert lines[-4:] == [
        "broker     state  producers     rtt",
        "k1:9092/1  UP             2  7.2 ms",
        "k2:9092/2  DOWN           1       -",
        "queued 1,000 records, 10.0 KiB   resent 3",
    ]


def test_top_says_on_which_cluster_tasks_run() -> None:
    assert "spark running  on spark://m:7077" in drawn(top.frame(top_of(look(QUIET, master="spark://m:7077")), 160, NOW), 160)[0]
    assert " on " not in drawn(top.frame(top_of(look(QUIET)), 160, NOW), 160)[0]


def test_top_shows_what_is_wrong_with_the_agent_as_a_whole() -> None:
    reload = {"kept": {"web": "a tab"}, "restart": ["spark.master"]}
    lines = drawn(top.frame(top_of(look(QUIET, offsets_unsaved="disk full", stuck=["web"], last_reload=reload)), 160, NOW), 160)
    assert lines[1:5] == [
        "! offsets cannot be saved: disk full",
        "! stuck: web; a file system that they read from may hang",
        "! web: a tab",
        "! agent.yaml: spark.master changed; restart the agent",
    ]


def test_files_that_cannot_be_read_are_told_though_the_connector_runs() -> None:
    lines = drawn(top.frame(top_of(look([connector("app", lag={"troubled_files": 2})])), 160, NOW), 160)
    assert "app: 2 paths that match cannot be read, or not cleaned up: copycat describe names them" in lines


def test_words_of_the_outside_reach_the_terminal_as_text() -> None:
    seen = look([connector("app", state="blocked", reason="\x1b[31mred\x07 [bold]topic[/bold]\nnext")])
    shown = "\n".join(drawn(top.frame(top_of(seen), 160, NOW), 160))
    assert "app: \\x1b[31mred\\x07 [bold]topic[/bold]\\nnext" in shown
    assert "\x1b" not in shown


def test_while_the_agent_is_away_the_last_picture_stays_and_says_so() -> None:
    class Gone(AgentClient):
        calls = 0

        def get(self, path: str) -> Any:
            Gone.calls += 1
            if 2 < Gone.calls <= 4:
                raise AgentUnreachableError("no agent answers at /s/agent.sock")
            return AGENT if path == "/v1" else {"connectors": QUIET}

    watch = AgentWatch(Gone(None))  # type: ignore[arg-type]  # it connects to nothing
    first = watch.look()
    assert "no agent answers at /s/agent.sock; waiting for it since 0s" in drawn(top.frame(top_of(first), 160), 160)[0]
    assert "no agent answers" in drawn(status.frame(first, 160), 160)[0]
    assert "nginx-access" in "\n".join(drawn(top.frame(top_of(first), 160), 160))
    watch.look()
    assert drawn(top.frame(top_of(watch.look()), 160), 160)[0].startswith("copycat 1.2")


@pytest.mark.parametrize(
    ("state", "degraded"),
    [
        ("running", False),
        ("paused", False),
        ("stopped", False),
        ("starting", True),
        ("retrying", True),
        ("blocked", True),
        ("failed", True),
    ],
)
def test_what_nobody_meant_is_degraded(state: str, degraded: bool) -> None:
    assert is_degraded(connector("app", state=state)) is degraded
    assert is_degraded(connector("app", state=state, unsaved=True))


def test_rates_begin_anew_when_counts_do() -> None:
    rates = Rates()
    rates.look([connector("app", counts={"acknowledged": 900})], 1.0)
    assert rates.of("app") is None
    rates.look([connector("app", counts={"acknowledged": 1000})], 2.0)
    rates.look([connector("app", counts={"acknowledged": 40})], 4.0)
    assert rates.of("app") == 20.0


def test_numbers_as_people_read_them() -> None:
    assert [age(seconds) for seconds in (-5, 0, 59, 60, 3599, 7200, 200_000)] == ["0s", "0s", "59s", "1m", "59m", "2h", "2d"]
    assert [size(number) for number in (0, 1023, 1024, 1536, 2**20, 5 * 2**40, 2**60)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "1.0 MiB",
        "5.0 TiB",
        "1048576.0 TiB",
    ]
    assert [rate(number) for number in (0, 0.4, 9.96, 12.5, 123456.7)] == ["0", "0.4", "10.0", "12", "123,457"]
    assert spark([0, 1, 2, 4, 8], 4) == "▂▃▅█"
    assert spark([0.0], 4) == "▁"


def test_a_tapped_record_is_shown_whole_and_harmless() -> None:
    record = {
        "topic": "t",
        "key": "k\x1b]0;title\x07",
        "value_base64": "/wBhCg==",
        "headers": [{"name": "h\n", "value": None}, {"name": "n", "value": "a\\b"}],
        "timestamp_ms": 1_500,
        "path": "/l/\udcff\u202e.log",
        "start": 7,
        "end": 9,
    }
    assert head(record) == "t  key k\\x1b]0;title\\x07  /l/\\xff\\u202e.log:7  1970-01-01T00:00:01.500Z"
    assert body(record) == "  h\\n: -\n  n: a\\\\b\n  \\xff\\x00a\\n"
    assert visible("plain text, ö") == "plain text, ö"
