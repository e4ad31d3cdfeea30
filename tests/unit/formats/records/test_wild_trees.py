"""Files nobody here wrote: whatever JSON and XML this host has, against the parsers of Python."""

from __future__ import annotations

import itertools
import json
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from tests.unit.formats.records.rig import Reading, read_all, resumes
from tests.unit.formats.records.trees import form

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOTS = (Path("/usr/share"), Path(sysconfig.get_paths()["purelib"]))
MOST_BYTES = 200_000
RESUMED_BYTES = 3000
"""Of a file that is read from each of its places; a larger one is read once in whole and once in small blocks."""


def found(endings: tuple[str, ...], most: int) -> list[Path]:
    """Up to so many files of each root, no two of one directory."""
    files: list[Path] = []
    for root in ROOTS:
        files += itertools.islice(_different(root, endings), most)
    return files


def _different(root: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    seen: set[Path] = set()
    for path in root.rglob("*"):
        if path.suffix in endings and path.parent not in seen and path.is_file() and 0 < path.stat().st_size <= MOST_BYTES:
            seen.add(path.parent)
            yield path


def read(type_: str, data: bytes) -> Reading:
    if len(data) <= RESUMED_BYTES:
        return resumes(form(type_), data)
    whole, again = read_all(form(type_), data), read_all(form(type_), data, packed=True, block_bytes=1)
    assert (again.seen, again.damage) == (whole.seen, whole.damage)
    return whole


def test_json_files_hold_what_python_finds_in_them() -> None:
    files = found((".json", ".ipynb", ".geojson"), 15)
    for path in files:
        data = path.read_bytes()
        try:
            whole = json.loads(data)
        except ValueError:
            read("json", data)  # whatever it is
            continue
        reading = read("json", data)
        assert not reading.damage, path
        values = [json.loads(value) if isinstance(value, bytes) else value for value in reading.values]
        assert values == (whole if isinstance(whole, list) else [whole]), path
    if not files:
        pytest.skip("this host has no JSON files")


def test_json_files_put_together_are_the_elements_of_an_array_and_lines() -> None:
    texts = [path.read_bytes() for path in found((".json",), 15)]
    objects = [text for text in texts if text.lstrip().startswith(b"{") and _is_json(text)]
    values = [json.loads(text) for text in objects]
    assert read_all(form("json"), b"[" + b",".join(objects) + b"]").values == values
    assert read_all(form("json"), b"\n".join(objects), packed=True, block_bytes=5000).values == values
    assert read_all(form("json", path="a.b"), b'{"x":[],"a":{"b":[' + b" , ".join(objects) + b"]}}").values == values
    lines = b"\n".join(json.dumps(value).encode() for value in values)
    assert read_all(form("jsonl"), lines).values == values


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_xml_files_hold_what_python_finds_in_them() -> None:
    files = found((".xml", ".svg", ".xsd", ".xsl", ".rng", ".dtd"), 15)
    for path in files:
        data = path.read_bytes()
        reading = read("xml", data)
        if b"<!ENTITY" in data:
            assert reading.damage
            continue
        try:
            root = ET.fromstring(data)  # noqa: S314 - files of this host
        except (ET.ParseError, ValueError, LookupError):
            assert reading.damage or reading.bad, path
            continue
        assert not reading.damage, path
        assert reading.values == [_fields(child) for child in root], path
    if not files:
        pytest.skip("this host has no XML files")


def _fields(element: ET.Element) -> dict[str, Any]:
    value = _value(element)
    return value if isinstance(value, dict) else {} if value is None or value.isspace() else {"#text": value}


def _value(element: ET.Element) -> dict[str, Any] | str | None:
    """The rules again, over a tree."""
    pairs: list[tuple[str, Any]] = [(f"_{_local(name)}", value) for name, value in element.attrib.items()]
    pairs += [(_local(child.tag), _value(child)) for child in element]
    fields: dict[str, Any] = {}
    for name, value in pairs:
        known = fields.get(name)
        fields[name] = value if name not in fields else [*known, value] if isinstance(known, list) else [known, value]
    text = (element.text or "") + "".join(child.tail or "" for child in element)
    if not fields:
        return text or None
    return fields | ({} if not text.strip() else {"#text": text.strip()})


def _local(name: str) -> str:
    return name.rpartition("}")[2]
