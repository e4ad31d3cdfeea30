"""Lines of a table in a file: decoded, with their places, across the frames that lines come in."""

from __future__ import annotations

from itertools import accumulate

from copycat_agent.formats.encoding import AS_IT_STANDS, Layout
from copycat_agent.formats.model import TAIL_BYTES, Chunk

_DECODES_TO_NO_TEXT = "utf-7"
"""Its decoder makes halves of characters that no other text can hold."""


class Lines:
    """Consecutive lines of a file that are not records yet. `places`: where each begins, and where the last one ends."""

    def __init__(self, layout: Layout, start: int) -> None:
        self.codec = "utf-8" if layout.codec in AS_IT_STANDS else layout.codec
        self.delimiter = layout.delimiter
        self.raw: list[bytes] = []
        self.places: list[int] = [start]

    @property
    def start(self) -> int:
        """Where the first line begins."""
        return self.places[0]

    @property
    def end(self) -> int:
        """Where the last line ends."""
        return self.places[-1]

    def add(self, chunk: Chunk) -> None:
        """The lines of the chunk that follows."""
        assert chunk.start == self.end, "lines follow each other"
        size = len(self.delimiter)
        sizes = map(len, chunk.raw) if not size else [len(line) + size for line in chunk.raw]
        places = list(accumulate(sizes, initial=chunk.start))
        places[-1] = chunk.end  # a partial line has no delimiter
        self.raw += chunk.raw
        self.places[-1:] = places

    def put(self, record: bytes) -> None:
        """The lines of one record, without the last delimiter; nothing else."""
        self.raw = record.split(self.delimiter)
        self.places = list(accumulate((len(line) + len(self.delimiter) for line in self.raw), initial=0))

    def drop(self, count: int) -> None:
        """Forget the first lines."""
        del self.raw[:count]
        del self.places[:count]

    def skip_to(self, position: int) -> None:
        """Forget all lines; what follows begins at `position`."""
        self.raw, self.places = [], [position]

    def texts(self) -> tuple[list[str], set[int]]:
        """The lines, decoded, and the indexes of those with bytes that are no text; U+FFFD stands for these."""
        try:
            return self._decoded(), set()
        except UnicodeError:
            return self._one_by_one()

    def _decoded(self) -> list[str]:
        """All lines. Raises UnicodeError."""
        if self.codec == _DECODES_TO_NO_TEXT:
            return self._checked()
        if self.codec == "utf-8" and self.delimiter == b"\n" and self.raw:  # at once: a third of the time
            return b"\n".join(self.raw).decode().split("\n")
        return [line.decode(self.codec) for line in self.raw]

    def _checked(self) -> list[str]:
        texts = [line.decode(self.codec) for line in self.raw]
        "".join(texts).encode()
        return texts

    def _one_by_one(self) -> tuple[list[str], set[int]]:
        texts: list[str] = []
        bad: set[int] = set()
        for index, line in enumerate(self.raw):
            try:
                text = line.decode(self.codec)
                text.encode()
            except UnicodeError:
                text = line.decode(self.codec, "replace").encode("utf-8", "replace").decode()
                bad.add(index)
            texts.append(text)
        return texts, bad

    def record(self, first: int, after: int) -> bytes:
        """The bytes of lines `first` up to, not including, `after`, without the last delimiter."""
        return self.raw[first] if after == first + 1 else self.delimiter.join(self.raw[first:after])

    def tail(self, after: int) -> bytes:
        """The last bytes before line `after`, as many as a fingerprint covers."""
        first = after
        while first and self.places[after] - self.places[first] < TAIL_BYTES:
            first -= 1
        text = self.delimiter.join([*self.raw[first:after], b""])
        return text[: self.places[after] - self.places[first]][-TAIL_BYTES:]
