"""Converts the schema of a data source: DDL to PySpark's types for the reader, and those to columns of records."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import types

from copycat_agent.errors import FatalError
from copycat_agent.model import Column, Schema
from copycat_agent.transforms.paths import element_of
from copycat_agent.transforms.sql import map_of, plain_type, struct_fields

_COMMENT = re.compile(r"""\s+comment\s+(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.IGNORECASE)
_NOT_NULL = re.compile(r"\s+not\s+null\s*$", re.IGNORECASE)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_PLAIN: dict[str, types.DataType] = {
    "string": types.StringType(),
    "boolean": types.BooleanType(),
    "tinyint": types.ByteType(),
    "smallint": types.ShortType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "binary": types.BinaryType(),
}


def struct_of(schema: Any) -> types.StructType:  # noqa: ANN401 - whatever a data source returns
    """What `DataSource.schema` returned, a StructType or DDL such as `id INT, name STRING NOT NULL`, as a StructType.

    Spark's own parser of DDL lives in the JVM, and there is none where a reader plans or reads. Raises FatalError.
    """
    if isinstance(schema, types.StructType):
        return schema
    if not isinstance(schema, str):
        msg = f"the schema of the data source is a {type(schema).__name__}"
        raise FatalError(msg, "schema() returns a StructType, or DDL text such as 'id INT, name STRING'")
    try:
        return _struct(_COMMENT.sub("", schema.strip()))
    except ValueError as error:
        raise FatalError(f"the schema of the data source is not understood: {error}", "return a StructType from schema()") from None


def columns_of(struct: types.StructType) -> Schema:
    """The columns of its records."""
    return Schema(tuple(Column(field.name, field.dataType.simpleString(), field.nullable) for field in struct.fields))


def _struct(ddl: str) -> types.StructType:
    """Fields of a struct, each a name and a type. Raises ValueError."""
    whole = struct_fields(ddl)
    fields = struct_fields(f"struct<{ddl}>") if whole is None else whole
    if not fields:
        msg = "it names no column"
        raise ValueError(msg)
    return types.StructType([_field(name, kind) for name, kind in fields])


def _field(name: str, kind: str) -> types.StructField:
    nullable = not _NOT_NULL.search(kind)
    return types.StructField(name, _type(_NOT_NULL.sub("", kind)), nullable)


def _type(text: str) -> types.DataType:
    word = text.strip()
    if (element := element_of(word)) is not None:
        return types.ArrayType(_type(element))
    if (pair := map_of(word)) is not None:
        return types.MapType(_type(pair[0]), _type(pair[1]))
    if struct_fields(word):
        return _struct(word)
    plain = plain_type(word)
    if match := _DECIMAL.fullmatch(plain):
        return types.DecimalType(int(match[1]), int(match[2]))
    return _PLAIN[plain]
