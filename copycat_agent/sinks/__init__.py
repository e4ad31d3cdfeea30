"""Sinks: records go to topics, or into the files of a store, where each file is written once and is complete when it is visible."""

from __future__ import annotations

from typing import NamedTuple

from copycat_agent.options import KafkaSinkOptions, SinkOptions
from copycat_agent.registry import Registry
from copycat_agent.sinks.files_options import FilesSinkOptions


class SinkKind(NamedTuple):
    """An entry of `SINKS`."""

    options: type[SinkOptions]


_OWN = {"kafka": SinkKind(KafkaSinkOptions), "files": SinkKind(FilesSinkOptions)}
SINKS: Registry[SinkKind] = Registry("sink", _OWN, lambda _name, _part: "packages bring no sinks", lambda kind, _fence: kind)
"""Sinks by type. Deliveries name each of them, so a package cannot add one: it would be treated as Kafka."""
