"""Unpacking by position: all of it, whatever the members and steps; a prefix where it is cut; damage where it is broken."""

from __future__ import annotations

import contextlib
import errno
import lzma
import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import TAIL_BYTES
from copycat_agent.sources.files.packing import compressions, unpacking
from copycat_agent.sources.files.packing.unpacking import IDLE_SECONDS, KEPT, Unpacker, Unpackers, UnpackOptions, ZipUnpacker
from tests.rig.examples import examples
from tests.unit.sources.archives import zipped
from tests.unit.sources.packing import PACK, SKIPPABLE, random_lines, source

if TYPE_CHECKING:
    from pathlib import Path


def test_a_zip_that_could_not_be_read_for_a_while_goes_on_where_it_was() -> None:
    data = zipped({"a": random_lines(3000), "b": b"end\n"})
    whole = ZipUnpacker(len(data)).read(source(data), 0, 2**30)
    assert whole.count(b"\n") == 3001
    is_there = iter([True] * 4 + [False] + [True] * 3 + [False] * 2 + [True] * 1000)

    def flaky(position: int, size: int) -> bytes:
        if not next(is_there):
            raise OSError(errno.EIO, "not now")
        return data[position : position + size]

    unpacker, out = ZipUnpacker(len(data)), b""
    while not unpacker.is_whole:
        with contextlib.suppress(OSError):
            out += unpacker.read(flaky, len(out), 9999)
    assert (out, unpacker.damage) == (whole, "")
    assert unpacker.goes_on(source(data), len(data))
    assert not unpacker.goes_on(source(data[:-1] + b"x"), len(data))


CODEC = st.sampled_from(sorted(PACK))
CODECS = pytest.mark.parametrize("codec", sorted(PACK))
TEXT = random_lines(3000)


def unpack(codec: str, data: bytes) -> tuple[bytes, Unpacker]:
    unpacker = Unpacker(codec)
    return unpacker.read(source(data), 0, 2**30), unpacker


@given(
    codec=CODEC, members=st.lists(st.binary(max_size=3000), min_size=1, max_size=5), padding=st.integers(0, 9), step=st.integers(1, 4000)
)
def test_members_and_padding_are_read_as_one_stretch_of_bytes(codec: str, members: list[bytes], padding: int, step: int) -> None:
    data = b"".join(PACK[codec](member) + bytes(padding) for member in members)
    unpacker, out = Unpacker(codec), b""
    while piece := unpacker.read(source(data), len(out), step):
        out += piece
    assert out == b"".join(members)
    assert (unpacker.is_whole, unpacker.damage, unpacker.taken) == (True, "", len(data))


def test_skippable_frames_hold_nothing() -> None:
    assert compressions.recognise(SKIPPABLE) == "zstd"
    out, unpacker = unpack("zstd", SKIPPABLE + PACK["zstd"](b"one\n") + SKIPPABLE + PACK["zstd"](b"two\n") + SKIPPABLE)
    assert (out, unpacker.is_whole) == (b"one\ntwo\n", True)


@settings(deadline=None)
@given(codec=CODEC, cut=st.floats(0, 1, exclude_max=True), members=st.integers(1, 3))
def test_an_archive_cut_anywhere_gives_a_prefix_and_goes_on_when_it_grows(codec: str, cut: float, members: int) -> None:
    data = PACK[codec](TEXT) * members
    size = int(cut * len(data))
    out, unpacker = unpack(codec, data[:size])
    assert (TEXT * members).startswith(out)
    assert not unpacker.damage
    assert unpacker.is_whole == (size > 0 and size % (len(data) // members) == 0)
    assert out + unpacker.read(source(data), len(out), 2**30) == TEXT * members
    assert unpacker.is_whole


@settings(deadline=None, max_examples=examples(40))
@given(codec=CODEC, place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_is_damage_or_harmless_and_what_comes_before_is_given(codec: str, place: float, flip: int) -> None:
    data = bytearray(PACK[codec](TEXT[:20_000]))
    data[int(place * len(data))] ^= flip
    out, unpacker = unpack(codec, bytes(data))
    again, other = unpack(codec, bytes(data))
    assert (again, other.damage, other.taken) == (out, unpacker.damage, unpacker.taken)
    assert unpacker.has_ended
    if unpacker.is_whole:
        assert out == TEXT[:20_000]  # a byte of the header that says nothing about the content
    else:
        assert unpacker.taken <= len(data)


@CODECS
def test_a_broken_checksum_is_damage_behind_all_the_data(codec: str) -> None:
    data = bytearray(PACK[codec](b"one\ntwo\n") + PACK[codec](TEXT))
    data[{"gzip": -8, "zstd": -2, "bz2": -6, "xz": -40, "lz4": -2}[codec]] ^= 0x55
    out, unpacker = unpack(codec, bytes(data))
    assert out.startswith(b"one\ntwo\n")
    assert unpacker.damage.startswith(f"{codec}: ")
    if codec == "gzip":
        assert out == b"one\ntwo\n" + TEXT
        assert (unpacker.damage, unpacker.taken) == ("gzip: incorrect data check", len(data) - 4)


@CODECS
def test_what_follows_the_last_member_and_is_none_is_damage(codec: str) -> None:
    member = PACK[codec](b"one\n")
    out, unpacker = unpack(codec, member + b"trailing text\n")
    assert out == b"one\n"
    assert unpacker.damage
    assert len(member) < unpacker.taken < len(member) + 14


@settings(deadline=None, max_examples=examples(40))
@given(codec=CODEC, seed=st.integers(0, 2**32))
def test_reading_at_any_position_in_any_order_gives_the_bytes_there(codec: str, seed: int) -> None:
    rng, data, unpacker = random.Random(seed), PACK[codec](TEXT), Unpacker(codec)
    for _ in range(10):
        position, size = rng.randrange(len(TEXT) + 100), rng.randrange(1, 5000)
        unpacker.keep(rng.randrange(len(TEXT)))
        assert unpacker.read(source(data), position, size) == TEXT[position : position + size]


def test_reading_on_does_not_begin_again_and_keeps_what_is_not_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "KEEP_BYTES", 10**6)
    text = random_lines(60_000)
    data, reads = PACK["gzip"](text), []

    def read(position: int, size: int) -> bytes:
        reads.append(position)
        return data[position : position + size]

    unpacker = Unpacker("gzip")
    for position in range(0, len(text), 2**16):
        assert unpacker.read(read, position, 2**16) == text[position : position + 2**16]
        assert unpacker.read(read, max(0, position - 900_000), 100) == text[max(0, position - 900_000) :][:100]
    assert reads == sorted(reads), "never back to the beginning"
    unpacker.keep(len(text))
    for back in (TAIL_BYTES, 2**15 + TAIL_BYTES):  # so far framing looks back for the stream of a wrapped line
        assert unpacker.read(read, len(text) - back, back) == text[-back:]
    assert reads.count(0) == 1
    assert unpacker.read(read, len(text) - 10**5, 1000) == text[-(10**5) :][:1000]
    assert reads.count(0) == 2, "too far back: once more from the beginning"


@pytest.mark.parametrize("endless", [PACK["gzip"](b""), b"\0", SKIPPABLE], ids=["gzip", "nul", "skippable"])
def test_first_bytes_are_looked_for_in_bounded_time_and_behind_padding(endless: bytes) -> None:
    codec = "zstd" if endless == SKIPPABLE else "gzip"
    reads: list[int] = []

    def read(position: int, size: int) -> bytes:
        reads.append(size)
        assert sum(reads) <= compressions.HEAD_INPUT_BYTES
        data = head + endless * (size // len(endless) + 2)
        return (data if not position else data[len(head) + (position - len(head)) % len(endless) :])[:size]

    head = PACK[codec](b"one\n")
    assert compressions.head_of(read, codec, 1024) == b"one\n"
    padded = head + bytes(10_000) + PACK["gzip"](b"two\n")
    if codec == "gzip":
        assert compressions.head_of(source(padded), "gzip", 1024) == b"one\ntwo\n"


@CODECS
def test_a_bomb_is_unpacked_in_bounded_steps(codec: str) -> None:
    size = 2**20 * (6 if codec == "lz4" else 60)  # its checksum is slow
    data, unpacker = PACK[codec](bytes(size)), Unpacker(codec)
    unpacker.keep(2**40)
    assert unpacker.read(source(data), size * 5 // 6, 10) == bytes(10)
    assert unpacker.produced < size * 5 // 6 + 2 * compressions.OUTPUT_BYTES
    assert len(unpacker._window) < 3 * compressions.OUTPUT_BYTES


def test_an_archive_that_needs_too_much_memory_is_damage_that_says_so() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2 * compressions.MEMORY_BYTES}]
    _, unpacker = unpack("xz", lzma.compress(b"x\n", filters=filters))
    assert unpacker.damage == "xz: it needs more than 128 MiB to unpack"
    header = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(31 - 10) << 3])  # a frame with a window of 2 GiB
    _, unpacker = unpack("zstd", header + b"\x09\x00\x00x")
    assert unpacker.damage == "zstd: it needs more than 128 MiB to unpack"


@pytest.mark.parametrize("head", [b"", b"\x1f", b"\x1f\x8b", b"\x28\xb5\x2f", b"BZh9", b"\xfd7z", b"\x04\x22", b"\xff\x06\0"])
def test_too_few_bytes_do_not_tell(head: bytes) -> None:
    assert compressions.recognise(head) is None
    followed_by_more = compressions.recognise(head + b"\0", whole=True)
    assert compressions.recognise(head, whole=True) == ("" if len(head) < 2 else followed_by_more or _codec(head))


def _codec(head: bytes) -> str:
    return {0x1F: "gzip", 0x28: "zstd", 0x42: "bz2", 0xFD: "xz", 0x04: "lz4", 0xFF: "snappy"}[head[0]]


@pytest.mark.parametrize("head", [b"hello", b"BZhello wor", b"\x1f\x8b\x07", b"(no zstd", b"PK\x03\x04", b"\0\0\0\0", b"BZh9 is a line\n"])
def test_other_bytes_are_lines(head: bytes) -> None:
    assert compressions.recognise(head) == ""


@pytest.mark.parametrize(
    ("codec", "command"),
    [
        ("gzip", ["gzip", "-c"]),
        ("gzip", ["gzip", "-1", "-n", "-c"]),
        ("zstd", ["zstd", "-q", "-c"]),
        ("zstd", ["zstd", "-q", "--long=27", "--no-check", "-c"]),
        ("bz2", ["bzip2", "-c"]),
        ("xz", ["xz", "-1", "-c"]),
        ("xz", ["xz", "-0", "-T2", "--block-size=65536", "--check=sha256", "-c"]),
        ("lz4", ["lz4", "-q", "-c"]),
        ("lz4", ["lz4", "-q", "-9", "-B4", "-BD", "-BX", "--content-size", "-c"]),
        ("lz4", ["lz4", "-q", "-B5", "--no-frame-crc", "-c"]),
    ],
)
def test_what_the_real_tools_write_is_read(codec: str, command: list[str]) -> None:
    data = b"".join(subprocess.run(command, input=part, stdout=subprocess.PIPE, check=True).stdout for part in (TEXT, b"", TEXT))
    assert compressions.recognise(data[: compressions.MAGIC_BYTES]) == codec
    assert compressions.head_of(source(data), codec, 1024) == TEXT[:1024]
    out, unpacker = unpack(codec, data)
    assert (out, unpacker.is_whole) == (TEXT * 2, True)


def test_unpacking_goes_on_with_the_same_file_only(tmp_path: Path) -> None:
    kept, data = Unpackers(), PACK["gzip"](TEXT)
    unpacker = kept.take("a", "gzip", source(data), len(data))  # type: ignore[arg-type]
    unpacker.read(source(data), 0, 1000)
    kept.give_back("a", unpacker)  # type: ignore[arg-type]
    assert kept.take("a", "gzip", source(data), len(data)) is unpacker  # type: ignore[arg-type]
    assert kept.take("a", "gzip", source(data), len(data)) is not unpacker, "it is in use"  # type: ignore[arg-type]
    for other, codec in (
        (data[: len(data) // 2], "gzip"),
        (b"x" + data[1:], "gzip"),
        (data[:65_500] + b"xx" + data[65_502:], "gzip"),
        (data, "zstd"),
    ):
        kept.give_back("a", unpacker)  # type: ignore[arg-type]
        assert kept.take("a", codec, source(other), len(other)) is not unpacker  # type: ignore[arg-type]
    kept.give_back("a", unpacker)  # type: ignore[arg-type]
    corrected = kept.take("a", "gzip", source(data), len(data), UnpackOptions(max_bytes=2**20))  # type: ignore[arg-type]
    assert corrected is not unpacker


def test_a_process_keeps_a_few_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, now = Unpackers(), [1000.0]
    monkeypatch.setattr("copycat_agent.sources.files.packing.unpacking.time.monotonic", lambda: now[0])
    given_back = {name: Unpacker("gzip") for name in "abcdefg"}
    for name, unpacker in given_back.items():
        kept.give_back(name, unpacker)  # type: ignore[arg-type]
    there = [name for name, unpacker in given_back.items() if kept.take(name, "gzip", source(b""), 0) is unpacker]  # type: ignore[arg-type]
    assert there == list("abcdefg")[-KEPT:]
    kept.give_back("a", given_back["a"])  # type: ignore[arg-type]
    now[0] += IDLE_SECONDS + 1
    assert kept.take("a", "gzip", source(b""), 0) is not given_back["a"]  # type: ignore[arg-type]
