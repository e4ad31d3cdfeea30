"""Imports processors of Filebeat as transforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from copycat_agent.workbench.importing.common_settings import Matcher, any_pattern, constant, dissect, go_layout, joined, references
from copycat_agent.workbench.importing.imported import ConfigNode, ImportedDefinition, ImportReport

_TYPES = {"integer": "int", "long": "bigint", "float": "double", "double": "double", "string": "string", "boolean": "bool"}
_METADATA = (
    "add_host_metadata",
    "add_cloud_metadata",
    "add_docker_metadata",
    "add_kubernetes_metadata",
    "add_process_metadata",
    "add_observer_metadata",
)


@dataclass(slots=True)
class ProcessorSteps:
    """Adds steps to one definition."""

    made: ImportedDefinition
    report: ImportReport

    def add(self, processor: ConfigNode) -> None:
        """Adds the steps of one processor, a map with its name."""
        for name, part in processor.items():
            method = getattr(self, f"_{name}", None)
            if name in _METADATA:
                self.report.cannot(
                    part, f"processor {name}", 'of a record the host and the file are known: set: {host: "{@host}", path: "{@file.path}"}'
                )
            elif method is None:
                self.report.cannot(part, f"processor {name}", "no counterpart: see copycat explain transforms, or the sql transform")
            else:
                condition = self._condition(part, name)
                if condition is not None or part.get("when") is None or name == "drop_event":
                    method(part, condition)
                    part.plain()

    def _condition(self, part: ConfigNode, name: str) -> Matcher | None:
        """Returns `when` as a matcher; None without one, or if it cannot be expressed (then it is reported)."""
        when = part.get("when")
        if when is None or name == "drop_event":
            return None
        found = self.matcher(when)
        if found is None:
            self.report.cannot(part, f"processor {name}", "its condition has no counterpart: all fields of an if have to match")
        return found

    def matcher(self, when: ConfigNode) -> Matcher | None:
        """Returns a condition as a matcher; None if it is more than fields that all must match."""
        return joined(self._one(kind, part) for kind, part in when.items()) or None

    def _one(self, kind: str, part: ConfigNode) -> Matcher | None:
        fields = part.value if isinstance(part.value, dict) else {}
        if kind == "equals":
            return {field: value.plain() for field, value in fields.items()}
        if kind in ("contains", "regexp"):
            found = {field: _pattern(value.plain(), literal=kind == "contains") for field, value in fields.items()}
            return None if None in found.values() else {field: {"matches": pattern} for field, pattern in found.items()}
        if kind == "range":
            return _ranges(part)
        if kind == "has_fields":
            return {field: {"exists": True} for field in part.plain()}
        if kind == "not":
            inner = self.matcher(part)
            return None if inner is None or len(inner) != 1 else {field: {"not": value} for field, value in inner.items()}
        return joined(map(self.matcher, part.each())) if kind == "and" else None

    def _drop_event(self, part: ConfigNode, _: Matcher | None) -> None:
        when = part.get("when")
        alternatives = when.each("or") if when is not None and when.get("or") is not None else [when] if when is not None else []
        found = [self.matcher(one) for one in alternatives]
        if not found or None in found:
            self.report.cannot(part, "processor drop_event", "its condition has no counterpart: write drop_if or keep_if")
            return
        for matcher in found:
            self.made.step(drop_if=matcher)

    def _drop_fields(self, part: ConfigNode, condition: Matcher | None) -> None:
        self.made.step(drop_fields=part.texts("fields"), if_=condition)

    def _include_fields(self, part: ConfigNode, condition: Matcher | None) -> None:
        self.made.step(keep_fields=part.texts("fields"), if_=condition)

    def _rename(self, part: ConfigNode, condition: Matcher | None) -> None:
        self.made.step(rename={one.text("from"): one.text("to") for one in part.each("fields")}, if_=condition)

    def _copy_fields(self, part: ConfigNode, condition: Matcher | None) -> None:
        self.made.step(set={one.text("to"): f"{{{one.text('from')}}}" for one in part.each("fields")}, if_=condition)

    def _add_fields(self, part: ConfigNode, condition: Matcher | None) -> None:
        target = part.text("target", "fields")
        fields: Mapping[str, Any] = part.take("fields") or {}
        names = {
            (f"{target}.{key}" if target else key): constant(references(value) if isinstance(value, str) else value)
            for key, value in fields.items()
        }
        self.made.step(set=names, if_=condition)

    def _add_tags(self, part: ConfigNode, condition: Matcher | None) -> None:
        self.made.step(set={part.text("target", "tags"): constant(part.texts("tags"))}, if_=condition)

    def _add_labels(self, part: ConfigNode, condition: Matcher | None) -> None:
        self.made.step(set={f"labels.{key}": constant(value) for key, value in (part.take("labels") or {}).items()}, if_=condition)

    def _decode_json_fields(self, part: ConfigNode, condition: Matcher | None) -> None:
        target = part.get("target")
        for field in part.texts("fields"):
            into = field if target is None else part.text("target")
            options = {"field": None if field == "message" else field, "into": into or None}
            self.made.step(json={key: value for key, value in options.items() if value}, if_=condition, on_error="keep")

    def _dissect(self, part: ConfigNode, condition: Matcher | None) -> None:
        pattern = dissect(part.text("tokenizer"))
        if pattern is None:
            self.report.cannot(part, "processor dissect", "its tokenizer has modifiers: write a regex with named groups")
            return
        field, prefix = part.text("field", "message"), part.text("target_prefix", "dissect")
        options = {"pattern": pattern, "field": field, "into": prefix or None, "keep_source": True}
        self.made.step(regex={key: value for key, value in options.items() if value}, if_=condition, on_error="keep")

    def _timestamp(self, part: ConfigNode, condition: Matcher | None) -> None:
        layouts = [go_layout(text) for text in part.texts("layouts")]
        if not layouts or None in layouts:
            self.report.cannot(part, "processor timestamp", "its layout has no counterpart: write timestamp: {field, format}")
            return
        options: dict[str, Any] = {"field": part.text("field"), "format": layouts[0] if len(layouts) == 1 else layouts}
        if zone := part.text("timezone", "UTC"):
            options["zone"] = zone
        self.made.step(timestamp=options, if_=condition, on_error="keep")
        self.made.section("record")["timestamp"] = "event"

    def _convert(self, part: ConfigNode, condition: Matcher | None) -> None:
        types: dict[str, str] = {}
        for one in part.each("fields"):
            source, target, kind = one.text("from"), one.text("to"), one.text("type")
            if target and target != source:
                self.made.step(set={target: f"{{{source}}}"}, if_=condition)
            if kind in _TYPES:
                types[target or source] = _TYPES[kind]
            elif kind:
                self.report.cannot(one, f"convert to {kind}", f"known are {', '.join(_TYPES)}")
        if types:
            self.made.step(convert=types, if_=condition, on_error="keep")


def _pattern(value: object, *, literal: bool) -> str | None:
    texts = [str(one) for one in (value if isinstance(value, list) else [value])]
    return any_pattern([_literal(text) if literal else text for text in texts])


def _literal(text: str) -> str:
    return "".join("\\" + character if character in r"\^$.|?*+()[]{}" else character for character in text)


def _ranges(part: ConfigNode) -> Matcher:
    out: Matcher = {}
    for path, value in part.items():
        field, _, sign = path.rpartition(".")
        names = {"lt": "lt", "lte": "le", "gt": "gt", "gte": "ge"}
        if sign in names:
            out.setdefault(field, {})[names[sign]] = value.plain()
        else:
            out[path] = {names[key]: inner for key, inner in (value.plain() or {}).items() if key in names}
    return out
