"""What clients have done to connectors: paused, resumed, stopped, started again, their offsets changed, and the level of the log.

Each answers when it has happened. Definitions are files, and are not changed from here.
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
"""log4j's levels as ours; there is none at which nothing is logged."""


def ordered(order: str, status: HTTPStatus) -> View:
    """The view of an order to one connector, which is a method of `Control`, that answers with this status and nothing else."""

    def view(worker: WorkerView, call: Call) -> Reply:
        _runnable(worker, call, f"Unknown connector {call.connector}")
        methodcaller(order, call.connector)(worker.control)
        return Reply(None, status)

    return view


def stop(worker: WorkerView, call: Call) -> Reply:
    """Stop it; also one that is disabled, which has nothing to stop."""
    known(worker, call)
    worker.control.stop(call.connector)
    return Reply(None, HTTPStatus.NO_CONTENT)


def restart(worker: WorkerView, call: Call) -> Reply:
    """Start it again, with all its tasks. With `onlyFailed` one that has not failed goes on as it is.

    One that was stopped stays so, though it is told as the others are: so Connect has it.
    """
    flags = call.flag("includeTasks"), call.flag("onlyFailed")
    now = _runnable(worker, call, f"Unknown connector: {call.connector}" if any(flags) else f"Connector {call.connector} not found")
    is_due = now.state is State.FAILED or not flags[1]
    document = status_document(worker, call.connector, "RESTARTING" if is_due else "")
    if is_due and now.state is not State.STOPPED:
        worker.control.restart(call.connector)
    return Reply(document, HTTPStatus.ACCEPTED) if any(flags) else Reply(None, HTTPStatus.NO_CONTENT)


def restart_task(worker: WorkerView, call: Call) -> Reply:
    """Start the connector again: its tasks share what they work on."""
    number = task_number(call)
    _runnable(worker, call, f"Connector {call.connector} not found")
    if all(task["id"] != number for task in status_document(worker, call.connector)["tasks"]):
        raise not_found(f"Task {call.connector}-{number} not found")
    worker.control.restart(call.connector)
    return Reply(None, HTTPStatus.NO_CONTENT)


def alter_offsets(worker: WorkerView, call: Call) -> Reply:
    """Save the offsets of these partitions, and delete those that are null; all others stay."""
    wanted = _wanted(call)
    _at_rest(worker, call)
    given = {partition: row for partition, row in wanted.items() if row is not None}
    if given:
        worker.control.set_offsets(call.connector, given)
    if forgotten := wanted.keys() - given.keys():
        worker.control.forget_offsets(call.connector, forgotten)
    return Reply({"message": "The offsets for this connector have been altered successfully"})


def reset_offsets(worker: WorkerView, call: Call) -> Reply:
    """Delete all offsets; with exactly_once those in Kafka do not count any more either."""
    _at_rest(worker, call)
    worker.control.forget_offsets(call.connector, None)
    return Reply({"message": "The offsets for this connector have been reset successfully"})


def set_level(worker: WorkerView, call: Call) -> Reply:
    """Change the level of the log until the agent ends."""
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
    """How a connector is that its definition lets run. 404 in these words for one that is not there."""
    try:
        now = worker.control.status(call.connector)
    except UnknownConnectorError:
        raise not_found(unknown) from None
    if not now.enabled:
        words = f"connector {call.connector} is disabled by its definition"
        raise StatusError(HTTPStatus.BAD_REQUEST, words, "set enabled: true there")
    return now


def _at_rest(worker: WorkerView, call: Call) -> None:
    """Raise unless the connector is stopped."""
    known(worker, call)
    if worker.control.status(call.connector).state is not State.STOPPED:
        raise StatusError(
            HTTPStatus.BAD_REQUEST,
            "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified connector by "
            f"issuing a 'PUT' request to the '/connectors/{call.connector}/stop' endpoint",
        )


def _wanted(call: Call) -> dict[SourcePartition, SavedRow | None]:
    """What the body asks for: an offset, or None for one that is to be deleted. DataError, or 400, for anything else."""
    body = call.body if isinstance(call.body, dict) else {}
    listed = body.get("offsets")
    if not listed:
        raise StatusError(HTTPStatus.BAD_REQUEST, "Partitions / offsets need to be provided for an alter offsets request")
    if not isinstance(listed, list):
        raise StatusError(HTTPStatus.BAD_REQUEST, "offsets is no list of partitions with offsets")
    return from_documents(call.connector, {"offsets": [_document(one) for one in listed]})


def _document(one: object) -> dict[str, Any]:
    """An entry as `offsets.document` reads it."""
    partition = one.get("partition") if isinstance(one, dict) else None
    if not isinstance(one, dict) or not isinstance(partition, dict) or partition.keys() != {"key"} or "offset" not in one:
        words = "an entry of offsets is not of the form {partition: {key: ...}, offset: {...} or null}"
        raise StatusError(HTTPStatus.BAD_REQUEST, words, "GET on this address shows those there are")
    return {"key": partition["key"], "offset": one["offset"]}
