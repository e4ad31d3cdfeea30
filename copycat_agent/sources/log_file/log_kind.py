"""`log_file` as an entry of `SOURCES`: the task's part, and the factory of the driver's part, which no task imports."""

from __future__ import annotations

from copycat_agent.formats import Frames, LineFrames, MultilineFrames
from copycat_agent.logs import Log
from copycat_agent.model import Split
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.base import Offsets, Source, SourceKind
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.packing.packed import PackedStream
from copycat_agent.sources.files.reading.stream import Stream
from copycat_agent.sources.log_file.log_options import LogFileOptions


def _make(connector: str, options: LogFileOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
    from copycat_agent.sources.log_file.log_file import LogFileSource  # noqa: PLC0415 - 30 modules that a task's process does without

    return LogFileSource(connector, options, delivery, offsets, log)


def _framing(options: LogFileOptions, *, raw: bool) -> Frames:
    if options.multiline is not None:
        return MultilineFrames(options.line, options.multiline, encoding=options.encoding, raw=raw)
    return LineFrames(options.line, encoding=options.encoding, raw=raw)


class _LogStream(Stream):
    """A file that somebody may be writing to."""

    def bounds(self, limit: int) -> tuple[int, bool]:
        """Returns the bounds of any file. The rest at its end is not a record if data was added since the split was planned."""
        return limit, self._file.info.st_size <= limit


def open_stream(split: Split, framing: object = None) -> Stream:
    """Opens the split's file, packed or not, in a task; the framing does not matter. Raises FileError."""
    del framing
    return PackedStream(split) if split.offset.compression else _LogStream(split)


LOG_FILE = SourceKind(
    LogFileOptions, _make, open_stream, _framing, packed.saved, of_host="its files are followed by inode and open descriptor on one host"
)
