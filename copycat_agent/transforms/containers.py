r"""`json` parses a JSON object; `cri` and `docker` unwrap what a program wrote from the lines of its container runtime.

`json` reads as the format jsonl reads its lines: no number loses digits, and only objects are accepted.

CRI: `2026-11-21T05:00:00.123456789Z stdout F message`. Docker's json-file: `{"log":"message\n","stream":"stdout","time":"..."}`. A record
may be several such lines: parts of one message, which framing has joined, or messages that `multiline` has joined.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.json_values import parse
from copycat_agent.model import Column
from copycat_agent.options import Field
from copycat_agent.transforms.base import Columns, Steady, StepOptions, TransformKind
from copycat_agent.transforms.parsing import Dated, ParseOptions, dated_step, parse_step, parsed_columns
from copycat_agent.transforms.times import compile_times

_BOM = b"\xef\xbb\xbf"


class JsonStepOptions(StepOptions):
    """Parses JSON."""

    json_: ParseOptions = Field(alias="json", description="Parses a JSON object.")


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Returns the fields of a JSON object; of a repeated name the last value. Raises DataError for everything else, without the text."""
    raw = text if isinstance(text, bytes) else _encoded(text)
    value = parse(raw)
    if type(value) is dict:
        return value
    if raw.startswith(_BOM):
        return parse_object(raw[len(_BOM) :])
    if not raw.strip():
        msg = "not JSON: there is nothing in it"
    elif isinstance(value, Unparsed):
        msg = value.why
    else:
        msg = f"JSON, but {_kind(raw)}, not an object"
    raise DataError(msg)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        pass  # the error raised below shows nothing of it
    raise DataError("not JSON: half of a surrogate pair")


def _kind(raw: bytes) -> str:
    """Returns the kind of a valid JSON text that is not an object, in words."""
    first = raw.lstrip()[:1]
    return {b"[": "a list", b'"': "a text", b"n": "null", b"t": "a boolean", b"f": "a boolean"}.get(first, "a number")


JSON = TransformKind(JsonStepOptions, lambda options: Steady(parse_step(options.json_, parse_object, takes_bytes=True)))


_CRI = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[^ ]+) (stdout|stderr) ([FP])(?::[^ ]*)?(?: (.*))?\Z", re.DOTALL)
_NOT_CRI = "not a line of CRI: time stdout|stderr F|P message"
_NOT_DOCKER = "not a line of Docker's json-file: an object with log, stream and time"
_WHOLE, _PART = "F", "P"
_COLUMNS = (Column("time"), Column("stream"), Column("logtag"), Column("message"))

_Line = tuple[str, str, str, str, Any]
"""Time, stream, F or P, message, and attributes or None."""


class CriStepOptions(StepOptions):
    """Unwraps lines of CRI."""

    cri: ParseOptions = Field(
        description="Unwraps lines of containerd and CRI-O into time, stream, logtag (F, or P when the end of the message is missing) and "
        "message. Parts of a message are one record. Sets the record's time. {} or {field, into, keep_source}."
    )


class DockerStepOptions(StepOptions):
    """Unwraps lines of Docker."""

    docker: ParseOptions = Field(
        description="Unwraps lines of Docker's json-file into time, stream, logtag (F, or P when the end of the message is missing) and "
        "message; attrs too where there are some. Parts of a message are one record. Sets the record's time. {} or {field, into, "
        "keep_source}."
    )


def _cri_line(text: str) -> _Line:
    match = _CRI.match(text)
    if match is None:
        raise DataError(_NOT_CRI)
    when, stream, tag, message = match.groups("")
    return when, stream, tag, message, None


def _docker_line(text: str) -> _Line:
    try:
        value = parse(text.encode())
    except UnicodeEncodeError:
        value = None
    if isinstance(value, dict):
        message, stream, when = value.get("log"), value.get("stream"), value.get("time")
        if isinstance(message, str) and isinstance(stream, str) and isinstance(when, str):
            is_whole = message.endswith("\n")
            return when, stream, _WHOLE if is_whole else _PART, message.removesuffix("\n"), value.get("attrs")
    raise DataError(value.why if isinstance(value, Unparsed) else _NOT_DOCKER)


def _unwrapper(read: Callable[[str], _Line]) -> Dated:
    """Returns a parser of one line, or of several: parts are joined without a separator, whole messages with a newline."""
    time_of = compile_times(("rfc3339",)).bind_us()

    def unwrap(text: str) -> tuple[dict[str, Any], int | None]:
        lines = text.removesuffix("\n")  # a part of a record that continues ends with a newline
        if "\n" in lines:
            when, stream, tag, message, attributes = _joined([read(line) for line in lines.split("\n")])
        else:
            when, stream, tag, message, attributes = read(lines)
        if len(lines) < len(text) and tag == _WHOLE:
            message += "\n"
        fields = {"time": when, "stream": stream, "logtag": tag, "message": message}
        if attributes is not None:
            fields["attrs"] = attributes
        return fields, time_of(when) // 1000

    return unwrap


def _joined(lines: list[_Line]) -> _Line:
    parts: list[str] = []
    for number, (_, _, tag, message, _) in enumerate(lines, 1):
        parts.append(message)
        if tag == _WHOLE and number < len(lines):
            parts.append("\n")
    when, stream, _, _, attributes = lines[0]
    return when, stream, lines[-1][2], "".join(parts), attributes


def _docker_columns(options: DockerStepOptions, before: Columns | None) -> Columns | None:
    return parsed_columns(options.docker, (*_COLUMNS, Column("attrs", "map<string, string>")), before)


CRI = TransformKind(
    CriStepOptions,
    lambda options: Steady(dated_step(options.cri, _unwrapper(_cri_line))),
    lambda options, before: parsed_columns(options.cri, _COLUMNS, before),
)
DOCKER = TransformKind(DockerStepOptions, lambda options: Steady(dated_step(options.docker, _unwrapper(_docker_line))), _docker_columns)
