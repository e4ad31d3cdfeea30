"""`json`: fields as one compact JSON object."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import orjson

from copycat_agent.converters.base import Converter, ConverterKind
from copycat_agent.errors import DataError
from copycat_agent.options import ConverterOptions, Field


class JsonOptions(ConverterOptions):
    """One JSON object per record, UTF-8, no spaces."""

    type: Literal["json"] = Field("json", description='Fields as a JSON object; a raw line as {"message": "..."}.')


def dump(value: str | dict[str, Any]) -> bytes:
    """Compact JSON. Decimals keep all their digits as numbers, times are RFC 3339, NaN is null; `DataError` for the rest."""
    try:
        return orjson.dumps(value, _special)
    except TypeError as error:
        # orjson names types and limits only, never values
        reason = str(error.__cause__ or error)
    msg = f"the record cannot be written as JSON: {reason}"
    raise DataError(msg)


def _convert(value: bytes | str | dict[str, Any]) -> bytes:
    return dump({"message": value.decode("utf-8", "replace")} if isinstance(value, bytes) else value)


def _special(value: object) -> object:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value)) if value.is_finite() else None
    msg = f"Type is not JSON serializable: {type(value).__name__}"
    raise TypeError(msg)


def _build(_: JsonOptions) -> Converter:
    return _convert


JSON = ConverterKind(JsonOptions, _build)
