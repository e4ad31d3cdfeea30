"""Makes records from rows of texts: names, nulls and types of columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.field_types import FieldType
from copycat_agent.model import Column, Schema

_NAME_CHARACTERS = 100

Value = dict[str, Any] | Unparsed


class ColumnRules(NamedTuple):
    """Settings for all files of a definition. `nulls` are the texts of a null."""

    types: Mapping[str, FieldType]
    nulls: tuple[str, ...]
    trim: bool
    too_few: Literal["null", "error"]
    too_many: Literal["error", "drop", "keep"]


class Columns:
    """The columns of one file."""

    def __init__(self, names: Sequence[str], rules: ColumnRules) -> None:
        self.names = unique(names)
        self.schema = Schema(tuple(Column(name, rules.types[name].sql if name in rules.types else "string") for name in self.names))
        self._rules = rules
        self._typed = [(index, rules.types[name]) for index, name in enumerate(self.names) if name in rules.types]
        self._nulls: frozenset[str | None] = frozenset((None, *rules.nulls))
        self._only_empty = rules.nulls == ("",)

    def records(
        self, rows: list[list[str | None]], exact: Collection[int], bad: Mapping[int, Unparsed], *, may_hold_null: bool
    ) -> list[Value]:
        """Returns a record of each row, changing the rows; those in `bad` are bad already. In rows in `exact`, nulls are already None."""
        bad = dict(bad)
        is_ragged = set(map(len, rows)) != {len(self.names)}
        extras = self._fit(rows, exact, bad) if is_ragged else {}
        if self._rules.trim:
            for row in rows:
                row[:] = [text if text is None else text.strip(" \t") for text in row]
        if may_hold_null and self._rules.nulls:
            self._make_nulls(rows, exact)
        holds_null = may_hold_null or bool(exact) or bool(bad) or is_ragged
        for index, type_ in self._typed:
            self._convert(rows, index, type_, bad, holds_null=holds_null)
        names = self.names
        values: list[Value] = [dict(zip(names, row)) for row in rows]  # noqa: B905 - all are as long as the names
        for place, extra in extras.items():
            values[place].update(extra)  # type: ignore[union-attr]
        for place, why in bad.items():
            values[place] = why
        return values

    def refused(self, index: int, why: str) -> Unparsed:
        """Returns a bad record, because of its `index`-th column."""
        return Unparsed(f"column {self._name(index)}: {why}", "correct the file, or the format's options")

    def _name(self, index: int) -> str:
        return repr(self.names[index][:_NAME_CHARACTERS]) if index < len(self.names) else str(index + 1)

    def _fit(self, rows: list[list[str | None]], exact: Collection[int], bad: dict[int, Unparsed]) -> dict[int, dict[str, str | None]]:
        """Makes all rows as long as the names. Returns the fields beyond them that are kept."""
        size, rules, extras = len(self.names), self._rules, {}
        for place, row in enumerate(rows):
            if len(row) < size:
                if rules.too_few == "error" and place not in bad:
                    why = f"{len(row)} columns, {size} are named: {self._name(len(row))} and what follows is missing"
                    bad[place] = Unparsed(why, "correct the file, or set too_few: null")
                row.extend([None] * (size - len(row)))
            elif len(row) > size:
                if rules.too_many == "error":
                    bad[place] = Unparsed(f"{len(row)} columns, {size} are named", "correct the file, or set too_many: drop or keep")
                elif rules.too_many == "keep":
                    extras[place] = self._beyond(row[size:], is_exact=place in exact)
                del row[size:]
        return extras

    def _beyond(self, texts: list[str | None], *, is_exact: bool) -> dict[str, str | None]:
        """Returns the fields of columns without a name."""
        names = unique([*self.names, *(numbered(len(self.names) + index) for index in range(len(texts)))])[len(self.names) :]
        if self._rules.trim:
            texts = [text if text is None else text.strip(" \t") for text in texts]
        return {name: None if text in self._nulls and not is_exact else text for name, text in zip(names, texts, strict=True)}

    def _make_nulls(self, rows: list[list[str | None]], exact: Collection[int]) -> None:
        if self._only_empty:
            for place, row in enumerate(rows):
                if "" in row and place not in exact:
                    row[:] = [text or None for text in row]
            return
        nulls = self._nulls
        for place, row in enumerate(rows):
            if place not in exact:
                row[:] = [None if text in nulls else text for text in row]

    def _convert(self, rows: list[list[Any]], index: int, type_: FieldType, bad: dict[int, Unparsed], *, holds_null: bool) -> None:
        texts = [row[index] for row in rows]
        nulls = self._nulls
        present = [text for text in texts if text not in nulls] if holds_null else texts
        try:
            values = type_.read_all(present)
            is_good = True
        except (ValueError, ArithmeticError):
            values, is_good = type_.read_each(present), False
        if len(present) < len(texts):
            found = iter(values)
            values = [None if text in nulls else next(found) for text in texts]
        for row, value in zip(rows, values, strict=True):
            row[index] = value
        if not is_good:
            for place, value in enumerate(values):
                if isinstance(value, ValueError) and place not in bad:
                    bad[place] = self.refused(index, str(value))


def numbered(index: int) -> str:
    """Returns the name of an unnamed column with this index."""
    return f"c{index + 1}"


def unique(names: Sequence[str]) -> list[str]:
    """Returns unique column names: an empty one becomes its number, as c3; a repeated one gets a number after it, as price_2."""
    given, next_numbers = set(names), dict[str, int]()
    found: dict[str, None] = {}
    for index, name in enumerate(names):
        wanted = name or numbered(index)
        if wanted in found or (not name and wanted in given):
            number = next_numbers.get(wanted, 2)
            while (new := f"{wanted}_{number}") in given or new in found:
                number += 1
            next_numbers[wanted] = number + 1
            wanted = new
        found[wanted] = None
    return list(found)
