"""Plans a run without sending: files, bytes, records and time, estimated from the beginnings of the files, and the state of the topic."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent import logs
from copycat_agent.backfill.backfill_file import BackfillFile
from copycat_agent.backfill.delivered import EarlierDeliveries, EarlierDelivery
from copycat_agent.display import visible
from copycat_agent.errors import CopycatError
from copycat_agent.formats import Chunk, Parsed
from copycat_agent.model import SavedRow, SourcePartition, Split
from copycat_agent.options import Definition
from copycat_agent.producer.probing import ClusterProbe, TopicState
from copycat_agent.sources import SOURCES, create_source
from copycat_agent.sources.base import FileView, LooksLater
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.packing.unpacking import unpacker_of
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS

if TYPE_CHECKING:
    from copycat_agent.backfill.path_runs import PathSelection

SAMPLE_BYTES = 2**20
"""Bytes read of each of the first `SAMPLED_FILES` files: enough to estimate the size of its records."""
SAMPLED_FILES = 200
"""Number of files that are sampled; the others are assumed to be like these."""
PACKED_SAMPLE_BYTES = 2**18
CHECKED_BYTES = 256 * 2**20
"""A compressed file is unpacked up to here to check whether it was delivered; beyond that only the run itself finds out."""
ASSUMED_BYTES_PER_SECOND = 20 * 2**20
"""Assumed rate without a measurement: two cores with a local broker reached more with every format."""
ANSWER_SECONDS = 10.0

_log = logs.get("backfill")


class SizeSample(NamedTuple):
    """An estimate from a file's beginning: unpacked bytes per stored byte, and records per unpacked byte (None: unknown)."""

    ratio: float = 1.0
    records_per_byte: float | None = None


def plan_of(
    definition: Definition,
    chosen: PathSelection | None,
    delivered: EarlierDeliveries | None,
    saved: Mapping[SourcePartition, SavedRow],
    rate: int,
    measured: float,
) -> dict[str, Any]:
    """Returns the plan as a JSON value. `chosen` None: what the definition matches, by what is `saved`. `rate`: 0 for no limit.

    `measured`: bytes per second of an earlier run, 0.0 without one.
    """
    entries = list(_given(definition, chosen.files, delivered) if chosen else _matched(definition, saved))
    sending = [one for one in entries if one["action"] == "send"]
    topic, warnings = _topic(definition, sending)
    unpacked = sum(one["unpacked_bytes"] for one in sending)
    known = all(one["records"] is not None for one in sending)
    return {
        "version": 1,
        "connector": definition.name,
        "files": entries,
        "totals": {
            "files": len(entries),
            "send": len(sending),
            "skip": sum(one["action"] == "skip" for one in entries),
            "bytes": sum(one["bytes"] for one in sending),
            "unpacked_bytes": unpacked,
            "records": sum(one["records"] for one in sending) if known else None,
        },
        "time": _time(unpacked, rate, measured),
        "topic": topic,
        "warnings": warnings,
    }


def _time(unpacked: int, rate: int, measured: float) -> dict[str, Any]:
    if rate and (not measured or rate < measured):
        pace, words = float(rate), "at the --rate given"
    elif measured:
        pace, words = measured, "at the rate of the latest run"
    else:
        pace, words = (
            float(ASSUMED_BYTES_PER_SECOND),
            f"if it does {ASSUMED_BYTES_PER_SECOND // 2**20} MiB/s (assumed: no run was measured yet)",
        )
    return {"seconds": round(unpacked / pace, 1), "bytes_per_second": pace, "words": words}


def _given(definition: Definition, paths: Sequence[str], delivered: EarlierDeliveries | None) -> Iterator[dict[str, Any]]:
    kind = SOURCES[definition.source.type]
    form = kind.framing(definition.source, raw=False)
    whole = hasattr(form, "counts_records")
    usual, met = SizeSample(), set[str]()
    for number, path in enumerate(paths):
        file = BackfillFile(path, definition.source)
        if file.key in met:
            continue
        met.add(file.key)
        if file.why:
            yield _entry(file, "fail", file.why, SizeSample(1.0, 0.0))
            continue
        try:
            former, why = _former(file, delivered, whole=whole)
        except OSError as error:
            yield _entry(file, "fail", f"it cannot be read: {error.strerror}", SizeSample(1.0, 0.0))
            continue
        if former is not None and file.is_over:
            yield _entry(file, "skip", former.words, usual)
            continue
        if number < SAMPLED_FILES:
            usual = _sample(definition, file, usual)
        yield _entry(file, "send", why, usual)


def _former(file: BackfillFile, delivered: EarlierDeliveries | None, *, whole: bool) -> tuple[EarlierDelivery | None, str]:
    """Returns what of a file was delivered, and a remark about one that is sent."""
    former = file.former(delivered, whole=whole) if delivered else None
    if former is not None:
        return former, f"from byte {file.offset.position}: what is before was {former.words}"
    if not file.formers:
        return None, ""
    found, checked = _unpacked_former(file)
    if found is None:
        return None, "" if checked else "part of it may have been delivered: the run finds out"
    file.offset = replace(file.offset, position=found.offset.position, done=_ends_at(file, found.offset.position))
    return found, f"from unpacked byte {found.offset.position}: what is before was {found.words}"


def _unpacked_former(file: BackfillFile) -> tuple[EarlierDelivery | None, bool]:
    """Unpack to see; whether that could be done within reason."""
    from_here = [former for former in file.formers if former.offset.position <= CHECKED_BYTES]
    with file.reading() as read:
        unpacker = unpacker_of(file.offset.compression, file.end)
        held = None
        for former in sorted(from_here, key=lambda one: one.offset.position):
            if fingerprint.holds(partial(unpacker.read, read), former.offset.fingerprint, former.offset.position):
                held = former
    return held, len(from_here) == len(file.formers)


def _ends_at(file: BackfillFile, position: int) -> bool:
    with file.reading() as read:
        return not unpacker_of(file.offset.compression, file.end).read(read, position, 1)


def _entry(file: BackfillFile, action: str, why: str, sample: SizeSample) -> dict[str, Any]:
    is_packed = bool(file.offset.compression)
    unpacked = round(file.end * sample.ratio) if is_packed else file.end
    left = max(0, unpacked - file.offset.position) if action == "send" else 0
    records = None if sample.records_per_byte is None else round(left * sample.records_per_byte)
    return {
        "path": visible(file.path),
        "action": action,
        "why": visible(why),
        "size": file.end,
        "bytes": file.unread if action == "send" else 0,
        "compression": file.offset.compression,
        "unpacked_bytes": left,
        "records": records,
        "changed": file.mtime,
    }


def _partition(view: FileView) -> dict[str, Any]:
    """Returns the plan for a partition of a source without files, as the source describes it."""
    action = "fail" if view.state == "failing" else "send" if view.unread or view.behind else "skip"
    return {
        "path": visible(view.path),
        "action": action,
        "why": view.why or ("nothing new: all of it was delivered before" if action == "skip" else f"from {view.cursor}"),
        "size": 0,
        "bytes": view.unread if action == "send" else 0,
        "compression": "",
        "unpacked_bytes": view.unread if action == "send" else 0,
        "records": view.behind if action == "send" else 0,
        "changed": 0.0,
    }


def _sample(definition: Definition, file: BackfillFile, usual: SizeSample) -> SizeSample:
    """Returns an estimate from the beginning of a file, read as a task would."""
    if not file.end:
        return usual
    kind = SOURCES[definition.source.type]
    form: Any = kind.framing(definition.source, raw=False)
    ratio = 1.0
    try:
        if file.offset.compression:
            ratio = _ratio(file)
        offset = replace(file.offset, position=0, records=0, done=False)
        counts_records = getattr(form, "counts_records", False)
        end = ENDLESS if counts_records or file.offset.compression else min(file.end, SAMPLE_BYTES)
        split = Split(SourcePartition(definition.name, f"sample:{os.getpid()}:{file.key}"), file.path, file.path, offset, end)
        return SizeSample(ratio, _records_per_byte(kind, form, split))
    except (CopycatError, OSError):
        return SizeSample(ratio, usual.records_per_byte)


def _ratio(file: BackfillFile) -> float:
    """Returns the unpacked bytes per compressed byte at the beginning of a file."""
    with file.reading() as read:
        unpacker = unpacker_of(file.offset.compression, file.end)
        while unpacker.taken < min(file.end, PACKED_SAMPLE_BYTES) and unpacker.read(read, unpacker.produced, compressions.OUTPUT_BYTES):
            pass
    return max(1, unpacker.produced) / max(1, unpacker.taken)


def _records_per_byte(kind: Any, form: Any, split: Split) -> float | None:  # noqa: ANN401 - any source's
    records = size = 0
    with closing(kind.open(split, form)) as stream:
        for frame in stream.frames(form, 0, split.end, final=False, block_bytes=2**16):
            if isinstance(frame, Chunk | Parsed):
                records, size = records + frame.total, size + frame.size_bytes
            if size >= SAMPLE_BYTES:
                break
    return records / size if size else None


def _matched(definition: Definition, saved: Mapping[SourcePartition, SavedRow]) -> Iterator[dict[str, Any]]:
    """Yields the plan of what the source itself finds in one scan, whose changes are not saved."""
    kind = SOURCES[definition.source.type]
    with closing(create_source(kind.make, definition, saved, _log, only_looks=True)) as source:
        source.scan()
        if isinstance(source, LooksLater):
            source.look_now()
        views = source.files()
    usual = SizeSample()
    for number, view in enumerate(views):
        if view.cursor:
            yield _partition(view)
            continue
        file = BackfillFile(view.path, definition.source)
        file.offset = replace(file.offset, position=view.position, compression=view.compression or file.offset.compression)
        if view.state == "failing" or file.why:
            yield _entry(file, "fail", view.why or file.why, SizeSample(1.0, 0.0))
        elif not view.unread:
            yield _entry(file, "skip", "nothing new: all of it was delivered before" if view.position else "there is nothing in it", usual)
        else:
            usual = _sample(definition, file, usual) if number < SAMPLED_FILES else usual
            yield _entry(file, "send", f"from byte {view.position}" if view.position else "", usual)


def _topic(definition: Definition, sending: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Returns the topic's state in the cluster, and warnings. Without a broker there is only a note."""
    name = definition.record.topic
    if "{" in name:
        return {"name": name, "state": "depends on each record"}, []
    try:
        with closing(ClusterProbe(definition.kafka, time.monotonic() + ANSWER_SECONDS)) as probe:
            probe.brokers()
            topic = probe.look([name]).topics[name]
    except CopycatError as error:
        return {"name": name, "state": f"not known: {error.message}"}, []
    if topic.missing:
        made = definition.kafka.create_topics is not None
        state = "does not exist, and is created" if made else "does not exist"
        return {"name": name, "state": state}, [] if made else [f"topic {name} does not exist: create it, or set kafka.create_topics"]
    if topic.error is not None:
        return {"name": name, "state": f"not known: {topic.error.message}"}, []
    state = f"{topic.partitions} partitions"
    return {"name": name, "state": state, "partitions": topic.partitions}, list(_retention(definition, topic, sending))


def _retention(definition: Definition, topic: TopicState, sending: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields warnings about records that the topic's retention deletes soon after they arrive."""
    config = topic.config or {}
    if "delete" not in config.get("cleanup.policy", "delete"):
        return
    keeps_ms, keeps_bytes = int(config.get("retention.ms", -1)), int(config.get("retention.bytes", -1))
    if keeps_ms >= 0 and definition.record.timestamp != "read" and config.get("message.timestamp.type") != "LogAppendTime":
        oldest = time.time() - keeps_ms / 1000
        old = sum(one["changed"] < oldest for one in sending)
        if old:
            yield (
                f"{old:,} files were last changed longer ago than topic {topic.name} keeps records (retention.ms={keeps_ms}), and"
                f" record.timestamp is {definition.record.timestamp}: Kafka deletes them soon after they arrive; raise retention.ms first"
            )
    size = sum(one["unpacked_bytes"] for one in sending)
    if keeps_bytes >= 0 and size > keeps_bytes * max(1, topic.partitions):
        yield (
            f"about {size:,} bytes go to topic {topic.name}, which keeps {keeps_bytes:,} for each of its {topic.partitions} partitions"
            " (retention.bytes, after compression): the first may be deleted before the last arrive; raise retention.bytes first"
        )
