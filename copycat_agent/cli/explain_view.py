"""The result of `copycat explain PATH`, for people and for programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from copycat_agent.cli.record_preview import FirstRecord, FirstRecords
from copycat_agent.cli.value_text import EXACTLY_ONCE, READERS, as_json
from copycat_agent.display import age, visible
from copycat_agent.model import SourceOffset
from copycat_agent.options import Definition, Options
from copycat_agent.sources.base import FileDetail, FileView
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.log_file.beginning.manual_position import is_file_key
from copycat_agent.templates import time_text
from copycat_agent.workbench.explaining import PathAnswer

_WIDTH = 14
_VALUE_CHARS = 200
_FORMER_SHOWN = 3
_GONE = "gone from its patterns, is read to its end; once deleted it survives a restart of the service under systemd, and no stop"
_PARTITIONS = {"key": "by the hash of the key", "sticky": "in sticky runs", "file": "one for the whole file"}


class Explanation(NamedTuple):
    """One connector's answer. `first` are its next records, None if there are none or they were not asked for. `state`: a running agent's.

    `live`: the agent's position in the file, None if it was not asked for that, or does not follow the file.
    """

    answer: PathAnswer
    file: str
    first: FirstRecords | None
    state: Mapping[str, Any] | None
    live: FileView | None = None


def text_of(path: str, answers: list[Explanation]) -> str:
    """Returns the connectors that read the file, with all details; then the others with their reasons."""
    taken = [one for one in answers if one.answer.closeup]
    others = ["\n".join(_refused(one)) for one in answers if not one.answer.closeup]
    others[:1] = [f"\n{one}" for one in others[:1]]
    readers = sum(one.answer.takes for one in answers)
    many = {0: "no connector reads it", 1: "one connector reads it"}.get(readers, f"{readers} connectors read it, each sends every record")
    return "\n".join([f"{visible(path)}: {many}", *("\n" + "\n".join(_taken(one)) for one in taken), *others])


def _refused(one: Explanation) -> Iterator[str]:
    refusal = one.answer.refusal
    assert refusal is not None
    off = ", which is disabled," if not one.answer.definition.enabled else ""
    yield f"{one.answer.definition.name}{off} does not read it: {visible(refusal.why)}"
    for line in refusal.hint.splitlines():
        yield _fact("hint" if line == refusal.hint.splitlines()[0] else "", visible(line))
    for offset in one.answer.former[:_FORMER_SHOWN]:
        yield _fact("before", _former(offset))


def _taken(one: Explanation) -> Iterator[str]:
    answer, closeup = one.answer, one.answer.closeup
    assert closeup is not None
    reads = "reads it" if answer.takes else "would read it, and is disabled (enabled: false)"
    yield f"{answer.definition.name} {reads}  ({visible(one.file)})"
    facts = [
        *_file_facts(answer, closeup),
        *_position_facts(answer, closeup, one.first),
        *_agent_facts(one),
        *_sending_facts(answer.definition),
    ]
    for name, value in facts:
        yield _fact(name, visible(value))
    yield from _records(one.first, "records" if closeup.view.counts_records else "bytes")


def _fact(name: str, value: str) -> str:
    return f"  {name:<{_WIDTH}}{value}"


def _file_facts(answer: PathAnswer, closeup: FileDetail) -> Iterator[tuple[str, str]]:
    view = closeup.view
    if not is_file_key(view.key):
        yield "identity", f"this version of the object (key {view.key}); one that takes its place is another"
        return
    if answer.pattern:
        yield "pattern", answer.pattern
    else:
        yield "pattern", "none names it any more: it is read to its end, because it was being read"
    if answer.path != view.path:
        how = "where it leads to" if answer.path not in closeup.names else "another name of the same file"
        yield "read as", f"{view.path}, {how}"
    others = [name for name in closeup.names if name not in (answer.path, view.path)]
    if others:
        yield "also named", ", ".join(others) + ": the same file, read once"
    identity, generation = Identity.parse(view.key)
    born = f"born {time_text(identity.birth_ns // 10**6, 'seconds')}" if identity.birth_ns else "no birth time on this file system"
    begun = f", begun anew {generation} times" if generation > 1 else ", begun anew once" if generation else ""
    yield "identity", f"device {identity.device:x}, inode {identity.inode}, {born}{begun} (key {view.key})"
    if view.compression:
        yield "packed", f"{view.compression}, {view.size:,} bytes on disk; positions count unpacked bytes"


def _position_facts(answer: PathAnswer, closeup: FileDetail, first: FirstRecords | None) -> Iterator[tuple[str, str]]:
    view = closeup.view
    saved = answer.saved
    yield "saved", "no offset" if saved is None else _saved(saved, view)
    yield "next", _next(closeup)
    if first is not None and first.origin is not None:
        yield "", f"it is the rest of {first.origin.path}: what was read there is skipped, it goes on behind byte {first.origin.position:,}"
    yield "unread", _unread(closeup)
    if view.after:
        yield "waits for", f"{view.after}, an older file of the same log, is read first"
    if view.state in ("gone", "blocked", "failing"):
        yield "state", _GONE if view.state == "gone" else view.state
    for loss in answer.losses:
        if loss.partition.key == view.key:
            yield "lost", f"{loss.size_bytes:,} bytes, from {loss.start:,} to {loss.end:,}: {loss.detail}"
    for offset in answer.former[:_FORMER_SHOWN]:
        yield "before", _former(offset)


def _unread(closeup: FileDetail) -> str:
    view = closeup.view
    if closeup.split is None:
        return "nothing" if not view.unread else f"{view.unread:,} bytes, not looked at now"
    return f"{'about ' if view.compression else ''}{view.unread:,} bytes"


def _next(closeup: FileDetail) -> str:
    view = closeup.view
    if view.state == "done":
        return f"nothing: {view.why or 'it was read to its end'}"
    of = "" if view.compression or view.counts_records else f" of {view.size:,}"
    where = f"record {view.position + 1:,}" if view.counts_records else f"byte {view.position:,}{of}"
    return f"{where}: {view.why or 'it is read on from there'}"


def _saved(offset: SourceOffset, view: FileView | None = None) -> str:
    before = f"{offset.records:,} {'record' if offset.records == 1 else 'records'} before it"
    words = [f"record {offset.position + 1:,}" if view is not None and view.counts_records else f"byte {offset.position:,}, {before}"]
    if offset.size:
        words.append(f"{offset.size:,} bytes when last seen")
    flags = (("finished", offset.done), ("inside an over-long line", offset.skipping))
    words += [word for word, is_so in flags if is_so]
    if offset.gone_ms:
        words.append(f"gone for {age(time.time() - offset.gone_ms / 1000)}")
    return ", ".join(words)


def _former(offset: SourceOffset) -> str:
    return f"another file had this name: {_saved(offset)}"


def _agent_facts(one: Explanation) -> Iterator[tuple[str, str]]:
    if one.state is not None:
        reason = f": {one.state['reason']}" if one.state["reason"] else ""
        yield "agent", f"{one.state['state'].upper()}{reason}"
    if one.live is not None:
        where = f"record {one.live.position + 1:,}" if one.live.counts_records else f"byte {one.live.position:,}"
        yield "", f"it is at {where}, {one.live.unread:,} bytes unread, {one.live.state}{': ' if one.live.why else ''}{one.live.why}"


def _sending_facts(definition: Definition) -> Iterator[tuple[str, str]]:
    source, record, mask = definition.source, definition.record, definition.mask
    yield "topic", record.topic
    yield "key", "none" if record.key is None else mask.text(record.key)
    rule = record.partition
    keyless = rule == "key" and record.key is None
    yield "partition", "in sticky runs, for there is no key" if keyless else _PARTITIONS.get(str(rule), f"always {rule}")
    if definition.delivery.guarantee == EXACTLY_ONCE:
        yield "guarantee", f"exactly once, {READERS}; positions are as this host knows them, Kafka is asked at each start"
    if record.headers:
        yield "headers", ", ".join(f"{name}: {mask.text(text)}" for name, text in record.headers.items())
    if record.timestamp != "read":
        yield "timestamp", record.timestamp
    for name in ("start_at", "ignore_older", "encoding", "line", "multiline", "format", "compression"):
        said = _changed(source, name)
        if said:
            yield name, said
    if definition.transforms:
        yield "transforms", f"{len(definition.transforms)} steps" if len(definition.transforms) > 1 else "one step"


def _changed(options: Options, name: str) -> str:
    """Returns a definition's setting of an option that decides how a file is read, "" if it is the default."""
    field = type(options).model_fields.get(name)
    value = getattr(options, name, None)
    if field is None or value is None or value == field.get_default():
        return ""
    shown = options.masked()[name]
    if isinstance(value, Options) and isinstance(shown, dict):
        return ", ".join(
            f"{key}: {shown[key]!r}" if isinstance(shown[key], str) else f"{key}: {shown[key]}" for key in value.model_fields_set
        )
    return str(shown)


def _records(first: FirstRecords | None, unit: str) -> Iterator[str]:
    if first is None:
        return
    if first.records:
        yield _fact("records", f"the next {len(first.records)}, as they would be sent:" if len(first.records) > 1 else "the next one:")
    elif first.error is None and not first.damage:
        yield _fact("records", "no whole record yet")
    for record in first.records:
        yield from _record(record, unit)
    if first.records and first.open_bytes:
        yield _fact("", f"then {first.open_bytes:,} bytes that make no whole record yet")
    if first.damage:
        yield _fact("damaged", visible(first.damage))
    if first.error is not None:
        yield _fact("stops", f"behind {unit.removesuffix('s')} {first.end:,}: {visible(str(first.error))}")


def _record(record: FirstRecord, unit: str) -> Iterator[str]:
    is_one = unit == "records" and record.end == record.start + 1
    where = f"record {record.end:,}" if is_one else f"{unit} {record.start:,} to {record.end:,}"
    if record.fate in ("dropped", "rejected", "no record"):
        yield f"    {where}  {record.fate}: {visible(record.why)}"
        return
    parts = [where, f"-> {visible(record.topic)}"]
    if record.key is not None:
        parts.append(f"key {_bytes(record.key)}")
    if record.partition is not None:
        parts.append(f"partition {record.partition}")
    if record.timestamp_ms:
        parts.append(f"timestamp {time_text(record.timestamp_ms, 'seconds')}")
    if record.headers and record.fate == "sent":
        parts.append(", ".join(f"{visible(name)}: {_bytes(value)}" for name, value in record.headers))
    if record.why:
        parts.append(f"{record.fate}: {visible(record.why)}")
    yield f"    {'  '.join(parts)}"
    yield f"      {_bytes(record.value or b'')}"


def _bytes(content: bytes) -> str:
    """Returns the content as one line of text, cut, with odd bytes and controls escaped."""
    text = visible(content[: 4 * _VALUE_CHARS].decode("utf-8", "surrogateescape"))
    return text if len(text) <= _VALUE_CHARS else f"{text[:_VALUE_CHARS]}... ({len(content):,} bytes)"


def entry(one: Explanation) -> dict[str, Any]:
    """Returns one connector's answer for programs."""
    answer = one.answer
    record, mask = answer.definition.record, answer.definition.mask
    found: dict[str, Any] = {
        "connector": answer.definition.name, "definition": visible(one.file), "enabled": answer.definition.enabled, "takes": answer.takes,
        "why_not": answer.refusal.why if answer.refusal else None, "hint": (answer.refusal.hint or None) if answer.refusal else None,
        "state": one.state["state"] if one.state else None,
        "live": one.live and {"position": one.live.position, "unread": one.live.unread, "state": one.live.state, "why": one.live.why},
        "former": [_offset(offset) for offset in answer.former],
        "topic": record.topic, "key": mask.value(record.key), "partition": record.partition, "headers": mask.value(record.headers),
        "timestamp": record.timestamp, "guarantee": answer.definition.promise,
    }  # fmt: skip
    if answer.closeup is None:
        return found
    view = answer.closeup.view
    return found | {
        "path": visible(view.path), "names": [visible(name) for name in answer.closeup.names], "pattern": answer.pattern or None,
        "file_key": view.key, "compression": view.compression or None, "saved": None if answer.saved is None else _offset(answer.saved),
        "position": view.position, "size": view.size, "unread": view.unread, "why": view.why, "file_state": view.state,
        "after": visible(view.after) or None,
        "losses": [{"start": loss.start, "end": loss.end, "size_bytes": loss.size_bytes, "why": loss.detail}
                   for loss in answer.losses if loss.partition.key == view.key],
        "records": [_record_entry(record) for record in one.first.records] if one.first else [],
        "error": str(one.first.error) if one.first and one.first.error else None,
        "damage": (one.first.damage or None) if one.first else None,
        "rest_of": visible(one.first.origin.path) if one.first and one.first.origin else None,
    }  # fmt: skip


def _offset(offset: SourceOffset) -> dict[str, Any]:
    return {
        "position": offset.position, "records": offset.records, "size": offset.size, "done": offset.done, "skipping": offset.skipping,
        "gone_ms": offset.gone_ms, "path": visible(offset.path),
    }  # fmt: skip


def _record_entry(record: FirstRecord) -> dict[str, Any]:
    return {
        "fate": record.fate, "start": record.start, "end": record.end, "topic": record.topic or None, "key": as_json(record.key),
        "value": as_json(record.value), "headers": {name: as_json(value) for name, value in record.headers}, "partition": record.partition,
        "timestamp_ms": record.timestamp_ms or None, "why": record.why or None,
    }  # fmt: skip
