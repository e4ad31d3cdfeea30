"""Converters: value -> bytes. A new converter is one file and one line in `CONVERTERS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.converters.base import Converter, ConverterKind, Site
from copycat_agent.converters.bytes_ import BYTES
from copycat_agent.converters.json_ import JSON
from copycat_agent.converters.string import STRING

if TYPE_CHECKING:
    from copycat_agent.options import ConverterOptions

_ANYWHERE = Site()

__all__ = ["CONVERTERS", "Converter", "ConverterKind", "Site", "build_converter"]


def build_converter(options: ConverterOptions, site: Site = _ANYWHERE) -> Converter:
    """The converter that `options` (validated by `CONVERTERS[type].options`) describes. Called once per definition."""
    return CONVERTERS[options.type].build(options, site)


CONVERTERS: dict[str, ConverterKind] = {"bytes": BYTES, "string": STRING, "json": JSON}
