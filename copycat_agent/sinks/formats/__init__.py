"""From records to complete local files: `RangeFiles` takes the records of one range of offsets and gives files of one format.

What each format takes of a value, which is bytes, text or a dict of fields; what it does not take raises `DataError`:

- `jsonl`: fields as the json converter writes them, text as a JSON text; bytes that are JSON as they are, line breaks between its tokens as
  spaces. Other bytes do not fit.
- `lines`: bytes and text without a line feed, one a line. Fields do not fit.
- `binary`: bytes and text, one behind the other with nothing between them: for values that say themselves where they end. Kafka Connect's
  ByteArrayFormat does so too, with a line separator behind each, which is `lines` here, where a value that holds one is refused.
- `csv`, `parquet`, `avro`: fields, one column each; bytes and text are a field `value`. See `table_files` for columns and their types.

A null value (a tombstone) fits in none of them: to write nothing for it, drop such records before. Of what Kafka Connect's
`behavior.on.null.values` can say this is `fail`, as a dead letter; `ignore` is a filter.

A file that is finished is closed and on disk. It is compressed in pieces, each a gzip member or a zstd frame of its own, so that a file
that waits for more holds neither a descriptor nor the memory of a compressor; all readers of these formats read such files.
"""

from copycat_agent.sinks.formats.local_files import WrittenFile
from copycat_agent.sinks.formats.range_files import RangeFiles

__all__ = ["RangeFiles", "WrittenFile"]
