"""What fields a source's records have before any step, as far as its definition says."""

from __future__ import annotations

from copycat_agent.formats.records import FORMATS
from copycat_agent.formats.records.base import one_line
from copycat_agent.model import Column
from copycat_agent.options import SourceOptions
from copycat_agent.sources.contract import PolledOptions


def declared_columns(options: SourceOptions) -> tuple[Column, ...] | None:
    """None where only what is read says it. A source of lines has one: `message`, which is what a step sees of a line."""
    if isinstance(options, PolledOptions):
        return None
    form = getattr(options, "format", None)
    if form is None:
        return one_line(options)
    kind = FORMATS.get(form.type)
    return None if kind is None else kind.columns(form)
