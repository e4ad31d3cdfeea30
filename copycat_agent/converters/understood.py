"""What the bytes of a value in Kafka hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.json_values import parse
from copycat_agent.model import Schema


class Understood(NamedTuple):
    """What a value holds, or an `Unparsed`; and its schema, where it names one."""

    value: bytes | dict[str, Any] | Unparsed
    schema: Schema | None = None


ValueReader = Callable[[bytes], Understood]
"""Raises RetriableError where a schema registry does not answer, BlockedError where it has no such schema."""


def json_object(data: bytes) -> dict[str, Any] | Unparsed:
    """The fields of a JSON object."""
    value = parse(data)
    if isinstance(value, dict | Unparsed):
        return value
    return Unparsed("it is JSON, but no object", "only objects have fields")
