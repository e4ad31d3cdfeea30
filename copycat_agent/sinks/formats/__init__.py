"""From records to complete local files: `RangeFiles` takes the records of one range of offsets and returns files of one format.

A value is bytes, text or a dict of fields. Each format accepts the following, and raises `DataError` for anything else:

- `jsonl`: fields as the json converter writes them, text as a JSON text; bytes that are JSON as they are, line breaks between its tokens as
  spaces. Other bytes do not fit.
- `lines`: bytes and text without a line feed, one a line. Fields do not fit.
- `binary`: bytes and text, concatenated without separators: for values that delimit themselves. Kafka Connect's ByteArrayFormat does the
  same with a line separator after each, which is `lines` here, where a value that contains one is refused.
- `csv`, `parquet`, `avro`: fields, one column each; bytes and text are a field `value`. See `table_files` for columns and their types. For
  `avro`, bytes with a schema are a record in its encoding.

No format accepts a null value (a tombstone): drop such records with a filter to write nothing for them. Of Kafka Connect's
`behavior.on.null.values` this is `fail`, as a dead letter; the filter is `ignore`.

A finished file is closed and synced. It is compressed in pieces, each its own gzip member or zstd frame, so that a file that waits for
more records holds neither a descriptor nor the memory of a compressor; all readers of these formats read such files.
"""

from copycat_agent.sinks.formats.local_files import WrittenFile
from copycat_agent.sinks.formats.range_files import RangeFiles

__all__ = ["RangeFiles", "WrittenFile"]
