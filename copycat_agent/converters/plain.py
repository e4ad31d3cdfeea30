"""`bytes`, `string` and `json`: the framed value, UTF-8, and fields as one compact JSON object. No schema, no registry."""

from __future__ import annotations

import base64
from datetime import time
from decimal import Decimal
from typing import Any, Literal

import orjson

from copycat_agent.converters.base import ConverterKind
from copycat_agent.errors import DataError
from copycat_agent.options import ConverterOptions, Field

_LEAST, _GREATEST = -(2**63), 2**64 - 1
"""The range of numbers that orjson writes by itself."""


class BytesOptions(ConverterOptions):
    """Bytes exactly as framed: no delimiter, nothing decoded."""

    type: Literal["bytes"] = Field("bytes", description="The bytes exactly as framed.")


def _as_bytes(value: bytes | str | dict[str, Any]) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")
    raise DataError("the bytes converter needs a record without fields", "use the json converter after transforms that make fields")


BYTES = ConverterKind(BytesOptions, lambda *_: _as_bytes, is_identity=True)


class JsonOptions(ConverterOptions):
    """One JSON object per record, UTF-8, no spaces."""

    type: Literal["json"] = Field("json", description='Fields as a JSON object; a raw line as {"message": "..."}.')


def dump(value: str | dict[str, Any]) -> bytes:
    """Returns compact JSON, without loss of anything that JSON can express; raises `DataError` for the rest.

    Decimals and whole numbers of any size keep all their digits, as numbers. Dates and times are RFC 3339, those without a zone lack only
    the zone. Bytes are base64. NaN and infinities are null.
    """
    try:
        return orjson.dumps(value, _special)
    except TypeError:
        pass  # the error raised below shows nothing of it
    return _dump_slowly(value)


def _dump_slowly(value: str | dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(_plain(value), _special)
    except (TypeError, RecursionError, ValueError) as error:
        # orjson names types and limits only, never values
        reason = str(error.__cause__ or error)
    raise DataError(f"the record cannot be written as JSON: {reason}")


def _as_json(value: bytes | str | dict[str, Any]) -> bytes:
    if isinstance(value, bytes):
        value = {"message": value.decode("utf-8", "replace")}
    try:
        return orjson.dumps(value, _special)  # like `dump`, without one more call for each record
    except TypeError:
        pass  # the error raised below shows nothing of it
    return _dump_slowly(value)


def _special(value: object) -> object:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value)) if value.is_finite() else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")


def _plain(value: object) -> object:
    """Returns the value without what orjson refuses before it calls `_special`: whole numbers over 64 bits, times of day with a zone."""
    if isinstance(value, int):
        return value if _LEAST <= value <= _GREATEST else orjson.Fragment(str(value))
    if isinstance(value, time):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


JSON = ConverterKind(JsonOptions, lambda *_: _as_json, is_json=True)


class StringOptions(ConverterOptions):
    """UTF-8 text; bytes that are not UTF-8 become U+FFFD."""

    type: Literal["string"] = Field("string", description="UTF-8 text; what is not UTF-8 becomes U+FFFD. Fields as compact JSON.")


def _as_text(value: bytes | str | dict[str, Any]) -> bytes:
    if isinstance(value, bytes):
        # ASCII needs no check beyond this; otherwise a round trip puts U+FFFD where it belongs
        return value if value.isascii() else value.decode("utf-8", "replace").encode()
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")
    return dump(value)


STRING = ConverterKind(StringOptions, lambda *_: _as_text, is_json=True)
