"""The read-only views of connectors."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from copycat_agent.api.connect.calls import Call, Reply, WorkerView, not_found
from copycat_agent.api.connect.flat_config import flat_config
from copycat_agent.api.connect.plugin_views import version_of
from copycat_agent.errors import UnknownConnectorError
from copycat_agent.model import offsets_in
from copycat_agent.offsets.document import to_document
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES
from copycat_agent.worker import State, Status

_STATES = {
    State.STARTING: "UNASSIGNED", State.RUNNING: "RUNNING", State.RETRYING: "RUNNING", State.BLOCKED: "RUNNING",
    State.PAUSED: "PAUSED", State.STOPPED: "STOPPED", State.FAILED: "FAILED",
}  # fmt: skip
"""Connect's state for each of our states. A connector that backs off, or is blocked, is RUNNING in Connect, with its reason as trace."""
_TRACED = {State.RETRYING, State.BLOCKED, State.FAILED}
TASK_CLASS = "task.class"


def connectors(view: WorkerView, call: Call) -> Reply:
    """Returns all names, or with `expand` a map with the wanted documents; unknown expansions are ignored."""
    names = [one.name for one in view.control.statuses()]
    wanted = call.query.get("expand")
    if wanted is None:
        return Reply(names)
    makers = {"info": info_document, "status": status_document}
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        with contextlib.suppress(UnknownConnectorError):  # it was removed meanwhile
            found[name] = {each: makers[each](view, name) for each in wanted if each in makers}
    return Reply(found)


def info(view: WorkerView, call: Call) -> Reply:
    """Returns name, configuration, tasks and type."""
    known(view, call)
    return Reply(info_document(view, call.connector))


def config(view: WorkerView, call: Call) -> Reply:
    """Returns the running definition as a flat configuration, with masked secrets."""
    return Reply(flat_config(known(view, call)))


def status(view: WorkerView, call: Call) -> Reply:
    """Returns the state of the connector and of each task."""
    try:
        return Reply(status_document(view, call.connector))
    except UnknownConnectorError:
        raise not_found(f"No status found for connector {call.connector}") from None


def tasks(view: WorkerView, call: Call) -> Reply:
    """Returns the configuration of each task, which is that of the connector."""
    return Reply([{"id": task, "config": settings} for task, settings in _tasks(view, call)])


def tasks_config(view: WorkerView, call: Call) -> Reply:
    """As `tasks`, as a map, which is the form of Connect before 4.0."""
    return Reply({f"{call.connector}-{task['task']}": settings for task, settings in _tasks(view, call)})


def task_status(view: WorkerView, call: Call) -> Reply:
    """Returns the state of one task."""
    number = task_number(call)
    with contextlib.suppress(UnknownConnectorError):
        for one in status_document(view, call.connector)["tasks"]:
            if one["id"] == number:
                return Reply(one)
    raise not_found(f"No status found for task {call.connector}-{number}")


def topics(view: WorkerView, call: Call) -> Reply:
    """Returns the topics that the definition names, not those that templates make; [] for an unknown connector."""
    try:
        record = view.control.definition(call.connector).record
    except UnknownConnectorError:
        return Reply({call.connector: {"topics": []}})
    named = record.allowed_topics or ((record.topic,) if "{" not in record.topic else ())
    return Reply({call.connector: {"topics": sorted(named)}})


def offsets(view: WorkerView, call: Call) -> Reply:
    """Returns the saved offsets, sorted by path."""
    known(view, call)
    saved = offsets_in(view.control.offsets(call.connector))
    documents = [to_document(*one) for one in sorted(saved.items(), key=lambda one: (one[1].path, one[0].key))]
    return Reply({"offsets": [{"partition": {"key": one["key"]}, "offset": one["offset"]} for one in documents]})


def status_document(view: WorkerView, name: str, state: str = "") -> dict[str, Any]:
    """Returns the states of a connector and its tasks, or `state` in their place. Raises UnknownConnectorError."""
    now, definition = view.control.status(name), view.control.definition(name)
    version = version_of(SOURCES, definition.source.type)
    common = {"state": state or _STATES[now.state], "worker_id": view.worker_id, "version": version}
    trace = {"trace": now.reason or "no reason is known"} if now.state in _TRACED and not state else {}
    tasks = [{"id": number, **common, **trace} for number in range(_task_count(now, definition))]
    return {"name": name, "connector": {**common, **trace}, "tasks": tasks, "type": "source"}


def task_number(call: Call) -> int:
    """Returns the task number in the address. As with Jersey, anything else is 404."""
    text = call.named["task"]
    number = int(text) if re.fullmatch(r"[-+]?[0-9]{1,10}", text) else None
    if number is None or not -(2**31) <= number < 2**31:
        raise not_found("HTTP 404 Not Found")
    return number


def known(view: WorkerView, call: Call) -> Definition:
    """Returns the connector's definition. Raises 404 with Connect's message for an unknown one."""
    try:
        return view.control.definition(call.connector)
    except UnknownConnectorError:
        raise not_found(f"Connector {call.connector} not found") from None


def info_document(view: WorkerView, name: str) -> dict[str, Any]:
    """Returns a connector with its configuration and tasks. Raises UnknownConnectorError."""
    now, definition = view.control.status(name), view.control.definition(name)
    tasks = [{"connector": name, "task": number} for number in range(_task_count(now, definition))]
    return {"name": name, "config": flat_config(definition), "tasks": tasks, "type": "source"}


def _tasks(view: WorkerView, call: Call) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Returns id and configuration of each task."""
    definition = known(view, call)
    settings = {**flat_config(definition), TASK_CLASS: definition.source.type}
    count = _task_count(view.control.status(call.connector), definition)
    return [({"connector": call.connector, "task": number}, settings) for number in range(count)]


def _task_count(now: Status, definition: Definition) -> int:
    """Returns the number of tasks that Connect would have: a stopped connector has none."""
    return 0 if now.state is State.STOPPED else definition.delivery.tasks_max
