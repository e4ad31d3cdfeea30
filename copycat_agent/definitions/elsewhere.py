"""What others call our options and steps: Vector, Filebeat, Logstash, Fluent Bit, Kafka Connect. For hints."""

from __future__ import annotations

from collections.abc import Collection

_KEYS = {
    "gte": ("ge",),
    "lte": ("le",),
    ">": ("gt",),
    ">=": ("ge",),
    "<": ("lt",),
    "<=": ("le",),
    "regex": ("matches", "pattern"),
    "regexp": ("matches", "pattern"),
    "expression": ("pattern",),
    "match": ("matches", "pattern"),
    "contains": ("matches",),
    "in": ("any_of",),
    "ne": ("not",),
    "not_equals": ("not",),
    "when": ("if",),
    "condition": ("if",),
    "on_failure": ("on_error",),
    "ignore_failure": ("on_error",),
    "source": ("field",),
    "src": ("field",),
    "key": ("secret", "field"),
    "target": ("into",),
    "target_field": ("into",),
    "output": ("into",),
    "as": ("into",),
    "tz": ("zone", "timestamp_zone"),
    "timezone": ("zone", "timestamp_zone"),
    "time_zone": ("zone", "timestamp_zone"),
    "separator": ("delimiter", "field_split"),
    "sep": ("delimiter", "field_split"),
    "names": ("columns",),
    "header": ("columns",),
    "fields": ("columns", "field"),
    "formats": ("format",),
    "layout": ("format",),
    "layouts": ("format",),
    "salt": ("secret",),
    "method": ("algorithm",),
    "percent": ("rate",),
    "probability": ("rate",),
    "replace": ("with",),
    "replacement": ("with",),
    "preserve_source": ("keep_source",),
    "patterns": ("pattern",),
    "pattern_definitions": ("definitions",),
}
_ACTIONS = {
    "date": "timestamp",
    "parse_timestamp": "timestamp",
    "parse_json": "json",
    "decode_json_fields": "json",
    "parse_regex": "regex",
    "dissect": "regex or grok",
    "parser": "regex, json, logfmt, csv or another one that parses",
    "parse_csv": "csv",
    "decode_csv_fields": "csv",
    "kv": "key_value",
    "parse_key_value": "key_value",
    "parse_logfmt": "logfmt",
    "parse_syslog": "syslog",
    "parse_grok": "grok",
    "cast": "convert",
    "types": "convert",
    "add_field": "set",
    "add_fields": "set",
    "add": "set",
    "insert": "set",
    "remove": "drop_fields",
    "remove_field": "drop_fields",
    "remove_fields": "drop_fields",
    "exclude_fields": "drop_fields",
    "prune": "keep_fields",
    "include_fields": "keep_fields",
    "filter": "keep_if or drop_if",
    "grep": "keep_if or drop_if",
    "drop": "drop_if",
    "drop_event": "drop_if",
    "redact": "mask",
    "fingerprint": "hash",
    "sha256": "hash",
    "gsub": "replace",
    "hoist": "nest",
    "throttle": "limits.records_per_second of the definition",
    "mutate": "rename, set, convert, replace, drop_fields: each is a step of its own",
    "remap": "rename, set, convert, replace, drop_fields: each is a step of its own",
    "modify": "rename, set, default, drop_fields: each is a step of its own",
    "record_modifier": "set, keep_fields, drop_fields: each is a step of its own",
    **dict.fromkeys(("uppercase", "lowercase", "trim", "split", "eval", "lua", "script"), "sql, which has Spark's functions"),
}


def key_here(word: str, known: Collection[str]) -> str:
    """`here it is ...` for what others call one of the keys that are known where it stands, "" when none is."""
    if word.lower() in ("eq", "equals", "is") and "matches" in known:
        return "write the value itself, as in {status: 200}, or a list of values"
    ours = next((key for key in _KEYS.get(word.lower(), ()) if key in known), "")
    return f"here it is {ours}" if ours else ""


def action_here(word: str) -> str:
    """`here it is ...` for what others call one of our steps, "" for none."""
    ours = _ACTIONS.get(word.lower().replace("-", "_"), "")
    return f"here it is {ours}" if ours else ""
