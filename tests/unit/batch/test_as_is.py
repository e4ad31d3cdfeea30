"""Records that have both fields and bytes: which of them is the value."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.converters import CONVERTERS
from copycat_agent.encoding.encoder import Encoder, StageError
from copycat_agent.formats import Draft, Parsed, Unparsed
from copycat_agent.formats.records import FORMATS
from copycat_agent.model import SourceOffset, SourcePartition, Split
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES
from copycat_agent.transforms import TRANSFORMS

if TYPE_CHECKING:
    from copycat_agent.encoding.encoder import SplitEncoder

RAW = b'{"a": 1.10}'
FIELDS: dict[str, Any] = {"a": 1.1}


def bound(converter: str = "", *, transforms: tuple[dict[str, Any], ...] = (), key: str | None = None) -> SplitEncoder:
    source = SOURCES["spool_dir"].options.model_validate(
        {"type": "spool_dir", "dir": "/x", "format": FORMATS["jsonl"].options(type="jsonl")}
    )
    steps = tuple(TRANSFORMS[next(iter(one))].options.model_validate(one) for one in transforms)
    value = CONVERTERS[converter].options(type=converter) if converter else None
    definition = Definition.model_validate(
        {
            "name": "app",
            "source": source,
            "transforms": steps,
            "record": {"topic": "t", "key": key},
            "converters": {"value": value},
            "kafka": {"bootstrap_servers": ("127.0.0.1:1",)},
        }
    )
    split = Split(SourcePartition("app", "f"), "/x/f", "/x/f", SourceOffset(0), 10)
    return Encoder(definition).bind(split, lambda _: 1, 0)


@pytest.mark.parametrize(
    ("converter", "as_is", "value"),
    [
        ("", True, RAW),
        ("string", True, RAW),
        ("bytes", True, RAW),
        ("json", True, b'{"a":1.1}'),
        ("", False, b'{"a":1.1}'),
        ("bytes", False, RAW),
    ],
)
@pytest.mark.parametrize("transforms", [(), ({"keep_if": {"a": 1.1}},)], ids=["bare", "filtered"])
def test_bytes_go_as_they_stand_unless_fields_are_asked_for(
    converter: str, as_is: bool, value: bytes, transforms: tuple[dict[str, Any], ...]
) -> None:
    one = bound(converter, transforms=transforms)
    (message,) = one.encode(Draft(FIELDS, 0, 10, 1, RAW, as_is=as_is))
    assert message[1] == value
    assert one.bulk is not None
    encoding = one.bulk.begin(Parsed([FIELDS], [0, 10], 10, [RAW], as_is=as_is), 1)
    assert encoding is not None
    assert encoding.take(9, inf).messages == [value]


def test_a_step_that_makes_other_fields_makes_another_value() -> None:
    def more(draft: Draft) -> bool:
        draft.value = FIELDS | {"b": 2}
        return True

    one = bound()
    one._stages = ((more,),)
    (message,) = one.encode(Draft(FIELDS, 0, 10, 1, RAW, as_is=True))
    assert message[1] == b'{"a":1.1,"b":2}'


def test_a_key_takes_fields_of_a_record_that_goes_as_it_stands() -> None:
    (message,) = bound(key="{a}").encode(Draft(FIELDS, 0, 10, 1, RAW, as_is=True))
    assert message[1:3] == (RAW, b"1.1")


def test_a_bad_record_is_found_also_where_nobody_looks_at_fields() -> None:
    bad = Unparsed("not JSON")
    one = bound()
    assert one.bulk is not None
    assert one.bulk.begin(Parsed([FIELDS, bad], [0, 10, 20], 20, [RAW, b"x"], as_is=True), 1) is None
    with pytest.raises(StageError, match="not JSON"):
        one.encode(Draft(bad, 0, 10, 1, b"x", as_is=True))
