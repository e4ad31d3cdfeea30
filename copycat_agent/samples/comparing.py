"""Expected and got: what differs, with types, by dotted places."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, NamedTuple

from copycat_agent.options import ExpectedLetterOptions, ExpectedOptions, WrittenFloat, epoch_ms
from copycat_agent.samples.model import Output, Sampled
from copycat_agent.templates import time_text

ABSENT: Final = object()
"""Stands for what is not there, on either side."""
_MILLISECONDS = 1000


class Difference(NamedTuple):
    """`place` is dotted, such as `value.status`. `expected` and `got` are values, or ABSENT."""

    place: str
    expected: object
    got: object
    hint: str = ""


def compare(expected: ExpectedOptions, got: Output, *, exact: bool) -> tuple[Difference, ...]:
    """Where a record is not what it should be; what is not said is not compared, but for fields and headers when it is `exact`."""
    said = expected.model_fields_set
    found: list[Difference] = []
    if "topic" in said and expected.topic != got.topic:
        found.append(Difference("topic", expected.topic, got.topic))
    if "key" in said and expected.key != (key := _text(got.key)):
        found.append(Difference("key", expected.key, key))
    if "value" in said:
        found += _value(expected.value, got, exact=exact)
    if "headers" in said or exact:
        found += _headers(expected.headers, got.headers, exact=exact)
    if "timestamp" in said and _milliseconds(expected.timestamp) != got.timestamp_ms:
        is_text = isinstance(expected.timestamp, str) and got.timestamp_ms is not None
        found.append(Difference("timestamp", expected.timestamp, _rfc3339(got.timestamp_ms) if is_text else got.timestamp_ms))
    if "partition" in said and expected.partition != got.partition:
        found.append(Difference("partition", expected.partition, got.partition))
    return tuple(found)


def fails_as(expected: ExpectedLetterOptions, got: Sampled) -> tuple[Difference, ...]:
    """Where a record that failed did not fail as it should."""
    assert got.error is not None
    found = []
    if expected.stage is not None and expected.stage != got.stage:
        found.append(Difference("stage", expected.stage, got.stage))
    step = got.ended_by
    if expected.step is not None and (step is None or expected.step not in {step.action, step.name, step.name.partition(" ")[0]}):
        found.append(Difference("step", expected.step, ABSENT if step is None else step.name))
    if expected.reason is not None and not re.search(expected.reason, got.error.message):
        found.append(Difference("reason", expected.reason, got.error.message, "reason is a regular expression"))
    return tuple(found)


def _value(expected: object, got: Output, *, exact: bool) -> Iterator[Difference]:
    if isinstance(expected, Mapping):
        fields = got.value if isinstance(got.value, Mapping) else got.fields if isinstance(got.value, bytes) else None
        if fields is not None:
            yield from differences(expected, fields, "value", exact=exact)
        else:
            hint = "no step makes fields of it: the value is the line as it is" if isinstance(got.value, bytes) else ""
            yield Difference("value", dict(expected), _text(got.value), hint)
    elif isinstance(expected, str) and got.payload is not None and not isinstance(got.value, str):
        if expected != (text := _text(got.payload)):
            yield Difference("value", expected, text)
    else:
        yield from differences(expected, _text(got.value), "value", exact=exact)


def _headers(expected: Mapping[str, str | None], got: Sequence[tuple[str, bytes]], *, exact: bool) -> Iterator[Difference]:
    present = {name: _text(content) for name, content in reversed(got)}
    for name, text in expected.items():
        if (has := present.get(name)) != text:
            yield Difference(f"headers.{name}", ABSENT if text is None else text, ABSENT if has is None else has)
    if exact:
        yield from (Difference(f"headers.{name}", ABSENT, text) for name, text in present.items() if name not in expected)


def differences(expected: object, got: object, place: str, *, exact: bool) -> Iterator[Difference]:
    """Where `got` is not as it should be. A map may have more fields, unless it is `exact`; a list has its very items."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        for name, inner in expected.items():
            yield from differences(inner, got.get(name, ABSENT), f"{place}.{name}", exact=exact)
        if exact:
            yield from (Difference(f"{place}.{name}", ABSENT, inner) for name, inner in got.items() if name not in expected)
    elif isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        for number in range(max(len(expected), len(got))):
            one, other = (side[number] if number < len(side) else ABSENT for side in (expected, got))
            yield from differences(one, other, f"{place}[{number}]", exact=exact)
    elif not same(expected, got):
        yield Difference(place, expected, got, _type_hint(place, expected, got))


def _type_hint(place: str, expected: object, got: object) -> str:
    """How a text becomes what was expected, where only the type differs."""
    kind = {bool: "bool", int: "int", float: "float", WrittenFloat: "float"}.get(type(expected))
    if kind is None or not isinstance(got, str) or json.dumps(expected) != got:
        return ""
    name = place.partition(".")[2]
    return f'only the type differs: make a number or boolean of it with "- convert: {{{name}: {kind}}}", or expect the text in quotes'


def same(expected: object, got: object) -> bool:
    """Whether a scalar of YAML is what a field holds. Types count; what YAML cannot write is compared with how JSON shows it."""
    if expected is ABSENT or got is ABSENT or expected is None or got is None:
        return expected is got
    if isinstance(got, datetime):
        return _same_moment(expected, got)
    if isinstance(got, Decimal):
        return isinstance(expected, int | float) and not isinstance(expected, bool) and _decimal(expected) == got
    if isinstance(got, date | time | bytes):
        return expected == (base64.b64encode(got).decode() if isinstance(got, bytes) else got.isoformat())
    kind = float if isinstance(expected, float) else type(expected)  # the loader's floats remember how they were written
    return kind is type(got) and expected == got


def _same_moment(expected: object, got: datetime) -> bool:
    """A time as RFC 3339 text or epoch milliseconds; one without a zone as it is written."""
    if got.tzinfo is None:
        return isinstance(expected, str) and expected == got.isoformat()
    moment = round(got.timestamp() * _MILLISECONDS)
    if isinstance(expected, str):
        try:
            return epoch_ms(expected) == moment
        except ValueError:
            return False
    return type(expected) is int and expected == moment


def _decimal(number: float) -> Decimal:
    return Decimal(number.text if isinstance(number, WrittenFloat) else str(number))


def _milliseconds(time_: str | int | None) -> int | None:
    return epoch_ms(time_) if isinstance(time_, str) else time_


def _rfc3339(epoch: int | None) -> str | None:
    return None if epoch is None else time_text(epoch)


def _text(content: Any) -> str | None:  # noqa: ANN401 - what `produce` takes
    """Bytes as text; odd ones as escapes."""
    return content.decode("utf-8", "backslashreplace") if isinstance(content, bytes) else content
