"""What the bytes of values in Kafka hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.json_values import parse_all
from copycat_agent.model import Schema


class Understood(NamedTuple):
    """What a value holds, or an `Unparsed`; and its schema, where it names one."""

    value: bytes | dict[str, Any] | Unparsed
    schema: Schema | None = None


ValueReader = Callable[[bytes], Understood]
ValuesReader = Callable[[Sequence[bytes]], tuple[list[Any], "list[Schema | None] | None"]]
"""Many values at once: what each holds, and the schema of each, None where no value names one."""
"""Both raise RetriableError where a schema registry does not answer, BlockedError where it has no such schema."""


def json_objects(values: Sequence[bytes]) -> list[dict[str, Any] | Unparsed]:
    """The fields of JSON objects."""
    parsed = parse_all(values)
    return [Unparsed("it is JSON, but no object", "only objects have fields") if isinstance(one, bytes) else one for one in parsed]
