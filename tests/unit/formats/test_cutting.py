"""A chunk cut in two holds the same records at the same places, and little reading frames the same lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.formats import Chunk, LineFrames, LineOptions, LongLine
from copycat_agent.formats.model import Frame
from copycat_agent.formats.text import TAIL_BYTES

LINES = st.lists(st.sampled_from([b"", b"a", b"\r", b"bb\r", b"c" * 50, b"d" * 300]), max_size=30)
DELIMITERS = st.sampled_from(["\n", "|", "ab"])


def framed(data: bytes, options: LineOptions, block_bytes: int | None = None, *, final: bool = False) -> list[Frame]:
    def read(position: int, size: int) -> bytes:
        return data[position : position + size]

    return list(LineFrames(options).frames(read, 0, len(data), final=final, block_bytes=block_bytes))


def made(lines: list[bytes], options: LineOptions) -> bytes:
    return b"".join(line + options.delimiter.encode() for line in lines)


def rows(chunk: Chunk) -> list[tuple[object, int, int]]:
    return [(row.value, row.start, row.end) for row in chunk.rows()]


def tail(frames: list[Frame]) -> bytes:
    """What a fingerprint takes of them."""
    return b"".join(frame.tail for frame in frames)[-TAIL_BYTES:]


@given(LINES, DELIMITERS, st.booleans(), st.data())
def test_the_halves_of_a_chunk_are_the_chunk(lines: list[bytes], delimiter: str, skip_empty: bool, data: st.DataObject) -> None:
    options = LineOptions(delimiter=delimiter, skip_empty=skip_empty)
    text = made(lines, options)
    for chunk in [frame for frame in framed(text, options) if isinstance(frame, Chunk) and len(frame.raw) > 1]:
        index = data.draw(st.integers(1, len(chunk.raw) - 1))
        first, second = chunk.cut(index)
        assert (first.start, first.end, second.end) == (chunk.start, second.start, chunk.end)
        assert first.raw + second.raw == chunk.raw
        assert first.values + second.values == chunk.values
        assert rows(first) + rows(second) == rows(chunk)
        assert text[: first.end].endswith(first.tail)
        assert text[second.start : second.end].endswith(second.tail)
        assert tail([first, second]) == text[: chunk.end][-TAIL_BYTES:]


@given(LINES, st.booleans(), st.integers(1, 40), st.integers(1, 3000))
def test_what_fits_is_no_more_than_asked_for_and_at_least_one_stretch(
    lines: list[bytes], skip_empty: bool, records: int, size_bytes: int
) -> None:
    options = LineOptions(skip_empty=skip_empty)
    for chunk in [frame for frame in framed(made(lines, options), options) if isinstance(frame, Chunk)]:
        index = chunk.fitting(records, size_bytes)
        assert 1 <= index <= len(chunk.raw)
        first, second = chunk.cut(index) if index < len(chunk.raw) else (chunk, None)
        assert len(first.values) <= records
        assert first.end - first.start <= size_bytes or index == 1
        if second is not None:
            grown = chunk.cut(index + 1)[0] if index + 1 < len(chunk.raw) else chunk
            assert len(grown.values) > records or grown.end - grown.start > size_bytes
        assert chunk.before(first.end) == index


@given(LINES, DELIMITERS, st.booleans(), st.sampled_from([1, 7, 60, 400]), st.booleans())
def test_little_reading_finds_the_same_lines(lines: list[bytes], delimiter: str, skip_empty: bool, block_bytes: int, final: bool) -> None:
    options = LineOptions(delimiter=delimiter, max_bytes=100, skip_empty=skip_empty)
    data = made(lines, options) + b"rest"
    usual, little = framed(data, options, final=final), framed(data, options, block_bytes, final=final)

    def found(frames: list[Frame]) -> list[object]:
        chunks = [row for frame in frames if isinstance(frame, Chunk) for row in rows(frame)]
        return [*chunks, *((frame.head, frame.start) for frame in frames if isinstance(frame, LongLine))]

    assert found(little) == found(usual)
    assert [frame.end for frame in little][-1:] == [frame.end for frame in usual][-1:]
    assert all(frame.end - frame.start <= block_bytes or len(frame.raw) == 1 for frame in little if isinstance(frame, Chunk))
