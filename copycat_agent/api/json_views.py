"""What the API shows, as JSON values. Times are epoch seconds, sizes bytes; paths as they are, odd bytes as lone surrogates."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from copycat_agent.control import AgentView, Reload
from copycat_agent.definitions import Origin
from copycat_agent.model import ClientView, Loss, LossReason, LossTotal, Sample
from copycat_agent.worker import Status

SAMPLE_BYTES = 4096
"""`Control.tap` cuts keys and values at this length."""
_CUT = 3
"""A cut may leave so many bytes of a character."""


def agent(view: AgentView) -> dict[str, Any]:
    """The agent as a whole."""
    return {
        "version": view.version, "pid": view.pid, "uuid": view.uuid, "started": view.started, "state_dir": view.state_dir,
        "directory": absolute(view.directory), "agent_file": absolute(view.agent_file), "spark": view.spark, "java_pid": view.java_pid,
        "offsets_unsaved": view.offsets_unsaved, "stopping": view.stopping, "reloads": dict(view.reloads), "stuck": list(view.stuck),
        "last_reload": reload(view.last_reload) if view.last_reload else None, "log_level": view.log_level, "log_until": view.log_until,
        "hangs": view.hangs,
    }  # fmt: skip


def absolute(path: str) -> str:
    """For who asks from another directory than the agent was started in; "" stays."""
    return os.path.abspath(path) if path else ""  # noqa: PTH100 - links stay as they are


def reload(done: Reload) -> dict[str, Any]:
    """The outcome of a reload; `lines` is the diff for people."""
    return {
        "at": done.at, "clean": done.clean, "lines": done.lines(), "added": list(done.added), "removed": list(done.removed),
        "changed": {name: list(options) for name, options in done.changed.items()}, "kept": dict(done.kept),
        "renamed": dict(done.renamed), "restart": list(done.restart), "problems": [asdict(problem) for problem in done.problems],
    }  # fmt: skip


def status(one: Status, totals: Mapping[tuple[str, LossReason], LossTotal]) -> dict[str, Any]:
    """A connector. `losses` is everything it ever gave up, by reason; all else counts since it was started."""
    return {
        "name": one.name, "state": one.state.value, "reason": one.reason, "since": one.since, "enabled": one.enabled, "tasks": one.tasks,
        "unsaved": one.unsaved, "retries": one.retries, "acknowledged_at": one.acknowledged_at, "counts": asdict(one.counts),
        "lag": one.lag._asdict(), "delivery_seconds": asdict(one.delivery_seconds), "commit_seconds": asdict(one.commit_seconds),
        "errors": [{"stage": stage, "type": kind, "count": count} for (stage, kind), count in one.errors.items()],
        "clients": [client(each) for each in one.clients],
        "losses": {reason: total._asdict() for (name, reason), total in totals.items() if name == one.name},
        "guarantee": one.guarantee, "lane_outcomes": dict(one.delivery_outcomes), "cluster": one.cluster,
        "lanes": [{"number": number, "seq": head.seq, "offset": head.offset} for number, head in sorted(one.lanes.items())],
        "place": one.place._asdict() if one.place else None,
    }  # fmt: skip


def client(view: ClientView) -> dict[str, Any]:
    """A producer's word about itself and its brokers."""
    return view._asdict() | {"brokers": [broker._asdict() for broker in view.brokers]}


def loss(entry: Loss) -> dict[str, Any]:
    """An entry of the ledger."""
    return {"connector": entry.partition.connector, "key": entry.partition.key} | {
        name: value for name, value in entry._asdict().items() if name != "partition"
    }


def loss_totals(totals: Mapping[tuple[str, LossReason], LossTotal]) -> list[dict[str, Any]]:
    """Sums by connector and reason."""
    return [{"connector": name, "reason": reason} | total._asdict() for (name, reason), total in sorted(totals.items())]


def sample(record: Sample) -> dict[str, Any]:
    """A record as it was sent. What is not UTF-8 is `key_base64` or `value_base64` instead of `key` or `value`."""
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


def definition(options: Mapping[str, Any], origins: Iterable[Origin]) -> dict[str, Any]:
    """A masked definition, and where each of its values comes from."""
    return {
        "definition": options,
        "values": [
            {"option": each.option, "value": each.value, "from": each.kind, "path": each.path, "line": each.line} for each in origins
        ],
    }
