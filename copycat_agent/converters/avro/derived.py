"""An Avro schema made for declared columns. The same columns give the same text, so a registry finds it again."""

from __future__ import annotations

import re
from typing import Any

from copycat_agent.converters.schemas.form import BadSchemaError
from copycat_agent.converters.schemas.sql_types import SqlType, parse_type
from copycat_agent.model import Column

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MILLIS_DIGITS = 3
_SIMPLE: dict[str, Any] = {
    "string": "string", "boolean": "boolean", "tinyint": "int", "smallint": "int", "int": "int", "bigint": "long", "float": "float",
    "double": "double", "binary": "bytes", "void": "null",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip


def avro_of(columns: tuple[Column, ...], name: str) -> dict[str, Any]:
    """A record of this name. Raises BadSchemaError for a name or a type that Avro does not have."""
    return _record([(column.name, parse_type(column.type), column.nullable) for column in columns], name, set())


def _record(fields: list[tuple[str, SqlType, bool]], name: str, taken: set[str]) -> dict[str, Any]:
    """`taken` are the names of records so far, which have to differ."""
    while name in taken:
        name += "_"
    taken.add(name)
    made = []
    for field, type_, nullable in fields:
        if not _NAME.fullmatch(field):
            raise BadSchemaError(f"{field[:100]!r} cannot be a field's name in Avro; rename it")
        made.append({"name": field, **_field(_type(type_, f"{name}_{field}", field, taken), nullable=nullable)})
    return {"type": "record", "name": name, "fields": made}


def _field(type_: Any, *, nullable: bool) -> dict[str, Any]:  # noqa: ANN401 - JSON
    if type_ == "null":
        return {"type": "null", "default": None}
    return {"type": ["null", type_], "default": None} if nullable else {"type": type_}


def _type(type_: SqlType, name: str, field: str, taken: set[str]) -> Any:  # noqa: ANN401 - JSON
    """`name` is for a record, `field` for words, `taken` see `_record`."""
    if type_.word in _SIMPLE:
        return _SIMPLE[type_.word]
    if type_.word == "decimal":
        precision, scale = (*type_.numbers, 0)[:2] if type_.numbers else (10, 0)
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    if type_.word == "time":
        digits = type_.numbers[0] if type_.numbers else 6
        unit, base = ("millis", "int") if digits <= _MILLIS_DIGITS else ("micros", "long")
        return {"type": base, "logicalType": f"time-{unit}"}
    if type_.word == "array" and type_.parts:
        return {"type": "array", "items": _or_null(_type(type_.parts[0][1], f"{name}_item", field, taken))}
    if type_.word == "map" and len(type_.parts) == 2 and type_.parts[0][1].word == "string":  # noqa: PLR2004 - key and value
        return {"type": "map", "values": _or_null(_type(type_.parts[1][1], f"{name}_value", field, taken))}
    if type_.word == "struct":
        return _record([(part, inner, True) for part, inner in type_.parts], name, taken)
    raise BadSchemaError(f"field {field[:100]!r} is of type {type_.word}, for which Avro has none")


def _or_null(type_: Any) -> Any:  # noqa: ANN401 - JSON
    return type_ if type_ == "null" else ["null", type_]
