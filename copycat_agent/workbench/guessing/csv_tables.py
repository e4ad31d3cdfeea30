"""Tables: delimiter, header and types of CSV and its relatives."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence

from copycat_agent.workbench.guessing.guesses import Guess, StepGuess, Value, format_of

_DELIMITERS = (",", ";", "\t", "|")
_ENOUGH = 0.9
_FEWEST_ROWS, _FEWEST_COLUMNS, _SURE_COLUMNS = 2, 2, 3
_NAME = re.compile(r"[A-Za-z_][\w.\-/()%#]*( [\w.\-/()%#]+){0,3}")
_WHOLE, _DECIMAL = re.compile(r"-?(0|[1-9]\d{0,17})"), re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,12})?")
_MONEY_DIGITS = 2


def delimited(lines: Sequence[str]) -> Guess | None:
    """The delimiter by which most lines have the same number of columns, the more the better."""
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
    if width < _FEWEST_COLUMNS or count < _ENOUGH * len(rows) or len(rows[0]) != width:
        return None
    return delimiter, [row for row in rows if len(row) == width], count / len(rows)


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    first = list(rows[0])
    if len(set(first)) < len(first) or not all(_NAME.fullmatch(text) for text in first):
        return False
    return any(first[number] not in {row[number] for row in rows[1:]} for number in range(len(first)))


def _type(values: Sequence[str]) -> str:
    """The type word of a format's column that takes all values; "" for text. An empty value is null and fits each."""
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
    """The same for lines of a log file."""
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
    """The first column, where its name says that it is a key."""
    first = names[0]
    return f"{{{first}}}" if re.fullmatch(r"\w*(id|Id|ID|key|uuid)", first) else ""


def _sign(delimiter: str) -> str:
    return {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[delimiter]
