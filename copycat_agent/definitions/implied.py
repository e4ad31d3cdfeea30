"""What a definition says without words: options that follow from other ones."""

from __future__ import annotations

from typing import Any

from copycat_agent.formats import MultilineOptions
from copycat_agent.options import Definition
from copycat_agent.sources.log_options import LogFileOptions
from copycat_agent.transforms import action_of

_WRAPPED = frozenset({"cri", "docker"})
_MOST_PARTS = 100_000


def with_implied(definition: Definition) -> Definition:
    """The definition with what follows from it: a step that unwraps lines of containers wants the parts of a line together."""
    source = definition.source
    if not isinstance(source, LogFileOptions) or source.multiline is not None:
        return definition
    if not any(action_of(step) in _WRAPPED for step in definition.transforms):
        return definition
    policy: dict[str, Any] = {"on_too_long": source.line.on_too_long} if "on_too_long" in source.line.model_fields_set else {}
    parts = MultilineOptions(preset="container", max_lines=_MOST_PARTS, max_bytes=max(2**20, source.line.max_bytes), **policy)
    return definition.model_copy(update={"source": source.model_copy(update={"multiline": parts})})
