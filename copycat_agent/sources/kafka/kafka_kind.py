"""The entry of source `kafka` in `SOURCES`, and its check for `copycat doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.extending import CopycatError, Probed, RunsAs, TopicRanges, offset_source_kind
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
        places = [(name, number) for name, topic in topics.items() for number in topic.partitions]
        begins, ends = ranges.begins(places), ranges.ends(places)
        yield from (Probed("partition", error.message, "fail", error.hint) for error in {**begins.errors, **ends.errors}.values())
        records = sum(end - begins.found[place] for place, end in ends.found.items() if place in begins.found)
        names = ", ".join(list(topics)[:_SHOWN]) + (f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else "")
        yield Probed("topics", f"{names}: {len(places)} partitions with up to {records:,} records")
    except CopycatError as error:
        yield Probed("topics", error.message, "fail", error.hint)
    finally:
        ranges.close()


KAFKA = offset_source_kind(KafkaSourceOptions, KafkaSource, probe=probe_topics, sample=_SAMPLE)
