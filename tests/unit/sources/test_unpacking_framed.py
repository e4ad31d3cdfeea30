"""snappy streams, lz4's options and checksums, and limits: what has no counterpart in the codecs of Python's own library."""

from __future__ import annotations

import os
import resource
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.packing.compressions import CODECS, LZ4_MAGIC
from copycat_agent.sources.files.packing.compressions import SNAPPY_MAGIC as MAGIC
from copycat_agent.sources.files.packing.unpacking import FREE_BYTES, Unpacker, UnpackOptions
from tests.rig.examples import examples
from tests.unit.sources.packing import PACK, SKIPPABLE, random_lines, snappy, source

TEXT = random_lines(6000)


def unpack(codec: str, data: bytes, limits: UnpackOptions | None = None) -> tuple[bytes, Unpacker]:
    unpacker = Unpacker(codec, limits)
    return unpacker.read(source(data), 0, 2**30), unpacker


@given(parts=st.lists(st.binary(min_size=1, max_size=200_000), min_size=1, max_size=3), step=st.integers(1000, 100_000))
@settings(deadline=None, max_examples=examples(30))
def test_streams_of_snappy_that_follow_each_other_are_one_stretch_of_bytes(parts: list[bytes], step: int) -> None:
    data = b"".join(snappy(part) + b"\xfe\x03\0\0abc" + b"\x85\0\0\0" for part in parts)
    unpacker, out = Unpacker("snappy"), b""
    while piece := unpacker.read(source(data), len(out), step):
        out += piece
    assert out == b"".join(parts)
    assert (unpacker.is_whole, unpacker.damage, unpacker.taken) == (True, "", len(data))


@settings(deadline=None, max_examples=examples(40))
@given(cut=st.floats(0, 1, exclude_max=True))
def test_a_stream_cut_anywhere_gives_a_prefix_and_goes_on_when_it_grows(cut: float) -> None:
    data = snappy(TEXT)
    size = int(cut * len(data))
    out, unpacker = unpack("snappy", data[:size])
    assert TEXT.startswith(out)
    assert not unpacker.damage
    assert out + unpacker.read(source(data), len(out), 2**30) == TEXT
    assert unpacker.is_whole


@settings(deadline=None, max_examples=examples(12))
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_is_damage_or_an_end_in_the_middle_and_what_comes_before_is_given(place: float, flip: int) -> None:
    data = bytearray(snappy(TEXT[:140_000]))
    data[int(place * len(data))] ^= flip
    out, unpacker = unpack("snappy", bytes(data))
    assert TEXT.startswith(out)
    assert unpacker.has_ended
    assert not unpacker.is_whole or out == TEXT[:140_000] or data[place_of_chunk(bytes(data), len(out))] >= 0x80


def place_of_chunk(data: bytes, produced: int) -> int:
    """Where the first chunk begins that was taken for one to be skipped: the format lets such a bit flip pass."""
    at = 0
    while at < len(data) and (data[at] < 0x80 or data[at] == 0xFF):
        at += 4 + int.from_bytes(data[at + 1 : at + 4], "little")
    assert at < len(data), f"nothing explains why {produced} bytes are all"
    return at


def test_text_behind_a_stream_is_damage() -> None:
    out, unpacker = unpack("snappy", snappy(b"one\n") + b"trailing text\n")
    assert (out, unpacker.damage) == (b"one\n", "snappy: what follows is no chunk of snappy's framing format")


def test_raw_snappy_and_the_legacy_frames_of_lz4_are_not_recognised() -> None:
    assert compressions.recognise(bytes(cramjam.snappy.compress_raw(TEXT))[: compressions.MAGIC_BYTES]) == ""
    assert compressions.recognise(b"\x02\x21\x4c\x18" + bytes(6)) == ""
    assert compressions.recognise(snappy(TEXT)[: compressions.MAGIC_BYTES]) == "snappy"


@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_a_file_that_is_none_is_damage_at_its_first_byte(codec: str) -> None:
    out, unpacker = unpack(codec, b"a line\n" * 1000)
    assert (out, bool(unpacker.damage)) == (b"", True)


def test_skippable_frames_between_frames_of_lz4_hold_nothing() -> None:
    out, unpacker = unpack("lz4", PACK["lz4"](b"one\n") + SKIPPABLE + PACK["lz4"](b"two\n") + SKIPPABLE)
    assert (out, unpacker.is_whole) == (b"one\ntwo\n", True)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_file_that_begins_with_a_frame_to_be_skipped_is_read(codec: str) -> None:
    data = SKIPPABLE + PACK[codec](TEXT) + SKIPPABLE + PACK[codec](b"two\n")
    taken_for = compressions.recognise(data[: compressions.MAGIC_BYTES])
    assert taken_for is not None
    out, unpacker = unpack(taken_for, data)
    assert (out, unpacker.is_whole) == (TEXT + b"two\n", True)
    assert compressions.head_of(source(data), taken_for, 100) == TEXT[:100]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (LZ4_MAGIC + b"\xa0\x40", "lz4: headerVersion wrong"),
        (LZ4_MAGIC + b"\x60\x40\0", "lz4: headerChecksum invalid"),
        (LZ4_MAGIC + b"\x60\x40\x82\xff\xff\xff\x7f", "lz4: maxBlockSize invalid"),
    ],
)
def test_what_a_frame_of_lz4_may_not_be_is_said(data: bytes, why: str) -> None:
    out, unpacker = unpack("lz4", data + bytes(100))
    assert (out, unpacker.damage) == (b"", why)


@settings(deadline=None, max_examples=examples(12))
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), linked=st.booleans(), step=st.integers(1000, 100_000))
def test_a_flipped_byte_of_an_lz4_frame_with_sums_never_passes(place: float, flip: int, linked: bool, step: int) -> None:
    whole = lz4.frame.compress(
        TEXT[:140_000], block_size=4, block_linked=linked, block_checksum=True, content_checksum=True, store_size=True
    )
    data = bytearray(whole)
    data[int(place * len(data))] ^= flip
    unpacker, out = Unpacker("lz4"), b""
    while piece := unpacker.read(source(bytes(data)), len(out), step):
        out += piece
    assert TEXT.startswith(out)
    assert unpacker.has_ended
    assert not unpacker.is_whole or not out, "a magic that became another one's holds nothing"


def test_a_block_that_refers_to_what_is_not_there_is_damage() -> None:
    data = bytearray(PACK["lz4"](b"abcdefgh" * 20_000))
    first = 7 + 4 + int.from_bytes(data[7:11], "little")
    out, unpacker = unpack("lz4", bytes(data[:7] + data[first:]))
    assert (out, bool(unpacker.damage)) == (b"", True)


def test_a_bomb_ends_at_the_ratio_and_takes_no_memory() -> None:
    data = zlib.compress(bytes(200 * 2**20), wbits=31)  # fault 63: 194 KB that hold 200 MB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unpacker, position = Unpacker("gzip", UnpackOptions()), 0
    while unpacker.read(source(data), position, 2**20):
        position += 2**20
        unpacker.keep(position)
    assert unpacker.damage == "gzip: it holds more than unpack.max_ratio, 500 times its packed size"
    assert FREE_BYTES <= unpacker.produced < FREE_BYTES + 2 * compressions.OUTPUT_BYTES + 500 * compressions.INPUT_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 2**10


def test_a_file_beyond_the_size_is_damage_and_what_comes_before_is_given() -> None:
    data = PACK["zstd"](os.urandom(3 * 2**20))
    out, unpacker = unpack("zstd", data, UnpackOptions(max_bytes=2**20))
    assert unpacker.damage == "zstd: it holds more than unpack.max_bytes, 1048576 bytes"
    assert 2**20 < len(out) <= 2**20 + compressions.OUTPUT_BYTES


def test_honest_files_are_not_touched() -> None:
    line = b'10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /health HTTP/1.1" 200 2\n'
    text = line * (70 * 2**20 // len(line))
    out, unpacker = unpack("gzip", zlib.compress(text, wbits=31), UnpackOptions())
    assert (len(out), unpacker.damage) == (len(text), "")


@pytest.mark.parametrize(("member", "data"), [(CODECS["lz4"](), PACK["lz4"](TEXT[:5000])), (CODECS["snappy"](), snappy(TEXT[:5000])[10:])])
def test_a_member_gives_all_it_holds_however_little_is_asked_for(member: compressions.Member, data: bytes) -> None:
    out = b""
    while not member.eof:
        out += member.decompress(data if member.needs_input else b"", 7)
        data = b""
    assert out == TEXT[:5000]


def test_an_lz4_file_that_was_cut_gives_all_that_its_blocks_hold() -> None:
    data = lz4.frame.compress(TEXT, block_size=7)
    out, unpacker = unpack("lz4", data[:-4])  # without its end
    assert (out, unpacker.is_whole, unpacker.damage) == (TEXT, False, "")


def test_a_snappy_stream_begins_with_its_name() -> None:
    assert snappy(b"x")[:10] == MAGIC
