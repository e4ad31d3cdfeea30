"""The public names for packages that add a source, a format, a transform or a converter (docs/extending.md).

These names are stable within a major version; everything else in `copycat_agent` may change in any release. The agent's own sources that
are written against this contract import nothing else of the package (`ON_CONTRACT` in tests/test_architecture.py).
"""

from __future__ import annotations

from copycat_agent.converters import CONVERTERS, Converter, ConverterKind, Site
from copycat_agent.converters.decoded_value import ValuesReader
from copycat_agent.converters.value_readers import values_reader
from copycat_agent.errors import BlockedError, CopycatError, DamageError, DataError, FatalError, FileError, RetriableError
from copycat_agent.formats import Chunk, Envelope, Envelopes, Frame, Gap, LongLine, Parsed, RecordFile, RecordFormat, SkippedRest, Unparsed
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.formats.records import FORMATS, FormatKind, FormatOptions
from copycat_agent.maven import fetch_jar
from copycat_agent.model import Column, Schema, Stretch
from copycat_agent.options import (
    ByteSize,
    ConverterOptions,
    ConvertersOptions,
    Definition,
    Duration,
    Field,
    KafkaOptions,
    Options,
    Patterns,
    PrivateAttr,
    Regex,
    Secret,
    SourceOptions,
)
from copycat_agent.producer.group_positions import GroupPositions
from copycat_agent.producer.partition_reading import PartitionReader, PassedOffsets, ReceivedRun, Removed, cut
from copycat_agent.producer.topic_ranges import KnownOffsets, KnownTopics, TopicRanges, TopicRetention
from copycat_agent.sinks.files_options import FilesSinkOptions, RollOptions
from copycat_agent.sources import SOURCES, Source, SourceKind
from copycat_agent.sources.contract import (
    AuthorSource,
    EnvelopedRun,
    FileSource,
    Finding,
    Found,
    FrameSource,
    Gone,
    LostRecords,
    OffsetSource,
    Passed,
    PolledOptions,
    Position,
    Probed,
    Record,
    Remembered,
    RunsAs,
    StoredFile,
    Troubled,
)
from copycat_agent.sources.contract_files import FilesOptions, file_source_kind
from copycat_agent.sources.contract_frames import SPARK, fields_of_rows, frame_source_kind, schema_of_rows
from copycat_agent.sources.contract_offsets import offset_source_kind
from copycat_agent.sources.contract_stream import source_kind
from copycat_agent.sources.files.paths.matching import excluded_by
from copycat_agent.sources.files.reading.address import Address, parse_address
from copycat_agent.sources.files.reading.file_systems import file_system_at
from copycat_agent.templates import MISSING, SplitMeta, compile_path, compile_template
from copycat_agent.templates.metadata import TopicPlace
from copycat_agent.transforms import TRANSFORMS, Columns, Draft, Steady, Step, StepOptions, Transform, TransformKind
from copycat_agent.transforms.paths import FieldName, FieldNames, finder, putter, taker

spark_session = SPARK.session
"""`spark_session(seconds)` returns the agent's Spark session, for a `FrameSource`. Raises RetriableError while there is none."""

__all__ = [
    "CONVERTERS",
    "FORMATS",
    "MISSING",
    "SOURCES",
    "TRANSFORMS",
    "Address",
    "ArrowRows",
    "AuthorSource",
    "BlockedError",
    "ByteSize",
    "Chunk",
    "Column",
    "Columns",
    "Converter",
    "ConverterKind",
    "ConverterOptions",
    "ConvertersOptions",
    "CopycatError",
    "DamageError",
    "DataError",
    "Definition",
    "Draft",
    "Duration",
    "Envelope",
    "EnvelopedRun",
    "Envelopes",
    "FatalError",
    "Field",
    "FieldName",
    "FieldNames",
    "FileError",
    "FileSource",
    "FilesOptions",
    "FilesSinkOptions",
    "Finding",
    "FormatKind",
    "FormatOptions",
    "Found",
    "Frame",
    "FrameSource",
    "Gap",
    "Gone",
    "GroupPositions",
    "KafkaOptions",
    "KnownOffsets",
    "KnownTopics",
    "LongLine",
    "LostRecords",
    "OffsetSource",
    "Options",
    "Parsed",
    "PartitionReader",
    "Passed",
    "PassedOffsets",
    "Patterns",
    "PolledOptions",
    "Position",
    "PrivateAttr",
    "Probed",
    "ReceivedRun",
    "Record",
    "RecordFile",
    "RecordFormat",
    "Regex",
    "Remembered",
    "Removed",
    "RetriableError",
    "RollOptions",
    "RunsAs",
    "Schema",
    "Secret",
    "Site",
    "SkippedRest",
    "Source",
    "SourceKind",
    "SourceOptions",
    "SplitMeta",
    "Steady",
    "Step",
    "StepOptions",
    "StoredFile",
    "Stretch",
    "TopicPlace",
    "TopicRanges",
    "TopicRetention",
    "Transform",
    "TransformKind",
    "Troubled",
    "Unparsed",
    "ValuesReader",
    "compile_path",
    "compile_template",
    "cut",
    "excluded_by",
    "fetch_jar",
    "fields_of_rows",
    "file_source_kind",
    "file_system_at",
    "finder",
    "frame_source_kind",
    "offset_source_kind",
    "parse_address",
    "putter",
    "schema_of_rows",
    "source_kind",
    "spark_session",
    "taker",
    "values_reader",
]
