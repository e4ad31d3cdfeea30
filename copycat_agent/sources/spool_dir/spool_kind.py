"""`spool_dir` as an entry of `SOURCES`: the task's part, and the factory of the driver's part, which no task imports."""

from __future__ import annotations

from copycat_agent.formats import Frames, RecordFormat
from copycat_agent.logs import Log
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.base import Offsets, Source, SourceKind
from copycat_agent.sources.spool_dir.outcomes import saved
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from copycat_agent.sources.spool_dir.spool_stream import LimitedFormat, open_spooled


def _make(connector: str, options: SpoolDirOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
    from copycat_agent.sources.spool_dir.spool_dir import SpoolDirSource  # noqa: PLC0415 - 20 modules that a task's process does without

    return SpoolDirSource(connector, options, delivery, offsets, log)


def _framing(options: SpoolDirOptions, *, raw: bool) -> Frames | RecordFormat:
    del raw  # a format knows the type of its values
    return LimitedFormat(options.format, options.unpack)


SPOOL_DIR = SourceKind(
    SpoolDirOptions, _make, open_spooled, _framing, saved, of_host="its files are told apart by inode, and moved or deleted, on one host"
)
