"""`run_batch` on packed files and a real broker: what an archive holds, once, however the batches cut it and whatever is lost between."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.executor import run_batch
from copycat_agent.model import Counts, SourceOffset, Split, SplitResult
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing import unpacking
from copycat_agent.sources.files.packing.unpacking import Unpacker, Unpackers
from tests.rig.kafka import consume, create_topic, unique_topic, values
from tests.unit.batch.rig import after, append, batch_of, definition, never, split_of
from tests.unit.sources.packing import PACK, random_lines, source, write_packed

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.formats import Reader
    from copycat_agent.options import Definition
    from copycat_agent.producer import ProducerPool

TEXT = random_lines(20_000)
LIMIT = 200
"""Bytes of a record that a refusing topic still takes."""


def packed_split(path: Path, codec: str = "gzip", *, final: bool = False, origins: tuple[SourceOffset, ...] = ()) -> Split:
    """A split of a packed file: its end in unpacked bytes is a limit only."""
    split = split_of(path, end=2**24, final=final)
    return replace(split, offset=replace(split.offset, compression=codec, size=path.stat().st_size), origins=origins)


def ship(connector: Definition, split: Split, producers: ProducerPool, *, max_bytes: int = 2**26) -> SplitResult:
    (result,) = run_batch(batch_of(connector, split, max_bytes=max_bytes), producers, never)
    assert result.error is None
    return result


@pytest.mark.parametrize("codec", sorted(PACK))
def test_an_archive_is_settled_to_its_end(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, codec: str) -> None:
    path = write_packed(tmp_path / "f", b"one\ntwo\n", codec)
    append(path, PACK[codec](b"three\nunfin"))
    connector = definition(broker.bootstrap, topic, record={"origin_headers": True})
    first = ship(connector, packed_split(path, codec), producers)
    assert (first.offset.position, first.offset.records, first.at_end, first.unpacked_size) == (14, 3, True, 19)
    assert (first.offset.done, first.offset.size, first.damage) == (False, path.stat().st_size, "")
    assert first.counts == Counts(read=3, read_bytes=14, acknowledged=3)
    last = ship(connector, after(packed_split(path, codec, final=True), first.offset), producers)
    assert (last.offset.position, last.offset.done, last.offset.records) == (19, True, 4)
    records = consume(broker.bootstrap, topic)
    assert [record.value for record in records] == [b"one", b"two", b"three", b"unfin"]
    assert [dict(record.headers)["copycat.offset"] for record in records] == [b"0", b"4", b"8", b"14"]


def test_a_group_of_lines_ends_with_its_archive(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write_packed(tmp_path / "f", b"a\n b\nc\n d\n")
    connector = definition(broker.bootstrap, topic, multiline={"continues": "^ "})
    first = ship(connector, packed_split(path), producers)
    assert (first.offset.position, first.at_end, first.offset.done) == (5, True, False), "another member may go on with the group"
    last = ship(connector, after(packed_split(path, final=True), first.offset), producers)
    assert (last.offset.position, last.offset.done) == (10, True)
    assert values(broker.bootstrap, topic) == [b"a\n b", b"c\n d"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_small_batches_read_a_large_archive_once(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """Killed: each batch runs in a process of its own, which has to unpack up to where the last one was, and sends none of it again."""
    steps: list[int] = []
    step = Unpacker._step

    def counted(unpacker: Unpacker, read: Reader) -> bool:
        steps.append(unpacker.taken)
        return step(unpacker, read)

    monkeypatch.setattr(Unpacker, "_step", counted)
    split = packed_split(write_packed(tmp_path / "f", TEXT))
    connector, offset, batches = definition(broker.bootstrap, topic), split.offset, 0
    while not offset.done:
        if is_killed:
            monkeypatch.setattr(unpacking, "PROCESS", Unpackers())
        result = ship(connector, after(split, offset), producers, max_bytes=200_000)
        assert result.offset.position > offset.position or result.offset.done
        offset, batches = result.offset, batches + 1
    assert batches >= 5
    assert (steps == sorted(steps)) is not is_killed, "begun again only where nothing was kept"
    assert values(broker.bootstrap, topic) == TEXT.splitlines()
    assert offset.fingerprint == fingerprint.take(source(TEXT), len(TEXT))


def test_a_refused_record_in_an_archive_is_found(producers: ProducerPool, broker: DevBroker, tmp_path: Path) -> None:
    name, dlq = unique_topic(), unique_topic()
    create_topic(broker.bootstrap, name, config={"max.message.bytes": str(LIMIT)})
    create_topic(broker.bootstrap, dlq)
    lines = [b"%d" % number for number in range(500)]
    lines[250:250] = [os.urandom(5000).hex().encode()]
    path = write_packed(tmp_path / "f", b"".join(line + b"\n" for line in lines))
    errors = {"tolerance": "all", "dlq": {"topic": dlq}}
    result = ship(definition(broker.bootstrap, name, errors=errors), packed_split(path), producers)
    assert (result.offset.records, result.counts.acknowledged, result.counts.dead_lettered) == (501, 500, 1)
    assert sorted({value or b"" for value in values(broker.bootstrap, name)}) == sorted(line for line in lines if len(line) < LIMIT)


def test_what_a_damaged_archive_holds_before_it_is_sent(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    data = bytearray(PACK["gzip"](TEXT))
    data[len(data) // 2] ^= 0xFF
    path, other = tmp_path / "f", write_packed(tmp_path / "g", b"other\n")
    path.write_bytes(data)
    work = batch_of(definition(broker.bootstrap, topic), packed_split(path), packed_split(other))
    broken, good = run_batch(work, producers, never)
    assert (broken.error, broken.at_end, good.offset.done) == (None, True, True)
    assert broken.damage.startswith("gzip: ")
    assert len(data) // 2 <= broken.packed_position <= len(data)
    assert broken.offset.records > 9000
    *sent, last = values(broker.bootstrap, topic)
    assert (len(sent), last) == (broken.offset.records, b"other")
    assert sent[:9000] == TEXT.splitlines()[:9000], "gzip's checksum is at its end: what is just before the damage may be wrong"


def test_a_cut_archive_is_damaged_when_nobody_adds_to_it(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(PACK["gzip"](TEXT)[:-100])
    connector = definition(broker.bootstrap, topic)
    first = ship(connector, packed_split(path), producers)
    assert (first.at_end, first.damage, first.unpacked_size, first.offset.done) == (True, "", -1, False)
    last = ship(connector, after(packed_split(path, final=True), first.offset), producers)
    size = path.stat().st_size
    assert (last.damage, last.offset.position) == (f"gzip: it ends before its end marker, at packed byte {size}", first.offset.position)
    assert values(broker.bootstrap, topic) == TEXT.splitlines()[: first.offset.records], "half a line is no record"


def test_the_rest_of_a_known_file_is_sent_and_its_records_go_on(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    path = write_packed(tmp_path / "f", TEXT)
    begin = TEXT.index(b"\n", 500_000) + 1
    far = SourceOffset(begin, records=TEXT[:begin].count(b"\n"), fingerprint=fingerprint.take(source(TEXT), begin))
    connector = definition(broker.bootstrap, topic)
    result = ship(connector, packed_split(path, origins=(far,)), producers)
    assert (result.origin, result.offset.records, result.offset.done) == (0, 20_000, True)
    assert values(broker.bootstrap, topic) == TEXT[begin:].splitlines()
    whole = replace(far, position=len(TEXT), records=20_000, fingerprint=fingerprint.take(source(TEXT), len(TEXT)))
    again = ship(connector, packed_split(write_packed(tmp_path / "g", TEXT), origins=(whole, far)), producers)
    assert (again.origin, again.offset.position, again.offset.done) == (0, len(TEXT), True), "nothing new, and yet it counts"
    assert again.counts == Counts()
