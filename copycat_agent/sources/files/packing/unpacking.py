"""Unpacks one file, from batch to batch, and limits how much a file may hold before it counts as a decompression bomb."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Annotated, Literal

from copycat_agent.formats import TAIL_BYTES, Reader
from copycat_agent.model import SourcePartition
from copycat_agent.options import ByteSize, Field, Options
from copycat_agent.sources.files.fingerprint import HEAD_BYTES
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.packing.zip_files import ZIP, TarOfZip, UnreadableNowError, ZipError, is_zip

FREE_BYTES = 64 * 2**20
"""Content below this size is always allowed, however few packed bytes hold it."""


class UnpackOptions(Options):
    """What a packed file may hold. A file beyond it is a bad file; what was unpacked of it before has been delivered."""

    max_ratio: int = Field(
        500,
        ge=10,
        le=1_000_000,
        description="At most so many times its packed size, once more than 64 MiB were unpacked. Logs reach 20 to 200.",
    )
    max_bytes: ByteSize | None = Field(None, ge=2**20, description="At most so much, unpacked; absent: no bound but max_ratio.")
    archives: bool = Field(
        False,
        description="true: of a zip or tar file, which may be packed (.tar.gz), each file in it is read as if it were one of its own; "
        "{@file.member} is its name. Other files are read as without. Not with formats avro and parquet.",
    )
    max_members: int = Field(10_000, ge=1, le=1_000_000, description="At most so many files in a zip or tar file.")


CompressionOption = Annotated[
    Literal["auto", "none", "gzip", "zstd", "bz2", "xz", "lz4", "snappy"],
    Field(
        description="auto: packed files are recognised by their first bytes. none: their bytes are taken as they are. A name: all files "
        "are packed so, and one that is not is a bad file."
    ),
]
"""An option of sources of whole files, as is the next one."""
UnpackOption = Annotated[
    UnpackOptions, Field(description="How much a packed file may hold before it counts as a bad file, and whether zip and tar are opened.")
]


def _opens_archives(options: object) -> bool:
    unpack = getattr(options, "unpack", None)
    return unpack is not None and unpack.archives


def asks_head(options: object) -> bool:
    """Returns whether `codec_of` uses a file's first bytes."""
    wanted = getattr(options, "compression", "auto")
    return wanted == "auto" or (wanted == "none" and _opens_archives(options))


def codec_of(head: bytes, options: object) -> str:
    """Returns how a file with this `head` (`MAGIC_BYTES` or more) is packed, by its content or its source's options; "" if it is not."""
    wanted = getattr(options, "compression", "auto")
    if wanted in ("auto", "none") and _opens_archives(options) and is_zip(head):
        return ZIP
    if wanted != "auto":
        return "" if wanted == "none" else str(wanted)
    return compressions.recognise(head[: compressions.MAGIC_BYTES], whole=True) or ""


def excess(limits: UnpackOptions, produced: int, taken: int) -> str:
    """Returns why a file of which `taken` packed bytes made `produced` unpacked ones is over the limits; "" if it is not."""
    if limits.max_bytes is not None and produced > limits.max_bytes:
        return f"it holds more than unpack.max_bytes, {limits.max_bytes} bytes"
    if produced > FREE_BYTES and produced > limits.max_ratio * taken:
        return f"it holds more than unpack.max_ratio, {limits.max_ratio} times its packed size"
    return ""


_BEHIND_BYTES = 2**16
"""Bytes kept before the settled position: framing looks back a little where it continues, see `formats.multiline`."""
KEEP_BYTES = 20 * 2**20
"""The most unpacked bytes that are kept for a second read: after a failed run, and for a block that was read ahead."""
_CAREFUL_BYTES = 4 * compressions.INPUT_BYTES
"""Packed bytes around a damaged position that are unpacked one by one."""


class Unpacking(ABC):
    """The state of unpacking one file; it holds no file open. Used by one thread at a time.

    `head` are the first unpacked bytes, `produced` is how many were unpacked, `taken` how many packed bytes that took. `damage` says why no
    more can be unpacked, "" while none is known. `limits`: a file that holds more counts as damaged there; None for no limits.
    """

    def __init__(self, codec: str, limits: UnpackOptions | None = None) -> None:
        self.codec = codec
        self.limits = limits
        self._mark = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.head = b""
        self.produced = self.taken = self._begin = 0
        self.damage = ""
        self._window = bytearray()
        self._is_dry = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing more could be unpacked at the last attempt."""
        return bool(self.damage) or self._is_dry

    @property
    def is_whole(self) -> bool:
        """Whether the packed bytes ended at a valid end, so that this may be all."""
        return self._is_dry and not self.damage and self.taken > 0

    def look_again(self) -> None:
        """Allows another attempt after the end: there may be more packed bytes now."""
        self._is_dry = False

    def keep(self, position: int) -> None:
        """Keeps unpacked bytes from a little before `position` on, which may be read again."""
        self._mark = position

    def read(self, source: Reader, position: int, size: int) -> bytes:
        """Returns up to `size` unpacked bytes from `position`; fewer only if `has_ended`. Raises the errors of `source`, which reads."""
        if position + size <= len(self.head):
            return self.head[position : position + size]
        if position < self._begin:
            self._begin_anew()
        while self.produced < position + size and self._step(source):
            self._trim(position)
        self._trim(position)
        begin = position - self._begin
        return bytes(memoryview(self._window)[begin : begin + size]) if 0 <= begin <= len(self._window) else b""

    def _trim(self, position: int) -> None:
        """Drops unpacked bytes that will not be read again."""
        floor = max(position - KEEP_BYTES, min(self._mark, position) - _BEHIND_BYTES)
        surplus = min(floor - self._begin, len(self._window))
        if surplus > 0:
            del self._window[:surplus]
            self._begin += surplus

    @abstractmethod
    def _step(self, source: Reader) -> bool:
        """Unpacks a little more. Returns False if there is nothing more now."""

    def _add(self, out: bytes) -> bool:
        """Takes in unpacked bytes. Returns False if they exceed the limits."""
        if len(self.head) < HEAD_BYTES:
            self.head += out[: HEAD_BYTES - len(self.head)]
        self._window += out
        self.produced += len(out)
        if self.limits is not None and (why := excess(self.limits, self.produced, self.taken)):
            self.damage = f"{self.codec}: {why}"
            return False
        return True

    @abstractmethod
    def goes_on(self, source: Reader, size: int) -> bool:
        """Returns whether a file of `size` packed bytes still begins with those that were taken, comparing their first and last bytes."""


class Unpacker(Unpacking):
    """Unpacks a file of members of one codec, from its first byte on."""

    def __init__(self, codec: str, limits: UnpackOptions | None = None) -> None:
        self._careful_from = -1
        super().__init__(codec, limits)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._packed_head = self._packed_tail = self._rest = b""
        self._member: compressions.Member | None = None

    @property
    def is_whole(self) -> bool:
        return super().is_whole and self._member is None

    @property
    def _is_careful(self) -> bool:
        return 0 <= self._careful_from <= self.taken <= self._careful_from + _CAREFUL_BYTES

    def _step(self, source: Reader) -> bool:
        if self.damage:
            return False
        data = b""
        if self._member is None or self._member.needs_input:
            data = self._input(source)
            self._is_dry = not data
            if not data:
                return False
        if self._member is None:
            self._member = compressions.CODECS[self.codec]()
        try:
            out = self._member.decompress(data, compressions.OUTPUT_BYTES)
        except compressions.ERRORS as error:
            return self._on_error(error)
        if not self._add(out):
            return False
        if self._member.eof:
            self._rest, self._member = self._member.unused_data, None
        return True

    def _input(self, source: Reader) -> bytes:
        """Returns the next packed bytes: those after the last member, else new ones. Skips zeros between members, which are padding."""
        while True:
            data, self._rest = self._rest, b""
            if not data:
                data = source(self.taken, 1 if self._is_careful else compressions.INPUT_BYTES)
                self.taken += len(data)
                self._packed_head += data[: max(0, HEAD_BYTES - len(self._packed_head))]
                self._packed_tail = (self._packed_tail + data)[-TAIL_BYTES:]
            is_between = self._member is None and self.taken > len(data) and self.codec not in compressions.UNPADDED
            if not data or not is_between:
                return data
            if data := data.lstrip(b"\0"):
                return data

    def _on_error(self, error: Exception) -> bool:
        """Unpacks the last bytes again, byte by byte: a failed step returned nothing, though its first bytes may be good."""
        if self._is_careful:
            self.damage = f"{self.codec}: {_words(error)}"
            return False
        self._careful_from = max(0, self.taken - _CAREFUL_BYTES // 2)
        self._begin_anew()
        return True

    def goes_on(self, source: Reader, size: int) -> bool:
        if self.taken > size:
            return False
        tail = self._packed_tail
        return source(0, len(self._packed_head)) == self._packed_head and source(self.taken - len(tail), len(tail)) == tail


class ZipUnpacker(Unpacking):
    """Unpacks a zip file of `size` bytes into a tar of its members (see `zip_files`)."""

    def __init__(self, size: int, limits: UnpackOptions | None = None) -> None:
        self._size = size
        self._most = (limits or UnpackOptions()).max_members
        self._edges = b""
        super().__init__(ZIP, limits)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._tar = TarOfZip(self._size, self._most)

    def _step(self, source: Reader) -> bool:
        if self.damage or self._is_dry:
            return False
        self._edges = self._edges or _edges(source, self._size)
        try:
            self.taken, out = self._tar.more(source)
        except UnreadableNowError as error:
            self._begin_anew()  # the present state cannot be continued
            raise error.why from None
        except compressions.ERRORS as error:
            self.damage = f"{self.codec}: {error if isinstance(error, ZipError) else _words(error)}"
            return False
        self._is_dry = not out and self.taken == self._size
        return self._add(out)

    def goes_on(self, source: Reader, size: int) -> bool:
        return size == self._size and self._edges in (b"", _edges(source, size))


def _edges(source: Reader, size: int) -> bytes:
    """Returns the first and the last bytes, which include the position of the directory."""
    return source(0, HEAD_BYTES) + source(max(0, size - HEAD_BYTES), HEAD_BYTES)


def unpacker_of(codec: str, size: int, limits: UnpackOptions | None = None) -> Unpacking:
    """Returns a new unpacker for a file of `size` packed bytes."""
    return ZipUnpacker(size, limits) if codec == ZIP else Unpacker(codec, limits)


def _words(error: Exception) -> str:
    """Returns a library's message, without its own name and numbers."""
    text = str(error) or type(error).__name__
    if "emory" in text or isinstance(error, MemoryError):
        return f"it needs more than {compressions.MEMORY_BYTES // 2**20} MiB to unpack"
    return text.rpartition(": ")[2]


KEPT = 4
"""How many files' unpackers a process keeps between two batches; each takes up to `KEEP_BYTES` and what its codec needs."""
IDLE_SECONDS = 60.0
"""An unpacker that is unused for this long is dropped when another one is taken or returned."""


class Unpackers:
    """Idle unpackers of this process, by partition. They hold no file open. Thread-safe."""

    def __init__(self) -> None:
        self._idle: dict[SourcePartition, tuple[float, Unpacking]] = {}
        self._lock = threading.Lock()

    def take(self, partition: SourcePartition, codec: str, source: Reader, size: int, limits: UnpackOptions | None = None) -> Unpacking:
        """Returns the unpacker of this file, if `source` (`size` packed bytes) and the limits are unchanged; else a new one."""
        with self._lock:
            self._drop_old()
            _, unpacker = self._idle.pop(partition, (0.0, None))
        if unpacker is not None and (unpacker.codec, unpacker.limits) == (codec, limits) and unpacker.goes_on(source, size):
            unpacker.look_again()
            return unpacker
        return unpacker_of(codec, size, limits)

    def give_back(self, partition: SourcePartition, unpacker: Unpacking) -> None:
        """Keeps an unpacker for the next batch."""
        with self._lock:
            self._drop_old()
            self._idle[partition] = (time.monotonic(), unpacker)
            while len(self._idle) > KEPT:
                del self._idle[next(iter(self._idle))]

    def _drop_old(self) -> None:
        oldest = time.monotonic() - IDLE_SECONDS
        self._idle = {partition: one for partition, one in self._idle.items() if one[0] > oldest}


PROCESS = Unpackers()
"""The unpackers of this process."""
