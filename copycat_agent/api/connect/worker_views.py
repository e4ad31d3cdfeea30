"""The views of the worker: its version, its health, its log level."""

from __future__ import annotations

import contextlib
from http import HTTPStatus

from copycat_agent import __version__
from copycat_agent.api.connect.calls import Call, Reply, WorkerView, not_found
from copycat_agent.errors import UnknownConnectorError

SPOKEN_VERSION = "4.1.0"
"""The release of Kafka Connect whose REST API this is. Clients choose their requests by it."""
ROOT = "root"
"""The only logger: the level applies to the whole log."""
_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
"""log4j's levels, by ours."""


def worker(view: WorkerView, _call: Call) -> Reply:
    """Returns the worker's version, and the Kafka cluster of its connectors: null if there are several, or it is not known yet."""
    commit = f"copycat-agent-{__version__}"
    return Reply({"version": SPOKEN_VERSION, "commit": commit, "kafka_cluster_id": _cluster(view)})


def _cluster(view: WorkerView) -> str | None:
    statuses = view.control.statuses()
    known = {one.cluster for one in statuses if one.cluster}
    if known:  # from connectors with exactly_once
        return known.pop() if len(known) == 1 else None
    sections = []
    for one in statuses:
        with contextlib.suppress(UnknownConnectorError):  # it was removed meanwhile
            sections.append(view.control.definition(one.name).kafka)
    sections = sections or [view.control.options.kafka]
    if view.clusters is None or len({one.bootstrap_servers for one in sections}) != 1 or not sections[0].bootstrap_servers:
        return None
    return view.clusters.of(sections[0])


def health(view: WorkerView, _call: Call) -> Reply:
    """Returns whether the worker answers. `/healthz` tells about its connectors."""
    now = view.control.view()
    if now.hangs:
        message = "What all connectors need does not answer; only a restart of the agent helps."
        return Reply({"status": "unhealthy", "message": message}, HTTPStatus.INTERNAL_SERVER_ERROR)
    if now.directory and now.last_reload is None:
        return Reply({"status": "starting", "message": "Worker is still starting up."}, HTTPStatus.SERVICE_UNAVAILABLE)
    return Reply({"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."})


def loggers(view: WorkerView, _call: Call) -> Reply:
    """Returns all loggers with their levels."""
    return Reply({ROOT: level_of(view)})


def logger(view: WorkerView, call: Call) -> Reply:
    """Returns one logger."""
    if call.named["logger"].lower() != ROOT:
        raise not_found(f"Logger {call.named['logger']} not found.")
    return Reply(level_of(view))


def level_of(view: WorkerView) -> dict[str, object]:
    """Returns the log level, and when it was last changed, in epoch milliseconds."""
    now = view.control.view()
    changed = None if now.log_changed is None else round(now.log_changed * 1000)
    return {"level": _LEVELS[now.log_level], "last_modified": changed}
