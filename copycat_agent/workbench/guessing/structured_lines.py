"""Recognises lines with a syntax: JSON, `key=value`, tables, and the envelopes of container runtimes."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from copycat_agent.workbench.guessing.guesses import Guess, Recogniser, StepGuess, Value, field_with_time, format_of

_DELIMITERS = (",", ";", "\t", "|")
_ENOUGH_ROWS = 0.9
_FEWEST_ROWS, _FEWEST_COLUMNS, _SURE_COLUMNS = 2, 2, 3
_NAME = re.compile(r"[A-Za-z_][\w.\-/()%#]*( [\w.\-/()%#]+){0,3}")
_WHOLE, _DECIMAL = re.compile(r"-?(0|[1-9]\d{0,17})"), re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,12})?")
_MONEY_DIGITS = 2
_ENOUGH = 0.5
_PAIR = re.compile(r'([A-Za-z_][\w.\-/@]*)=("(?:[^"\\]|\\.)*"|\S*)(?:\s+|$)')
_ENOUGH_PAIRS = 0.6
_FEWEST = 2
_LOOK_CHARACTERS = 16_384
"""Most characters of a line that are checked."""
_BETWEEN = (("|", "="), (";", "="), (",", "="), ("&", "="), ("|", ":"), (";", ":"), (",", ":"))
_CRI = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ?(?P<message>.*)")
_ENOUGH_CONTAINERS = 0.5
_INNER = {"json", "logfmt"}
"""Formats of the inner line that get a second step. A `regex` would fail on lines of other programs in the same log."""


def delimited(lines: Sequence[str]) -> Guess | None:
    """Recognises tables: the delimiter that gives most lines the same number of columns, the more the better."""
    full = [line for line in lines if line.strip()]
    found = [one for delimiter in _DELIMITERS if (one := _table(full, delimiter)) is not None]
    if not found:
        return None
    delimiter, rows, share = max(found, key=lambda one: (len(one[1][0]), one[2]))
    header = _is_header(rows)
    names = [text.strip() for text in rows[0]] if header else [f"c{number}" for number in range(1, len(rows[0]) + 1)]
    columns = dict(zip(names, zip(*rows[1:] if header else rows, strict=True), strict=True))
    layout: dict[str, Value] = {"type": "csv", "header": header}
    layout |= {"delimiter": delimiter} if delimiter != "," else {}
    types = {name: kind for name, values in columns.items() if (kind := _type(values))}
    layout |= {"types": types} if types else {}
    if len(names) < _SURE_COLUMNS and not (header and types):  # a comma in a sentence makes two columns
        return None
    what = f"table, {len(names)} columns, {_sign(delimiter)} between them, {'with' if header else 'without'} a header"
    weight = 0.9 if header else 0.6
    return Guess(what, share, weight, _steps(names, delimiter, types, header=header), layout=layout, key=_key(names) if header else "")


def _table(lines: Sequence[str], delimiter: str) -> tuple[str, list[list[str]], float] | None:
    try:
        rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return None
    if len(rows) < _FEWEST_ROWS:
        return None
    ((width, count),) = Counter(len(row) for row in rows).most_common(1)
    if width < _FEWEST_COLUMNS or count < _ENOUGH_ROWS * len(rows) or len(rows[0]) != width:
        return None
    return delimiter, [row for row in rows if len(row) == width], count / len(rows)


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    first = list(rows[0])
    if len(set(first)) < len(first) or not all(_NAME.fullmatch(text) for text in first):
        return False
    return any(first[number] not in {row[number] for row in rows[1:]} for number in range(len(first)))


def _type(values: Sequence[str]) -> str:
    """Returns the type of a format's column that fits all values; "" for text. An empty value is null, and fits every type."""
    given = [value for value in values if value != ""]
    if not given:
        return ""
    if all(_WHOLE.fullmatch(value) for value in given):
        return "int"
    if all(_DECIMAL.fullmatch(value) for value in given):
        is_money = all(len(value.partition(".")[2]) <= _MONEY_DIGITS for value in given)
        return "decimal(18,2)" if is_money else "double"
    if all(value in ("true", "false") for value in given):
        return "bool"
    if all(re.fullmatch(r"\d{4}-\d\d-\d\d", value) for value in given):
        return "date"
    return "timestamp" if format_of(given) in ("rfc3339", "iso8601") else ""


def _steps(names: Sequence[str], delimiter: str, types: dict[str, str], *, header: bool) -> tuple[StepGuess, ...]:
    """Returns steps that parse the table's lines in a log file."""
    fields = [re.sub(r"\W+", "_", name).strip("_") or f"c{number}" for number, name in enumerate(names, 1)]
    options: dict[str, Value] = {"columns": fields}
    if delimiter != ",":
        options["delimiter"] = delimiter
    steps = [StepGuess("csv", options)]
    if header:
        steps.append(StepGuess("drop_if", {fields[0]: names[0]}, "the header"))
    convert = {field: types[name] for field, name in zip(fields, names, strict=True) if name in types}
    if convert:
        steps.append(StepGuess("convert", convert, keep=True, beside={"null": ""}))
    return tuple(steps)


def _key(names: Sequence[str]) -> str:
    """Returns a template of the first column if its name is that of a key, else ""."""
    first = names[0]
    return f"{{{first}}}" if re.fullmatch(r"\w*(id|Id|ID|key|uuid)", first) else ""


def _sign(delimiter: str) -> str:
    return {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[delimiter]


def rows_of(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the JSON objects among the lines."""
    found = []
    for line in lines:
        if line.lstrip().startswith("{"):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                found.append(row)
    return found


def json_lines(lines: Sequence[str]) -> Guess | None:
    """Recognises lines that are mostly JSON objects, or an array or object over several lines."""
    rows = rows_of(lines)
    full = [line for line in lines if line.strip()] or list(lines)
    if len(rows) < _ENOUGH * len(full):
        first = full[0].strip()
        if first in ("[", "{", "[{") or (first.startswith("[") and _is_array(full)):
            words = ("a JSON document of several lines: a spooled file of format json is one; as a log file it cannot be read",)
            return Guess("JSON document", 1.0, 0.9, layout={"type": "json"}, remarks=words)
        return None
    name, form = field_with_time(rows)
    steps = [StepGuess("json", {})]
    if name:
        steps.append(StepGuess("timestamp", {"field": name, "format": form}, keep=True))
    remarks: tuple[str, ...] = (
        () if name else ("no field was found that says when a line was written: record.timestamp stays the time of sending",)
    )
    return Guess(
        "JSON, one object a line",
        len(rows) / len(full),
        0.97,
        tuple(steps),
        layout={"type": "jsonl"},
        timestamp="event" if name else "",
        remarks=remarks,
    )


def _is_array(lines: Sequence[str]) -> bool:
    try:
        json.loads("\n".join(lines))
    except (ValueError, RecursionError):
        return lines[0].lstrip()[:2] in ("[{", "[[")
    return True


def logfmt(lines: Sequence[str]) -> Guess | None:
    """Recognises lines of nothing but pairs, separated by blanks; a bare word is a flag."""
    rows = [row for line in lines if (row := _row(line)) is not None]
    if len(rows) < _ENOUGH_PAIRS * len(lines):
        return None
    return _of_pairs("logfmt", len(rows) / len(lines), 0.95, StepGuess("logfmt", {}), rows)


def _of_pairs(what: str, share: float, weight: float, parser: StepGuess, rows: Sequence[dict[str, object]]) -> Guess:
    """Returns a guess for lines of pairs, with steps for the time and the numbers in them."""
    name, form = field_with_time(rows)
    steps = [parser]
    if name:
        steps.append(StepGuess("timestamp", {"field": name, "format": form}, keep=True))
    if numbers := _numbers(rows, {name}):
        steps.append(StepGuess("convert", numbers, keep=True))
    return Guess(what, share, weight, tuple(steps), timestamp="event" if name else "")


def _row(line: str) -> dict[str, object] | None:
    row: dict[str, object] = {}
    rest = line[:_LOOK_CHARACTERS].strip()
    flags = 0
    while rest:
        match = _PAIR.match(rest)
        if match:
            row[match[1]] = match[2].strip('"')
            rest = rest[match.end() :]
        else:
            flags += 1
            rest = rest.partition(" ")[2].lstrip()
    return row if len(row) >= _FEWEST and flags * 2 <= len(row) else None


def key_value(lines: Sequence[str]) -> Guess | None:
    """Recognises lines of pairs with other separators."""
    for between, within in _BETWEEN:
        rows = [row for line in lines if (row := _split(line, between, within)) is not None]
        if len(rows) < _ENOUGH_PAIRS * len(lines):
            continue
        parser = StepGuess("key_value", {"field_split": between, "value_split": within})
        return _of_pairs(f"pairs of key {within} value with {between} between them", len(rows) / len(lines), 0.8, parser, rows)
    return None


def _split(line: str, between: str, within: str) -> dict[str, object] | None:
    parts = [part.partition(within) for part in line.strip().strip(between).split(between)]
    if len(parts) < _FEWEST or not all(sign and re.fullmatch(r"\s*[A-Za-z_][\w.\- ]*\s*", key) for key, sign, _ in parts):
        return None
    return {key.strip(): value.strip() for key, _, value in parts}


def _numbers(rows: Sequence[dict[str, object]], without: set[str]) -> dict[str, str]:
    """Returns the fields whose values are all numbers, with a type that fits them."""
    seen: Counter[str] = Counter(key for row in rows for key in row)
    found = {}
    for key in seen:
        if key in without or "." in key:
            continue
        values = [str(row[key]) for row in rows if key in row]
        if all(map(_WHOLE.fullmatch, values)):
            found[key] = "int"
        elif all(map(_DECIMAL.fullmatch, values)):
            found[key] = "double"
    return found


def recogniser(inner: Sequence[Recogniser]) -> Recogniser:
    """Returns a recogniser of container logs that also recognises the messages within, by `inner`."""

    def recognise(lines: Sequence[str]) -> Guess | None:
        cri = [match["message"] for line in lines if (match := _CRI.match(line))]
        docker = [
            row["log"].rstrip("\n") for row in rows_of(lines) if {"log", "stream", "time"} <= row.keys() and isinstance(row["log"], str)
        ]
        what, messages = ("container log, CRI", cri) if len(cri) >= len(docker) else ("container log, Docker's json-file", docker)
        share = len(messages) / len(lines)
        if share < _ENOUGH_CONTAINERS:
            return None
        steps = [StepGuess("cri" if messages is cri else "docker", {})]
        found = Guess(what, share, 1.0, tuple(steps), timestamp="event")
        guesses = [one for recogniser in inner if (one := recogniser(messages)) is not None] if messages else []
        best = max(guesses, key=lambda one: one.score, default=None)
        if best is None or best.steps[0].action not in _INNER:
            return found
        first, *others = best.steps
        rest = [step for step in others if step.action != "timestamp"]  # the runtime's time is used
        return replace(found, what=f"{what}, with {best.what} inside", steps=(*steps, replace(first, keep=True), *rest))

    return recognise
