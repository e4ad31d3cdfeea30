"""Imports Fluent Bit's tail inputs, filters and Kafka outputs, from the classic format or YAML, and parsers from further files."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from typing import Any

from copycat_agent.workbench.importing import common_settings
from copycat_agent.workbench.importing.common_settings import constant, duration_of, name_of, references, ruby_pattern
from copycat_agent.workbench.importing.fluent_bit_steps import Section, add_filter, parser_step
from copycat_agent.workbench.importing.imported import (
    ConfigNode,
    ImportedDefinition,
    ImportReport,
    ImportResult,
    as_text,
    of_yaml,
    without_line_policy,
)

_NEEDLESS = re.compile(
    r"(db|db\..*|mem_buf_limit|buffer_.*|storage.*|inotify_watcher|static_batch_size|threaded|log_level|skip_empty_lines|alias|tag_regex"
    r"|file_cache_advise|progress_.*|mode|ignore_active_older_files|retry_limit|match|match_regex|workers|queue_full_retries|format|name)$",
    re.IGNORECASE,
)
_MULTILINE = {"java": "java", "python": "python"}
_YAML = ("pipeline", "service", "parsers", "multiline_parsers", "inputs", "filters", "outputs")
_KINDS = ("service", "input", "filter", "output", "parser", "multiline_parser")


def read(text: str, extra: Sequence[str] = ()) -> ImportResult:
    """Returns a definition for each tail input; `extra` are texts of files with parsers."""
    report = ImportReport()
    sections = list(_sections(text, report))
    parsers = [section for other in extra for section in _sections(other, report) if section.kind in ("parser", "multiline_parser")]
    known = {section.part.text("name"): section for section in (*sections, *parsers) if section.kind in ("parser", "multiline_parser")}
    made = []
    inputs = [section for section in sections if section.kind == "input"]
    for number, section in enumerate(inputs, 1):
        if section.name == "tail":
            made.append(_input(section.part, number, sections, known, report))
        else:
            report.cannot(section.part, f"input {section.name}", "files are read, nothing else")
    for section in sections:
        if section.kind == "service":
            report.note(section.part, "SERVICE", "of Fluent Bit itself; flush corresponds to delivery.linger")
    if made:
        words = 'Fluent Bit wraps a line that no parser took in an object, {"log": "..."}; here the value is the line, or its fields'
        report.note(None, "what a record is", words)
    if not any(section.kind == "output" and section.name in ("kafka", "kafka-rest") for section in sections):
        report.cannot(None, "no output kafka", f"records go to Kafka: the topic is {common_settings.DEFAULT_TOPIC} for now")
    _left(sections, report)
    return ImportResult(tuple(made), report)


def _sections(text: str, report: ImportReport) -> Iterator[Section]:
    if re.search(r"^\s*\[(SERVICE|INPUT|FILTER|OUTPUT|PARSER|MULTILINE_PARSER)\]", text, re.MULTILINE | re.IGNORECASE):
        yield from _classic(text, report)
        return
    root = of_yaml(text)
    for kind in ("parsers", "multiline_parsers"):
        for part in root.each(kind):
            yield Section(kind.removesuffix("s"), _lower(part))
    if (service := root.get("service")) is not None:
        yield Section("service", _lower(service))
    for kind, key in (("input", "pipeline.inputs"), ("filter", "pipeline.filters"), ("output", "pipeline.outputs")):
        for part in root.each(key):
            part.taken = False
            yield Section(kind, _lower(part))
    pipeline = root.get("pipeline")
    for name, part in (*root.items(), *(pipeline.items() if pipeline else ())):
        if name not in _YAML:
            report.cannot(part, name, "import the files that it names one by one" if name == "includes" else "not known to this import")


def _lower(part: ConfigNode) -> ConfigNode:
    return ConfigNode({key.lower(): inner for key, inner in part.items()}, part.line)


def _classic(text: str, report: ImportReport) -> Iterator[Section]:
    """Yields the sections of the classic format: a name in brackets, and indented keys with values."""
    section: Section | None = None
    for number, whole in enumerate(text.split("\n"), 1):
        line = whole.strip()
        if not line or line.startswith("#"):
            continue
        if head := re.fullmatch(r"\[(\w+)\]", line):
            if section is not None:
                yield section
            section = Section(head[1].lower(), ConfigNode({}, number))
            if section.kind not in _KINDS:
                report.cannot(section.part, f"[{head[1]}]", "no such section is known")
        elif line.startswith("@"):
            word = line.split()[0]
            report.cannot(ConfigNode(None, number), word, "put what it stands for in its place, or import the files that it names")
        elif section is not None:
            key, _, value = line.partition(" ")
            key, value = key.lower(), value.strip()
            if key in section.part.value:
                _append(section.part.value, key, ConfigNode(value, number))
            else:
                section.part.value[key] = ConfigNode(value, number)
    if section is not None:
        yield section


def _append(values: dict[str, ConfigNode], key: str, part: ConfigNode) -> None:
    """Adds a value to a key that occurs several times, which becomes a list."""
    first = values[key]
    if isinstance(first.value, list):
        first.value.append(part)
    else:
        values[key] = ConfigNode([first, part], first.line)


def _input(
    part: ConfigNode, number: int, sections: Sequence[Section], parsers: dict[str, Section], report: ImportReport
) -> ImportedDefinition:
    tag = part.text("tag") or "tail.0"
    made = ImportedDefinition(name_of(part.text("alias") or tag.replace("*", ""), f"fluent-bit-{number}"))
    made.document["name"] = made.name
    _files(part, made.section("source"))
    _multiline(part, made, parsers, report)
    without_line_policy(made.section("source"), part.get("skip_long_lines"), report, "skip_long_lines")
    _fields(part, made, parsers, report)
    for one in sections:
        if one.kind == "filter" and _takes(one.part, tag):
            add_filter(one.name, one.part, made, parsers, report)
    outputs = [one for one in sections if one.kind == "output" and one.name == "kafka" and _takes(one.part, tag)]
    made.section("record").setdefault("topic", common_settings.DEFAULT_TOPIC)
    if outputs:
        _output(outputs[0].part, made, report)
    for other in outputs[1:]:
        report.cannot(other.part, f"a second output kafka for {tag}", "copy the definition, with another name and topic")
    return made


def _files(part: ConfigNode, source: dict[str, Any]) -> None:
    source |= {"type": "log_file", "include": [references(path) for path in part.texts("path")] or ["/var/log/*.log"]}
    if excluded := part.texts("exclude_path"):
        source["exclude"] = excluded
    if not part.flag("read_from_head"):
        source["start_at"] = "end"
    for key, ours in (("refresh_interval", "scan_interval"), ("rotate_wait", "rotate_wait"), ("ignore_older", "ignore_older")):
        text = part.text(key)
        if text and (duration := duration_of(text)):
            source[ours] = duration
    if part.flag("skip_long_lines"):
        source["line"] = {"on_too_long": "drop"}


def _fields(part: ConfigNode, made: ImportedDefinition, parsers: dict[str, Section], report: ImportReport) -> None:
    """Adds the steps of the input itself."""
    if name := part.text("parser"):
        parser_step(name, parsers, made, report, part.get("parser"))
    key = part.text("key")
    if key and key != "log" and "transforms" not in made.document:
        made.step(rename={"message": key})
    for name, template in (("path_key", "{@file.path}"), ("offset_key", "{@offset}")):
        if field := part.text(name):
            made.step(set={field: template})


def _takes(part: ConfigNode, tag: str) -> bool:
    """Returns whether a filter or output matches this tag of an input."""
    if pattern := part.text("match_regex"):
        found = ruby_pattern(pattern)
        return found is not None and re.search(found, tag) is not None
    wanted = part.text("match", "*")
    return fnmatch.fnmatchcase(tag, wanted) or ("*" in tag and fnmatch.fnmatchcase(wanted, tag))


def _multiline(part: ConfigNode, made: ImportedDefinition, parsers: dict[str, Section], report: ImportReport) -> None:
    found = part.get("multiline.parser")
    names = part.texts("multiline.parser")
    for name in names:
        if name in ("docker", "cri"):
            if name == "docker" and "cri" in names:
                report.note(
                    found,
                    "multiline.parser docker, cri",
                    "lines of containerd and CRI-O are read; for Docker's json-file write docker: {} instead",
                )
                continue
            made.step(**{name: {}})
            made.section("record")["timestamp"] = "event"
        elif name in _MULTILINE:
            made.section("source")["multiline"] = {"preset": _MULTILINE[name]}
        elif name in parsers:
            _own_multiline(parsers[name].part, made, report)
        else:
            report.cannot(
                found, f"multiline.parser {name}", "write source.multiline; parsers of a file beside it are read with --with FILE"
            )
    if part.flag("multiline"):
        name = part.text("parser_firstline")
        section = parsers.get(name)
        pattern = ruby_pattern(section.part.text("regex")) if section else None
        if pattern:
            made.section("source")["multiline"] = {"start": pattern}
            parser_step(name, parsers, made, report, part.get("parser_firstline"))
        else:
            report.cannot(
                part.get("parser_firstline") or part.get("multiline"),
                f"parser_firstline {name}",
                "write source.multiline.start; --with FILE reads parsers",
            )
    if part.flag("docker_mode"):
        made.step(docker={})


def _own_multiline(part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    """Adds a multiline parser: its start_state matches the beginning of a record."""
    for rule in part.each("rule"):
        text = as_text(rule.value) if not isinstance(rule.value, dict) else f'"{rule.text("state")}" "{rule.text("regex")}"'
        match = re.match(r'"?start_state"?\s+"?(/.*/[imx]*)"?\s', f"{text} ") or re.match(r'"?start_state"?\s+"([^"]*)"', text)
        pattern = ruby_pattern(match[1]) if match else None
        if pattern:
            made.section("source")["multiline"] = {"start": pattern}
            report.note(
                part, f"multiline_parser {part.text('name')}", "what its start_state finds begins a record; other states are not looked at"
            )
            return
    report.cannot(part, f"multiline_parser {part.text('name')}", "write source.multiline")


def _output(part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    if (stamp := part.get("timestamp_key")) is not None:
        field = part.text("timestamp_key")
        part.text("timestamp_format")
        report.note(
            stamp, f"timestamp_key {field}", f'a record holds its own fields only: set: {{"{field}": "{{@timestamp}}"}} adds its time'
        )
    common_settings.set_brokers(made, part.texts("brokers"))
    topics = part.texts("topics")
    common_settings.set_topic(made, topics[0] if topics else "fluent-bit", part.get("topics"), report)
    if len(topics) > 1:
        report.cannot(
            part.get("topics"),
            "several topics",
            "a record goes to one: the first is taken; record.topic may be a template with allowed_topics",
        )
    if key := part.text("message_key"):
        made.section("record")["key"] = constant(references(key))
    if field := part.text("message_key_field"):
        made.section("record")["key"] = f"{{{field}}}"
    if field := part.text("topic_key"):
        dynamic = part.flag("dynamic_topic")
        report.cannot(
            part.get("topic_key"),
            "topic_key",
            f'write record.topic: "PREFIX.{{{field}}}"' + ("" if dynamic else ", with record.allowed_topics"),
        )
        part.text("dynamic_topic")
    settings = {key.removeprefix("rdkafka."): inner for key, inner in part.items() if key.startswith("rdkafka.")}
    _security(settings, made, report)
    common_settings.set_acks(settings.pop("request.required.acks", None) or settings.pop("acks", None), report)
    common_settings.set_client(made, settings, report)


def _security(settings: dict[str, ConfigNode], made: ImportedDefinition, report: ImportReport) -> None:
    names = {
        "mechanism": "sasl.mechanism", "username": "sasl.username", "password": "sasl.password", "ca": "ssl.ca.location",
        "cert": "ssl.certificate.location", "key": "ssl.key.location", "key_password": "ssl.key.password",
    }  # fmt: skip
    if "sasl.mechanisms" in settings:
        settings["sasl.mechanism"] = settings.pop("sasl.mechanisms")
    conf = ConfigNode(dict(settings), 0)
    common_settings.set_security(made, conf, names, report)
    protocol = settings.pop("security.protocol", None)
    if protocol is not None:
        made.section("kafka", "security")["protocol"] = as_text(protocol.plain()).upper()
    for name in names.values():
        settings.pop(name, None)


def _left(sections: Sequence[Section], report: ImportReport) -> None:
    """Reports what is unused: keys without counterpart, filters and outputs that no input reaches."""
    for section in sections:
        if section.kind in ("parser", "multiline_parser"):
            continue
        if section.kind in ("filter", "output") and section.part.get("name") is not None and not section.part.value["name"].taken:
            report.cannot(section.part, f"{section.kind} {section.name}", "no tail input's tag reaches it, or it is not Kafka")
            continue
        if section.kind == "output" and section.name != "kafka":
            report.cannot(section.part, f"output {section.name}", "records go to Kafka")
            continue
        for path, part in list(section.part.left()):
            if _NEEDLESS.match(path):
                report.note(part, path, "not needed")
            else:
                report.cannot(part, f"{section.kind} {section.name}: {path}", "not known to this import")
