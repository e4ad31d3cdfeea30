"""What has been replayed of a connector's dead letters, under whatever names it had."""

from __future__ import annotations

from copycat_agent.dlq.progress import Progress, group_of
from copycat_agent.options import Definition
from copycat_agent.producer.consuming import Position, TopicReader


def saved_progress(reader: TopicReader, definition: Definition) -> dict[int, Progress]:
    """By partition, from the group of the connector that `reader` reads for; where that is new, from those of its former names.

    Raises as `TopicReader` does.
    """
    saved = reader.positions()
    if len(saved) < len(reader.ranges):
        for name in definition.renamed_from:
            for number, position in _of_group(reader, definition, group_of(name)).items():
                saved.setdefault(number, position)
    progress = {number: Progress.of(saved.get(number)) for number in reader.ranges}
    for number, (begin, end) in reader.ranges.items():
        progress[number].forget(begin, end)
    return progress


def _of_group(reader: TopicReader, definition: Definition, group: str) -> dict[int, Position]:
    with TopicReader(definition.kafka, reader.topic, group) as other:
        return other.positions()
