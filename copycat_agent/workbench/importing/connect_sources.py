"""Imports Kafka Connect's sources of files: FileStreamSource, SpoolDir, FilePulse."""

from __future__ import annotations

import json

from copycat_agent.workbench.importing.common_settings import globs_of, references
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport

_SPOOL = {
    "SpoolDirCsvSourceConnector": "csv", "SpoolDirJsonSourceConnector": "json", "SpoolDirLineDelimitedSourceConnector": "lines",
    "SpoolDirBinaryFileSourceConnector": "binary", "SpoolDirAvroSourceConnector": "avro", "SpoolDirSchemaLessJsonSourceConnector": "jsonl",
}  # fmt: skip
_ASCII = 128
_TYPES = {
    "STRING": "", "BOOLEAN": "bool", "INT8": "int", "INT16": "int", "INT32": "int", "INT64": "int", "FLOAT32": "double",
    "FLOAT64": "double",
    "org.apache.kafka.connect.data.Decimal": "decimal", "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Timestamp": "timestamp",
}  # fmt: skip
"""Types of a format's columns, by Connect's types of schemas; "" for text."""


def add_source(config: ConfigNode, made: ImportedDefinition, report: ImportReport) -> bool:
    """Adds the source of a connector class. Returns False, and reports it, if the class reads no files."""
    kind = config.text("connector.class")
    short = kind.rpartition(".")[2]
    part = config.get("connector.class")
    tasks = config.text("tasks.max")
    if tasks.isdigit() and tasks != "1":
        made.section("delivery")["tasks_max"] = int(tasks)
    if short in ("FileStreamSource", "FileStreamSourceConnector"):
        made.section("source").update(type="log_file", include=[references(config.text("file")) or "/var/log/my-app.log"])
    elif short in _SPOOL:
        _spool(config, made, _SPOOL[short], report)
    elif short == "FilePulseSourceConnector":
        _file_pulse(config, made, report)
    else:
        report.cannot(part, f"connector.class {short}", "sources of files are mapped: FileStreamSource, SpoolDir, FilePulse")
        return False
    return True


def _spool(config: ConfigNode, made: ImportedDefinition, layout: str, report: ImportReport) -> None:
    source = made.section("source")
    source |= {"type": "spool_dir", "dir": references(config.text("input.path")), "format": layout}
    _pattern(config, "input.file.pattern", made, report)
    if age := config.text("file.minimum.age.ms"):
        source["ready"] = {"min_age": f"{age}ms"}
    policy = config.text("cleanup.policy", "MOVE").upper()
    target = references(config.text("finished.path"))
    if policy in ("MOVE", "MOVEBYDATE") and target:
        cleanup = {"policy": "move" if policy == "MOVE" else "move_by_date", "to": target}
    else:
        cleanup = {"policy": "delete" if policy == "DELETE" else "none"}
    if failed := config.text("error.path"):
        cleanup["failed_to"] = references(failed)
    source["cleanup"] = cleanup
    if config.text("halt.on.error").lower() == "true":
        source["on_bad_file"] = "stop"
    if config.text("input.path.walk.recursively").lower() == "true":
        source["recursive"] = True
    if order := config.text("files.sort.attributes"):
        name = {"NameAsc": "name", "LastModifiedAsc": "mtime", "LengthAsc": "size"}.get(order)
        if name:
            source["order_by"] = name
        else:
            report.cannot(
                config.get("files.sort.attributes"), "files.sort.attributes", "source.order_by: mtime, name or size; source.descending"
            )
    config.text("processing.file.extension")
    if layout == "csv":
        _csv(config, made, report)
        if types := _types(config, report):
            source["format"]["types"] = types


def _csv(config: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    layout: dict[str, object] = {"type": "csv", "header": config.text("csv.first.row.as.header").lower() == "true"}
    for key, ours in (("csv.separator.char", "delimiter"), ("csv.quote.char", "quote"), ("csv.escape.char", "escape")):
        part = config.get(key)
        code = config.text(key)
        if part is None:
            continue
        if code.isdigit() and 0 < int(code) < _ASCII:
            layout[ours] = chr(int(code))
        elif code != "0":
            report.cannot(part, key, f"write source.format.{ours}")
    if lines := config.text("csv.skip.lines"):
        layout["skip_lines"] = int(lines) if lines.isdigit() else 0
    if charset := config.text("csv.file.charset"):
        layout["encoding"] = charset.lower()
    if config.text("csv.null.field.indicator") not in ("", "NEITHER"):
        layout["null"] = ""
    for key in (
        "csv.ignore.quotations",
        "csv.strict.quotes",
        "csv.keep.carriage.return",
        "csv.verify.reader",
        "csv.rfc.4180.parser.enabled",
        "csv.case.sensitive.field.names",
    ):
        if (part := config.get(key)) is not None:
            report.note(part, key, "the csv format reads RFC 4180 and its relatives; see copycat explain source.format")
    made.section("source")["format"] = layout


def _types(config: ConfigNode, report: ImportReport) -> dict[str, str]:
    """Returns the types of the columns of `value.schema`, in SpoolDir's form; texts need none."""
    if config.get("value.schema") is None or config.text("schema.generation.enabled").lower() == "true":
        return {}
    part, text = config.get("value.schema"), config.text("value.schema")
    try:
        columns = json.loads(text)["fieldSchemas"]
        named = {name: _TYPES[str(one.get("name") or one["type"])] for name, one in columns.items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        report.cannot(part, "value.schema", "write source.format.types")
        return {}
    return {name: kind for name, kind in named.items() if kind}


def _pattern(config: ConfigNode, key: str, made: ImportedDefinition, report: ImportReport) -> None:
    part, pattern = config.get(key), config.text(key)
    if part is None:
        return
    globs, is_same = globs_of(pattern)
    if not is_same:
        why = f"source.pattern takes *, ? and [...], or a list of such patterns: {' and '.join(globs)} for now, which means other names"
        report.cannot(part, f"{key}: {pattern}", why)
    made.section("source")["pattern"] = globs[0] if len(globs) == 1 else globs


def _file_pulse(config: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    directory = config.text("fs.listing.directory.path") or config.text("fs.scan.directory.path")
    reader = config.text("tasks.reader.class").rpartition(".")[2]
    layouts = {"LocalRowFileInputReader": "lines", "RowFileInputReader": "lines", "LocalXMLFileInputReader": "xml",
               "LocalAvroFileInputReader": "avro", "LocalJsonFileInputReader": "json", "LocalParquetFileInputReader": "parquet",
               "LocalBytesArrayInputReader": "binary"}  # fmt: skip
    source = made.section("source")
    source |= {"type": "spool_dir", "dir": references(directory), "format": layouts.get(reader, "lines")}
    if reader not in layouts:
        report.cannot(config.get("tasks.reader.class"), f"tasks.reader.class {reader}", "write source.format")
    policy = config.text("fs.cleanup.policy.class").rpartition(".")[2]
    cleanup = {
        "DeleteCleanupPolicy": "delete",
        "DeleteFileCleanPolicy": "delete",
        "LocalMoveCleanupPolicy": "move",
        "LogCleanupPolicy": "none",
    }.get(policy)
    if cleanup == "move":
        to = config.text("cleaner.output.succeed.path") or "/var/spool/done"
        source["cleanup"] = {
            "policy": "move",
            "to": references(to),
            "failed_to": references(config.text("cleaner.output.failed.path") or "/var/spool/failed"),
        }
    elif cleanup:
        source["cleanup"] = {"policy": cleanup}
    elif policy:
        report.cannot(config.get("fs.cleanup.policy.class"), policy, "write source.cleanup")
    _pattern(config, "file.filter.regex.pattern", made, report)
    config.text("fs.listing.filters")
    for name in [one.strip() for one in config.text("filters").split(",") if one.strip()]:
        kind = config.text(f"filters.{name}.type").rpartition(".")[2]
        _filter(name, kind, config, made, report)


def _filter(name: str, kind: str, config: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    parts = {key: part for key, part in config.items() if key.startswith(f"filters.{name}.")}
    first = config.get(f"filters.{name}.type")
    if kind in ("DelimitedRowFilter", "CSVFilter"):
        layout = {
            "type": "csv",
            "header": config.flag(f"filters.{name}.extractColumnName") or bool(config.text(f"filters.{name}.extractColumnName")),
        }
        if separator := config.text(f"filters.{name}.separator"):
            layout["delimiter"] = separator.removeprefix("\\")
        made.section("source")["format"] = layout
    elif kind == "JSONFilter":
        made.step(json={})
    elif kind == "GrokFilter" and (pattern := config.text(f"filters.{name}.match") or config.text(f"filters.{name}.pattern")):
        made.step(grok=pattern)
    else:
        report.cannot(first, f"filter {name} ({kind})", "write a transform")
    for key, part in parts.items():
        if not part.taken:
            report.cannot(part, key, "not mapped: write it into the transform")
