"""The entry of source `kafka` in `SOURCES`, and its check for `copycat doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from copycat_agent.extending import CopycatError, Probed, RollOptions, RunsAs, TopicRanges, TopicRetention, offset_source_kind
from copycat_agent.sources.kafka.kafka_options import KafkaSourceOptions
from copycat_agent.sources.kafka.kafka_source import KafkaSource

_SHOWN = 5
READ = "kafka-acls.sh --add --operation Read"

_SAMPLE = """\
type: kafka
topics: [orders]                          # names, or patterns, as in "orders-.*"
# exclude: [orders-test]
start_at: beginning                       # or end, or a time, "2026-11-21T05:00:00Z"
# kafka: {bootstrap_servers: ["kafka1:9092"]}   # where it is another cluster than the one that is sent to
"""


def probe_topics(options: KafkaSourceOptions, user: RunsAs) -> Iterator[Probed]:
    """Yields which topics exist, and whether they may be read."""
    del user  # a user of this host; Kafka has its own
    ranges = TopicRanges(options.cluster, committed=options.isolation == "read_committed")
    try:
        topics, missing, refused = ranges.topics(options.topics, options.exclude)
        yield from (
            Probed("topic", f"topic {name} is not there", "warn", "it is read once it is; correct source.topics") for name in missing
        )
        yield from (Probed("topic", error.message, "fail", error.hint) for error in refused.values())
        if not topics:
            yield Probed(
                "topics", "none is there that source.topics stands for, or that this user may see", "fail", "grant Describe and Read"
            )
            return
        closed = ranges.closed(topics)
        yield from (Probed("topic", f"topic {name} may be looked at, and not read", "fail", f"grant Read on it: {READ}") for name in closed)
        if (group := options.group_name) and not ranges.may_commit(group):
            words = f"group {group}: this user may not save positions there for tools that show a lag; all else goes without"
            yield Probed("group", words, "warn", f"grant Read on the group: {READ}")
        if options.roll is not None:
            yield from _retention(options.roll, ranges.retention(topics), topics)
        places = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        begins, ends = ranges.begins(places), ranges.ends(places)
        yield from (Probed("partition", error.message, "fail", error.hint) for error in {**begins.errors, **ends.errors}.values())
        records = sum(end - begins.found[place] for place, end in ends.found.items() if place in begins.found)
        yield Probed("topics", f"{_named(list(topics))}: {len(places)} partitions with up to {records:,} records")
    except CopycatError as error:
        yield Probed("topics", error.message, "fail", error.hint)
    finally:
        ranges.close()


def _retention(roll: RollOptions, kept: Mapping[str, TopicRetention], topics: Iterable[str]) -> Iterator[Probed]:
    """Yields the topics that keep records for less than twice the time or bytes that a file waits for, and those that do not tell."""
    for name, (seconds, size_bytes) in kept.items():
        if roll.age > seconds / 2 or roll.bytes > size_bytes / 2:
            limits = [f"retention.ms={seconds * 1000:.0f}"] * (roll.age > seconds / 2)
            limits += [f"retention.bytes={size_bytes:.0f}"] * (roll.bytes > size_bytes / 2)
            words = f"topic {name} has {', '.join(limits)}: its files are written at half of that, and what is unread for longer is lost"
            yield Probed("retention", words, "warn", "keep records for at least twice what sink.roll waits for, or lower sink.roll")
    if hidden := sorted(set(topics) - kept.keys()):
        words = f"how long {_named(hidden)} keep records is not known: they may expire while they wait for a file (sink.roll)"
        yield Probed("retention", words, "warn", "grant DescribeConfigs on the topics, or see that they keep records for longer")


def _named(topics: Sequence[str]) -> str:
    return ", ".join(topics[:_SHOWN]) + (f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else "")


KAFKA = offset_source_kind(KafkaSourceOptions, KafkaSource, probe=probe_topics, sample=_SAMPLE)
