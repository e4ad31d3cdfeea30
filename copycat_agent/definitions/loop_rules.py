"""Refuses a connector that would read the topics that it writes: that never ends, and fills the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from copycat_agent.definitions.models import Loc
from copycat_agent.definitions.options_reader import Reader
from copycat_agent.options import ErrorsOptions, KafkaOptions, RecordOptions, SourceOptions
from copycat_agent.producer.topic_ranges import is_name, stands_for
from copycat_agent.templates import compile_template

_HINT = "write to a topic that source.topics does not stand for, or name it in source.exclude"


def check_loop(
    reader: Reader, source: SourceOptions, record: RecordOptions | None, errors: ErrorsOptions | None, kafka: KafkaOptions
) -> None:
    """Checks by names that no topic is both written and read. A section that could not be read, or is not used, is None.

    A template's topics are compared by their beginning: if they are made of the topic that was read, one of them may be read for ever.
    """
    if source.type != "kafka":
        return
    asked: Any = source
    if not _same_cluster(asked.kafka, kafka):
        return
    written: list[tuple[Loc, str]] = []
    if record is not None:
        written += ((("record", "topic"), name) for name in _topics(record, asked.topics))
        written += ((("record", "allowed_topics", number), name) for number, name in enumerate(record.allowed_topics))
    if errors is not None and errors.dlq is not None:
        written.append((("errors", "dlq", "topic"), errors.dlq.topic))
    told: set[Loc] = set()
    for loc, name in written:
        if loc not in told and stands_for(name, asked.topics, asked.exclude):
            told.add(loc)
            reader.report(loc, "topic", f"the connector would read what it writes, for ever: source.topics stands for {name}, too", _HINT)


def _same_cluster(read: KafkaOptions | None, written: KafkaOptions) -> bool:
    return read is None or not {*read.bootstrap_servers}.isdisjoint(written.bootstrap_servers)


def _topics(record: RecordOptions, read: Sequence[str]) -> Iterator[str]:
    try:
        template = compile_template(record.topic)
    except ValueError:
        return
    if template.is_literal:
        yield template.literal_prefix
    elif not record.allowed_topics:
        for name in filter(is_name, read):
            yield record.topic.replace("{@topic}", name)
        yield f"{template.literal_prefix}x"
