"""`string`: text as UTF-8.

Kafka Connect's StringConverter writes `toString()`, which for fields is Java's `{a=1}`: nothing reads that back. Here
fields become compact JSON instead; for lines and keys the two agree.
"""

from __future__ import annotations

from typing import Any, Literal

from copycat_agent.converters.base import Converter, ConverterKind, Site
from copycat_agent.converters.json_ import dump
from copycat_agent.options import ConverterOptions, Field


class StringOptions(ConverterOptions):
    """UTF-8 text; bytes that are not UTF-8 become U+FFFD."""

    type: Literal["string"] = Field("string", description="UTF-8 text; what is not UTF-8 becomes U+FFFD. Fields as compact JSON.")


def _convert(value: bytes | str | dict[str, Any]) -> bytes:
    if isinstance(value, bytes):
        # ASCII needs no check beyond this; otherwise a round trip puts U+FFFD where it belongs
        return value if value.isascii() else value.decode("utf-8", "replace").encode()
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace")
    return dump(value)


def _build(_: StringOptions, site: Site) -> Converter:
    del site
    return _convert


STRING = ConverterKind(StringOptions, _build)
