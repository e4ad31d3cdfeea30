"""The page to try a definition on pasted lines. It shows what `copycat try --verbose` prints: each step, and where a pattern failed.

The definition is not trusted. A child process without the agent's environment tries it, and `copycat try` opens no secret, and no schema
but those that the agent's own definitions name.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from copycat_agent.api.page.markup import Html, joined, tag, text_area
from copycat_agent.api.page.page_frame import Fields, View, ViewContext, ran
from copycat_agent.converters.schema_options import SchemaFile
from copycat_agent.definitions.secret_values import without_secret_values
from copycat_agent.errors import CopycatError, UnknownConnectorError
from copycat_agent.small_files import read_small_file

RECORDS = 100
"""Most records tried."""
MEMORY_BYTES = 2**30
"""Limit of the child's data segment."""
_FILE_BYTES_MAX = 64 * 1024
_DEFINITION, _LINES, _SCHEMAS = "definition.yaml", "lines.log", "schemas"
_TRIED = frozenset({"name", "source", "record", "transforms", "converters", "errors"})
"""Sections of a definition that matter for a sample."""
_SECTION = re.compile(r"([a-z_]+):")
_EXAMPLE = """\
name: app
source: {type: log_file, include: [/var/log/app.log]}
transforms:
  - regex: '^(?P<client>\\S+) (?P<status>\\d+) (?P<rest>.*)$'
  - convert: {status: int}
record: {topic: logs.app, key: "{client}"}
converters: {value: json}
"""
_SAMPLE = "192.0.2.7 200 GET /\n192.0.2.8 - GET /\n"


def try_page(moment: ViewContext, _name: str, fields: Fields) -> View:
    """Returns the form, with the definition of the connector in the query, if any. Raises UnknownConnectorError."""
    name = fields.get("connector", "")
    definition = _without_secrets(moment, name) if name else _EXAMPLE
    return View("Try a definition", _form(definition, "" if name else _SAMPLE, Html()))


def tried(moment: ViewContext, _name: str, fields: Fields) -> View:
    """Tries the definition. Returns the result with the form."""
    definition, lines = fields.get("definition", ""), fields.get("lines", "")
    arguments = ("try", "-d", _DEFINITION, "-v", "-n", str(RECORDS), "--schemas", _SCHEMAS, _LINES)
    files = {_DEFINITION: definition, _LINES: lines, _SCHEMAS: "\n".join(_schemas(moment))}
    result = moment.commands.apart(*arguments, files=files, memory_bytes=MEMORY_BYTES)
    return View("Try a definition", _form(definition, lines, joined(tag("h2", "What came of it"), ran(result))))


def _schemas(moment: ViewContext) -> set[str]:
    """Returns the paths of schemas in the agent's own definitions. Messages about any other file would reveal its contents."""
    found: set[str] = set()
    for one in moment.control.statuses():
        with contextlib.suppress(UnknownConnectorError):
            converters = moment.control.definition(one.name).converters
            parts = [part for part in (converters.key, converters.value) if part is not None]
            found |= {value.path for part in parts for _, value in part if isinstance(value, SchemaFile)}
    return found


def _form(definition: str, lines: str, result: Html) -> Html:
    words = f"The first {RECORDS} records, step by step. Nothing is sent, no offset moves, and no secret or variable is opened."
    fields = joined(
        tag("label", "Definition", for_="definition"),
        text_area("definition", definition, 16),
        tag("label", "Lines", for_="lines"),
        text_area("lines", lines, 6),
        tag("p", tag("button", "Try", class_="does")),
    )
    return joined(tag("h1", "Try a definition"), tag("p", words), result, tag("form", fields, method="post", class_="fields"))


def _without_secrets(moment: ViewContext, name: str) -> str:
    """Returns the sections of the definition's file that matter for a sample. Secrets, and values named like one, are hidden."""
    mask, text = moment.control.definition(name).mask, ""
    with contextlib.suppress(OSError, CopycatError):
        text = read_small_file(Path(moment.control.path(name)), _FILE_BYTES_MAX).decode("utf-8", "replace")
    kept, is_kept = [], True
    for line in without_secret_values(text).split("\n"):
        if section := _SECTION.match(line):
            is_kept = section[1] in _TRIED
        if is_kept:
            kept.append(mask.text(line))
    return "\n".join(kept).rstrip("\n") + "\n"
