"""Saved offsets as JSON, for `copycat offsets export` and the agent's socket, and back without loss."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from copycat_agent.errors import DataError
from copycat_agent.model import (
    EARLIER_STATE_KEY,
    STATE_KEY,
    Fingerprint,
    SavedRow,
    SourceOffset,
    SourcePartition,
    SourceState,
    as_earlier_version,
    from_earlier_version,
    offsets_in,
    state_partition,
)
from copycat_agent.offsets.saved_rows import LARGEST

Kinds = dict[str, type[int | str]]

PROVIDE = "partitions/offsets need to be provided"
_SHOWN = 60
"""Most characters of a wrong value in a message."""
_LARGEST_TIME = 10**9 * 2**63
"""Largest time of a file that the kernel can represent, in nanoseconds."""
_KEY = re.compile(r"[!-~]{1,255}")
_KINDS: Kinds = {
    "position": int, "records": int, "size": int, "gone_ms": int, "done": bool, "skipping": bool, "path": str, "compression": str,
    "mtime_ns": int, "trouble": str, "cut": str, "cursor": str,
}  # fmt: skip
_PRINT_KINDS: Kinds = {"head_bytes": int, "head": str, "tail_bytes": int, "tail": str}
_WORDS: dict[type, str] = {int: "a whole number from 0", bool: "true or false", str: "text"}


def to_document(partition: SourcePartition, offset: SourceOffset) -> dict[str, Any]:
    """Returns `{"key": ..., "offset": {...}}`, one offset as JSON values.

    A path that is not UTF-8 has its other bytes escaped in `path`, and is complete in `path_base64`.
    """
    values = asdict(offset)
    raw = offset.path.encode("utf-8", "surrogateescape")
    try:
        raw.decode()
    except UnicodeDecodeError:
        values["path"] = raw.decode("utf-8", "backslashreplace")
        values["path_base64"] = base64.b64encode(raw).decode()
    return {"key": partition.key, "offset": values}


def from_document(connector: str, document: object) -> tuple[SourcePartition, SavedRow | None]:
    """Parses a result of `to_document`; an offset of null, which means "delete it", becomes None. An earlier version's may be a state.

    An offset must have a `position`; other fields default to 0, false or empty. Raises DataError, which names the field.
    """
    if not isinstance(document, dict) or document.keys() != {"key", "offset"}:
        raise DataError(f"{_shown(document)} is not of the form {{key, offset}}", PROVIDE)
    key = document["key"]
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        msg = f"the key of an offset has to be a word of up to 255 plain characters, not {_shown(key)}"
        raise DataError(msg, "copycat offsets export shows the keys there are")
    values = document["offset"]
    return from_earlier_version(SourcePartition(connector, key), None if values is None else _offset(values, key))


def _offset(document: object, key: str) -> SourceOffset:
    values = _map(document, f"the offset of {key}")
    raw, print_ = values.pop("path_base64", None), values.pop("fingerprint", None)
    if "position" not in values:
        raise DataError(f"the offset of {key} has no position", "give the next byte to read")
    _check(values, _KINDS, key)
    _check_cursor(values.get("cursor", ""), key)
    if raw is not None:
        values["path"] = _decoded(raw, key)
    if print_ is not None:
        values["fingerprint"] = _fingerprint(_map(print_, f"the fingerprint of {key}"), key, values)
    return SourceOffset(**values)


def to_documents(saved: Mapping[SourcePartition, SavedRow]) -> dict[str, Any]:
    """Returns all rows of a connector as `{"offsets": [...]}`, sorted by path and key, with `"state": {...}` if it has one.

    A state that earlier versions kept as an offset is also among the offsets, so that they can import the document.
    """
    offsets, told = offsets_in(saved), {}
    for partition, row in saved.items():
        if isinstance(row, SourceState):
            told["state"] = dict(row.values)
            earlier = as_earlier_version(row)
            offsets |= {} if earlier is None else {SourcePartition(partition.connector, EARLIER_STATE_KEY): earlier}
    ordered = sorted(offsets.items(), key=lambda item: (item[1].path, item[0].key))
    return {"offsets": [to_document(partition, offset) for partition, offset in ordered], **told}


def changes_document(changes: Mapping[SourcePartition, SavedRow | None]) -> dict[str, Any]:
    """Returns rows to save, and to delete (None), as a document for `from_documents`."""
    given = {partition: row for partition, row in changes.items() if row is not None}
    told = to_documents(given)
    deleted = [partition for partition in changes if partition not in given]
    told["offsets"] += [{"key": one.key, "offset": None} for one in deleted if one.key != STATE_KEY]
    return {**told, **({"state": None} if any(one.key == STATE_KEY for one in deleted) else {})}


def from_documents(connector: str, body: object) -> dict[SourcePartition, SavedRow | None]:
    """Parses a result of `to_documents` or `changes_document`. None is a row to delete.

    An offset to save is `not_beyond` its cursor. Raises DataError for anything else, for a duplicate key, and for an empty document.
    """
    found = _rows(connector, body)
    return {one: not_beyond(row) if isinstance(row, SourceOffset) else row for one, row in found.items()}


def not_beyond(row: SourceOffset) -> SourceOffset:
    """Returns the row with a `position` that is not beyond the offset in its cursor: no later commit may be before `position`."""
    cursor = json.loads(row.cursor or "0")
    offset = cursor.get("offset") if isinstance(cursor, dict) else None
    return replace(row, position=min(row.position, offset)) if type(offset) is int and offset >= 0 else row


def saved_rows(connector: str, body: Mapping[str, Any]) -> dict[SourcePartition, SavedRow]:
    """Parses the rows of a connector from an agent's answer, which may be empty."""
    found = _rows(connector, body) if body["offsets"] or "state" in body else {}
    return {partition: row for partition, row in found.items() if row is not None}


def _rows(connector: str, body: object) -> dict[SourcePartition, SavedRow | None]:
    documents = body.get("offsets", []) if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(documents, list) or not (documents or "state" in body):
        raise DataError(PROVIDE, 'as in {"offsets": [{"key": ..., "offset": {"position": ...}}]}, what copycat offsets export writes')
    found: dict[SourcePartition, SavedRow | None] = {}
    for document in documents:
        partition, row = from_document(connector, document)
        if partition in found:
            raise DataError(f"the key {partition.key} comes twice")
        found[partition] = row
    if "state" in body:
        found[state_partition(connector)] = None if body["state"] is None else SourceState(_map(body["state"], "the state"))
    return found


def _map(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{what} is not a map of fields: {_shown(value)}")
    return dict(value)


def _check(values: dict[str, Any], kinds: Kinds, key: str) -> None:
    for name, value in values.items():
        kind = kinds.get(name)
        if kind is None:
            msg = f"the offset of {key} has an unknown field {_shown(name)}"
            raise DataError(msg, f"fields are {', '.join([*(field.name for field in fields(SourceOffset))])}")
        least, largest = (-_LARGEST_TIME, _LARGEST_TIME) if name == "mtime_ns" else (0, LARGEST)
        if type(value) is not kind or (isinstance(value, int) and not least <= value <= largest):  # bool is an int for isinstance
            raise DataError(f"{name} of {key} has to be {_WORDS[kind]}, not {_shown(value)}")
        if isinstance(value, str) and not _is_utf8(value):
            raise DataError(f"{name} of {key} is not UTF-8", "give the bytes in path_base64")


def _check_cursor(text: str, key: str) -> None:
    try:
        json.loads(text or "0")
    except (ValueError, RecursionError):
        msg = f"cursor of {key} has to be the text of a JSON value, not {_shown(text)}"
        raise DataError(msg, "copycat offsets export shows what it looks like") from None


def _decoded(raw: object, key: str) -> str:
    try:
        return base64.b64decode(raw if isinstance(raw, str) else "?", validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        raise DataError(f"path_base64 of {key} is not base64: {_shown(raw)}") from None


def _fingerprint(values: dict[str, Any], key: str, offset: Mapping[str, Any]) -> Fingerprint:
    """Parses a fingerprint. Raises DataError if it covers bytes after the position: it would make the file look changed for ever.

    The fingerprint of a whole packed file may be longer than its unpacked contents. A position equal to the number of records counts
    records (each record has at least a byte), and cannot be compared with bytes.
    """
    _check(values, _PRINT_KINDS, key)
    found, position = Fingerprint(**values), offset["position"]
    is_whole = found.head_bytes == offset.get("size") or 0 < position == offset.get("records")
    for size, digest, fits in ((found.head_bytes, found.head, is_whole), (found.tail_bytes, found.tail, False)):
        if (size > position and not fits) or bool(size) != bool(digest):
            raise DataError(f"the fingerprint of {key} does not fit its position {position}", "copycat offsets set makes one that does")
    return found


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
