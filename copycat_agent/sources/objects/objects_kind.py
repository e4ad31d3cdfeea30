"""The registry entry of source `objects`."""

from __future__ import annotations

from copycat_agent.extending import file_source_kind
from copycat_agent.sources.objects.objects_probe import probe_objects
from copycat_agent.sources.objects.objects_source import ObjectsSource
from copycat_agent.sources.objects.options import ObjectsOptions

_SAMPLE = """\
type: objects
uri: s3://logs/app/?region=eu-central-1     # or gs, abfss, hdfs, file
pattern: "*.log.gz"
# format: jsonl                             # lines, csv, json, avro, parquet, ...
# cleanup: {policy: delete}                 # or move, tag; none
"""

OBJECTS = file_source_kind(ObjectsOptions, ObjectsSource, probe=probe_objects, sample=_SAMPLE)
