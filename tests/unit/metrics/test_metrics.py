"""The numbers: right, complete, documented, cheap, and the same over HTTP."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from copycat_agent.control import ReloadResult
from copycat_agent.errors import RetriableError
from copycat_agent.metrics import PREFIX, health_app
from copycat_agent.metrics.families import FAMILIES
from copycat_agent.model import BrokerView, ClientView, Counts, LossTotal
from copycat_agent.sources import Lag
from copycat_agent.worker import State, Status
from copycat_agent.worker.status import BOUNDS_SECONDS, Timing
from tests.unit.metrics.doubles import FakeAgent, behind, get, get_json, running

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.types import WSGIApplication

PROJECT = Path(__file__).parents[3]

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(app: WSGIApplication) -> Samples:
    """Every sample as a Prometheus server would see it."""
    status, headers, body = get(app, "/metrics")
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    families = text_string_to_metric_families(body.decode())
    return {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}


def value(samples: Samples, name: str, connector: str = "app", **labels: str) -> float:
    return samples[PREFIX + name, frozenset({"connector": connector, **labels}.items())]


def agent_value(samples: Samples, name: str, **labels: str) -> float:
    return samples[PREFIX + name, frozenset(labels.items())]


def client(at: float, *brokers: BrokerView) -> ClientView:
    return ClientView(at, brokers, 10, 2000, 1)


def test_what_a_connector_counts_is_told() -> None:
    counts = Counts(read=3000, read_bytes=51_000, acknowledged=2990, dead_lettered=4, dropped=3, rejected=2, too_long=1)
    lag = Lag(7, 2, 9, 5, 0, 1, 3, int((time.time() - 30) * 1000), 11, 12)
    status = running(counts=counts, lag=lag, retries=8, tasks=2, acknowledged_at=123.0, errors={("send", "RetriableError"): 6})
    samples = scrape(health_app(FakeAgent(status).control))
    told = {
        "records_read_total": 3000, "read_bytes_total": 51_000, "records_acknowledged_total": 2990, "dlq_records_total": 4,
        "records_too_long_total": 1, "retries_total": 8, "lag_bytes": 7, "lag_files": 2, "files_known": 9, "files_open": 5,
        "files_blocked": 1, "files_troubled": 3, "files_rotated_total": 11, "files_truncated_total": 12, "in_flight": 2,
        "last_acknowledged_timestamp_seconds": 123.0,
    }  # fmt: skip
    assert {name: value(samples, name) for name in told} == told
    assert value(samples, "records_dropped_total", reason="filtered") == 3
    assert value(samples, "records_dropped_total", reason="rejected") == 2
    assert value(samples, "errors_total", stage="send", type="RetriableError") == 6
    assert 30 <= value(samples, "oldest_unread_seconds") < 60


def test_lag_in_records_is_told_of_those_that_know_it() -> None:
    samples = scrape(health_app(FakeAgent(running(lag=Lag(records=12, waiting_records=7))).control))
    assert (value(samples, "lag_records"), value(samples, "lag_waiting_records")) == (12, 7)
    assert not any("lag_records" in name for name, _ in scrape(health_app(FakeAgent(running()).control)))


def test_transactions_are_told_of_those_that_have_them() -> None:
    outcomes = {"committed": 7, "idle": 3, "undone": 2, "unknown": 1, "openings": 4}
    samples = scrape(health_app(FakeAgent(running(guarantee="exactly_once", delivery_outcomes=outcomes)).control))
    assert [value(samples, "transactions_total", outcome=one) for one in ("committed", "undone", "unknown")] == [7, 2, 1]
    assert value(samples, "lanes_opened_total") == 4
    samples = scrape(health_app(FakeAgent(running(guarantee="exactly_once", sink="files")).control))
    assert not any("transactions_total" in name or "lanes_opened" in name for name, _ in samples)
    assert not any("transactions_total" in name for name, _ in scrape(health_app(FakeAgent(running()).control)))


def test_a_connector_has_one_state() -> None:
    samples = scrape(health_app(FakeAgent(running(state=State.BLOCKED)).control))
    assert {state: value(samples, "connector_state", state=str(state)) for state in State} == {
        state: float(state is State.BLOCKED) for state in State
    }


def test_durations_are_histograms_with_cumulative_buckets() -> None:
    timing = Timing().plus(0.004).plus(0.03).plus(0.03).plus(1000)
    samples = scrape(health_app(FakeAgent(running(commit_seconds=timing, delivery_seconds=Timing().plus(2))).control))
    counts = [value(samples, "commit_seconds_bucket", le=f"{bound:g}") for bound in BOUNDS_SECONDS[:4]]
    assert counts == [1, 1, 1, 3]
    assert value(samples, "commit_seconds_bucket", le="+Inf") == value(samples, "commit_seconds_count") == 4
    assert value(samples, "commit_seconds_sum") == pytest.approx(1000.064)
    assert value(samples, "delivery_seconds_bucket", le="2.5") == 1


def test_gaps_begin_at_zero_and_outlive_their_connector() -> None:
    agent = FakeAgent(running())
    agent.losses = {("app", "destroyed"): LossTotal(500, 0, 1), ("gone", "too_long"): LossTotal(9, 1, 1)}
    samples = scrape(health_app(agent.control))
    assert value(samples, "gap_bytes_total", reason="destroyed") == 500
    assert value(samples, "gap_bytes_total", reason="rejected") == 0
    assert value(samples, "gap_bytes_total", "gone", reason="too_long") == 9


def test_a_store_that_cannot_be_read_costs_no_scrape_and_no_gap() -> None:
    agent = FakeAgent(running())
    agent.losses = {("app", "destroyed"): LossTotal(500, 0, 1)}
    app = health_app(agent.control)
    scrape(app)
    agent.error = RetriableError("the disk is gone")
    assert value(scrape(app), "gap_bytes_total", reason="destroyed") == 500


def test_brokers_are_told_once_whatever_the_number_of_producers() -> None:
    now = time.time()
    one, two = BrokerView("k1:9092", "UP", 2.0), BrokerView("k2:9092", "DOWN", None)
    status = running(clients=(client(now, one, two), client(now, one._replace(state="CONNECT", rtt_ms=4.0), two)))
    samples = scrape(health_app(FakeAgent(status).control))
    assert value(samples, "kafka_broker_up", broker="k1:9092") == 1
    assert value(samples, "kafka_broker_up", broker="k2:9092") == 0
    assert value(samples, "kafka_rtt_seconds", broker="k1:9092") == 0.004
    assert value(samples, "kafka_queue_records") == 20
    assert value(samples, "kafka_queue_bytes") == 4000


def test_old_word_of_a_broker_is_not_told() -> None:
    status = running(clients=(client(time.time() - 100, BrokerView("k1:9092", "UP", 2.0)),))
    assert not [name for name, _ in scrape(health_app(FakeAgent(status).control)) if "kafka" in name]


def test_the_agent_tells_of_itself() -> None:
    agent = FakeAgent()
    reload = ReloadResult(kept={"a": "why", "b": "why"}, restart=("log.level",))
    agent.now = replace(agent.now, reloads={"ok": 3, "problems": 2}, last_reload=reload, offsets_unsaved="disk full", spark="starting")
    samples = scrape(health_app(agent.control))
    told = {"definitions_broken": 2, "restart_needed": 1, "offsets_unsaved": 1, "spark_up": 0, "start_time_seconds": agent.now.started}
    assert {name: agent_value(samples, name) for name in told} == told
    assert agent_value(samples, "reloads_total", result="ok") == 3
    assert agent_value(samples, "reloads_total", result="problems") == 2
    assert [dict(labels)["version"] for name, labels in samples if name == PREFIX + "build_info"] == ["1.2.3"]
    assert samples["process_resident_memory_bytes", frozenset()] > 1e6


def test_every_metric_is_documented_as_it_is() -> None:
    rows = re.findall(r"^\| `(copycat_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", (PROJECT / "docs/metrics.md").read_text("utf-8"), re.MULTILINE)
    told = [(PREFIX + one.name, one.kind, ", ".join(f"`{label}`" for label in one.labels) or "-", one.meaning) for one in FAMILIES]
    assert rows == told


def test_labels_have_few_values() -> None:
    allowed = {"connector", "reason", "stage", "type", "state", "broker", "result", "version", "python", "outcome", "process"}
    assert {label for family in FAMILIES for label in family.labels} <= allowed


def test_counters_are_named_as_counters() -> None:
    assert [one.name for one in FAMILIES if (one.kind == "counter") != one.name.endswith("_total")] == []


def test_a_scrape_asks_the_agent_once_for_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = FakeAgent(*(running(f"c{number}") for number in range(100)))
    app, asked = health_app(agent.control), list[str]()

    def listened(name: str, answer: Callable[[], Any]) -> Callable[[], Any]:
        def ask() -> Any:
            asked.append(name)
            return answer()

        return ask

    for name in ("view", "statuses", "loss_totals"):
        monkeypatch.setattr(agent, name, listened(name, getattr(agent, name)))
    assert get(app, "/metrics")[2].count(b"\n") > 6000
    assert sorted(asked) == ["loss_totals", "statuses", "view"]


def test_checks_answer_with_json_and_a_status() -> None:
    agent = FakeAgent(running("ok"), running("bad", state=State.FAILED, reason="boom", since=0.0), running("rests", state=State.PAUSED))
    app = health_app(agent.control)
    assert get_json(app, "/livez") == (200, {"status": "ok", "troubles": [], "resting": {}})
    assert get_json(app, "/readyz")[0] == 200
    status, body = get_json(app, "/healthz")
    assert (status, body["status"], body["resting"]) == (503, "unhealthy", {"rests": "paused"})
    assert body["troubles"] == [
        {"kind": "failed", "connector": "bad", "reason": "boom", "since": "1970-01-01T00:00:00Z", "action": "copycat ctl restart bad"}
    ]


def test_a_start_and_a_stop_are_told_as_such() -> None:
    agent = FakeAgent(Status("a"))
    app = health_app(agent.control)
    assert [get_json(app, path)[1]["status"] for path in ("/livez", "/readyz", "/healthz")] == ["ok", "starting", "starting"]
    agent.now = replace(agent.now, stopping=True)
    assert [get_json(app, path)[1]["status"] for path in ("/livez", "/readyz", "/healthz")] == ["ok", "stopping", "stopping"]


def test_health_and_metrics_judge_alike() -> None:
    app = health_app(FakeAgent(behind(since=time.time() - 100)).control)
    assert get_json(app, "/healthz")[0] == 503
    assert value(scrape(app), "stalled_seconds") >= 100


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/metrics"])
def test_head_has_no_body(path: str) -> None:
    status, _, body = get(health_app(FakeAgent(running()).control), path, "HEAD")
    assert (status, body) == (200, b"")


def test_what_is_not_there_and_what_is_not_allowed_is_told() -> None:
    app = health_app(FakeAgent().control)
    assert get(app, "/")[0] == 404
    assert get(app, "/metrics", "POST")[0] == get(app, "/healthz", "DELETE")[0] == 405


def test_a_check_that_breaks_answers_500_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = FakeAgent(running())
    app = health_app(agent.control)
    with monkeypatch.context() as broken:
        broken.setattr(agent, "statuses", lambda: 1 / 0)
        for path in ("/healthz", "/metrics"):
            assert get_json(app, path) == (500, {"status": "error", "error": "ZeroDivisionError"})
    assert get_json(app, "/healthz")[0] == get(app, "/metrics")[0] == 200
