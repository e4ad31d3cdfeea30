"""Names and values in statements are what they are in each kind of database, whatever is in them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.jdbc.database import ColumnInfo, TableError, TableInfo, connection_properties, spark_options
from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions
from copycat_agent.sources.jdbc.statements import Dialect, selected

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("postgresql", "h2", "mysql", "mariadb", "sqlserver", "oracle", "db2")
HOSTILE = [
    "a",
    "",
    "'",
    "''",
    '"',
    '""',
    "`",
    "]",
    "]]",
    "a.b",
    "\\",
    "\\'",
    "a\\\nb",
    "--",
    "'; DROP TABLE t; --",
    "\u00e4",
    "\U0001f40d",
    "\n",
]
MOMENT = datetime(31, 5, 1, 12, 0, 0, 5)  # noqa: DTZ001 - of a column without a zone
ZONED = datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))


def unquoted(text: str, begin: str, end: str) -> str:
    """What a database makes of a quoted name or text; an AssertionError where it would end before the end."""
    assert text[0] == begin
    assert text[-1] == end
    inner = text[1:-1]
    assert end not in inner.replace(end * 2, ""), text
    return inner.replace(end * 2, end)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_one_whatever_it_is(kind: str, name: str) -> None:
    begin, end = {"mysql": ("`", "`"), "mariadb": ("`", "`"), "sqlserver": ("[", "]")}.get(kind, ('"', '"'))
    assert unquoted(Dialect(kind).name(name), begin, end) == name
    assert Dialect(kind).name(name, "t") == f"{Dialect(kind).name(name)}.{begin}t{end}"
    with pytest.raises(TableError, match="zero byte"):
        Dialect(kind).name(f"{name}\0")


@pytest.mark.parametrize("kind", ["postgresql", "h2", "oracle", "db2"])
@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_ends_where_it_ends(kind: str, text: str) -> None:
    assert unquoted(Dialect(kind).text(text), "'", "'") == text


@pytest.mark.parametrize("text", [*HOSTILE, "\0"])
def test_a_text_for_mysql_means_the_same_under_any_sql_mode(text: str) -> None:
    for kind in ("mysql", "mariadb"):
        digits = re.fullmatch(r"_utf8mb4 X'([0-9a-f]*)'", Dialect(kind).text(text))
        assert digits is not None
        assert bytes.fromhex(digits[1]).decode() == text


@pytest.mark.parametrize("text", [*HOSTILE, "\\\r\n", "\\\\\n", "\u00e4\\\n"])
def test_a_text_for_sql_server_keeps_what_its_code_page_lacks_and_backslashes_at_ends_of_lines(text: str) -> None:
    parts = re.split(r"(?<=\\') \+ (?=N?')", Dialect("sqlserver").text(text))
    assert "".join(unquoted(one.removeprefix("N"), "'", "'") for one in parts) == text
    assert all(one.startswith("N") for one in parts) or text.isascii()
    assert not any(re.search(r"\\\r?\n", one) for one in parts), "a backslash joins a line to the next"


MOMENTS = {
    "postgresql": ("TIMESTAMP '0031-05-01 12:00:00.000005'", "TIMESTAMP WITH TIME ZONE '2026-05-01 10:00:00.000000+00:00'"),
    "h2": ("TIMESTAMP '0031-05-01 12:00:00.000005'", "TIMESTAMP WITH TIME ZONE '2026-05-01 10:00:00.000000+00:00'"),
    "mariadb": ("TIMESTAMP '0031-05-01 12:00:00.000005'", "TIMESTAMP '2026-05-01 10:00:00.000000'"),
    "sqlserver": ("CAST('0031-05-01 12:00:00.000005' AS datetime2)", "CAST('2026-05-01 10:00:00.000000 +00:00' AS datetimeoffset)"),
    "oracle": ("TIMESTAMP '0031-05-01 12:00:00.000005'", "TIMESTAMP '2026-05-01 10:00:00.000000 +00:00'"),
}


@pytest.mark.parametrize("kind", MOMENTS)
def test_times_are_written_as_the_database_reads_them(kind: str) -> None:
    dialect = Dialect(kind)
    assert (dialect.value(MOMENT), dialect.value(ZONED)) == MOMENTS[kind]
    assert dialect.value(date(31, 5, 1)) == ("CAST('0031-05-01' AS date)" if kind == "sqlserver" else "DATE '0031-05-01'")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("postgresql", r"'\x00ff'::bytea TRUE"),
        ("h2", "X'00ff' TRUE"),
        ("mysql", "X'00ff' 1"),
        ("sqlserver", "0x00ff 1"),
        ("oracle", "HEXTORAW('00ff') TRUE"),
    ],
)
def test_other_values_of_keys(kind: str, expected: str) -> None:
    dialect = Dialect(kind)
    assert [dialect.value(bytes([0, 255])), dialect.value(value=True)] == expected.split()
    assert dialect.value(Decimal("1E+30")) == f"1{'0' * 30}", "an exponent would make it a float"
    with pytest.raises(TableError, match="cannot be compared"):
        dialect.value([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_limited_behind_their_order(kind: str) -> None:
    query = "SELECT a FROM t ORDER BY a"
    fetch = "OFFSET 0 ROWS FETCH NEXT 5 ROWS ONLY"  # of SQL Server only behind ORDER BY
    assert Dialect(kind).limited(query, 5) == f"{query} {fetch if kind in ('sqlserver', 'oracle') else 'LIMIT 5'}"


AGO: dict[str, Callable[[], tuple[str, str]]] = {
    "sqlserver": lambda: ("DATEADD(millisecond, -1500, SYSDATETIMEOFFSET())", "DATEADD(millisecond, -1500, SYSDATETIME())"),
    "mysql": lambda: (
        "CURRENT_TIMESTAMP(6) - INTERVAL 1500000 MICROSECOND",
        "CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', @@global.time_zone) - INTERVAL 1500000 MICROSECOND",
    ),
    "oracle": lambda: ("CURRENT_TIMESTAMP - NUMTODSINTERVAL(1.500, 'SECOND')", ""),
    "h2": lambda: ("CURRENT_TIMESTAMP - INTERVAL '1.500' SECOND", ""),
}


@pytest.mark.parametrize("kind", AGO)
def test_the_delay_is_by_the_clock_of_the_database(kind: str) -> None:
    zoned, plain = AGO[kind]()
    assert Dialect(kind).seconds_ago(1.5, zoned=True) == zoned
    assert not plain or Dialect(kind).seconds_ago(1.5, zoned=False) == plain


def table(*columns: tuple[str, str, int], key: tuple[str, ...] = ()) -> TableInfo:
    """A table `s.t`."""
    return TableInfo(("s", "t"), tuple(ColumnInfo(name, kind, size, 0, nullable=True) for name, kind, size in columns), key)


@pytest.mark.parametrize("kind", ["postgresql", "h2", "mariadb"])
@pytest.mark.parametrize("name", ["a AS b", 'x"::text AS y', "`, secret AS `"])
def test_a_key_is_itself_once_more_whatever_its_name(kind: str, name: str) -> None:
    dialect = Dialect(kind)
    one = table((name, "uuid", 16), key=(name,))
    value, again = selected(dialect, one, "_key").split(f" AS {dialect.name(name)}, ")
    assert again == f"{value} AS {dialect.name('_key')}"
    assert dialect.name(name) in value


def test_a_key_is_ordered_by_the_column_and_not_by_its_text() -> None:
    of_numbers, of_words = table(("n", "DECIMAL", 65)), table(("n", "ENUM", 6))
    assert selected(Dialect("mysql"), of_numbers) == "CAST(`n` AS CHAR) AS `n`"
    assert Dialect("mysql").ordered("n", of_numbers) == "copycat_t.`n`"
    assert Dialect("mysql").ordered("n", of_words) == "CAST(copycat_t.`n` AS CHAR)", "as it is compared"


@pytest.mark.parametrize(
    ("url", "as_spark_knows_it", "fetchsize"),
    [
        ("jdbc:mariadb://db/shop", "jdbc:mysql://db/shop?permitMysqlScheme", "7"),
        ("jdbc:mariadb:sequential://a,b/shop?x=y", "jdbc:mysql:sequential://a,b/shop?x=y&permitMysqlScheme", "7"),
        ("jdbc:mysql://db/shop", "jdbc:mysql://db/shop", "-2147483648"),
        ("jdbc:h2:mem:x", "jdbc:h2:mem:x", "7"),
    ],
)
def test_the_url_that_spark_is_given_is_one_whose_names_it_quotes(url: str, as_spark_knows_it: str, fetchsize: str) -> None:
    options: dict[str, Any] = {"url": url, "tables": ("*",), "mode": "bulk", "fetch_rows": 7}
    assert spark_options(JdbcOptions(**options)) == {"url": as_spark_knows_it, "fetchsize": fetchsize}


def test_sessions_of_mysql_are_in_utc_unless_the_definition_says_otherwise() -> None:
    for url in ("jdbc:mysql+srv://db/shop", "jdbc:mariadb://db/shop"):
        options: dict[str, Any] = {"url": url, "tables": ("*",), "mode": "bulk", "properties": {"socketTimeout": "5"}}
        properties = connection_properties(JdbcOptions(**options))
        assert (properties["connectionTimeZone"], properties["forceConnectionTimeZoneToSession"]) == ("UTC", "true")
        assert properties["socketTimeout"] == "5"


@pytest.mark.parametrize(
    ("kind", "type_name", "has_zone"),
    [
        ("postgresql", "timestamptz", True),
        ("postgresql", "timestamp", False),
        ("h2", "TIMESTAMP WITH TIME ZONE", True),
        ("oracle", "TIMESTAMP WITH LOCAL TIME ZONE", True),
        ("sqlserver", "datetimeoffset", True),
        ("mysql", "TIMESTAMP", True),
        ("mysql", "DATETIME", False),
        ("snowflake", "TIMESTAMPNTZ", False),
    ],
)
def test_types_of_times_with_a_zone(kind: str, type_name: str, has_zone: bool) -> None:
    assert Dialect(kind).has_zone(type_name) is has_zone


def test_times_with_a_zone_are_utc_in_statements() -> None:
    assert Dialect("mysql").value(datetime(2026, 5, 1, tzinfo=UTC)) == "TIMESTAMP '2026-05-01 00:00:00.000000'"
