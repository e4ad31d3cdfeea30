"""`json`: the fields of a JSON object, read as the format jsonl reads its lines: no number loses digits, and nothing else is an object."""

from __future__ import annotations

from typing import Any

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.trees.json_values import parse
from copycat_agent.options import Field
from copycat_agent.transforms.base import Steady, StepOptions, Transform, TransformKind
from copycat_agent.transforms.parsing import ParseOptions, parse_step

_BOM = b"\xef\xbb\xbf"


class JsonStepOptions(StepOptions):
    """Parses JSON."""

    json_: ParseOptions = Field(alias="json", description="Parses a JSON object.")


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The fields of a JSON object, a name that is there twice by its last value. DataError for everything else, in words without it."""
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
        pass  # what is raised below shows nothing of it
    msg = "not JSON: half of a surrogate pair"
    raise DataError(msg)


def _kind(raw: bytes) -> str:
    """What a valid JSON text is that is no object."""
    first = raw.lstrip()[:1]
    return {b"[": "a list", b'"': "a text", b"n": "null", b"t": "a boolean", b"f": "a boolean"}.get(first, "a number")


def _build(options: JsonStepOptions) -> Transform:
    return Steady(parse_step(options.json_, parse_object, takes_bytes=True))


JSON = TransformKind(JsonStepOptions, _build)
