"""Promises of declared types: what a type spells is read back as its fields, in each of Spark's spellings."""

from __future__ import annotations

import pytest

from copycat_agent.sql_types import struct_fields


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("struct<a: int, b:string>", [("a", "int"), ("b", "string")]),
        ("struct<name struct<a: int>>", [("name", "struct<a: int>")]),
        ("struct<a int, b: array<struct<c: map<string,int>>>>", [("a", "int"), ("b", "array<struct<c: map<string,int>>>")]),
        ("struct<`a b`: int, `c``d` decimal(10,2)>", [("a b", "int"), ("c`d", "decimal(10,2)")]),
        ("struct<>", []),
        ("array<int>", None),
    ],
)
def test_the_fields_of_a_struct_are_found(text: str, fields: list[tuple[str, str]] | None) -> None:
    assert struct_fields(text) == fields
