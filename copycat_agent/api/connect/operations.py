"""The operations of clients: pause, resume, stop and restart connectors, change offsets, and set the log level.

Each answers when it is done. None changes a definition.
"""

from __future__ import annotations

from http import HTTPStatus
from operator import methodcaller
from typing import Any

from copycat_agent.api.connect.calls import Call, Reply, View, WorkerView, not_found
from copycat_agent.api.connect.connector_views import known, status_document, task_number
from copycat_agent.api.connect.worker_views import ROOT
from copycat_agent.api.guard import StatusError
from copycat_agent.errors import UnknownConnectorError
from copycat_agent.model import SavedRow, SourcePartition
from copycat_agent.offsets.document import from_documents
from copycat_agent.options import LogLevel
from copycat_agent.worker import State, Status

_LEVELS: dict[str, LogLevel] = {
    "TRACE": "debug", "DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error", "FATAL": "error",
}  # fmt: skip
"""Our levels, by log4j's; OFF is missing."""


def ordered(order: str, status: HTTPStatus) -> View:
    """Returns a view that calls the method `order` of `Control` for a connector, and answers with this status and no body."""

    def view(worker: WorkerView, call: Call) -> Reply:
        _runnable(worker, call, f"Unknown connector {call.connector}")
        methodcaller(order, call.connector)(worker.control)
        return Reply(None, status)

    return view


def stop(worker: WorkerView, call: Call) -> Reply:
    """Stops a connector. A disabled one is accepted, too."""
    known(worker, call)
    worker.control.stop(call.connector)
    return Reply(None, HTTPStatus.NO_CONTENT)


def restart(worker: WorkerView, call: Call) -> Reply:
    """Restarts a connector with all its tasks. With `onlyFailed` nothing happens unless it has failed.

    As in Connect, a stopped connector stays stopped, but is answered like the others.
    """
    flags = call.flag("includeTasks"), call.flag("onlyFailed")
    now = _runnable(worker, call, f"Unknown connector: {call.connector}" if any(flags) else f"Connector {call.connector} not found")
    is_due = now.state is State.FAILED or not flags[1]
    document = status_document(worker, call.connector, "RESTARTING" if is_due else "")
    if is_due and now.state is not State.STOPPED:
        worker.control.restart(call.connector)
    return Reply(document, HTTPStatus.ACCEPTED) if any(flags) else Reply(None, HTTPStatus.NO_CONTENT)


def restart_task(worker: WorkerView, call: Call) -> Reply:
    """Restarts the whole connector, because its tasks share their work."""
    number = task_number(call)
    _runnable(worker, call, f"Connector {call.connector} not found")
    if all(task["id"] != number for task in status_document(worker, call.connector)["tasks"]):
        raise not_found(f"Task {call.connector}-{number} not found")
    worker.control.restart(call.connector)
    return Reply(None, HTTPStatus.NO_CONTENT)


def alter_offsets(worker: WorkerView, call: Call) -> Reply:
    """Saves the offsets of these partitions, and deletes those that are null; others stay."""
    wanted = _wanted(call)
    _at_rest(worker, call)
    given = {partition: row for partition, row in wanted.items() if row is not None}
    if given:
        worker.control.set_offsets(call.connector, given)
    if forgotten := wanted.keys() - given.keys():
        worker.control.forget_offsets(call.connector, forgotten)
    return Reply({"message": "The offsets for this connector have been altered successfully"})


def reset_offsets(worker: WorkerView, call: Call) -> Reply:
    """Deletes all offsets; with exactly_once those in Kafka no longer count."""
    _at_rest(worker, call)
    worker.control.forget_offsets(call.connector, None)
    return Reply({"message": "The offsets for this connector have been reset successfully"})


def set_level(worker: WorkerView, call: Call) -> Reply:
    """Sets the log level until the agent ends."""
    body = call.body if isinstance(call.body, dict) else {}
    written = body.get("level")
    if written is None:
        raise StatusError(HTTPStatus.BAD_REQUEST, "Desired 'level' parameter was not specified in request.")
    level = _LEVELS.get(str(written).upper())
    if level is None:
        raise not_found(f"invalid log level '{written!s:.80}'.")
    if call.named["logger"].lower() != ROOT:
        raise not_found(f"Logger {call.named['logger']} not found.")
    worker.control.set_log_level(level, None)
    is_of_cluster = call.query.get("scope", ["worker"])[0].lower() == "cluster"
    return Reply(None, HTTPStatus.NO_CONTENT) if is_of_cluster else Reply([ROOT])


def _runnable(worker: WorkerView, call: Call, unknown: str) -> Status:
    """Returns the status of an enabled connector. Raises StatusError: 404 with the message `unknown`, or 400 for a disabled one."""
    try:
        now = worker.control.status(call.connector)
    except UnknownConnectorError:
        raise not_found(unknown) from None
    if not now.enabled:
        words = f"connector {call.connector} is disabled by its definition"
        raise StatusError(HTTPStatus.BAD_REQUEST, words, "set enabled: true there")
    return now


def _at_rest(worker: WorkerView, call: Call) -> None:
    """Raises StatusError unless the connector is stopped."""
    known(worker, call)
    if worker.control.status(call.connector).state is not State.STOPPED:
        raise StatusError(
            HTTPStatus.BAD_REQUEST,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified connector by "
            f"issuing a 'PUT' request to the '/connectors/{call.connector}/stop' endpoint",
        )


def _wanted(call: Call) -> dict[SourcePartition, SavedRow | None]:
    """Parses the body: an offset for each partition, None to delete it. Raises DataError, or StatusError 400."""
    body = call.body if isinstance(call.body, dict) else {}
    listed = body.get("offsets")
    if not listed:
        raise StatusError(HTTPStatus.BAD_REQUEST, "Partitions / offsets need to be provided for an alter offsets request")
    if not isinstance(listed, list):
        raise StatusError(HTTPStatus.BAD_REQUEST, "offsets is no list of partitions with offsets")
    return from_documents(call.connector, {"offsets": [_document(one) for one in listed]})


def _document(one: object) -> dict[str, Any]:
    """Returns an entry in the form of `offsets.document`."""
    partition = one.get("partition") if isinstance(one, dict) else None
    if not isinstance(one, dict) or not isinstance(partition, dict) or partition.keys() != {"key"} or "offset" not in one:
        words = "an entry of offsets is not of the form {partition: {key: ...}, offset: {...} or null}"
        raise StatusError(HTTPStatus.BAD_REQUEST, words, "GET on this address shows those there are")
    return {"key": partition["key"], "offset": one["offset"]}
