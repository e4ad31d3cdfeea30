"""Health and metrics over HTTP, as a WSGI application for whichever server `api` runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app

from copycat_agent import logs
from copycat_agent.metrics.collector import AgentCollector
from copycat_agent.metrics.health import Health, Verdict

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from copycat_agent.control import Control

PATHS = ("/livez", "/readyz", "/healthz", "/metrics")
"""What `health_app` answers; anything else is 404."""

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
        except Exception as error:  # noqa: BLE001 - a probe gets an answer whatever happens, and the next one is asked anew
            _log.error("a question about health or metrics broke off", path=path, error=error)
            return _answer(start_response, "500 Internal Server Error", {"status": "error", "error": type(error).__name__}, method)
        return _answer(start_response, "200 OK" if verdict.good else "503 Service Unavailable", as_json(verdict), method)

    return app


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The body of an answer: status (ok, starting, stopping, unhealthy), troubles, resting."""
    kinds = {trouble.kind for trouble in verdict.troubles}
    passing = next((kind for kind in ("stopping", "starting") if kind in kinds), "unhealthy")
    troubles = [{**trouble._asdict(), "since": _time(trouble.since)} for trouble in verdict.troubles]
    return {"status": "ok" if verdict.good else passing, "troubles": troubles, "resting": dict(verdict.resting)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _answer(start_response: StartResponse, status: str, body: dict[str, Any], method: str) -> Iterable[bytes]:
    data = json.dumps(body).encode() + b"\n"
    start_response(status, [
        ("Content-Type", "application/json"), ("Content-Length", str(len(data))), ("Cache-Control", "no-store"),
    ])  # fmt: skip
    return [] if method == "HEAD" else [data]
