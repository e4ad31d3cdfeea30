"""`bytes`: the value as it was framed, untouched."""

from __future__ import annotations

from typing import Any, Literal

from copycat_agent.converters.base import Converter, ConverterKind, Site
from copycat_agent.errors import DataError
from copycat_agent.options import ConverterOptions, Field


class BytesOptions(ConverterOptions):
    """Bytes exactly as framed: no delimiter, nothing decoded."""

    type: Literal["bytes"] = Field("bytes", description="The bytes exactly as framed.")


def _convert(value: bytes | str | dict[str, Any]) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")
    msg = "the bytes converter needs a record without fields"
    raise DataError(msg, "use the json converter after transforms that make fields")


def _build(_: BytesOptions, site: Site) -> Converter:
    del site
    return _convert


BYTES = ConverterKind(BytesOptions, _build, is_identity=True)
