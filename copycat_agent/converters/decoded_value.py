"""The types of decoded values: what readers of Kafka's values return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.json_values import parse_all
from copycat_agent.model import Schema


class DecodedValue(NamedTuple):
    """A decoded value, or an `Unparsed`, with its schema where the value names one."""

    value: bytes | dict[str, Any] | Unparsed
    schema: Schema | None = None


ValueReader = Callable[[bytes], DecodedValue]
ValuesReader = Callable[[Sequence[bytes]], tuple[list[Any], "list[Schema | None] | None"]]
"""Returns the decoded values and the schema of each; None instead of schemas where no value names one. Where it takes long there are fewer
values than were given, the first ones, at least one."""
"""Both raise RetriableError when a schema registry does not answer. A value whose schema it does not have is an `Unparsed`."""


def json_objects(values: Sequence[bytes]) -> list[dict[str, Any] | Unparsed]:
    """Returns the fields of JSON objects; an `Unparsed` for other values."""
    parsed = parse_all(values)
    return [Unparsed("it is JSON, but no object", "only objects have fields") if isinstance(one, bytes) else one for one in parsed]
