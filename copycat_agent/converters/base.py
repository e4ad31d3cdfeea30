"""What a converter is, and how the dict of converters lists one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from copycat_agent.options import ConverterOptions

Converter = Callable[[bytes | str | dict[str, Any]], bytes]
"""Makes the bytes that Kafka gets of a value (framed bytes or a dict of fields) or of a key (a rendered text).

Pure and thread-safe. Raises `DataError`, without the data in its message, for a value that it cannot carry.
"""


@dataclass(frozen=True, slots=True)
class ConverterKind:
    """An entry of `CONVERTERS`. `is_identity`: bytes come back as they are, so for bytes the call can be left out."""

    options: type[ConverterOptions]
    build: Callable[[Any], Converter]
    is_identity: bool = False
