"""The agent's health and metrics as a WSGI application, which the servers of `api` mount. Only this package uses prometheus_client."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from copycat_agent import logs
from copycat_agent.control import Control
from copycat_agent.errors import CopycatError
from copycat_agent.metrics.families import FAMILIES, MetricFamily, Snapshot
from copycat_agent.metrics.health import Health, HealthProblem, Verdict
from copycat_agent.metrics.processes import Processes
from copycat_agent.model import LossReason, LossTotal
from copycat_agent.templates import time_text
from copycat_agent.worker.status import BOUNDS_SECONDS, Timing

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["PATHS", "Health", "HealthProblem", "Verdict", "health_app"]


PREFIX = "copycat_"

_BOUNDS = [*(f"{bound:g}" for bound in BOUNDS_SECONDS), "+Inf"]


class AgentCollector:
    """A custom collector of prometheus_client. Thread-safe. It never waits for a connector."""

    def __init__(self, control: Control, health: Health) -> None:
        self._control = control
        self._health = health
        self._processes = Processes()
        self._looking = threading.Lock()
        self._losses: Mapping[tuple[str, LossReason], LossTotal] = {}

    def describe(self) -> Iterator[Metric]:
        """Yields every family, without samples."""
        return (_metric(family) for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """Yields every family with its present samples."""
        snapshot = self._snapshot()
        for family in FAMILIES:
            metric = _metric(family)
            for labels, value in family.samples(snapshot):
                _add(metric, labels, value)
            yield metric

    def _snapshot(self) -> Snapshot:
        statuses, view = self._control.statuses(), self._control.view()
        with self._looking:
            processes = self._processes.look(view.java_pid)
        return Snapshot(view, statuses, self._loss_totals(), self._health.stalled(statuses), time.time(), processes)

    def _loss_totals(self) -> Mapping[tuple[str, LossReason], LossTotal]:
        """Returns the loss totals; the last ones known if the store cannot be read now, so that the other families are served."""
        with contextlib.suppress(CopycatError):
            self._losses = self._control.loss_totals()
        return self._losses


def _metric(family: MetricFamily) -> Metric:
    make = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}[family.kind]
    metric: Metric = make(PREFIX + family.name, family.meaning, labels=family.labels)
    return metric


def _add(metric: Metric, labels: tuple[str, ...], value: float | Timing) -> None:
    if isinstance(value, Timing):
        assert isinstance(metric, HistogramMetricFamily)
        counts = accumulate(value.buckets)
        metric.add_metric(labels, list(zip(_BOUNDS, counts, strict=True)), value.total_seconds)
    else:
        assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily)
        metric.add_metric(labels, value)


PATHS = ("/livez", "/readyz", "/healthz", "/metrics")
"""The paths of `health_app`; any other is 404."""

_log = logs.get("metrics")


def health_app(control: Control) -> WSGIApplication:
    """A WSGI application that answers GET and HEAD of `PATHS`.

    The first three answer 200 or 503 with JSON that says which connector, why and since when; `/metrics` speaks Prometheus'
    text format. Thread-safe, reads only, changes nothing; it must be one application for all sockets of an agent, so that all
    give one answer.
    """
    health = Health(control)
    registry = CollectorRegistry()
    registry.register(AgentCollector(control, health))
    ProcessCollector(registry=registry)
    metrics = make_wsgi_app(registry)
    checks = {"/livez": health.alive, "/readyz": health.ready, "/healthz": health.delivering}

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
        if path not in PATHS:
            return _answer(start_response, "404 Not Found", {"error": f"there is {', '.join(PATHS)} here"}, method)
        if method not in {"GET", "HEAD"}:
            return _answer(start_response, "405 Method Not Allowed", {"error": "only GET"}, method)
        try:
            if path == "/metrics":
                body = metrics({**environ, "REQUEST_METHOD": "GET"}, start_response)
                return [] if method == "HEAD" else body
            verdict = checks[path]()
        except Exception as error:  # noqa: BLE001 - a probe always gets an answer
            _log.error("a question about health or metrics broke off", path=path, error=error)
            return _answer(start_response, "500 Internal Server Error", {"status": "error", "error": type(error).__name__}, method)
        return _answer(start_response, "200 OK" if verdict.good else "503 Service Unavailable", as_json(verdict), method)

    return app


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Returns the body of an answer: status (ok, starting, stopping, unhealthy), troubles, resting."""
    kinds = {trouble.kind for trouble in verdict.troubles}
    passing = next((kind for kind in ("stopping", "starting") if kind in kinds), "unhealthy")
    troubles = [{**trouble._asdict(), "since": time_text(1000 * trouble.since, "seconds")} for trouble in verdict.troubles]
    return {"status": "ok" if verdict.good else passing, "troubles": troubles, "resting": dict(verdict.resting)}


def _answer(start_response: StartResponse, status: str, body: dict[str, Any], method: str) -> Iterable[bytes]:
    data = json.dumps(body).encode() + b"\n"
    start_response(status, [
        ("Content-Type", "application/json"), ("Content-Length", str(len(data))), ("Cache-Control", "no-store"),
    ])  # fmt: skip
    return [] if method == "HEAD" else [data]
