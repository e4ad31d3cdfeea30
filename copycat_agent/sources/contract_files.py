"""`FileSource`, the task's part: opens, unpacks and parses whole files. `file_source_kind` combines it with the driver's part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar, cast

from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.formats import Frames, RecordFormat
from copycat_agent.formats.records import build_format
from copycat_agent.formats.records.byte_records import FormatOption, LinesOptions
from copycat_agent.logs import Log
from copycat_agent.model import SourceOffset, Split, SplitResult
from copycat_agent.options import DeliveryOptions
from copycat_agent.registry import FAULT, described
from copycat_agent.sources.base import Offsets, Saved, Source, SourceKind
from copycat_agent.sources.contract import FileSource, PolledOptions, Probed, RunsAs, StoredFile
from copycat_agent.sources.contract_partitions import FilePartitions
from copycat_agent.sources.contract_source import ContractSource
from copycat_agent.sources.files.packing.unpacking import CompressionOption, UnpackOption, UnpackOptions, codec_of
from copycat_agent.sources.files.reading.address import Info
from copycat_agent.sources.files.reading.stream import SplitFile, Stream
from copycat_agent.sources.spool_dir.spool_stream import LimitedFormat, PackedSpoolStream, SpoolStream

T = TypeVar("T")


class FilesOptions(PolledOptions):
    """Base of the options of a `FileSource`."""

    format: FormatOption = LinesOptions()
    compression: CompressionOption = "auto"
    unpack: UnpackOption = UnpackOptions()


class FilesFormat(LimitedFormat):
    """How files are opened, unpacked and parsed. A task builds it once per definition."""

    def __init__(self, options: FilesOptions, source: FileSource) -> None:
        super().__init__(options.format, options.unpack)
        self._options = options
        self._source = source

    def opened(self, split: Split) -> SplitFile:
        """Opens the split's file. Raises FileError, or FatalError if the source raises an unexpected exception."""
        if split.stretch is None:  # a file of this host that stands in for one of the source
            return SplitFile(split)
        stretch = split.stretch
        return SplitFile(split, lambda split: _StoredHandle(self._fenced(lambda: self._source.open(stretch)), split.offset, self._fenced))

    def codec_of(self, head: bytes) -> str:
        """Returns the compression of a file with these first bytes; "" if it is not compressed."""
        return codec_of(head, self._options)

    def _fenced(self, ask: Callable[[], T]) -> T:
        words = ""
        try:
            return ask()
        except (OSError, CopycatError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - third-party code may raise anything, and its text may hold data
            words = f"source {self._options.type}: {described(error)}"
        raise FatalError(words, FAULT)


class _StoredHandle:
    """A `stream.Handle` for a `StoredFile`."""

    fd = -1

    def __init__(self, file: StoredFile, offset: SourceOffset, fenced: Callable[[Callable[[], Any]], Any]) -> None:
        self._file = file
        self._info = Info(offset.size, offset.mtime_ns)
        self._fenced = fenced

    def stat(self) -> Info:
        return self._info if self._fenced(self._file.is_unchanged) else Info(-1, 0)

    def pread(self, size: int, position: int) -> bytes:
        data: bytes = self._fenced(lambda: self._file.read_at(position, size))
        return data

    def is_version(self, offset: SourceOffset) -> bool:
        return (self._info.st_size, self._info.st_mtime_ns) == (offset.size, offset.mtime_ns)

    def close(self) -> None:
        self._fenced(self._file.close)


class _PlainStoredStream(SpoolStream):
    def bounds(self, limit: int) -> tuple[int, bool]:
        return limit if self._form.counts_records or self._form.finds_end else min(limit, self.size), True

    def _whole(self, result: SplitResult) -> SplitResult:
        return result  # the source itself knows which version of the file this is


class _PackedStoredStream(PackedSpoolStream):
    def _whole(self, result: SplitResult) -> SplitResult:
        return result


def _open(split: Split, form: FilesFormat) -> Stream:
    """Opens a split. The file's first bytes tell its compression until a position is saved. Raises FileError."""
    file = form.opened(split)
    codec = split.offset.compression if split.offset.position else form.codec_of(file.head)
    split = replace(split, offset=replace(split.offset, compression=codec))
    return _PackedStoredStream(split, form, file) if codec else _PlainStoredStream(split, form, file)


def file_source_kind(
    options: type[FilesOptions],
    source: Callable[[Any], FileSource],
    *,
    probe: Callable[[Any, RunsAs], Iterable[Probed]] | None = None,
    sample: str = "",
) -> SourceKind:
    """Returns an entry of `SOURCES`. `source` is a class or function that takes the options; `options` must define their own `type`.

    `probe` and `sample` are those of `SourceKind`.
    """

    def make(connector: str, chosen: FilesOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
        return ContractSource(connector, chosen, delivery, offsets, log, source(chosen), _partitions(chosen))

    def framing(chosen: FilesOptions, *, raw: bool) -> Frames | RecordFormat:
        del raw  # a format knows the type of its values
        return cast("RecordFormat", FilesFormat(chosen, source(chosen)))

    return SourceKind(options, make, _open, framing, _saved, probe, sample)


def _partitions(options: FilesOptions) -> FilePartitions:
    return FilePartitions(counts_records=build_format(options.format).counts_records)


def _saved(result: SplitResult, options: FilesOptions) -> Saved:
    return _partitions(options).outcome_of(result)
