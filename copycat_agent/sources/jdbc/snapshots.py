"""Finds new rows of a PostgreSQL table by the transactions that wrote them, so that none is missed because its transaction ended late.

Each row version has the number of its transaction (`xmin`). What was read is kept as a set of transactions: all below a number, and some
above it. The number is the oldest transaction that was still running; all below it have ended. Above it the set holds those whose rows
were visible, subtransactions too, of which no snapshot of PostgreSQL tells whether they run. A look counts the visible rows that are not in
the set and fixes their transactions; this window is then read in order of its key, in as many batches as needed.

Rows also become part of a table without being written, when a partition is attached or another table is renamed. So a position has the oids
of the tables that were read, and a table that is not among them is read whole.

`xmin` has 32 bits; the newest transaction number extends it to 64. A row that was written 2^32 transactions ago would then look new. So the
largest value of the tracked column is recorded from time to time, and rows below the value of two billion transactions ago are never new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from copycat_agent.sources.jdbc.database import TableError, TableInfo
from copycat_agent.sources.jdbc.statements import HIDDEN, Dialect, selected

Set = dict[str, Any]
"""A set of transactions: {"below": all before this one, "also": [others]}."""
Position = dict[str, Any]
"""`seen` is the set of transactions read; for rows whose column is above `floor`, which a quick look asks for, `recent` is. `top` is the
largest value of the column so far. `by` is the column that `floor`, `top` and `marks` belong to, and its type. `window` is being read, up
to the key `after` in the `order`. `marks` are [transaction, largest value of the column at that time]. `range` is a part of the key.
`tables` are the oids of the table and of those below it. Positions of earlier versions have neither `order` nor `tables`."""

ALSO_MOST = 5000
"""Most transactions that a set names one by one. With more, rows of later transactions wait for the oldest that runs."""
STALE = 2**27
"""A position this many transactions old is brought up to date even if there is nothing to read."""
_MARK_EACH = 2**29
"""Transactions between two marks."""
_ANCIENT = 2**31
"""PostgreSQL lets no transaction live for this many transactions."""
_MARKS_MOST = 12
_ORDERED = {"int2", "int4", "int8", "smallserial", "serial", "bigserial", "oid", "numeric", "float4", "float8", "text", "varchar", "bpchar"}
_TIMES = {"date", "timestamp", "timestamptz"}
"""Types of time. A column of these, or of `_ORDERED`, has a largest value that can be asked for."""
_TABLE = "copycat_t"
_HIGH = f"{HIDDEN}high"


class SnapshotWindow(NamedTuple):
    """The result of a look: the rows' transactions, the number of rows, and the column's largest value.

    `shape` is a hash of the table's columns. `tables` are the oids of the table and of those below it. `is_held_back`: rows wait for the
    oldest transaction that runs.
    """

    to: Set
    rows: int
    top: str | None
    shape: str
    tables: list[int]
    is_held_back: bool


class SnapshotSql:
    """The SQL for one table."""

    def __init__(self, dialect: Dialect, table: TableInfo, column: str | None, *, by_time: bool, key_field: str | None = None) -> None:
        """`column` is the tracked one, None without one. `by_time`: rows are ordered by it."""
        self._dialect = dialect
        self._selected = selected(dialect, table, key_field)
        self._name = dialect.name(*table.name)
        self._relation = f"{dialect.text(self._name)}::regclass"
        self._from = f"(SELECT txid_snapshot_xmax(txid_current_snapshot()) AS {_HIGH}) AS copycat_w, {self._name} AS {_TABLE}"
        raw = f"{_TABLE}.xmin::text::bigint"
        self._xid = f"(CASE WHEN {raw} < 3 THEN 0 ELSE {_HIGH} - 1 - mod({_HIGH} - 1 - {raw}, 4294967296) END)"
        kind = next((one.type_name for one in table.columns if one.name == column), "")
        is_ordered = column is not None and (by_time or kind in _ORDERED | _TIMES)
        self._column = self._own(column) if is_ordered and column is not None else None
        self._is_time = kind in _TIMES
        self.by = f"{column} {kind}" if is_ordered else ""
        self.order = [self.by if by_time else None, *table.key]
        # `tableoid` is part of the key, because a primary key need not be unique over tables that inherit. Rows without a key are ordered
        # by their place; VACUUM FULL moves rows and changes the filenode: they are read once more then, so that none is skipped.
        place = [f"pg_relation_filenode({_TABLE}.tableoid)", f"{_TABLE}.ctid"]
        key = [*map(self._own, table.key), f"{_TABLE}.tableoid"] if table.key else place
        self._cut_by = key[0]
        self.key = [f"COALESCE({self._column}, '-infinity')", *key] if by_time else key

    def _own(self, column: str) -> str:
        return f"{_TABLE}.{self._dialect.name(column)}"

    def look(self, position: Position, *, full: bool, added: Sequence[int] = ()) -> str:
        """Returns the query for the window after a position; `window_of` reads its answer. All rows of tables that were `added` are new."""
        position = self.known(position)
        column = self._column or "NULL::text"
        known = "" if position.get("top") is None else f", {self._dialect.text(position['top'])}"
        soon = "c < now() + interval '1 day'" if self._is_time else "true"  # infinity as `top` would hide later rows from quick looks
        columns = "string_agg(concat_ws(' ', attnum, attname, atttypid, atttypmod), ',' ORDER BY attnum)"
        shape = f"SELECT md5({columns}) FROM pg_attribute WHERE attrelid = {self._relation} AND attnum > 0 AND NOT attisdropped"
        low = "txid_snapshot_xmin(txid_current_snapshot())"
        new = f"SELECT {self._xid} AS x, {column} AS c FROM {self._from} WHERE {self._new(position, full=full, added=added)}"
        tables = self._joined("SELECT string_agg(one::text, ',' ORDER BY one) FROM copycat_o")
        return (
            f"SELECT {low}, count(*), count(*) FILTER (WHERE x < {low}), "
            f"array_to_string((array_agg(DISTINCT x) FILTER (WHERE x >= {low}))[1:{ALSO_MOST + 1}], ','), "
            f"GREATEST(max(c) FILTER (WHERE {soon}){known})::text, ({shape}), ({tables}), ({self.foreign()}) FROM ({new}) AS copycat_r"
        )

    def foreign(self) -> str:
        """Returns the query for the names of foreign tables below the table: their rows have no transaction."""
        names = "string_agg(one::regclass::text, ', ' ORDER BY one)"
        return self._joined(f"SELECT {names} FROM copycat_o JOIN pg_class ON oid = one AND relkind = 'f'")

    def _joined(self, query: str) -> str:
        """Returns a query that has the oids of the table and of all below it as `one` of `copycat_o`."""
        below = f"SELECT {self._relation}::oid AS one UNION SELECT inhrelid FROM pg_inherits JOIN copycat_o ON inhparent = one"
        return f"WITH RECURSIVE copycat_o AS ({below}) {query}"

    def known(self, position: Position) -> Position:
        """Returns a position without values of a column that is no longer tracked."""
        return _of_column(position, self.by)

    def window(self, found: SnapshotWindow, *, full: bool) -> dict[str, Any]:
        """Returns `window` of a position, kept while the window is read."""
        return {"to": found.to, "top": found.top, "full": full, "held": found.is_held_back, "by": self.by, "tables": found.tables}

    def rows(self, position: Position, window: dict[str, Any], limit: int) -> str:
        """Returns the query for the next rows of a window, in order of the key; hidden columns have the key as text."""
        position = self.known(position)
        hidden = [f"({one})::text AS {HIDDEN}{number}" for number, one in enumerate(self.key)]
        added = added_to(position, window.get("tables", ()))
        parts = [self._new(position, full=window["full"], added=added), self._in(window["to"])]
        if added:  # what they have of transactions that were read before would be taken for read after this window
            parts[1] = f"({parts[1]} OR ({self._of(added)} AND {self._in(joined(position['recent'], window['to']))}))"
        if "tables" in window:  # rows of one that is attached meanwhile come in the next window
            parts.append(self._of(window["tables"]))
        if position.get("after") and _order_of(position, window) == self.order:
            parts.append(f"({', '.join(self.key)}) > ({', '.join(map(self._dialect.text, position['after']))})")
        if span := position.get("range"):
            parts.append(self._within(span))
        columns = ", ".join([self._selected, *hidden])
        query = f"SELECT {columns} FROM {self._from} WHERE {' AND '.join(parts)} ORDER BY {', '.join(self.key)}"
        return self._dialect.limited(query, limit)

    def _within(self, span: Sequence[int | None]) -> str:
        """Returns the condition for a range of the key, without its first end and with its second; None: no end."""
        ends = [f"{self._cut_by} {sign} {end}" for sign, end in zip((">", "<="), span, strict=True) if end is not None]
        return " AND ".join(ends) or "true"

    def _new(self, position: Position, *, full: bool, added: Sequence[int]) -> str:
        """Returns the condition for rows not read yet: by `recent` for rows above the floor, by `seen` for others; all rows of `added`."""
        seen, floor = position["seen"], position.get("floor")
        parts = [] if seen is None else [self._unseen(seen)]
        if seen is not None and floor is not None and self._column is not None:
            above = f"{self._column} > {self._dialect.text(floor)}"
            quick = f"({above} AND {self._unseen(position['recent'])})"
            parts = [f"({quick} OR (({above}) IS NOT TRUE AND {self._unseen(seen)}))" if full else quick]
        if (ancient := ancient_of(position)) is not None and self._column is not None:
            parts.append(f"({self._column} > {self._dialect.text(ancient)}) IS NOT FALSE")
        new = " AND ".join(parts) or "true"
        return f"({self._of(added)} OR ({new}))" if added else new

    @staticmethod
    def _of(tables: Sequence[int]) -> str:
        return f"{_TABLE}.tableoid IN ({_listed(tables) or 'NULL'})"

    def _unseen(self, seen: Set) -> str:
        also = f" AND {self._xid} NOT IN ({_listed(seen['also'])})" if seen["also"] else ""
        return f"({self._xid} >= {seen['below']}{also})"

    def _in(self, found: Set) -> str:
        also = f" OR {self._xid} IN ({_listed(found['also'])})" if found["also"] else ""
        return f"({self._xid} < {found['below']}{also})"


def window_of(row: Sequence[str | None], known: Set | None) -> SnapshotWindow:
    """Returns the window from the answer to `SnapshotSql.look`.

    If it has more than `ALSO_MOST` transactions, together with the `known` ones, only those below the oldest that runs are taken.
    Raises TableError for a table with foreign tables below it.
    """
    if foreign := row[7]:
        words = f"foreign tables are part of it, and their rows do not say which transaction wrote them: {foreign}"
        raise TableError(words, "leave the table out, or read it with source.query")
    low, rows, settled = int(row[0] or 0), int(row[1] or 0), int(row[2] or 0)
    also, tables = set(_numbers(row[3])), _numbers(row[6])
    if len(also | set(_above(known, low))) > ALSO_MOST:
        return SnapshotWindow({"below": low, "also": []}, settled, row[4], row[5] or "", tables, is_held_back=True)
    return SnapshotWindow({"below": low, "also": sorted(also)}, rows, row[4], row[5] or "", tables, is_held_back=False)


def _numbers(text: str | None) -> list[int]:
    return [int(one) for one in (text or "").split(",") if one]


def added_to(position: Position, tables: Sequence[int]) -> list[int]:
    """Returns which of the tables are new since a position."""
    known = set(position.get("tables", tables))
    return [one for one in tables if one not in known]


def _order_of(position: Position, window: Mapping[str, Any]) -> list[str | None]:
    """Returns the order in which `after` was reached."""
    if "order" in position:
        return list(position["order"])
    key = window.get("key", [])  # of an earlier version: with a time, `after` has one value more than the key and `tableoid`
    return [window["by"] if len(position["after"]) > max(len(key) + 1, 2) else None, *key]


def joined(known: Set | None, to: Set) -> Set:
    """Returns the union of the set read before and the window's."""
    return {"below": max(to["below"], (known or to)["below"]), "also": sorted({*to["also"], *_above(known, to["below"])})}


def _above(known: Set | None, below: int) -> list[int]:
    return [one for one in known["also"] if one >= below] if known else []


def behind_window(position: Position) -> Position:
    """Returns the position once all of its window is read."""
    window = position["window"]
    if "range" in position:
        return {"done": True, "load": position["load"]}
    position = _of_column(position, window["by"])
    recent = joined(position.get("recent"), window["to"])
    done = {**position, "by": window["by"], "recent": recent, "top": window["top"]} | tables_of(window)
    if window["full"]:
        # A window that was held back lacks rows of transactions whose rows above the floor may have been read.
        seen = joined(position["seen"], window["to"] if window["held"] else recent)
        floor = position.get("floor" if window["held"] else "top")
        done |= {"seen": seen, "floor": floor, "marks": _marked(position.get("marks", []), window["to"]["below"], window["top"])}
    return {name: value for name, value in done.items() if name not in ("window", "after", "order")}


def tables_of(window: Mapping[str, Any]) -> Position:
    """Returns `tables` of the position behind a window; empty for a window of an earlier version."""
    return {"tables": window["tables"]} if "tables" in window else {}


def _of_column(position: Position, by: str) -> Position:
    if position.get("by", by) == by:
        return position
    return {name: value for name, value in position.items() if name not in ("floor", "top", "marks", "by")}


def _marked(marks: list[list[Any]], below: int, top: str | None) -> list[list[Any]]:
    if top is None or (marks and below - marks[-1][0] < _MARK_EACH):
        return marks
    return [*marks, [below, top]][-_MARKS_MOST:]


def ancient_of(position: Position) -> str | None:
    """Returns the value at or below which rows were written two billion transactions ago or earlier; None if unknown."""
    seen = position["seen"]
    old = [value for number, value in position.get("marks", []) if seen is not None and number <= seen["below"] - _ANCIENT]
    return old[-1] if old else None


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
