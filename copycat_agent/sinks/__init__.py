"""Where records go: to topics, or into files of a store, each of them written once and complete."""

from __future__ import annotations

from typing import NamedTuple

from copycat_agent.options import KafkaSinkOptions, SinkOptions
from copycat_agent.registry import Fence, Registry, wrong_kind, wrong_type_name
from copycat_agent.sinks.files_options import FilesSinkOptions


class SinkKind(NamedTuple):
    """An entry of `SINKS`."""

    options: type[SinkOptions]


def _wrong(name: str, part: SinkKind) -> str:
    return wrong_kind(part, SinkKind, SinkOptions) or wrong_type_name(name, part.options)


def _as_it_is(kind: SinkKind, _fence: Fence) -> SinkKind:
    return kind


SINKS = Registry("sink", {"kafka": SinkKind(KafkaSinkOptions), "files": SinkKind(FilesSinkOptions)}, _wrong, _as_it_is)
"""By the name of their type."""
