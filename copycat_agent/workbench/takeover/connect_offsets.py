"""Reads the offsets of a standalone worker of Kafka Connect: `offset.storage.file.filename`, a serialized `HashMap<byte[], byte[]>`.

The file is in Java's Object Serialization Stream Protocol (version 5). Anything but this map is an error, so that classes in a hostile file
have no effect. A key is the JSON text `["connector", {source partition}]`, a value that of the source offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from copycat_agent.errors import CopycatError
from copycat_agent.workbench.takeover.peer_state import PeerPosition, PeerState, StateFile, read_state

_MAGIC = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _ARRAY, _BLOCK, _END = 0x70, 0x71, 0x72, 0x73, 0x75, 0x77, 0x78
_FIRST_HANDLE = 0x7E0000
_SIZES = {"B": 1, "C": 2, "D": 8, "F": 4, "I": 4, "J": 8, "S": 2, "Z": 1}
"""Sizes of Java's primitive types in bytes, by their letter in a class description."""
_DISTRIBUTED = "a distributed worker keeps offsets in a topic: export them with its REST API, and set them with copycat offsets set"


def read(where: Path) -> PeerState:
    """Returns the offsets of FileStreamSource and SpoolDir in a worker's file. Raises CopycatError."""
    if where.is_dir():
        raise CopycatError(f"{where} is a directory", f"name the file that the worker has as offset.storage.file.filename; {_DISTRIBUTED}")
    file = read_state(where)
    positions, others = [], 0
    for key, value in _SerializedObject(file).pairs():
        found = _position(file, key, value)
        if found is None:
            others += 1
        else:
            positions.append(found)
    notes = (f"{others} offsets in {where} are of other connectors than FileStreamSource and SpoolDir, or are deleted",) if others else ()
    return PeerState(tuple(positions), file.changed_ns, notes)


def _position(file: StateFile, key: bytes, value: bytes | None) -> PeerPosition | None:
    """Returns a position; None for a deleted offset, and for sources of other kinds."""
    named, offset = file.parsed(key, "a key is "), None if value is None else file.parsed(value, "an offset is ")
    if not (isinstance(named, list) and len(named) == 2 and isinstance(named[0], str) and isinstance(named[1], dict)):  # noqa: PLR2004
        raise file.broken(f"a key is {key!a:.60}, and not [connector, partition]")
    pipeline, partition = named
    if not isinstance(offset, dict):
        return None
    if "filename" in partition and "position" in offset:
        path = file.text(partition["filename"], f"a file name of {pipeline!a:.60}")
        return PeerPosition(_number(file, offset, "position", path), path, pipeline=pipeline, in_characters=True)
    if "fileName" in partition and "offset" in offset:
        path = file.text(partition["fileName"], f"a file name of {pipeline!a:.60}")
        return PeerPosition(_number(file, offset, "offset", path), path, pipeline=pipeline, in_lines=True)
    return None


def _number(file: StateFile, offset: dict[str, Any], name: str, path: str) -> int:
    return file.number(offset[name], f"the {name} of {path!a:.200}")


class _SerializedObject:
    """Reads a serialized object from its first byte to its last. Methods raise CopycatError for anything unknown."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._at = 0
        self._handles: list[object] = []

    def pairs(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yields the entries of the map."""
        if self._take(len(_MAGIC)) != _MAGIC:
            raise self._wrong("it does not begin as Java's serialized objects do")
        self._expect(_OBJECT)
        self._take(sum(_SIZES[kind] for kind in self._class("java.util.HashMap")))  # its fields
        self._expect(_BLOCK)
        size = self._take(1)[0]
        if size != 8:  # noqa: PLR2004 - the number of buckets, and of entries
            raise self._wrong("it is no map as HashMap writes it")
        _, entries = struct.unpack(">ii", self._take(size))
        for _ in range(entries):
            key, value = self._bytes(), self._bytes()
            if key is None:
                raise self._wrong("a key is null")
            yield key, value
        self._expect(_END)
        if self._at != len(self._file.content):
            raise self._wrong("more follows behind the map")

    def _bytes(self) -> bytes | None:
        tag = self._take(1)[0]
        if tag == _NULL:
            return None
        if tag == _REFERENCE:
            found = self._referred()
            if not isinstance(found, bytes):
                raise self._wrong("it refers to what is no array of bytes")
            return found
        if tag != _ARRAY:
            raise self._wrong(f"an entry is of type {tag:#x}, and no array of bytes")
        self._class("[B")
        place = len(self._handles)
        self._handles.append(None)
        found = self._take(self._integer())
        self._handles[place] = found
        return found

    def _class(self, wanted: str) -> list[str]:
        """Reads a class description, which must have the name `wanted`. Returns the types of its fields."""
        tag = self._take(1)[0]
        if tag == _REFERENCE:
            found = self._referred()
            if found != (wanted, []):
                raise self._wrong(f"it refers to what is not class {wanted}")
            return []
        if tag != _CLASS or self._name() != wanted:
            raise self._wrong(f"another class than {wanted} is in it")
        self._take(9)  # serialVersionUID and flags
        types = [self._field() for _ in range(self._short())]
        self._expect(_END)
        self._expect(_NULL)  # no class above it
        self._handles.append((wanted, types))
        if wanted != "[B":
            self._handles.append(None)  # the object itself
        return types

    def _field(self) -> str:
        kind = chr(self._take(1)[0])
        self._name()
        if kind not in _SIZES:
            raise self._wrong("the map has a field that is an object")
        return kind

    def _referred(self) -> object:
        number = self._integer() - _FIRST_HANDLE
        if not 0 <= number < len(self._handles):
            raise self._wrong("it refers to nothing")
        return self._handles[number]

    def _name(self) -> str:
        return self._take(self._short()).decode("utf-8", "backslashreplace")

    def _short(self) -> int:
        return int.from_bytes(self._take(2), "big")

    def _integer(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def _expect(self, tag: int) -> None:
        found = self._take(1)[0]
        if found != tag:
            raise self._wrong(f"{tag:#x} was expected, and {found:#x} is there")

    def _take(self, size: int) -> bytes:
        found = self._file.content[self._at : self._at + size]
        if len(found) < size:
            raise self._wrong("it ends in the middle")
        self._at += size
        return found

    def _wrong(self, why: str) -> CopycatError:
        return self._file.broken(f"not the offsets of a standalone worker: {why} (at byte {self._at})", _DISTRIBUTED)
