"""Files of every format, dropped into a directory: each record carries where it belongs, in a form that every format keeps."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cramjam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from copycat_agent.formats.records import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_MARK = re.compile(rb"([0-9a-f]{8})~([\w.-]+)~(\d+)~([0-9a-f]{8})")
_PADDING = "0123456789 abcdefghij KLMNOPQRST" * 4
_SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "mark", "type": "string"}, {"name": "n", "type": "long"}, {"name": "pad", "type": "string"}],
}


def mark(run: str, file: str, number: int) -> str:
    """What makes a record known wherever it comes to lie."""
    head = f"{run}~{file}~{number}"
    return f"{head}~{zlib.crc32(head.encode()):08x}"


def parse_mark(run: str, value: bytes) -> tuple[str, int] | None:
    """(file, number) of the record of this run that `value` carries; None when there is none, or not just one, or it is harmed."""
    found = _MARK.findall(value)
    if len(found) != 1:
        return None
    of, file, number, crc = found[0]
    is_sound = of.decode() == run and int(crc, 16) == zlib.crc32(b"~".join((of, file, number)))
    return (file.decode(), int(number)) if is_sound else None


Row = tuple[str, int, str]
"""Mark, number, padding."""


@dataclass(frozen=True)
class Shape:
    """How files of a format are written, and what a definition says of them. `single`: a file is one record."""

    write: Callable[[Sequence[Row]], bytes]
    options: dict[str, Any]
    single: bool = False
    packs: bool = True


def _fields(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    return ({"mark": one, "n": number, "pad": pad} for one, number, pad in rows)


def _lines(rows: Sequence[Row]) -> bytes:
    return "".join(f"{one} {pad}\n" for one, _, pad in rows).encode()


def _csv(rows: Sequence[Row]) -> bytes:
    return ("mark,n,pad\n" + "".join(f'{one},{number},"{pad}, ""x""\n"\n' for one, number, pad in rows)).encode()


def _fixed_width(rows: Sequence[Row]) -> bytes:
    return "".join(f"{one:<64}{number:>10}{pad[:20]:<20}\n" for one, number, pad in rows).encode()


def _w3c(rows: Sequence[Row]) -> bytes:
    head = "#Version: 1.0\n#Fields: mark n pad\n"
    return (head + "".join(f'{one} {number} "{pad}"\n' for one, number, pad in rows)).encode()


def _jsonl(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in _fields(rows)).encode()


def _json(rows: Sequence[Row]) -> bytes:
    return json.dumps(list(_fields(rows)), indent=1).encode()


def _xml(rows: Sequence[Row]) -> bytes:
    return (
        "<rows>" + "".join(f"<row><mark>{one}</mark><n>{number}</n><pad>{pad}</pad></row>\n" for one, number, pad in rows) + "</rows>"
    ).encode()


def _avro(rows: Sequence[Row]) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, _SCHEMA, _fields(rows), codec="deflate", sync_interval=4000)
    return file.getvalue()


def _parquet(rows: Sequence[Row]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(_fields(rows))), file, row_group_size=500)
    return file.getvalue()


def _binary(rows: Sequence[Row]) -> bytes:
    return rows[0][0].encode() + b"\0" + _PADDING.encode()


def _zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


_SHAPES = {
    "lines": Shape(_lines, {}),
    "csv": Shape(_csv, {"types": {"n": "int"}}),
    "jsonl": Shape(_jsonl, {}),
    "w3c": Shape(_w3c, {"types": {"n": "int"}}),
    "json": Shape(_json, {}),
    "xml": Shape(_xml, {"record": "/rows/row"}),
    "fixed_width": Shape(
        _fixed_width, {"columns": [{"name": name, "width": width} for name, width in (("mark", 64), ("n", 10), ("pad", 20))]}
    ),
    "avro": Shape(_avro, {}, packs=False),
    "parquet": Shape(_parquet, {}, packs=False),
    "binary": Shape(_binary, {}, single=True),
}
SHAPES = {name: _SHAPES[name] for name in FORMATS}
"""By name of the format: a new format has to be added above."""

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": _zstd,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


class Drops:
    """Writes files of a run, under a temporary name first, and knows how many records each has."""

    def __init__(self, directory: Path, run: str, dice: random.Random, largest: int) -> None:
        self.directory = directory
        self.run = run
        self.expected: dict[str, int] = {}
        """Name of each file that was dropped -> its records."""
        self.truncated: dict[str, int] = {}
        """The same, of files that are packed and cut off: their first records, up to so many, may arrive."""
        self._dice = dice
        self._largest = largest

    def drop(self, form: str) -> None:
        """One file of this format, packed or not."""
        shape = SHAPES[form]
        packing = self._dice.choice(list(PACKINGS)) if shape.packs and self._dice.random() < 0.5 else ""
        name = f"{form}-{len(self.expected):04d}.{form}{packing}"
        count = 1 if shape.single else self._dice.randint(1, self._largest)
        self._put(name, PACKINGS[packing](shape.write(self._rows(name, count))))
        self.expected[name] = count

    def drop_truncated(self, form: str) -> None:
        """A packed file that ends too soon."""
        name = f"{form}-bad-{len(self.truncated)}.{form}.gz"
        data = gzip.compress(SHAPES[form].write(self._rows(name, self._largest)))
        self._put(name, data[: len(data) * 3 // 4])
        self.truncated[name] = self._largest

    @property
    def waiting(self) -> int:
        """Files that are still where they were dropped."""
        return sum(not path.name.startswith(".") for path in self.directory.iterdir())

    def _rows(self, name: str, count: int) -> list[Row]:
        return [(mark(self.run, name, number), number, _PADDING[: self._dice.randrange(len(_PADDING))]) for number in range(count)]

    def _put(self, name: str, data: bytes) -> None:
        hidden = self.directory / f".{name}"
        hidden.write_bytes(data)
        hidden.rename(self.directory / name)
