"""What a definition says without words: options that follow from other ones."""

from __future__ import annotations

from copycat_agent.formats import MultilineOptions
from copycat_agent.options import Definition
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.transforms import action_of

_WRAPPED = frozenset({"cri", "docker"})
_MOST_PARTS = 100_000


def with_implied(definition: Definition) -> Definition:
    """The definition with what follows from it.

    A step that unwraps lines of containers wants the parts of a line together. What is written of over-long lines goes for records of
    several lines, too, where nothing is written of those.
    """
    source = definition.source
    if not isinstance(source, LogFileOptions):
        return definition
    multiline = source.multiline or _of_containers(definition, source)
    if multiline is None:
        return definition
    if "on_too_long" in source.line.model_fields_set and "on_too_long" not in multiline.model_fields_set:
        multiline = multiline.model_copy(update={"on_too_long": source.line.on_too_long})
    return definition.model_copy(update={"source": source.model_copy(update={"multiline": multiline})})


def _of_containers(definition: Definition, source: LogFileOptions) -> MultilineOptions | None:
    if not any(action_of(step) in _WRAPPED for step in definition.transforms):
        return None
    return MultilineOptions(preset="container", max_lines=_MOST_PARTS, max_bytes=max(2**20, source.line.max_bytes))
