"""Where records go: to topics, or into files of a store, each of them written once and complete."""

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
"""By the name of their type. A delivery knows each of them: a package's would be taken for Kafka."""
