"""Lines about as long as a topic takes by default: what arrives, and what is left of what does not."""

from __future__ import annotations

import base64
import random
from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import consume
from tests.scenarios.test_errors import SMALL, append, headers, position, wait_counts, wait_failed, wait_position

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.rig.shipping import Shipping

MIB = 2**20
"""The default of line.max_bytes. A topic takes 1,048,588 by default, what surrounds a record counted."""
TEXT, NOISE = (b"all work and no play " * 50_000)[:MIB], base64.b64encode(random.Random(1).randbytes(MIB // 4 * 3))
"""Of exactly that size: the first compresses, the second does not. (Hexadecimal noise does a little: four digits repeat often.)"""


@pytest.mark.parametrize(("source", "line"), [({}, TEXT), ({"line": {"on_too_long": "truncate"}}, TEXT + b"more")])
@pytest.mark.parametrize("bulk", [True, False])
def test_the_longest_line_of_the_defaults_arrives(
    shipping: Shipping, logs_dir: Path, source: dict[str, object], line: bytes, bulk: bool
) -> None:
    append(logs_dir / "app", b"one\n" + line + b"\nthree\n")
    shipping.start(source=source, record={"origin_headers": not bulk})
    wait_position(shipping, 10 + len(line) + 1)
    assert [record.value for record in shipping.records()] == [b"one", TEXT, b"three"]


@pytest.mark.parametrize(("source", "tail", "stage"), [
    ({}, b"", "send"), ({}, b"more", "frame"), ({"line": {"on_too_long": "truncate"}}, b"more", "send"),
])  # fmt: skip
def test_a_line_that_neither_topic_takes_whole_is_dead_lettered_with_its_beginning(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path,
    source: dict[str, object], tail: bytes, stage: str,
) -> None:  # fmt: skip
    shipping, dlq = make_shipping(), make_topic()
    append(logs_dir / "app", b"one\n" + NOISE + tail + b"\nthree\n")
    shipping.start(source=source, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    wait_position(shipping, 10 + MIB + len(tail) + 1)
    assert list(dict.fromkeys(shipping.lines())) == ["one", "three"]
    (letter,) = consume(shipping.bootstrap, dlq)
    assert letter.value == NOISE[: MIB // 2]
    assert headers(letter)["copycat.raw"].startswith("cut: the first 524288 bytes")
    assert headers(letter)["copycat.stage"] == stage
    wait_counts(shipping, acknowledged=2, dead_lettered=1)


def test_a_line_over_the_limit_that_compresses_is_dead_lettered_up_to_the_limit(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path
) -> None:
    shipping, dlq = make_shipping(), make_topic()
    append(logs_dir / "app", TEXT + b"more\n")
    shipping.start(errors={"tolerance": "all", "dlq": {"topic": dlq}})
    (letter,) = consume(shipping.bootstrap, dlq, until=1)
    assert letter.value == TEXT
    assert headers(letter)["copycat.raw"] == f"cut: the first {MIB} bytes, the line is longer than line.max_bytes"


def test_a_dlq_that_refuses_the_cut_letter_too_gets_it_without_its_bytes(
    make_shipping: Callable[..., Shipping], make_topic: Callable[..., str], logs_dir: Path
) -> None:
    shipping, dlq = make_shipping(), make_topic(config=SMALL)
    append(logs_dir / "app", NOISE + b"more\n")
    shipping.start(errors={"tolerance": "all", "dlq": {"topic": dlq}})
    (letter,) = consume(shipping.bootstrap, dlq, until=1)
    assert letter.value is None
    assert [value for name, value in letter.headers if name == "copycat.raw"] == [b"omitted: refused by the topic"]


def test_a_line_within_the_limit_that_the_topic_refuses_stops_the_connector_with_the_next_step(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app", b"one\n" + NOISE + b"\n")
    shipping.start()
    assert "max.message.bytes" in wait_failed(shipping)
    assert position(shipping) == 4


@pytest.mark.parametrize("source", [{"line": {"on_too_long": "split"}}, {"multiline": {"preset": "indented"}}])
def test_parts_of_what_does_not_compress_fit_into_a_topic_with_its_defaults(
    shipping: Shipping, logs_dir: Path, source: dict[str, object]
) -> None:
    line = base64.b64encode(random.Random(2).randbytes(2 * MIB))
    append(logs_dir / "app", line + b"\nnext\n")
    shipping.start(source=source, record={"origin_headers": True})
    *parts, last = shipping.records(until=4)
    assert last.value == b"next"
    assert b"".join(part.value or b"" for part in parts) == line
