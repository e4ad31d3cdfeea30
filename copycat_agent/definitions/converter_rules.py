"""What `converters` must fulfil beyond the type of each option: a registry where one is needed, schemas that are some and that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from copycat_agent.converters import CONVERTERS, Site, registry_problems
from copycat_agent.sources.declared import declared_columns
from copycat_agent.transforms import columns_after

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from copycat_agent.converters import ConverterProblem
    from copycat_agent.definitions.reading import Reader
    from copycat_agent.model import Column
    from copycat_agent.options import ConvertersOptions, RecordOptions, SourceOptions, TransformOptions


def check_converters(
    reader: Reader,
    converters: ConvertersOptions,
    source: SourceOptions | None,
    transforms: Sequence[TransformOptions] | None,
    record: RecordOptions | None,
) -> None:
    """What is None could not be read: then the records' fields are not known."""
    columns: tuple[Column, ...] | None = None
    if source is not None and transforms is not None and record is not None and record.value is None:
        columns = columns_after(transforms, declared_columns(source))
    if converters.schema_registry is not None:
        _report(reader, registry_problems(converters.schema_registry))
    parts: tuple[Literal["key", "value"], ...] = ("key", "value")
    for part in parts:
        options = getattr(converters, part)
        kind = None if options is None else CONVERTERS.get(options.type)
        if kind is not None:
            _report(reader, kind.problems(options, Site(part, converters.schema_registry, columns if part == "value" else None)))


def _report(reader: Reader, problems: Iterable[ConverterProblem]) -> None:
    for place, why, hint, code in problems:
        reader.report(("converters", *place), code, why, hint)
