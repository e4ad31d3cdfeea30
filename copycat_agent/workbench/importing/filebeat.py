"""Imports filebeat.yml: inputs, processors and output.kafka."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

from copycat_agent.options import format_size
from copycat_agent.workbench.importing import common_settings
from copycat_agent.workbench.importing.common_settings import (
    constant,
    duration_of,
    keep_lines,
    name_of,
    pattern_of,
    references,
    template_of,
)
from copycat_agent.workbench.importing.filebeat_steps import ProcessorSteps
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport, ImportResult, as_text, of_yaml

_INPUTS = ("log", "filestream", "container", "docker")
_FREE = ("fields", "processors", "when", "tags")
_FIELD = re.compile(r"%\{\[([^\]]+(?:\]\[[^\]]+)*)\]\}")
_NEEDLESS = re.compile(
    r"(close[._]|clean_|harvester|backoff|max_backoff|prospector\.scanner\.(?!symlinks|check_interval|exclude_files|include_files|recursive)"
    r"|ignore_inactive|file_identity|publisher_pipeline|queue|registry|recursive_glob|scan\.|prospector\.scanner\.recursive_glob|keep_null|take_over)"
)
_OF_FILEBEAT = re.compile(r"(logging|setup|monitoring|xpack|http|path|max_procs|queue|name$|filebeat\.(registry|shutdown|overwrite))")
_NO_OUTPUT = ("elasticsearch", "logstash", "redis", "file", "console", "discard")
_TLS = {
    "username": "username", "password": "password", "mechanism": "sasl.mechanism", "ca": "ssl.certificate_authorities",
    "cert": "ssl.certificate", "key": "ssl.key", "key_password": "ssl.key_passphrase", "tls": "ssl.enabled",
}  # fmt: skip


def read(text: str, extra: Sequence[str] = ()) -> ImportResult:
    """Returns the definitions of a filebeat.yml, one for each input."""
    del extra
    root, report = _expanded(of_yaml(text.rstrip().removesuffix("---"))), ImportReport()
    inputs = root.each("filebeat.inputs") or root.each("filebeat.prospectors") or root.each("inputs")
    made = [one for number, part in enumerate(inputs, 1) if (one := _input(part, number, root, report)) is not None]
    _modules(root, report)
    _rest(root, report)
    return ImportResult(tuple(made), report)


def _expanded(part: ConfigNode, depth: int = 3) -> ConfigNode:
    """Returns the tree with dotted keys nested, which mean the same in Filebeat, except in maps of fields, whose names may have dots."""
    if isinstance(part.value, list):
        return ConfigNode([_expanded(one, depth) for one in part.value], part.line)
    if not isinstance(part.value, dict) or not depth:
        return part
    made: dict[str, ConfigNode] = {}
    for key, value in part.items():
        first, *others = key.split(".")
        inner = value if key in _FREE else _expanded(value, depth)
        inner = reduce(lambda below, name: ConfigNode({name: below}, below.line), reversed(others), inner)
        made[first] = _merged(made[first], inner) if first in made else inner
    return ConfigNode(made, part.line)


def _merged(one: ConfigNode, other: ConfigNode) -> ConfigNode:
    if not isinstance(one.value, dict) or not isinstance(other.value, dict):
        return other
    values = dict(one.value)
    for key, part in other.items():
        values[key] = _merged(values[key], part) if key in values else part
    return ConfigNode(values, one.line)


def _input(part: ConfigNode, number: int, root: ConfigNode, report: ImportReport) -> ImportedDefinition | None:
    kind = part.text("type") or part.text("input_type") or "log"
    if kind not in _INPUTS:
        report.cannot(part, f"input {kind}", "files are read, nothing else: log, filestream and container inputs are mapped")
        return None
    paths = part.texts("paths") or (["/var/lib/docker/containers/*/*.log"] if kind == "docker" else [])
    made = ImportedDefinition(name_of(part.text("id"), f"filebeat-{number}"))
    made.document["name"] = made.name
    if part.get("enabled") is not None and not part.flag("enabled", default=True):
        made.document["enabled"] = False
    source, fields = made.section("source"), part.get("fields")
    source |= {"type": "log_file", "include": [references(path) for path in paths] or ["/var/log/*.log"]}
    _files(part, source, report)
    _lines(part, made, source, kind, report)
    _shape(part, made, root, report)
    _output(root, made, report, _known(fields))
    return made


def _known(fields: ConfigNode | None) -> dict[str, str]:
    """Returns an input's fields with fixed values, which can replace references to them in templates."""
    return {} if fields is None else {key: as_text(part.value) for key, part in fields.items() if not isinstance(part.value, dict | list)}


def _files(part: ConfigNode, source: dict[str, Any], report: ImportReport) -> None:
    _names(part, source, report)
    _durations(part, source, report)
    if part.flag("tail_files"):
        source["start_at"] = "end"
    if part.flag("symlinks") or part.flag("prospector.scanner.symlinks"):
        source["follow_symlinks"] = True
    if encoding := part.text("encoding"):
        source["encoding"] = {"plain": "utf-8", "utf-16-bom": "utf-16", "gbk": "gbk"}.get(encoding, encoding)


def _names(part: ConfigNode, source: dict[str, Any], report: ImportReport) -> None:
    for key in ("exclude_files", "prospector.scanner.exclude_files"):
        excluded = part.get(key)
        for pattern in part.texts(key):
            glob = re.fullmatch(r"\\?\.(\w+)\$", pattern)
            if glob:
                source.setdefault("exclude", []).append(f"*.{glob[1]}")
            else:
                report.cannot(excluded, f"{key}: {pattern}", "source.exclude takes patterns of files (*, ?), no regular expressions")
    for key in ("include_files", "prospector.scanner.include_files"):
        report_part = part.get(key)
        if report_part is not None:
            report.cannot(report_part, key, "narrow source.include instead")


def _durations(part: ConfigNode, source: dict[str, Any], report: ImportReport) -> None:
    for key, ours in (
        ("scan_frequency", "scan_interval"),
        ("prospector.scanner.check_interval", "scan_interval"),
        ("ignore_older", "ignore_older"),
    ):
        text = part.text(key)
        if duration := duration_of(text):
            source |= {ours: duration} if text != "0" else {}
        elif text:
            report.cannot(part.get(key), key, "no duration that can be read")


def _lines(part: ConfigNode, made: ImportedDefinition, source: dict[str, Any], kind: str, report: ImportReport) -> None:
    """Adds what makes a record of lines: containers, limits, multiline, and parsers in their order."""
    if kind in ("container", "docker"):
        _container(part, made, is_docker=kind == "docker")
    for key in ("max_bytes", "message_max_bytes"):
        if size := part.text(key):
            source["line"] = {"max_bytes": _size(size), "on_too_long": "truncate"}
    if (rule := part.get("multiline")) is not None:
        _multiline(rule, source, report)
    for parser in part.each("parsers"):
        for name, inner in parser.items():
            _parser(name, inner, made, source, report)
    if (parser_part := part.get("json")) is not None:
        _ndjson(parser_part, made, under_root=parser_part.flag("keys_under_root"))
    if "multiline" in source and "line" in source:
        source["multiline"] |= source.pop("line")  # the limit applies to the whole message
    keep_lines(made, "keep_if", part.texts("include_lines"), part.get("include_lines"), report, "include_lines")
    keep_lines(made, "drop_if", part.texts("exclude_lines"), part.get("exclude_lines"), report, "exclude_lines")


def _container(part: ConfigNode, made: ImportedDefinition, *, is_docker: bool = False) -> None:
    made.step(**{"docker" if is_docker or part.text("format") == "docker" else "cri": {}})
    made.section("record")["timestamp"] = "event"
    if part.text("stream") in ("stdout", "stderr"):
        made.step(keep_if={"stream": part.text("stream")})


def _parser(name: str, part: ConfigNode, made: ImportedDefinition, source: dict[str, Any], report: ImportReport) -> None:
    if name == "multiline":
        _multiline(part, source, report)
    elif name == "ndjson":
        _ndjson(part, made, under_root=part.get("target") is None or part.text("target") == "")
    elif name == "container":
        _container(part, made)
        part.plain()
    elif name == "syslog":
        made.step(syslog={})
        part.plain()
    elif name == "include_message":
        keep_lines(made, "keep_if", part.texts("patterns"), part.get("patterns"), report, "include_message")
    else:
        report.cannot(part, f"parser {name}", "write a transform: regex, grok, json, csv, key_value")


def _ndjson(part: ConfigNode, made: ImportedDefinition, *, under_root: bool) -> None:
    field = part.text("message_key")
    into = None if under_root else (part.text("target") or "json")
    made.step(json={key: value for key, value in (("into", into),) if value}, on_error="keep")
    if field:
        made.step(rename={f"{into}.{field}" if into else field: "message"})
    for key in ("keys_under_root", "overwrite_keys", "add_error_key", "expand_keys", "ignore_decoding_error"):
        part.text(key)


def _multiline(part: ConfigNode, source: dict[str, Any], report: ImportReport) -> None:
    pattern = pattern_of(part.text("pattern"))
    kind = part.text("type", "pattern")
    if kind != "pattern" or pattern is None:
        report.cannot(part, f"multiline {kind}", "write source.multiline: start, continues, ends or a preset")
        return
    negate, match = part.flag("negate"), part.text("match", "after")
    if match in ("after", "previous"):
        rule: dict[str, Any] = {"start" if negate else "continues": pattern}
    else:
        rule = {"ends": pattern if negate else f"^(?!.*(?:{pattern}))"}
    if lines := part.text("max_lines"):
        rule |= {"max_lines": int(lines) if lines.isdigit() else 500, "on_too_long": "truncate"}
    if timeout := duration_of(part.text("timeout")):
        rule["timeout"] = timeout
    if (flush := part.get("flush_pattern")) is not None:
        report.cannot(flush, "multiline.flush_pattern", "ends: RE says which line is the last one, instead of start")
    source["multiline"] = rule


def _set_fields(fields: ConfigNode, made: ImportedDefinition, report: ImportReport, prefix: str) -> None:
    values = fields.plain()
    if isinstance(values, dict):
        made.step(set={f"{prefix}{key}": constant(references(value) if isinstance(value, str) else value) for key, value in values.items()})
    else:
        report.cannot(fields, "fields", "names and values are expected: write a set step")


def _shape(part: ConfigNode, made: ImportedDefinition, root: ConfigNode, report: ImportReport) -> None:
    """Adds fields, tags and processors, those of the input first, then the global ones."""
    for owner in (part, root):
        fields, under_root = owner.get("fields"), owner.flag("fields_under_root")
        if fields is not None:
            _set_fields(fields, made, report, "" if under_root else "fields.")
        if tags := owner.texts("tags"):
            made.step(set={"tags": constant(tags)})
    steps = ProcessorSteps(made, report)
    for processor in (*part.each("processors"), *root.each("processors")):
        steps.add(processor)
    why = "not needed: files are followed and forgotten by identity, see source.rotate_wait and source.forget_after"
    report.rest(part.left(), _NEEDLESS, why)


def _output(root: ConfigNode, made: ImportedDefinition, report: ImportReport, known: dict[str, str]) -> None:
    output = root.get("output.kafka")
    if output is None:
        what = next((f"output.{name}" for name in _NO_OUTPUT if root.get(f"output.{name}") is not None), "output")
        part = None if what == "output" else root.get(what)
        report.cannot(part, what, f"records go to Kafka: the topic is {common_settings.DEFAULT_TOPIC} for now")
        made.section("record")["topic"] = common_settings.DEFAULT_TOPIC
        return
    common_settings.set_brokers(made, output.texts("hosts"))
    common_settings.set_topic(
        made, _template(_filled(output.text("topic", common_settings.DEFAULT_TOPIC), known)), output.get("topic"), report
    )
    if (topics := output.get("topics")) is not None:
        report.cannot(
            topics, "output.kafka.topics", "one topic or a template per definition: write record.topic with fields, or several definitions"
        )
    if key := output.text("key"):
        made.section("record")["key"] = _template(key)
    if output.get("partition.random") is not None or output.get("partition.round_robin") is not None:
        made.section("record")["partition"] = "sticky"
        output.get("partition").plain()  # type: ignore[union-attr]
    elif (partition := output.get("partition")) is not None:
        report.note(partition, "output.kafka.partition", "by the hash of the key, as Java clients do")
    common_settings.set_acks(output.get("required_acks"), report)
    client = {"compression": "compression.type", "client_id": "client.id", "max_message_bytes": "message.max.bytes"}
    common_settings.set_client(made, {ours: found for theirs, ours in client.items() if (found := output.get(theirs)) is not None}, report)
    common_settings.set_security(made, output, _TLS, report)
    if output.get("codec.format") is not None:
        _format(output, made, report)
    for name in ("codec.json", "version", "enabled", "metadata", "worker", "retry", "bulk_max_size", "timeout", "keep_alive",
                 "broker_timeout",
                 "channel_buffer_size", "max_retries", "backoff", "compression_level", "bulk_flush_frequency"):  # fmt: skip
        if (found := output.get(name)) is not None:
            report.note(found, f"output.kafka.{name}", "not needed: versions are negotiated, delivery is retried until it succeeds")


def _format(output: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    text = output.text("codec.format.string")
    if text in ("%{[message]}", "%{[log.original]}"):
        if made.document.get("transforms"):
            made.section("record")["value"] = "{message}"
        return
    if text:
        made.section("record")["value"] = _template(text)
    else:
        report.cannot(output.get("codec.format"), "output.kafka.codec.format", "write record.value")


def _filled(text: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        text = text.replace(f"%{{[fields.{name}]}}", value).replace(f"%{{[fields][{name}]}}", value).replace(f"%{{[{name}]}}", value)
    return text


def _template(text: str) -> str:
    text = re.sub(r"%\{\[@timestamp\]\}", "{@timestamp:%Y-%m-%dT%H:%M:%SZ}", text)
    text = re.sub(r"%\{\+([^}]*)\}", lambda match: "{@timestamp:" + _joda(match[1]) + "}", text)
    text = _FIELD.sub(lambda match: "%{[" + match[1].replace("][", ".") + "]}", text)
    for theirs, ours in (("log.file.path", "@file.path"), ("host.name", "@host"), ("agent.hostname", "@host"), ("source", "@file.path")):
        text = text.replace(f"%{{[{theirs}]}}", f"{{{ours}}}")
    return template_of(text, _FIELD) if "%{[" in text else text


def _joda(text: str) -> str:
    for old, new in (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S")):
        text = text.replace(old, new)
    return text


def _size(text: str) -> str:
    match = re.fullmatch(r"(\d+)\s*([KMG]i?B)?", text)
    if match is None:
        return "1MiB"
    return f"{match[1]}{match[2]}" if match[2] else format_size(int(match[1]))


def _modules(root: ConfigNode, report: ImportReport) -> None:
    for module in root.each("filebeat.modules"):
        report.cannot(module, f"module {module.text('module')}", "begin with copycat new log_file --from a sample of its files")
    if (config := root.get("filebeat.config")) is not None:
        report.cannot(config, "filebeat.config", "import the files that it names one by one")
    if (discover := root.get("filebeat.autodiscover")) is not None:
        report.cannot(discover, "filebeat.autodiscover", "name the files: source.include takes patterns, as in /var/log/pods/*/*/*.log")


def _rest(root: ConfigNode, report: ImportReport) -> None:
    report.note(
        None,
        "what a record is",
        "Filebeat wraps each line in an object with @timestamp, host, agent and log; here the value is the line, or its fields",
    )
    report.rest(root.left(), _OF_FILEBEAT, "of Filebeat itself, or of Elasticsearch")
