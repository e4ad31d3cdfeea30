"""Imports parsers and filters of Fluent Bit as transforms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from copycat_agent.workbench.importing.common_settings import constant, references, ruby_pattern
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport, as_text

_TYPES = {"integer": "int", "float": "double", "bool": "bool", "string": "string", "hex": "string"}
_BUILT_IN: dict[str, dict[str, Any]] = {
    "json": {"json": {}},
    "docker": {"docker": {}},
    "cri": {"cri": {}},
    "syslog-rfc5424": {"syslog": {}},
    "syslog-rfc3164": {"syslog": {}},
    "syslog-rfc3164-local": {"syslog": {}},
    "logfmt": {"logfmt": {}},
}
_RULES = ("set", "add", "record", "remove", "remove_key", "rename", "hard_rename", "copy", "hard_copy")
ACCESS_LINE = (
    r'^(?P<host>[^ ]*) [^ ]* (?P<user>[^ ]*) \[(?P<time>[^\]]*)\] "(?P<method>\S+)(?: +(?P<path>[^"]*?)(?: +\S*)?)?"'
    r" (?P<code>[^ ]*) (?P<size>[^ ]*)"
    r'(?: "(?P<referer>[^"]*)" "(?P<agent>[^"]*)")?'
)


@dataclass(slots=True)
class Section:
    """A section such as `[INPUT]`, with keys in lower case."""

    kind: str
    part: ConfigNode

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.part.text("name").lower()


def parser_step(
    name: str,
    parsers: dict[str, Section],
    made: ImportedDefinition,
    report: ImportReport,
    part: ConfigNode | None,
    field: str = "",
    **common: str | bool,
) -> None:
    """Adds the steps of a named parser, from the file or from Fluent Bit."""
    where = {key: value for key, value in {"field": field or None, **common}.items() if value}
    if name not in parsers:
        _shipped(name, made, report, part, where)
        return
    found = parsers[name].part
    kind = found.text("format").lower()
    if kind == "regex":
        pattern = ruby_pattern(found.text("regex"))
        if pattern is None:
            report.cannot(found, f"parser {name}", "its pattern is none of Python's: write a regex")
            return
        made.step(regex={"pattern": pattern, **where} if where else pattern)
    elif kind in ("json", "logfmt"):
        made.step(**{kind: where})
    elif kind == "ltsv":
        made.step(key_value={**where, "field_split": "\t", "value_split": ":"})
    else:
        report.cannot(found, f"parser {name} of format {kind}", "write a transform: regex, json, logfmt, key_value")
        return
    _types_and_time(found, made)


def _types_and_time(found: ConfigNode, made: ImportedDefinition) -> None:
    key, form = found.text("time_key"), found.text("time_format")
    if key and form:
        text = _time_format(form)
        options = {"field": key, "format": text}
        if offset := found.text("time_offset"):
            options["zone"] = re.sub(r"^([+-]\d\d)(\d\d)$", r"\1:\2", offset)
        elif "%z" not in text and text != "unix":
            options["zone"] = "UTC"
        made.step(timestamp=options, on_error="keep")
        if not found.flag("time_keep"):
            made.step(drop_fields=[key])
        made.section("record")["timestamp"] = "event"
    types = dict(pair.split(":", 1) for pair in found.text("types").split() if ":" in pair)
    known = {field: _TYPES[kind.lower()] for field, kind in types.items() if kind.lower() in _TYPES}
    if known:
        made.step(convert=known, on_error="keep")
    found.plain()


def _time_format(text: str) -> str:
    """Returns a time format of Fluent Bit as ours: %L is a fraction, and text after the time is ignored."""
    if text == "%s" or text.startswith("%s."):
        return "unix"
    if re.fullmatch(r"%Y-%m-%d[T ]%H:%M:%S(\.%L|\.%N)?(%z|Z)?", text):
        return "iso8601"
    return text.replace("%L", "%f").replace("%N", "%f").replace("%T", "%H:%M:%S").replace("%F", "%Y-%m-%d")


def _shipped(name: str, made: ImportedDefinition, report: ImportReport, part: ConfigNode | None, where: dict[str, Any]) -> None:
    """Adds the steps of a parser in Fluent Bit's own parsers.conf."""
    if name in _BUILT_IN:
        ((action, options),) = _BUILT_IN[name].items()
        made.step(**{action: {**options, **where}})
        if action in ("cri", "docker", "syslog"):
            made.section("record")["timestamp"] = "event"
    elif name in ("nginx", "apache", "apache2"):
        made.step(regex={"pattern": ACCESS_LINE, **where} if where else ACCESS_LINE)
        made.step(timestamp={"field": "time", "format": "%d/%b/%Y:%H:%M:%S %z"}, on_error="keep")
        made.section("record")["timestamp"] = "event"
    else:
        report.cannot(part, f"parser {name}", "not in this file: name the one that defines it with --with FILE")


def add_filter(name: str, part: ConfigNode, made: ImportedDefinition, parsers: dict[str, Section], report: ImportReport) -> None:
    """Adds the steps of a filter."""
    part.text("name"), part.text("match"), part.text("match_regex")
    if name == "grep":
        _grep(part, made, report)
    elif name in ("modify", "record_modifier"):
        _modify(part, made, report)
    elif name == "parser":
        field = part.text("key_name")
        keep = part.flag("preserve_key")
        names = part.texts("parser")
        for one in names[:1]:
            parser_step(one, parsers, made, report, part.get("parser"), "" if field in ("log", "message") else field, keep_source=keep)
        if len(names) > 1:
            report.cannot(
                part.get("parser"), "several parsers in one filter", "regex takes a list of patterns, the first that matches counts"
            )
        part.text("reserve_data"), part.text("unescape_key")
    elif name == "nest":
        _nest(part, made, report)
    elif name == "kubernetes":
        report.cannot(part, "filter kubernetes", "the path names pod, namespace and container: a regex over a field set from {@file.path}")
    else:
        report.cannot(part, f"filter {name}", "no counterpart: see copycat explain transforms, or the sql transform")


def _all(part: ConfigNode, key: str) -> list[str]:
    """Returns all values of a key that may occur several times."""
    found = part.get(key)
    if found is None:
        return []
    found.taken = True
    return [as_text(one.plain()) for one in found.each()]


def _grep(part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    conditions: dict[str, list[dict[str, Any]]] = {"keep_if": [], "drop_if": []}
    for key, action in (("regex", "keep_if"), ("exclude", "drop_if")):
        for rule in _all(part, key):
            field, _, text = rule.partition(" ")
            pattern = ruby_pattern(text.strip())
            if pattern is None:
                report.cannot(part.get(key), f"grep {key} {field}", "no regular expression of Python's")
                continue
            conditions[action].append({"message" if field == "log" else field.removeprefix("$"): {"matches": pattern}})
    is_or = part.text("logical_op").lower() == "or"
    if is_or and len(conditions["keep_if"]) > 1:
        report.cannot(
            part.get("logical_op"),
            "grep with Logical_Op or",
            "keep_if wants all fields to match: write a sql transform, or one pattern over the line",
        )
        return
    if part.text("logical_op").lower() == "and" and len(conditions["drop_if"]) > 1:
        made.step(drop_if={field: value for one in conditions["drop_if"] for field, value in one.items()})
        conditions["drop_if"] = []
    for action, found in conditions.items():
        for one in found:
            made.step(**{action: one})


def _modify(part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    keeps = [one for key in ("allowlist_key", "whitelist_key") for one in _all(part, key)]
    if keeps:
        made.step(keep_fields=keeps)
    rules = [(one.line, key, as_text(one.value)) for key in _RULES if (found := part.get(key)) is not None for one in found.each()]
    for _, key, rule in sorted(rules):
        first, _, second = rule.partition(" ")
        part.take(key)
        made.step(**_rule(key, first, second.strip()))
    if (condition := part.get("condition")) is not None:
        report.cannot(condition, "modify with a Condition", "write an if: beside the step")


def _rule(key: str, first: str, second: str) -> dict[str, Any]:
    if key in ("remove", "remove_key"):
        return {"drop_fields": [first]}
    if key in ("rename", "hard_rename"):
        return {"rename": {first: second}}
    if key in ("copy", "hard_copy"):
        return {"set": {second: f"{{{first}}}"}}
    return {"default" if key == "add" else "set": {first: constant(references(second)).replace("${env:HOSTNAME}", "{@host}")}}


def _nest(part: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    operation = part.text("operation").lower()
    if operation == "nest":
        fields = part.texts("wildcard") or _all(part, "wildcard")
        if any("*" in field for field in fields):
            report.cannot(part.get("wildcard"), "nest with a wildcard", "name the fields: nest: {into: FIELD, fields: [...]}")
            return
        made.step(nest={"into": part.text("nest_under"), "fields": fields})
    elif operation == "lift" and not part.text("add_prefix"):
        field = part.text("nested_under")
        report.cannot(part, f"nest with operation lift of {field}", "flatten: {field: ...} makes FIELD.KEY; rename takes single fields up")
    else:
        report.cannot(part, f"nest with operation {operation or '?'}", "nest and flatten are the counterparts")
