"""Imports transformations of Kafka Connect (SMTs) as transforms and options of `record`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from copycat_agent.workbench.importing import common_settings
from copycat_agent.workbench.importing.common_settings import constant, pattern_of
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport

_CASTS = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "bigint", "float32": "double", "float64": "double", "boolean": "bool",
    "string": "string",
}  # fmt: skip
_JAVA = (("yyyy", "%Y"), ("yy", "%y"), ("MMM", "%b"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S"), ("SSS", "%f"),
         ("XXX", "%z"),
         ("XX", "%z"), ("X", "%z"), ("Z", "%z"), ("z", "%Z"), ("a", "%p"), ("hh", "%I"))  # fmt: skip


def transforms(config: ConfigNode, made: ImportedDefinition, report: ImportReport) -> None:
    """Adds the chain of transformations, in order."""
    for alias in config.texts("transforms"):
        prefix = f"transforms.{alias}."
        options = ConfigNode({key.removeprefix(prefix): part for key, part in config.items() if key.startswith(prefix)}, 0)
        kind_part = options.get("type")
        kind, _, side = options.text("type").rpartition(".")[2].partition("$")
        options.line = kind_part.line if kind_part else 0
        if options.get("predicate") is not None:
            predicate = options.text("predicate")
            for key, part in config.items():
                if key.startswith(f"predicates.{predicate}."):
                    part.plain()
            report.cannot(
                options, f"transformation {alias} ({kind}) with a predicate", "write the step with an if: over fields of the record"
            )
            continue
        convert = _KINDS.get(kind)
        if convert is None:
            report.cannot(
                options, f"transformation {alias} ({kind or 'no type'})", "no counterpart by that name: see the table of transformations"
            )
        elif (side == "Key" and kind in _OF_VALUES) or not convert(options, made, report):
            report.cannot(options, f"transformation {alias} ({kind})", _WHY.get(kind, "these options have no counterpart"))
        options.plain()
    config.text("transforms")
    if config.texts("predicates"):
        for key, part in config.items():
            if key.startswith("predicates."):
                part.plain()


def java_format(text: str) -> str | None:
    """Returns a pattern of SimpleDateFormat as directives; None if a letter has no counterpart."""
    out, rest = "", text
    while rest:
        if rest[0] == "'":
            quoted, _, rest = rest[1:].partition("'")
            out += quoted or "'"
            continue
        found = next(((old, new) for old, new in _JAVA if rest.startswith(old)), None)
        if found:
            out, rest = out + found[1], rest[len(found[0]) :]
        elif rest[0].isalpha():
            return None
        else:
            out, rest = out + rest[0], rest[1:]
    return out


def _regex_router(options: ConfigNode, made: ImportedDefinition, report: ImportReport) -> bool:
    pattern, replacement = pattern_of(options.text("regex")), options.text("replacement")
    if pattern is None:
        return False
    record = made.section("record")
    if match := re.fullmatch(pattern, record["topic"]):
        common_settings.set_topic(made, match.expand(re.sub(r"\$(\d)", r"\\\1", replacement)), None, report)
    return True


def _timestamp_router(options: ConfigNode, made: ImportedDefinition, report: ImportReport) -> bool:
    form = java_format(options.text("timestamp.format", "yyyyMMdd"))
    if form is None:
        return False
    record = made.section("record")
    text = options.text("topic.format", "${topic}-${timestamp}")
    topic = text.replace("${topic}", record["topic"]).replace("${timestamp}", "{@timestamp:" + form + "}")
    common_settings.set_topic(made, topic, None, report)
    return True


def _insert_field(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    fields: dict[str, str] = {}
    if name := options.text("static.field"):
        fields[name] = constant(options.text("static.value"))
    for key, template in (
        ("offset.field", "{@offset}"),
        ("timestamp.field", "{@read_time}"),
        ("topic.field", made.section("record").get("topic", "")),
    ):
        if name := options.text(key):
            fields[name.rstrip("!?")] = template
    if not fields:
        return False
    made.step(set=fields)
    return True


def _replace_field(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    include, exclude = options.texts("include") or options.texts("whitelist"), options.texts("exclude") or options.texts("blacklist")
    renames = dict(pair.split(":", 1) for pair in options.texts("renames") if ":" in pair)
    if exclude:
        made.step(drop_fields=exclude)
    if include:
        made.step(keep_fields=include)
    if renames:
        made.step(rename=renames)
    return bool(exclude or include or renames)


def _mask_field(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    fields = options.texts("fields")
    if not fields:
        return False
    made.step(mask={field: {"pattern": "(?s).+", "with": options.text("replacement")} for field in fields})
    return True


def _cast(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    spec = dict(pair.split(":", 1) for pair in options.texts("spec") if ":" in pair)
    if not spec or not set(spec.values()) <= _CASTS.keys():
        return False
    made.step(convert={field: _CASTS[kind] for field, kind in spec.items()})
    return True


def _extract_field(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    made.section("record")["key" if options.text("type").endswith("$Key") else "value"] = f"{{{options.text('field')}}}"
    return True


def _value_to_key(options: ConfigNode, made: ImportedDefinition, report: ImportReport) -> bool:
    fields = options.texts("fields")
    made.section("record")["key"] = "|".join(f"{{{field}}}" for field in fields)
    if len(fields) > 1:
        report.note(options, "ValueToKey with several fields", "Connect makes an object of them, here they are a text with | between them")
    return bool(fields)


def _hoist_field(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    is_line = made.section("source").get("format", "lines") == "lines" and "transforms" not in made.document
    made.step(**({"rename": {"message": options.text("field")}} if is_line else {"nest": {"into": options.text("field")}}))
    return True


def _flatten(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    delimiter = options.text("delimiter", ".")
    made.step(flatten={} if delimiter == "." else {"delimiter": delimiter})
    return True


def _timestamp_converter(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    field, kind = options.text("field"), options.text("target.type")
    text = options.text("format")
    form = (
        java_format(text)
        if text
        else {"microseconds": "unix_us", "nanoseconds": "unix_ns", "seconds": "unix"}.get(options.text("unix.precision"), "unix_ms")
    )
    if not field or form is None or kind not in ("Timestamp", "unix"):
        return False
    made.step(timestamp={"field": field, "format": form, "zone": "UTC", "into": field, "as": "unix_ms" if kind == "unix" else "timestamp"})
    return True


def _insert_header(options: ConfigNode, made: ImportedDefinition, _: ImportReport) -> bool:
    made.section("record", "headers")[options.text("header")] = constant(options.text("value.literal"))
    return True


def _header_from(options: ConfigNode, made: ImportedDefinition, report: ImportReport) -> bool:
    fields, headers = options.texts("fields"), options.texts("headers")
    if len(fields) != len(headers):
        return False
    made.section("record", "headers").update({header: f"{{{field}}}" for field, header in zip(fields, headers, strict=True)})
    if options.text("operation") == "move":
        report.note(
            options, "HeaderFrom with operation move", "the field stays in the value too: converters see it after the headers are made"
        )
    return True


def _nothing(options: ConfigNode, _: ImportedDefinition, report: ImportReport) -> bool:
    report.note(options, options.text("type").rpartition(".")[2], "headers are only those that record.headers names: nothing to drop")
    return True


_KINDS: Mapping[str, Callable[[ConfigNode, ImportedDefinition, ImportReport], bool]] = {
    "RegexRouter": _regex_router,
    "TimestampRouter": _timestamp_router,
    "InsertField": _insert_field,
    "ReplaceField": _replace_field,
    "MaskField": _mask_field,
    "Cast": _cast,
    "ExtractField": _extract_field,
    "ValueToKey": _value_to_key,
    "HoistField": _hoist_field,
    "Flatten": _flatten,
    "TimestampConverter": _timestamp_converter,
    "InsertHeader": _insert_header,
    "HeaderFrom": _header_from,
    "DropHeaders": _nothing,
}
_OF_VALUES = {
    "InsertField", "ReplaceField", "MaskField", "Cast", "HoistField", "Flatten", "TimestampConverter", "HeaderFrom",
}  # fmt: skip
"""Transformations that are mapped for values only, since keys have no steps of their own."""
_WHY = {
    "TimestampConverter": "to a text or a date there is convert; to a time, timestamp with into",
    "Cast": "a whole value cannot be cast, fields can: convert",
}
