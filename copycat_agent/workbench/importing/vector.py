"""Imports Vector's configuration in YAML, TOML or JSON: follows each Kafka sink back to its sources of files."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from copycat_agent.errors import CopycatError
from copycat_agent.options import format_size
from copycat_agent.workbench.importing import common_settings
from copycat_agent.workbench.importing.common_settings import name_of, pattern_of, references, template_of
from copycat_agent.workbench.importing.imported import (
    ConfigNode,
    ImportedDefinition,
    ImportReport,
    ImportResult,
    of_plain,
    of_yaml,
    without_line_policy,
)
from copycat_agent.workbench.importing.vrl import matcher_of, shown, statements, steps_of

_FIELD = re.compile(r"\{\{\s*\.?([\w.@]+)\s*\}\}")
_NEEDLESS = re.compile(
    r"(data_dir|fingerprint|max_read_bytes|oldest_first|file_key|host_key|offset_key|ignore_checkpoints|ignored_header_bytes|internal_metrics|rotate_wait|"
    r"acknowledgements|buffer|batch|healthcheck|message_timeout|socket_timeout|rate_limit|socket_timeout_ms|message_timeout_ms|encoding\.timestamp_format|"
    r"drop_on_|reroute_dropped|file|timezone|glob_minimum|self_node|auto_partial|node_annotation|pod_annotation|namespace_annotation|metrics|log_namespace)"
)
_TLS = {
    "username": "sasl.username", "password": "sasl.password", "mechanism": "sasl.mechanism", "ca": "tls.ca_file", "cert": "tls.crt_file",
    "key": "tls.key_file", "key_password": "tls.key_pass", "tls": "tls.enabled",
}  # fmt: skip
_DEPTH = 20


def read(text: str, extra: Sequence[str] = ()) -> ImportResult:
    """Returns a definition for each path from a file source to a Kafka sink."""
    del extra
    root, report = _parsed(text), ImportReport()
    sources, transforms, sinks = (_named(root, name) for name in ("sources", "transforms", "sinks"))
    made: list[ImportedDefinition] = []
    has_kafka = any(sink.text("type") == "kafka" for sink in sinks.values())
    for name, sink in sinks.items():
        kind = sink.text("type")
        if kind != "kafka":
            report.cannot(
                sink,
                f"sink {name} ({kind})",
                "records go to Kafka" + ("" if has_kafka else f": the topic is {common_settings.DEFAULT_TOPIC} for now"),
            )
            if has_kafka:
                continue
            sink = _as_kafka(sink)  # noqa: PLW2901 - it replaces the original from here on
        ways = list(_ways(sink, sources, transforms))
        for source, chain in ways:
            one = _definition(
                source, sources[source], chain, transforms, name if len(ways) == 1 and len(sinks) == 1 else f"{source}-{name}", sink, report
            )
            if one is not None:
                one.name = one.document["name"] = name_of(source if len(ways) * len(sinks) == 1 else one.name, "vector")
                made.append(one)
        if not ways:
            report.cannot(sink, f"sink {name}", "none of its inputs is a source of this file")
    if not sinks:
        report.cannot(None, "no sink kafka", "records go to Kafka: nothing can be made")
    _left(root, report)
    return ImportResult(tuple(made), report)


def _as_kafka(sink: ConfigNode) -> ConfigNode:
    """Returns a sink for Kafka with the inputs of `sink`."""
    inputs = ConfigNode([ConfigNode(one, sink.line) for one in sink.texts("inputs")], sink.line)
    return ConfigNode({"type": ConfigNode("kafka", sink.line), "inputs": inputs}, sink.line)


def _named(root: ConfigNode, section: str) -> dict[str, ConfigNode]:
    found = root.get(section)
    return {} if found is None else dict(found.items())


def _parsed(text: str) -> ConfigNode:
    if re.search(r"^\s*\[+[\w.\"-]+\]+\s*(#.*)?$", text, re.MULTILINE) and not text.lstrip().startswith("{"):
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise CopycatError(f"no TOML: {error}") from None
        return of_plain(values, 1, _toml_lines(text))
    return of_yaml(text)


def _toml_lines(text: str) -> dict[str, int]:
    """Returns the lines of tables and keys, as far as they can be found line by line."""
    found: dict[str, int] = {}
    table, quote = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if quote:
            quote = "" if quote in line else quote
            continue
        if head := re.match(r"\s*\[+([^\]]+)\]+", line):
            table = re.sub(r"[\"'\s]", "", head[1])
            found.setdefault(table, number)
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=\s*(.*)", line):
            name = re.sub(r"[\"']", "", key[1])
            found.setdefault(f"{table}.{name}" if table else name, number)
            quote = next((sign for sign in ('"""', "'''") if key[2].count(sign) == 1), "")
    return found


def _ways(
    part: ConfigNode, sources: dict[str, ConfigNode], transforms: dict[str, ConfigNode], chain: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the sources that feed a component, with the transforms between them in order."""
    if len(chain) > _DEPTH:
        return
    for wanted in part.texts("inputs"):
        base = wanted.partition(".")[0]
        for name in [*sources, *transforms]:
            if not fnmatch.fnmatchcase(name, wanted) and name != base:
                continue
            if name in sources:
                yield name, chain
            elif name not in chain:
                yield from _ways(transforms[name], sources, transforms, (name, *chain))


def _definition(
    name: str,
    source: ConfigNode,
    chain: Sequence[str],
    transforms: dict[str, ConfigNode],
    title: str,
    sink: ConfigNode,
    report: ImportReport,
) -> ImportedDefinition | None:
    made = ImportedDefinition(title)
    made.document["name"] = title
    kind = source.text("type")
    if kind == "file":
        _file(source, made, report)
    elif kind == "kubernetes_logs":
        made.section("source").update(type="log_file", include=["/var/log/pods/*/*/*.log"])
        made.step(cri={})
        made.section("record")["timestamp"] = "event"
        report.note(
            source.get("type"),
            f"source {name} (kubernetes_logs)",
            "pod and namespace are in the file's path: a regex over a field set from {@file.path}",
        )
    else:
        report.cannot(source, f"source {name} ({kind})", "files are read, nothing else")
        return None
    for one in chain:
        _transform(one, transforms[one], made, report)
    _sink(sink, made, report)
    return made


def _file(part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    source = made.section("source")
    source |= {"type": "log_file", "include": [references(path) for path in part.texts("include")] or ["/var/log/*.log"]}
    if excluded := part.texts("exclude"):
        source["exclude"] = [references(path) for path in excluded]
    if part.text("read_from") == "end" or (part.get("start_at_beginning") is not None and not part.flag("start_at_beginning")):
        source["start_at"] = "end"
    for key in ("ignore_older_secs", "ignore_older"):
        if seconds := part.text(key):
            source["ignore_older"] = f"{seconds}s"
    _lines(part, source)
    if (rule := part.get("multiline")) is not None:
        _multiline(rule, source, report)
    without_line_policy(source, part.get("max_line_bytes"), report, "max_line_bytes")
    if (removal := part.get("remove_after_secs")) is not None:
        report.cannot(removal, "remove_after_secs", "logs are never deleted; spool_dir has cleanup: {policy: delete}")


def _lines(part: ConfigNode, source: dict[str, Any]) -> None:
    if size := part.text("max_line_bytes"):
        source["line"] = {"max_bytes": format_size(int(size)) if size.isdigit() else "1MiB", "on_too_long": "drop"}
    if delimiter := part.text("line_delimiter"):
        source.setdefault("line", {})["delimiter"] = delimiter
    if charset := part.text("encoding.charset"):
        source["encoding"] = charset
    if milliseconds := part.text("glob_minimum_cooldown_ms"):
        source["scan_interval"] = f"{milliseconds}ms"


def _multiline(part: ConfigNode, source: dict[str, Any], report: ImportReport) -> None:
    mode, pattern = part.text("mode"), pattern_of(part.text("condition_pattern"))
    start = part.text("start_pattern")
    if pattern is None or mode not in ("halt_before", "halt_with", "continue_through", "continue_past"):
        report.cannot(part, f"multiline {mode}", "write source.multiline: start, continues, ends or a preset")
        return
    key = {"halt_before": "start", "halt_with": "ends", "continue_through": "continues", "continue_past": "ends"}[mode]
    rule: dict[str, Any] = {key: f"^(?!.*(?:{pattern}))" if mode == "continue_past" else pattern}
    if milliseconds := part.text("timeout_ms"):
        rule["timeout"] = f"{milliseconds}ms"
    if start and mode != "halt_before":
        report.note(part.get("start_pattern"), "multiline.start_pattern", "not asked: the other pattern alone says what belongs together")
    source["multiline"] = rule


def _transform(name: str, part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    kind = part.text("type")
    part.texts("inputs")
    if kind == "remap":
        _remap(name, part, made, report)
    elif kind == "filter":
        _filter(name, part, made, report)
    elif kind == "sample" and (share := _share(part)):
        made.step(sample=share)
    elif kind in ("json_parser", "regex_parser", "rename_fields", "remove_fields", "add_fields"):
        report.cannot(part, f"transform {name} ({kind})", "of an old Vector: json, regex, rename, drop_fields, set are the counterparts")
    else:
        report.cannot(part, f"transform {name} ({kind})", "no counterpart: see copycat explain transforms, or the sql transform")


def _share(part: ConfigNode) -> float | None:
    """Returns the share of `sample`: one in `rate`, or `ratio`; None if neither is valid."""
    rate, ratio = part.text("rate"), part.text("ratio")
    if rate.isdigit() and int(rate) > 0:
        return round(1 / int(rate), 6)
    return float(ratio) if re.fullmatch(r"0\.\d*[1-9]\d*|1(\.0+)?", ratio) else None


def _remap(name: str, part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    source = part.get("source")
    text = part.text("source")
    drops = part.flag("drop_on_error")
    line = source.line if source else 0
    offset = 1 if "\n" in text else 0
    for number, statement in statements(text):
        steps = steps_of(statement)
        if steps is None:
            report.cannot(
                ConfigNode(None, line + number + offset),
                f"remap {name}: {shown(statement)}",
                "write it as a transform, or as the query of a sql transform",
            )
            continue
        for step in steps:
            parses = any(action in step for action in ("json", "regex", "grok", "logfmt", "syslog", "key_value"))
            if parses:
                step["on_error"] = "drop" if drops else "keep"
            made.step(**step)
            if "timestamp" in step:
                made.section("record")["timestamp"] = "event"
    if source is None:
        report.cannot(part, f"remap {name}", "its program is in another file")


def _filter(name: str, part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    condition = part.get("condition")
    text = part.text("condition.source") or part.text("condition")
    matcher = matcher_of(text) if text else None
    if matcher is None:
        report.cannot(condition, f"filter {name}: {shown(text)}", "write keep_if or drop_if")
    else:
        made.step(keep_if=matcher)
        if condition is not None:
            condition.plain()


def _sink(part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    part.text("type"), part.texts("inputs")
    common_settings.set_brokers(made, part.texts("bootstrap_servers"))
    common_settings.set_topic(made, template_of(part.text("topic", common_settings.DEFAULT_TOPIC), _FIELD), part.get("topic"), report)
    if key := part.text("key_field"):
        made.section("record")["key"] = f"{{{key.lstrip('.')}}}"
    if fields := part.texts("encoding.only_fields"):
        made.step(keep_fields=fields)
    if fields := part.texts("encoding.except_fields"):
        made.step(drop_fields=fields)
    codec = part.text("encoding.codec") or part.text("encoding")
    if codec in ("text", "raw_message"):
        if made.document.get("transforms"):
            made.section("record")["value"] = "{message}"
    elif codec == "json":
        if not made.document.get("transforms"):
            report.note(
                part.get("encoding"),
                "encoding json",
                "Vector wraps each line in an object with file, host, timestamp; here the value is the line",
            )
    elif codec:
        report.cannot(part.get("encoding"), f"encoding {codec}", "write converters.value")
    client = {"compression": "compression.type"}
    settings = {ours: found for theirs, ours in client.items() if (found := part.get(theirs)) is not None}
    options = part.get("librdkafka_options")
    settings |= dict(options.items()) if options else {}
    common_settings.set_client(made, settings, report)
    common_settings.set_security(made, part, _TLS, report)
    part.take("sasl.enabled"), part.take("tls.enabled")
    if (headers := part.get("headers_key")) is not None:
        report.cannot(headers, "headers_key", "name each header: record.headers")


def _left(root: ConfigNode, report: ImportReport) -> None:
    for name, part in (root.get("transforms") or ConfigNode({}, 0)).items():
        if (kind := part.get("type")) is not None and not kind.taken:
            report.cannot(part, f"transform {name}", "no file source leads through it to a Kafka sink")
    for path, part in list(root.left()):
        head, _, rest = path.partition(".")
        if head not in ("sources", "transforms", "sinks"):
            report.note(part, path, "of Vector itself")
        elif _NEEDLESS.match(rest.partition(".")[2]):
            report.note(part, path, "not needed")
        else:
            report.cannot(part, path, "not known to this import")
