"""A JSON Schema made for declared columns, for what the json converter makes of them."""

from __future__ import annotations

from typing import Any

from copycat_agent.converters.schemas.form import BadSchemaError
from copycat_agent.converters.schemas.sql_types import SqlType, parse_type
from copycat_agent.model import Column

_DRAFT = "http://json-schema.org/draft-07/schema#"
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_SIMPLE: dict[str, dict[str, Any]] = {
    **{word: {"type": "integer"} for word in _WHOLE},
    **{word: {"type": "number"} for word in ("float", "double", "decimal")},
    "string": {"type": "string"}, "boolean": {"type": "boolean"}, "void": {"type": "null"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string"},
    "timestamp": {"type": "string", "format": "date-time"},
    "timestamp_ntz": {"type": "string"},
    "variant": {},
}  # fmt: skip


def json_schema_of(columns: tuple[Column, ...], name: str) -> dict[str, Any]:
    """An object of this title. Raises BadSchemaError for a type that is not known."""
    made = _object([(column.name, parse_type(column.type), column.nullable) for column in columns])
    required = [column.name for column in columns if not column.nullable]
    return {"$schema": _DRAFT, "title": name, **made, **({"required": required} if required else {})}


def _object(fields: list[tuple[str, SqlType, bool]]) -> dict[str, Any]:
    made = {name: _or_null(_type(type_, name)) if nullable else _type(type_, name) for name, type_, nullable in fields}
    return {"type": "object", "properties": made}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """NaN and infinities are null in JSON, and any field may be."""
    type_ = schema.get("type")
    return schema if type_ in (None, "null") else {**schema, "type": [type_, "null"]}


def _type(type_: SqlType, field: str) -> dict[str, Any]:
    if type_.word == "array" and type_.parts:
        return {"type": "array", "items": _or_null(_type(type_.parts[0][1], field))}
    if type_.word == "map" and len(type_.parts) == 2:  # noqa: PLR2004 - key and value
        return {"type": "object", "additionalProperties": _or_null(_type(type_.parts[1][1], field))}
    if type_.word == "struct":
        return _object([(name, inner, True) for name, inner in type_.parts])
    if type_.word in _SIMPLE:
        return _SIMPLE[type_.word]
    raise BadSchemaError(f"field {field[:100]!r} is of type {type_.word}, for which JSON Schema has none")
