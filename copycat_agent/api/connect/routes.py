"""The routes of Kafka Connect's REST API."""

from __future__ import annotations

import urllib.parse
from http import HTTPStatus
from typing import NamedTuple

from copycat_agent.api.connect import connector_views, defining, operations, plugin_views, worker_views
from copycat_agent.api.connect.calls import Call, Reply, View, WorkerView
from copycat_agent.api.connect.validation import validate
from copycat_agent.api.guard import StatusError


class Route(NamedTuple):
    """A method, a path whose segments in braces stand for any text, and their view.

    `operates`: it needs the role `operate`, because it makes a change, or inspects the host for the client. `defines`: it needs
    `api.connect.writable`.
    """

    method: str
    path: str
    view: View
    operates: bool = False
    defines: bool = False

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """Returns the values of the segments in braces, by name; None if the path does not match."""
        own = segments_of(self.path)
        if len(own) != len(segments):
            return None
        named = {}
        for expected, segment in zip(own, segments, strict=True):
            if not expected.startswith("{"):
                if expected != segment:
                    return None
            elif not segment:
                return None
            else:
                named[expected.strip("{}")] = segment
        return named


def segments_of(path: str) -> list[str]:
    """Returns the decoded segments of a path, without an empty one at its end. Bytes that are not UTF-8 become U+FFFD, as in Java."""
    text = path.removeprefix("/")
    return [urllib.parse.unquote(segment) for segment in (text if text == "/" else text.removesuffix("/")).split("/")]


def _not_tracked(_view: WorkerView, _call: Call) -> Reply:
    """Refuses: topics are those of the definition, and cannot be reset."""
    raise StatusError(HTTPStatus.FORBIDDEN, "Topic tracking reset is disabled.")


_CONNECTOR = "/connectors/{connector}"

ROUTES = (
    Route("GET", "/", worker_views.worker),
    Route("GET", "/health", worker_views.health),
    Route("GET", "/connectors", connector_views.connectors),
    Route("POST", "/connectors", defining.create, operates=True, defines=True),
    Route("GET", _CONNECTOR, connector_views.info),
    Route("DELETE", _CONNECTOR, defining.delete, operates=True, defines=True),
    Route("GET", f"{_CONNECTOR}/config", connector_views.config),
    Route("PUT", f"{_CONNECTOR}/config", defining.put_config, operates=True, defines=True),
    Route("PATCH", f"{_CONNECTOR}/config", defining.patch_config, operates=True, defines=True),
    Route("GET", f"{_CONNECTOR}/status", connector_views.status),
    Route("GET", f"{_CONNECTOR}/tasks", connector_views.tasks),
    Route("GET", f"{_CONNECTOR}/tasks-config", connector_views.tasks_config),
    Route("GET", f"{_CONNECTOR}/tasks/{{task}}/status", connector_views.task_status),
    Route("GET", f"{_CONNECTOR}/topics", connector_views.topics),
    Route("PUT", f"{_CONNECTOR}/topics/reset", _not_tracked),
    Route("GET", f"{_CONNECTOR}/offsets", connector_views.offsets),
    Route("PATCH", f"{_CONNECTOR}/offsets", operations.alter_offsets, operates=True),
    Route("DELETE", f"{_CONNECTOR}/offsets", operations.reset_offsets, operates=True),
    Route("PUT", f"{_CONNECTOR}/pause", operations.ordered("pause", HTTPStatus.ACCEPTED), operates=True),
    Route("PUT", f"{_CONNECTOR}/resume", operations.ordered("resume", HTTPStatus.ACCEPTED), operates=True),
    Route("PUT", f"{_CONNECTOR}/stop", operations.stop, operates=True),
    Route("POST", f"{_CONNECTOR}/restart", operations.restart, operates=True),
    Route("POST", f"{_CONNECTOR}/tasks/{{task}}/restart", operations.restart_task, operates=True),
    Route("GET", "/connector-plugins", plugin_views.plugins),
    Route("GET", "/connector-plugins/{plugin}/config", plugin_views.plugin_config),
    Route("PUT", "/connector-plugins/{plugin}/config/validate", validate, operates=True),
    Route("GET", "/admin/loggers", worker_views.loggers),
    Route("GET", "/admin/loggers/{logger}", worker_views.logger),
    Route("PUT", "/admin/loggers/{logger}", operations.set_level, operates=True),
)
