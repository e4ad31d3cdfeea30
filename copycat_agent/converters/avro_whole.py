"""Makes one Avro schema of a schema that refers to others: readers of records and writers of files take a single text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from copycat_agent.formats.records.avro_format import BadAvroSchemaError

_NAMED = ("record", "error", "enum", "fixed")


def whole_schema(text: str, others: Iterable[str]) -> str:
    """Returns the schema with each type of `others` inserted where it is first named. Raises BadAvroSchemaError."""
    try:
        named = {_full_name(one, ""): one for one in map(json.loads, others)}
        return json.dumps(_NameExpansion(named).of(json.loads(text), ""))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadAvroSchemaError(f"it, or one that it refers to, is no Avro schema ({type(error).__name__})") from None


class _NameExpansion:
    """Inserts types for names. `left` are the types that are not inserted yet, by their full names."""

    def __init__(self, left: dict[str, Any]) -> None:
        self._left = left

    def of(self, schema: Any, namespace: str) -> Any:  # noqa: ANN401 - JSON
        if isinstance(schema, list):
            return [self.of(one, namespace) for one in schema]
        if isinstance(schema, str):
            name = schema if "." in schema or not namespace or f"{namespace}.{schema}" not in self._left else f"{namespace}.{schema}"
            found = self._left.pop(name, None)
            return schema if found is None else self.of({**found, "namespace": name.rpartition(".")[0]}, "")
        kind = schema["type"]
        if kind in ("record", "error"):
            within = _full_name(schema, namespace).rpartition(".")[0]
            return {**schema, "fields": [{**one, "type": self.of(one["type"], within)} for one in schema["fields"]]}
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            return {**schema, part: self.of(schema[part], namespace)}
        return schema if kind in _NAMED else {**schema, "type": self.of(kind, namespace)}


def _full_name(schema: dict[str, Any], namespace: str) -> str:
    name: str = schema["name"]
    within = schema.get("namespace", namespace)
    return name if "." in name or not within else f"{within}.{name}"
