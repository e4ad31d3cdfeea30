"""The handlers of `/v1`: each turns a request, its query and body, into a JSON value.

Times are epoch seconds, sizes are bytes. Bytes in paths that are not UTF-8 appear as lone surrogates.
"""

from __future__ import annotations

import base64
import contextlib
import os
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, get_args

from copycat_agent import logs
from copycat_agent.api import RefusedRequestError, is_name
from copycat_agent.api.rate_history import LOOKS, SPAN_SECONDS, RateHistory
from copycat_agent.api.status_text import TROUBLED_FILES
from copycat_agent.control import Control, ReloadResult
from copycat_agent.definitions import origins
from copycat_agent.errors import CopycatError, UnknownConnectorError
from copycat_agent.model import Loss, LossReason, LossTotal, Sample, SourcePartition
from copycat_agent.offsets.agent_identity import is_uuid
from copycat_agent.offsets.document import from_documents, to_documents
from copycat_agent.offsets.lanes import to_lanes_document
from copycat_agent.options import LogLevel
from copycat_agent.worker import Status

LIST_MAX = 10_000  # files and losses of one answer
TAP_SECONDS_MAX = 60.0
TAP_RECORDS_MAX = 1_000
LOG_SECONDS_MAX = 30 * 86_400.0
SAMPLE_BYTES = 4096
"""`Control.tap` cuts keys and values at this length."""
_CUT = 3  # most bytes of a character that a cut may leave


@dataclass(frozen=True, slots=True)
class Request:
    """The raw query, the parsed body (None without one), and the connector that the address names."""

    query: str
    body: object
    connector: str = ""

    def number(self, name: str, default: float, most: float) -> float:
        """Returns a number from 0 to `most` from the query. Raises RefusedRequestError for anything else."""
        written = self.text(name)
        try:
            value = default if written is None else float(written)
        except ValueError:
            value = -1
        if not 0 <= value <= most:
            raise RefusedRequestError(f"{name} is no number from 0 to {most:g}")
        return value

    def text(self, name: str) -> str | None:
        """Returns a text from the query, None without it."""
        return dict(urllib.parse.parse_qsl(self.query)).get(name)

    def fields(self, *known: str) -> Mapping[str, Any]:
        """Returns the body. Raises RefusedRequestError unless it is a map of these fields only, with `force` a boolean."""
        body = {} if self.body is None else self.body
        if not isinstance(body, dict):
            raise RefusedRequestError("the body is no map of fields", f"known are {', '.join(known)}")
        if unknown := [name for name in body if name not in known]:
            raise RefusedRequestError(f"the body has an unknown field {unknown[0]!r:.60}", f"known are {', '.join(known)}")
        if not isinstance(body.get("force", False), bool):
            raise RefusedRequestError("force is neither true nor false")
        return body


def absolute(path: str) -> str:
    """Returns an absolute path, because the client may run in another directory than the agent; "" stays."""
    return os.path.abspath(path) if path else ""  # noqa: PTH100 - links stay as they are


def _reload(done: ReloadResult) -> dict[str, Any]:
    """Returns the outcome of a reload; `lines` is the diff for people."""
    return asdict(done) | {"clean": done.clean, "lines": done.lines()}


def connector_document(one: Status, totals: Mapping[tuple[str, LossReason], LossTotal]) -> dict[str, Any]:
    """Returns a connector's state. `losses` are all it ever gave up, by reason; other counts begin at its start."""
    return {
        "name": one.name, "state": one.state.value, "reason": one.reason, "since": one.since, "enabled": one.enabled, "tasks": one.tasks,
        "unsaved": one.unsaved, "retries": one.retries, "acknowledged_at": one.acknowledged_at, "counts": asdict(one.counts),
        "lag": one.lag._asdict(), "delivery_seconds": asdict(one.delivery_seconds), "commit_seconds": asdict(one.commit_seconds),
        "errors": [{"stage": stage, "type": kind, "count": count} for (stage, kind), count in one.errors.items()],
        "clients": [view._asdict() | {"brokers": [broker._asdict() for broker in view.brokers]} for view in one.clients],
        "losses": {reason: total._asdict() for (name, reason), total in totals.items() if name == one.name},
        "guarantee": one.guarantee, "sink": one.sink, "lane_outcomes": dict(one.delivery_outcomes), "cluster": one.cluster,
        "lanes": [{"number": number, "seq": head.seq, "offset": head.offset} for number, head in sorted(one.lanes.items())],
        "place": one.place._asdict() if one.place else None,
    }  # fmt: skip


def _loss(entry: Loss) -> dict[str, Any]:
    """Returns an entry of the loss ledger."""
    values = entry._asdict()
    partition = values.pop("partition")
    return {"connector": partition.connector, "key": partition.key, **values}


def sample(record: Sample) -> dict[str, Any]:
    """Returns a record as it was sent. A key or value that is not UTF-8 is in `key_base64` or `value_base64`."""
    return {
        "topic": record.topic, **_bytes("key", record.key), **_bytes("value", record.value),
        "headers": [{"name": name, **_bytes("value", value)} for name, value in record.headers],
        "timestamp_ms": record.timestamp_ms, "path": record.path, "start": record.start, "end": record.end,
    }  # fmt: skip


def _bytes(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError as error:
        if len(value) >= SAMPLE_BYTES and error.start >= len(value) - _CUT:
            return {name: value[: error.start].decode()}
    return {f"{name}_base64": base64.b64encode(value).decode()}


Handler = Callable[[Control, Request], object]


def loss_totals(control: Control) -> Mapping[tuple[str, LossReason], LossTotal]:
    """Returns the loss totals; {} if the store cannot be read, so that the state of connectors is still shown. `agent` says why."""
    with contextlib.suppress(CopycatError):
        return control.loss_totals()
    return {}


def agent(control: Control, _request: Request) -> object:
    """Returns the state of the agent as a whole."""
    view = control.view()
    return {
        "version": view.version, "pid": view.pid, "uuid": view.uuid, "started": view.started, "state_dir": view.state_dir,
        "directory": absolute(view.directory), "agent_file": absolute(view.agent_file), "spark": view.spark, "java_pid": view.java_pid,
        "offsets_unsaved": view.offsets_unsaved, "stopping": view.stopping, "reloads": dict(view.reloads), "stuck": list(view.stuck),
        "last_reload": _reload(view.last_reload) if view.last_reload else None, "log_level": view.log_level, "log_until": view.log_until,
        "hangs": view.hangs, "page": view.page, "master": view.master,
    }  # fmt: skip


def connectors(control: Control, _request: Request) -> object:
    """Returns all connectors, by name."""
    totals = loss_totals(control)
    return {"connectors": [connector_document(one, totals) | {"path": _path(control, one.name)} for one in control.statuses()]}


def connector(control: Control, request: Request) -> object:
    """Returns one connector."""
    return connector_document(control.status(request.connector), loss_totals(control)) | {"path": _path(control, request.connector)}


def definition(control: Control, request: Request) -> object:
    """Returns the running definition with masked secrets, and where each value comes from."""
    runs, path, view = control.definition(request.connector), control.path(request.connector), control.view()
    found = origins(Path(path), Path(view.agent_file) if view.agent_file else None, runs, control.options, view.overridden)
    values = [{"option": each.option, "value": each.value, "from": each.kind, "path": each.path, "line": each.line} for each in found]
    return {"name": request.connector, "path": absolute(path), "definition": runs.masked(), "values": values}


def files(control: Control, request: Request) -> object:
    """Returns up to `limit` files of a connector, those in trouble first, then by path; `total` counts all."""
    limit = int(request.number("limit", 1_000, LIST_MAX))
    found = sorted(control.files(request.connector), key=lambda one: (one.state not in TROUBLED_FILES, one.path))
    return {"files": [each._asdict() for each in found[:limit]], "total": len(found)}


def rates(history: RateHistory, _control: Control, request: Request) -> object:
    """Returns records per second of each connector over the last `seconds`, oldest first, in at most `points` points."""
    points, wanted = max(1, int(request.number("points", LOOKS, LOOKS))), request.text("connector")
    lines = {name: line for name, line in history.lines(points).items() if wanted in {None, name}}
    return {"seconds": SPAN_SECONDS, "rates": {name: [round(one, 2) for one in line] for name, line in lines.items()}}


def tap(control: Control, request: Request) -> Iterator[Any]:
    """Yields records as they are sent from now on."""
    limit = int(request.number("limit", 10, TAP_RECORDS_MAX))
    seconds = request.number("seconds", 10.0, TAP_SECONDS_MAX)
    control.status(request.connector)  # raises for an unknown name before the answer begins
    return (sample(record) for record in control.tap(request.connector, limit, seconds))


def losses(control: Control, request: Request) -> object:
    """Returns the loss ledger of one connector or all, newest first, and its totals."""
    limit = int(request.number("limit", 100, LIST_MAX))
    name = request.text("connector")
    totals = sorted((key, total) for key, total in control.loss_totals().items() if name in {None, key[0]})
    sums = [{"connector": connector, "reason": reason} | total._asdict() for (connector, reason), total in totals]
    return {"losses": [_loss(entry) for entry in control.losses(name, limit)], "totals": sums}


def offset_connectors(control: Control, _request: Request) -> object:
    """Returns the names of connectors with saved offsets."""
    return {"connectors": list(control.offset_connectors())}


def offsets(control: Control, request: Request) -> object:
    """Returns the saved offsets of a connector, its state and its lanes; `lanes` is null for a connector without any."""
    saved, lanes = control.offsets(request.connector), control.offset_lanes(request.connector)
    return {"connector": request.connector, **to_documents(saved), "lanes": to_lanes_document(lanes)}


def set_offsets(control: Control, request: Request) -> object:
    """Saves offsets, and deletes those that are null."""
    body = request.fields("offsets", "state", "force")
    wanted = from_documents(request.connector, body)
    given = {partition: offset for partition, offset in wanted.items() if offset is not None}
    forgotten, force = wanted.keys() - given.keys(), bool(body.get("force", False))
    if given:
        control.set_offsets(request.connector, given, force=force)
    if forgotten:
        control.forget_offsets(request.connector, forgotten, force=force)
    return {"connector": request.connector, "set": len(given), "deleted": len(forgotten)}


def forget_offsets(control: Control, request: Request) -> object:
    """Deletes the offsets of these keys, or all without `keys`."""
    body = request.fields("keys", "force")
    keys = body.get("keys")
    if keys is not None and not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
        raise RefusedRequestError("keys is no list of texts", "leave it out to delete all offsets of the connector")
    partitions = None if keys is None else [SourcePartition(request.connector, key) for key in keys]
    deleted = control.forget_offsets(request.connector, partitions, force=bool(body.get("force", False)))
    return {"connector": request.connector, "deleted": deleted}


def rename_offsets(control: Control, request: Request) -> object:
    """Moves the offsets to another name."""
    body = request.fields("to", "force")
    new = body.get("to")
    if not isinstance(new, str) or not is_name(new):
        raise RefusedRequestError("to is no name of a connector", "1 to 63 lowercase letters, digits and -, not - first")
    moved = control.rename_offsets(request.connector, new, force=bool(body.get("force", False)))
    return {"connector": new, "renamed": moved}


def adopt_offsets(control: Control, request: Request) -> object:
    """Decides which positions the connector goes on from."""
    body = request.fields("from", "agent", "force")
    which, agent = body.get("from"), body.get("agent") or ""
    if which not in {"local", "topic"} or not isinstance(agent, str) or (agent and (which != "topic" or not is_uuid(agent))):
        raise RefusedRequestError("from is local or topic, and agent the uuid of an agent whose positions are taken from the topic")
    identity = control.adopt_offsets(request.connector, which, agent=agent, force=bool(body.get("force", False)))
    return {"connector": request.connector, "identity": identity}


def reload(control: Control, _request: Request) -> object:
    """Reloads the definitions."""
    return _reload(control.reload())


def log(control: Control, request: Request) -> object:
    """Changes the log level, for some time or until the agent ends."""
    body = request.fields("level", "seconds")
    level, seconds = str(body.get("level")), body.get("seconds")
    if level not in get_args(LogLevel):
        raise RefusedRequestError(f"level is none of {', '.join(get_args(LogLevel))}")
    if seconds is not None and not (type(seconds) in {int, float} and 0 < seconds <= LOG_SECONDS_MAX):
        raise RefusedRequestError(
            f"seconds is no number up to {LOG_SECONDS_MAX:.0f}", "leave it out to change the level until the agent ends"
        )
    view = control.set_log_level(level, seconds)
    return {"level": view.log_level, "until": view.log_until}


def recent_log(_control: Control, _request: Request) -> object:
    """Returns the latest lines of the log."""
    return {"lines": logs.recent()}


def _ordered(order: str) -> Handler:
    """Returns a handler that calls the method `order` of `Control` for a connector."""

    def handler(control: Control, request: Request) -> object:
        return connector_document(methodcaller(order, request.connector)(control), loss_totals(control))

    return handler


def _path(control: Control, name: str) -> str:
    """Returns the path of the definition, "" if the connector has just been removed."""
    try:
        return absolute(control.path(name))
    except UnknownConnectorError:
        return ""


class Endpoint(NamedTuple):
    """An address and its handler. `streams`: it yields lines as they come. `changes`: it makes a change, which may take some time."""

    method: str
    path: str
    handler: Handler
    changes: bool = False
    streams: bool = False


_CONNECTOR, _OFFSETS = "/v1/connectors/<name:connector>", "/v1/offsets/<name:connector>"

ENDPOINTS = (
    Endpoint("GET", "/v1", agent),
    Endpoint("GET", "/v1/connectors", connectors),
    Endpoint("GET", _CONNECTOR, connector),
    Endpoint("GET", f"{_CONNECTOR}/definition", definition),
    Endpoint("GET", f"{_CONNECTOR}/files", files),
    Endpoint("GET", f"{_CONNECTOR}/tap", tap, streams=True),
    Endpoint("GET", "/v1/losses", losses),
    Endpoint("GET", "/v1/offsets", offset_connectors),
    Endpoint("GET", _OFFSETS, offsets),
    Endpoint("PUT", _OFFSETS, set_offsets, changes=True),
    Endpoint("DELETE", _OFFSETS, forget_offsets, changes=True),
    Endpoint("POST", f"{_OFFSETS}/rename", rename_offsets, changes=True),
    Endpoint("POST", f"{_OFFSETS}/adopt", adopt_offsets, changes=True),
    *(Endpoint("POST", f"{_CONNECTOR}/{order}", _ordered(order), changes=True) for order in ("pause", "resume", "stop", "restart")),
    Endpoint("POST", "/v1/reload", reload, changes=True),
    Endpoint("GET", "/v1/log", recent_log),
    Endpoint("POST", "/v1/log", log),
)
