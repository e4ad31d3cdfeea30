"""Imports the OpenTelemetry Collector's YAML: filelog receivers, and the kafka exporters of their pipelines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from copycat_agent.workbench.importing import common_settings
from copycat_agent.workbench.importing.common_settings import duration_of, name_of, pattern_of, references
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport, ImportResult, as_text, of_yaml

_RECEIVERS = ("filelog", "file_log")
_NEEDLESS = re.compile(
    r"(fingerprint_size|initial_buffer_size|max_concurrent_files|max_batches|storage|retry_on_failure|polls_to_archive|acquire_fs_lock|id$|type$)"
)
_OF_EXPORTER = re.compile(
    r"(encoding|protocol_version|client_id|metadata|timeout|retry_on_failure|sending_queue|producer|partition_|topic_from|resolve_canonical|logs\.encoding)"
)
_ENCODINGS = {
    "utf-8": "utf-8", "utf8": "utf-8", "utf8-raw": "utf-8", "nop": "utf-8", "ascii": "ascii", "us-ascii": "ascii",
    "utf-16le": "utf-16-le", "utf-16be": "utf-16-be", "utf16le": "utf-16-le", "utf16be": "utf-16-be",
}  # fmt: skip
_TLS = {
    "username": "auth.sasl.username", "password": "auth.sasl.password", "mechanism": "auth.sasl.mechanism", "ca": "tls.ca_file",
    "cert": "tls.cert_file", "key": "tls.key_file", "tls": "copycat.tls",
}  # fmt: skip


def read(text: str, extra: Sequence[str] = ()) -> ImportResult:
    """Returns the definitions of a collector's configuration, one for each path from a filelog receiver to a kafka exporter."""
    del extra
    root, report = of_yaml(text), ImportReport()
    receivers = _named(root, "receivers", _RECEIVERS)
    exporters = _named(root, "exporters", ("kafka",))
    made, led = [], set[str]()
    for pipeline, conf in _logs(root):
        for name in conf.texts("receivers"):
            for target in conf.texts("exporters"):
                if name in receivers and target in exporters:
                    led.add(name)
                    made.append(_definition(name, receivers[name], exporters[target], report))
        for step in conf.each("processors"):
            if as_text(step.value).split("/")[0] not in ("batch", "memory_limiter"):
                report.cannot(step, f"processor {as_text(step.value)} of {pipeline}", "write transforms")
    for name, conf in receivers.items():
        if name not in led:
            report.cannot(None, f"receiver {name}", "no pipeline of logs leads it to a kafka exporter: write a definition")
            made.append(_definition(name, conf, None, report))
        report.rest(conf.left(), _NEEDLESS, "of the collector itself: not needed")
    for conf in exporters.values():
        report.rest(conf.left(), _OF_EXPORTER, "of the collector itself: not needed")
    _others(root, report)
    return ImportResult(tuple(made), report)


def _named(root: ConfigNode, section: str, kinds: Sequence[str]) -> dict[str, ConfigNode]:
    """Returns the components of these kinds, by `kind` or `kind/name`."""
    found = root.get(section)
    parts = dict(found.items()) if found is not None else {}
    return {
        name: part if isinstance(part.value, dict) else ConfigNode({}, part.line)
        for name, part in parts.items()
        if name.split("/")[0] in kinds
    }


def _logs(root: ConfigNode) -> Iterator[tuple[str, ConfigNode]]:
    pipelines = root.get("service.pipelines")
    for name, conf in pipelines.items() if pipelines is not None else ():
        if name.split("/")[0] == "logs":
            yield name, conf


def _definition(name: str, conf: ConfigNode, exporter: ConfigNode | None, report: ImportReport) -> ImportedDefinition:
    made = ImportedDefinition(name_of(name, "filelog"))
    made.document["name"] = made.name
    source = made.section("source")
    source |= {"type": "log_file", "include": [references(path) for path in conf.texts("include")] or ["/var/log/*.log"]}
    if exclude := conf.texts("exclude"):
        source["exclude"] = [references(path) for path in exclude]
    if conf.text("start_at", "end") == "end":
        source["start_at"] = "end"
    if (interval := duration_of(conf.text("poll_interval") or "0")) not in (None, "0s"):
        source["scan_interval"] = interval
    _encoding(conf, source, report)
    for key, ours in (("line_start_pattern", "start"), ("line_end_pattern", "ends")):
        part, pattern = conf.get(f"multiline.{key}"), pattern_of(conf.text(f"multiline.{key}"))
        if part is not None and pattern is None:
            report.cannot(part, key, f"no regular expression of Python's: write source.multiline.{ours}")
        elif part is not None:
            made.section("source", "multiline")[ours] = pattern
    for step in conf.each("operators"):
        report.cannot(step, f"operator {step.text('type')}", "write transforms")
    _kafka(exporter, made, report)
    return made


def _encoding(conf: ConfigNode, source: dict[str, Any], report: ImportReport) -> None:
    if (part := conf.get("encoding")) is not None:
        encoding = _ENCODINGS.get(conf.text("encoding").lower())
        if encoding is None:
            report.cannot(part, f"encoding {conf.text('encoding')}", "write source.encoding")
        elif encoding != "utf-8":
            source["encoding"] = encoding


def _kafka(conf: ConfigNode | None, made: ImportedDefinition, report: ImportReport) -> None:
    if conf is None:
        common_settings.set_topic(made, common_settings.DEFAULT_TOPIC, None, report)
        return
    topic = conf.text("logs.topic") or conf.text("topic") or "otlp_logs"
    common_settings.set_topic(made, topic, conf.get("logs.topic") or conf.get("topic"), report)
    common_settings.set_brokers(made, conf.texts("brokers"))
    common_settings.set_security(made, conf, _TLS, report)
    encoding = conf.text("logs.encoding") or conf.text("encoding") or "otlp_proto"
    if encoding != "raw":
        report.note(None, f"encoding {encoding}", "the value is the line, without the envelope that the collector writes")
    common_settings.set_acks(conf.get("producer.required_acks"), report)
    if compression := conf.text("producer.compression"):
        made.section("kafka", "client")["compression.type"] = compression


def _others(root: ConfigNode, report: ImportReport) -> None:
    """Reports other receivers and exporters."""
    for section, words in (
        ("receivers", "files are read, nothing else: filelog"),
        ("exporters", "records go to Kafka, nothing else: kafka"),
    ):
        found = root.get(section)
        for name, part in found.items() if found is not None else ():
            if name.split("/")[0] not in (*_RECEIVERS, "kafka"):
                report.cannot(part, f"{section[:-1]} {name}", words)
    for section in {"processors", "extensions", "service", "connectors"}.intersection(root.value):
        report.note(root.get(section), section, "of the collector itself: not needed")
    report.rest(root.left(), re.compile(r"(?!)"), "")
