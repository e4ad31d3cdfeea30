"""Turns errors of values into problems for operators: a code, a sentence, a next step, and the place with its line. Never the value.

Most errors are pydantic's. Hints know the names of options and steps in Vector, Filebeat, Logstash, Fluent Bit and Kafka Connect.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from copycat_agent.definitions.models import Loc, field_at, fields_by_key, markers, model_at
from copycat_agent.definitions.secret_values import Masker, masked_lines
from copycat_agent.definitions.yaml_tree import Mark, Node, is_null, way_to
from copycat_agent.display import printable
from copycat_agent.errors import Problem
from copycat_agent.options import Definition, FieldInfo, Options, format_duration, format_size


def _by_theirs(words: Mapping[str, str]) -> dict[str, str]:
    """Inverts our name -> a line of other names."""
    return {theirs: ours for ours, line in words.items() for theirs in line.split()}


_KEYS = _by_theirs(
    {
        "ge": "gte >=",
        "le": "lte <=",
        "gt": ">",
        "lt": "<",
        "matches or pattern": "regex regexp match",
        "pattern": "expression patterns",
        "matches": "contains",
        "any_of": "in",
        "not": "ne not_equals",
        "if": "when condition",
        "on_error": "on_failure ignore_failure",
        "field": "source src",
        "secret or field": "key",
        "into": "target target_field output as",
        "zone or timestamp_zone": "tz timezone time_zone",
        "delimiter or field_split": "separator sep",
        "columns": "names header",
        "columns or field": "fields",
        "format": "formats layout layouts",
        "secret": "salt",
        "algorithm": "method",
        "rate": "percent probability",
        "with": "replace replacement",
        "keep_source": "preserve_source",
        "definitions": "pattern_definitions",
    }
)
_ACTIONS = _by_theirs(
    {
        "timestamp": "date parse_timestamp",
        "json": "parse_json decode_json_fields",
        "regex": "parse_regex",
        "regex or grok": "dissect",
        "regex, json, logfmt, csv or another one that parses": "parser",
        "csv": "parse_csv decode_csv_fields",
        "key_value": "kv parse_key_value",
        "logfmt": "parse_logfmt",
        "syslog": "parse_syslog",
        "grok": "parse_grok",
        "convert": "cast types",
        "set": "add_field add_fields add insert",
        "drop_fields": "remove remove_field remove_fields exclude_fields",
        "keep_fields": "prune include_fields",
        "keep_if or drop_if": "filter grep",
        "drop_if": "drop drop_event",
        "mask": "redact",
        "hash": "fingerprint sha256",
        "replace": "gsub",
        "nest": "hoist",
        "limits.records_per_second of the definition": "throttle",
        "rename, set, convert, replace, drop_fields: each is a step of its own": "mutate remap",
        "rename, set, default, drop_fields: each is a step of its own": "modify",
        "set, keep_fields, drop_fields: each is a step of its own": "record_modifier",
        "sql, which has Spark's functions": "uppercase lowercase trim split eval lua script",
    }
)


def key_here(word: str, known: Collection[str]) -> str:
    """Returns `here it is ...` for another product's name of one of the `known` keys, "" if there is none."""
    if word.lower() in ("eq", "equals", "is") and "matches" in known:
        return "write the value itself, as in {status: 200}, or a list of values"
    ours = next((key for key in _KEYS.get(word.lower(), "").split(" or ") if key in known), "")
    return f"here it is {ours}" if ours else ""


def action_here(word: str) -> str:
    """Returns `here it is ...` for another product's name of a step, "" if there is none."""
    ours = _ACTIONS.get(word.lower().replace("-", "_"), "")
    return f"here it is {ours}" if ours else ""


class Finding(NamedTuple):
    """One error at one place. `on_key` points to the key itself, not to its value."""

    loc: Loc
    code: str
    text: str
    hint: str = ""
    on_key: bool = False


_TYPES = {
    "string_type": ("needs text", "put it in quotes to make it text"),
    "int_type": ("needs a whole number", "write it without quotes and without a unit"),
    "float_type": ("needs a number", "write it without quotes"),
    "bool_type": ("needs true or false", "only true and false are booleans; yes, no, on and off are texts"),
    "tuple_type": ("needs a list", "write [one, two], or one item per line after a dash"),
    "list_type": ("needs a list", "write [one, two], or one item per line after a dash"),
    "dict_type": ("needs keys and values", "write {key: value}, or one key: value per line"),
    "model_type": ("needs keys and values", "write {key: value}, or one key: value per line"),
    "model_attributes_type": ("needs keys and values", "write {key: value}, or one key: value per line"),
}
_BOUNDS = {"greater_than": ("gt", "more than"), "greater_than_equal": ("ge", "at least"),
           "less_than": ("lt", "less than"), "less_than_equal": ("le", "at most")}  # fmt: skip


def nearest(word: str, known: Iterable[str]) -> str:
    """Returns `did you mean ...?` for the nearest of the known words, or "" if none is near."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def missing(loc: Loc, field: FieldInfo | None) -> Finding:
    """Returns the finding for a required key that is absent from the map at `loc[:-1]`."""
    about = f": {field.description}" if field and field.description else ""
    return Finding(loc, "missing-key", f"{loc[-1]} is missing", f"add {loc[-1]}{about}")


def unknown_key(loc: Loc, model: type[Options] | None) -> Finding:
    """Returns the finding for an unknown key: what was probably meant, or where it belongs."""
    key = str(loc[-1])
    known = list(fields_by_key(model)) if model else []
    hint = key_here(key, known) or nearest(key, known) or _belongs(key) or (f"known here: {', '.join(known)}" if known else "")
    return Finding(loc, "unknown-key", f"unknown key {key!r:.80}", hint, on_key=True)


def _belongs(key: str) -> str:
    """Returns a hint where in a definition a key of exactly this name belongs, "" unless that is one place."""
    places = [f"{section}.{key}" for section, field in Definition.model_fields.items() if section != "source" and _knows(field, key)]
    return f"it belongs under {places[0].rpartition('.')[0]}" if len(places) == 1 else ""


def _knows(field: FieldInfo, key: str) -> bool:
    model = field.annotation
    return isinstance(model, type) and issubclass(model, Options) and key in fields_by_key(model)


def finding(error: Mapping[str, Any], loc: Loc, base: Loc, model: type[Options], written: str | None) -> Finding:
    """Returns one pydantic error in words.

    `loc` is the place in the document; `loc[len(base):]` that in `model`. `written` is the text of a scalar that is not secret: it is used
    to find near words, and not repeated.
    """
    kind, inner = error["type"], loc[len(base) :]
    if kind == "missing":
        return missing(loc, field_at(model, inner))
    if kind == "extra_forbidden":
        return unknown_key(loc, model_at(model, inner[:-1]))
    field = field_at(model, inner)
    return Finding(loc, *_value(kind, error, field, written))


def _value(kind: str, error: Mapping[str, Any], field: FieldInfo | None, written: str | None) -> tuple[str, str, str]:
    context: Mapping[str, Any] = error.get("ctx", {})
    about = (field.description or "") if field else ""
    if kind in _TYPES:
        text, hint = _TYPES[kind]
        return "wrong-type", text, hint
    if kind == "literal_error":
        choices = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        words = f"needs one of {', '.join(choices)}" if len(choices) > 1 else f"needs to be {choices[0]}"
        return "bad-value", words, nearest(written or "", choices)
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return "bad-value", f"must be {words} {_quantity(field)(context[name])}", about
    if kind == "value_error":
        return "bad-value", str(context.get("error", error["msg"])), ""
    others = {"string_pattern_mismatch": f"does not match {context.get('pattern')}", "string_too_short": "must not be empty",
              "too_short": "must not be empty"}  # fmt: skip
    return "bad-value", others.get(kind, str(error["msg"])[:1].lower() + str(error["msg"])[1:]), about


def _quantity(field: FieldInfo | None) -> Callable[[Any], str]:
    """Returns the function that writes a bound of this field in its unit."""
    functions = {getattr(marker, "func", None) for marker in markers(field)} if field else set()
    if format_duration in functions:
        return format_duration
    return format_size if format_size in functions else str


def combined(findings: list[Finding]) -> Finding:
    """Returns one finding for one place where every branch of a choice has failed."""
    first = findings[0]
    texts = list(dict.fromkeys(found.text for found in findings))
    if all(text.startswith("needs ") for text in texts):
        text = "needs " + " or ".join(text.removeprefix("needs ") for text in texts)
    else:
        text = "; or ".join(texts)
    hints = dict.fromkeys(found.hint for found in findings if found.hint)
    return first._replace(text=text, hint=next(iter(hints), "") if len(texts) == 1 or len(hints) == 1 else "")


def no_value(loc: Loc) -> Finding:
    """Returns the finding for a key without a value where one is needed."""
    return Finding(loc, "no-value", f"{loc[-1] if loc else 'the file'} has no value", "give it one, or delete the key")


PROBLEMS_MAX = 50
"""The most problems that are reported per file."""


class DefinitionText:
    """One file's text, for quoting from it. `text` may be anything; `root` is None if it could not be parsed."""

    def __init__(self, path: str, text: str, root: Node | None, masker: Masker) -> None:
        self._path, self._text, self._root, self._masker = path, text, root, masker

    @cached_property
    def _lines(self) -> tuple[str, ...]:
        return masked_lines(self._text)

    def problem_at(self, mark: Mark, code: str, text: str, hint: str = "") -> Problem:
        """Returns a problem at a known place; line 0 means the file as a whole."""
        line = self._lines[mark.line - 1] if 0 < mark.line <= len(self._lines) else ""
        shown = printable(self._masker(line)).rstrip()
        words = printable(self._masker(text)), printable(self._masker(hint))
        return Problem(self._path, mark.line, mark.column, code, *words, shown)

    def problem(self, finding: Finding) -> Problem:
        """Returns a problem at the place of a finding: at the value, or at the key if there is no value."""
        return self.problem_at(self._mark(finding), finding.code, finding.text, finding.hint)

    def problems(self, findings: list[Finding]) -> tuple[Problem, ...]:
        """Returns problems in the file's order: at most `PROBLEMS_MAX`, and a last one with the number of the others."""
        found = sorted(dict.fromkeys(map(self.problem, findings[: 10 * PROBLEMS_MAX])), key=lambda each: (each.line, each.column))
        if len(found) > PROBLEMS_MAX:
            more = self.problem_at(Mark(0, 0), "more", f"and {len(findings) - PROBLEMS_MAX} more problems in this file")
            return (*found[:PROBLEMS_MAX], more)
        return tuple(found)

    def _mark(self, finding: Finding) -> Mark:
        way = way_to(self._root, finding.loc)
        key, node = way[-1] if way else (None, self._root)
        if node and len(way) == len(finding.loc) and not finding.on_key and not is_null(node):
            if key is None or node.start.line == key.start.line:
                return node.start
        elif node is None:
            return Mark(0, 0)
        return key.start if key is not None else node.start  # an absent place is reported at its parent
