"""F10, F11, C3, faults 49 and 50: text in other encodings, byte order marks, bytes that are no text, and holes."""

from __future__ import annotations

import codecs
import os
from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import consume
from tests.rig.shipping import origin
from tests.rig.waiting import wait_until
from tests.scenarios.test_framing import append, peak_bytes, wait_settled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.model import Loss
    from tests.rig.shipping import Shipping

MIB = 2**20
RAW = {"value": "bytes"}


def holes(shipping: Shipping) -> list[Loss]:
    assert shipping._store is not None
    return [loss for loss in shipping._store.losses(None, 100) if loss.reason == "hole"]


@pytest.mark.parametrize(
    ("mark", "codec"), [(codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"), (codecs.BOM_UTF8, "utf-8")]
)
def test_text_with_a_byte_order_mark_goes_as_utf_8_also_after_a_restart_within_it(
    shipping: Shipping, logs_dir: Path, mark: bytes, codec: str
) -> None:
    path = logs_dir / "app"
    first, second = "grüße\r\n日本語\n".encode(codec), "Ċ ਊ \U0001f600\nlast\n".encode(codec)
    append(path, mark + first + second[:3])
    shipping.start(source={"encoding": "auto"})
    shipping.records(until=2)
    wait_settled(shipping, path, len(mark + first))
    shipping.stop()
    append(path, second[3:])
    shipping.start(source={"encoding": "auto"})
    records = shipping.records(until=4)
    shipping.stop()
    assert [(record.value or b"").decode() for record in records] == ["grüße", "日本語", "Ċ ਊ \U0001f600", "last"]
    assert [origin(record)[1] for record in records][::2] == [len(mark), len(mark + first)]
    assert shipping.records() == records


def test_bytes_arrive_as_they_are_when_they_are_asked_for_and_as_text_when_that_is(shipping: Shipping, logs_dir: Path) -> None:
    path = logs_dir / "app"
    lines = [codecs.BOM_UTF8 + b"a", b"\xc5", b"nul\0\0nul\0", b"\xff\xfe", b"cr\rcr"]
    append(path, b"\n".join([*lines, b""]))
    shipping.start(converters=RAW)
    assert [record.value for record in shipping.records(until=5)] == lines
    shipping.stop()
    path.rename(logs_dir / "other")
    shipping.start(converters={"value": "string"})
    append(logs_dir / "new", b"".join(line + b"\n" for line in lines))
    text = [record.value for record in shipping.records(until=10)][5:]
    assert text == [b"a", "\ufffd".encode(), b"nul\0\0nul\0", "\ufffd\ufffd".encode(), b"cr\rcr"]


def test_utf_16_arrives_as_it_is_when_bytes_are_asked_for(shipping: Shipping, logs_dir: Path) -> None:
    lines = [codecs.BOM_UTF16_BE + "é".encode("utf-16-be"), "Ċ".encode("utf-16-be")]
    append(logs_dir / "app", lines[0] + b"\0\n" + lines[1] + b"\0\n")
    shipping.start(source={"encoding": "auto"}, converters=RAW)
    assert [record.value for record in shipping.records(until=2)] == lines


@pytest.mark.parametrize("converters", [{}, RAW])
def test_a_writer_that_goes_on_at_its_old_place_after_a_truncation_leaves_no_nul_bytes(
    shipping: Shipping, logs_dir: Path, converters: dict[str, str]
) -> None:
    path = logs_dir / "app"
    with path.open("wb", buffering=0) as writer:  # not O_APPEND
        writer.write(b"old\n" * 1000)
        shipping.start(converters=converters)
        shipping.records(until=1000)
        wait_settled(shipping, path, 4000)
        os.truncate(path, 0)
        wait_until(lambda: shipping.status.lag.truncated_files == 1, message="the truncation is seen")
        writer.write(b"new\n")
        records = shipping.records(until=1001)
    assert records[-1].value == b"new"
    assert origin(records[-1]) == ("app", 4000)
    wait_until(lambda: holes(shipping), message="the hole is in the ledger")
    assert [(loss.path, loss.start, loss.end, loss.records) for loss in holes(shipping)] == [(str(path), 0, 4000, 0)]
    wait_until(lambda: shipping.status.counts.read == 1001, message=lambda: f"{shipping.status}")


def test_a_sparse_file_is_passed_in_bounded_memory_and_its_hole_is_in_the_ledger(shipping: Shipping, logs_dir: Path) -> None:
    path = logs_dir / "app"
    append(path, b"before\ntorn")
    os.truncate(path, 1024 * MIB)
    append(path, b"after\n")
    append(logs_dir / "warm", b"warm\n")
    before = peak_bytes()
    shipping.start(source={"line": {"max_bytes": "64KiB"}})
    records = shipping.records(until=4)
    assert sorted(record.value or b"" for record in records) == [b"after", b"before", b"torn", b"warm"]
    partial = [record.value for record in records if dict(record.headers).get("copycat.partial")]
    assert partial == [b"torn"], "nobody will finish it"
    wait_settled(shipping, path, 1024 * MIB + 6, 90.0)
    ranges = sorted((loss.start, loss.end) for loss in holes(shipping))
    assert [begin for begin, _ in ranges] == [11, *(end for _, end in ranges[:-1])], "one behind the other"
    assert ranges[-1][1] == 1024 * MIB
    assert peak_bytes() - before < 100 * MIB


@pytest.mark.parametrize("policy", ["truncate", "dlq"])
def test_a_long_line_that_is_decoded_is_cut_and_counted_by_its_bytes_in_the_file(
    shipping: Shipping, logs_dir: Path, make_topic: Callable[..., str], policy: str
) -> None:
    line, dlq = ("é" * 511 + "\U0001f600" + "é" * 100 + "\n").encode("utf-16-le"), make_topic()
    append(logs_dir / "app", line + "ok\n".encode("utf-16-le"))
    source = {"encoding": "utf-16", "line": {"max_bytes": "1KiB", "on_too_long": policy}}
    shipping.start(source=source, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    wait_settled(shipping, logs_dir / "app", len(line) + 6)
    cut = consume(shipping.bootstrap, dlq if policy == "dlq" else shipping.topic)[0]
    assert cut.value == "é".encode() * 511, "the pair of two units at the limit is not torn"
    assert shipping.lines()[-1] == "ok"
    assert shipping._store is not None
    (loss,) = shipping._store.losses(None, 100)
    assert (loss.start, loss.end, loss.reason) == (1022, len(line), "too_long")
