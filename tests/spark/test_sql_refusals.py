"""Queries that are run and queries that are refused, and in which words. One session looks at all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import DataError
from copycat_agent.spark.java import JVM_OPTIONS
from copycat_agent.spark.session import configuration
from copycat_agent.spark.sql_jobs import SqlContext
from copycat_agent.spark.sql_local import SqlQuery
from copycat_agent.spark.sql_plan import RefusedQueryError
from copycat_agent.spark.sql_words import condition_of
from copycat_agent.transforms.sql import SqlOptions, SqlStep, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.spark.host import SparkHost

Ask = "Callable[..., SqlQuery]"
SCHEMA = "n int, level string, items array<string>"
ROWS: list[dict[str, Any]] = [
    {"n": 1, "level": "INFO", "items": ["a", "b"]},
    {"n": 2, "level": "DEBUG", "items": []},
    {"n": 3, "level": "WARN"},
]


@pytest.fixture(scope="module")
def ask(host: SparkHost) -> Callable[..., SqlQuery]:
    """`ask(query, schema)`: the query, ready to be tried."""
    contexts: dict[int, SqlContext] = {}

    def ask(query: str, schema: str = SCHEMA) -> SqlQuery:
        session = host.session(60)
        context = contexts.get(session.number) or contexts.setdefault(session.number, SqlContext(session.context))
        step = SqlStep(2, SqlOptions.model_validate({"sql": {"query": query, "schema": schema}}), columns_of(schema))
        return SqlQuery(context, context.prepared(step), step)

    return ask


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("SELECT n FROM records", [[{"n": 1}], [{"n": 2}], [{"n": 3}]]),
        ("SELECT r.n FROM records AS r WHERE r.level <> 'DEBUG'", [[{"n": 1}], [], [{"n": 3}]]),
        ("SELECT records.* FROM records WHERE n = 2", [[], [{"n": 2, "level": "DEBUG", "items": []}], []]),
        ("SELECT * EXCEPT (items, level) FROM records", [[{"n": 1}], [{"n": 2}], [{"n": 3}]]),
        ("TABLE records", [[{**row, "items": row.get("items")}] for row in ROWS]),
        ("SELECT x.m FROM (SELECT n + 1 AS m FROM (SELECT * FROM records) AS a) AS x", [[{"m": 2}], [{"m": 3}], [{"m": 4}]]),
        ("WITH a AS (SELECT n FROM records), b AS (SELECT n FROM a WHERE n > 1) SELECT n FROM b", [[], [{"n": 2}], [{"n": 3}]]),
        ("WITH records AS (SELECT n * 2 AS n FROM records) SELECT n FROM records", [[{"n": 2}], [{"n": 4}], [{"n": 6}]]),
        ("FROM records |> WHERE n < 3 |> EXTEND lower(level) AS l |> SELECT l, n", [[{"l": "info", "n": 1}], [{"l": "debug", "n": 2}], []]),
        ("SELECT n, i FROM records LATERAL VIEW explode(items) t AS i", [[{"n": 1, "i": "a"}, {"n": 1, "i": "b"}], [], []]),
        ("SELECT n, p FROM records LATERAL VIEW OUTER posexplode(items) t AS p, i",
         [[{"n": 1, "p": 0}, {"n": 1, "p": 1}], [{"n": 2, "p": None}], [{"n": 3, "p": None}]]),
        ("SELECT explode(items) AS i FROM records", [[{"i": "a"}, {"i": "b"}], [], []]),
        ("SELECT CASE WHEN n > 1 THEN 'many' ELSE 'one' END AS c, n AS `a.b` FROM records",
         [[{"c": "one", "a.b": 1}], [{"c": "many", "a.b": 2}], [{"c": "many", "a.b": 3}]]),
        ("SELECT n FROM records WHERE false", [[], [], []]),
        ("SELECT '$' || '{env:HOME}' AS x FROM records WHERE n = 1", [[{"x": "${env:HOME}"}], [], []]),
        ("SELECT named_struct('void', n, 'interval', map('k', n)) AS s FROM records WHERE n = 1",
         [[{"s": {"void": 1, "interval": {"k": 1}}}], [], []]),
    ],
)  # fmt: skip
def test_a_row_wise_query_is_run_for_each_record(ask: Callable[..., SqlQuery], query: str, wanted: list[list[dict[str, Any]]]) -> None:
    assert ask(query).rows(ROWS) == wanted


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT count(*) FROM records", "groups records"),
        ("SELECT level, max(n) FROM records GROUP BY level", "groups records"),
        ("SELECT n FROM records GROUP BY n HAVING count(*) > 1", "groups records"),
        ("SELECT DISTINCT n FROM records", "DISTINCT"),
        ("SELECT n FROM records ORDER BY n", "sorts"),
        ("SELECT n FROM records SORT BY n", "sorts"),
        ("SELECT n FROM records CLUSTER BY n", "spreads|sorts"),
        ("SELECT n FROM records DISTRIBUTE BY n", "spreads"),
        ("SELECT /*+ REPARTITION(3) */ n FROM records", "hint"),
        ("SELECT n FROM records LIMIT 3", "LIMIT"),
        ("SELECT n FROM records OFFSET 3", "OFFSET"),
        ("SELECT n FROM records TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("SELECT row_number() OVER (ORDER BY n) AS r FROM records", "window function"),
        ("SELECT max(n) OVER w AS m FROM records WINDOW w AS (PARTITION BY level)", "window function"),
        ("SELECT a.n FROM records a JOIN records b ON a.n = b.n", "joins"),
        ("SELECT a.n FROM records a, records b", "joins"),
        ("SELECT r.x FROM records, LATERAL (SELECT upper(level) AS x) r", "joins"),
        ("SELECT n FROM records UNION ALL SELECT n FROM records", "UNION"),
        ("SELECT n FROM records EXCEPT SELECT 1 AS n FROM records", "EXCEPT"),
        ("SELECT n FROM records INTERSECT SELECT 1 AS n FROM records", "INTERSECT"),
        ("SELECT n FROM records WHERE n IN (SELECT n FROM records)", "query within an expression"),
        ("SELECT (SELECT max(n) FROM records) AS m FROM records", "query within an expression"),
        ("SELECT n FROM records WHERE EXISTS (SELECT 1 FROM records)", "query within an expression"),
        ("SELECT * FROM records UNPIVOT (v FOR k IN (n))", "UNPIVOT"),
        ("SELECT * FROM parquet.`/etc/passwd`", "only the table records"),
        ("SELECT * FROM IDENTIFIER('text.`/etc/passwd`')", "only the table records"),
        ("SELECT * FROM other", "only the table records"),
        ("SELECT * FROM range(10)", "only the table records"),
        ("SELECT 1 AS one", "FROM records"),
        ("VALUES (1)", "values of its own"),
        ("SELECT reflect('java.lang.System', 'getProperty', 'user.home') AS h FROM records", "methods of Java"),
        ("SELECT java_method('java.lang.Runtime', 'getRuntime') AS h FROM records", "methods of Java"),
        ("SELECT try_reflect('java.lang.System', 'getProperty', 'user.home') AS h FROM records", "methods of Java"),
        ("SELECT TRANSFORM(n) USING 'cat' AS x FROM records", "runs a program"),
        ("SELECT monotonically_increasing_id() AS i FROM records", "begin anew"),
        ("SELECT input_file_name() AS f FROM records", "@file.path"),
        ("SELECT uuid() AS u FROM records", r"uuid\(\) gives the same values with every batch.*@offset"),
        ("SELECT n FROM records WHERE rand() < 0.5", r"rand\(\) gives the same"),
        ("SELECT upper(randstr(5)) AS u FROM records", r"randstr\(\) gives the same"),
        ("SELECT shuffle(items) AS i FROM records", r"shuffle\(\) gives the same"),
        ("SELECT window(current_timestamp(), '5 minutes') AS w FROM records", "leaves out"),
        ("SELECT session_window(current_timestamp(), '5 minutes') AS w FROM records", "groups"),
        ("SELECT named_struct('a', 1, 'a', 2) AS s FROM records", "two fields of the same name"),
        ("SELECT map(1, 'a') AS m FROM records", "names of fields are texts"),
        ("SELECT array(named_struct('x', parse_json(level))) AS v FROM records", "which no record has"),
        ("SELECT '${env:HOME}' AS x FROM records", "settings of this host"),
        ("SELECT '${system:user.home}' AS x FROM records", "settings of this host"),
        ("SELECT '${spark.app.name}' AS x FROM records", "settings of this host"),
        ("EXECUTE IMMEDIATE 'SELECT n FROM records'", "no SELECT"),
        ("BEGIN SELECT n FROM records; END", "no SELECT"),
        ("DROP TABLE records", "no SELECT"),
        ("CREATE TABLE x AS SELECT * FROM records", "no SELECT"),
        ("INSERT INTO x SELECT * FROM records", "no SELECT"),
        ("SET spark.sql.ansi.enabled=false", "no SELECT"),
        ("ADD JAR '/tmp/x.jar'", "no SELECT"),
        ("CACHE TABLE records", "no SELECT"),
        ("SELECT n FROM records; SELECT 1", "Syntax error"),
        ("SELCT n FROM records", "Syntax error.*line 1, character 1"),
        ("SELECT levl FROM records", "`levl` cannot be resolved.*`level`.*line 1, character 8"),
        ("SELECT nosuch(n) AS x FROM records", "`nosuch`"),
        ("SELECT n, level AS n FROM records", "two columns"),
        ("SELECT __copycat_record FROM records", "cannot be resolved"),
        ("SELECT n AS __copycat_record FROM records", "agent's own"),
        ("SELECT n FROM records WHERE __copycat_record = 1", "cannot be resolved"),
        ("SELECT INTERVAL 1 DAY AS i FROM records", "interval"),
        ("SELECT NULL AS x FROM records", "void"),
        ("SELECT parse_json(level) AS v FROM records", "variant"),
    ],
)
def test_a_query_that_is_not_row_wise_is_refused_with_the_reason(ask: Callable[..., SqlQuery], query: str, words: str) -> None:
    with pytest.raises(RefusedQueryError, match=words) as refused:
        ask(query)
    assert refused.value.message.startswith("transforms[2] sql: the query cannot be run: ")
    assert "Project [" not in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("SELECT n, CAST(level AS INT) * 2 AS twice, CAST(level AS INT) + 1 AS more FROM records", "column 'twice'"),
        ("SELECT n FROM records WHERE CAST(level AS INT) > 0 OR n = 99", "WHERE"),
        ("SELECT n, k FROM records LATERAL VIEW explode(sequence(1, CAST(level AS INT))) t AS k", "explode"),
        ("SELECT n, stack(1, CAST(level AS INT)) AS k FROM records", "one of its functions"),
        ("SELECT n, m FROM (SELECT n, 10 / CAST(level AS INT) AS m FROM records) WHERE m > 0", "column 'm'"),
        ("SELECT n, raise_error(level) IS NULL AS e FROM records WHERE level NOT IN ('1', '2')", "column 'e'"),
    ],
)
def test_a_query_fails_for_single_records_and_the_others_go_on(ask: Callable[..., SqlQuery], query: str, where: str) -> None:
    good, bad, other = ask(query).rows([{"n": 1, "level": "1"}, {"n": 2, "level": "secret-word"}, {"n": 3, "level": "2"}])
    assert isinstance(bad, DataError)
    assert where in bad.message
    assert "secret-word" not in str(bad)
    assert not isinstance(good, DataError)
    assert not isinstance(other, DataError)


def test_values_come_and_go_with_their_types(ask: Callable[..., SqlQuery]) -> None:
    schema = (
        "s string, i bigint, d double, x decimal(9,2), t timestamp, b boolean, m map<string, int>, o struct<a: int, `b c`: array<string>>"
    )
    row = {
        "s": 5,
        "i": 2**60,
        "d": 1,
        "x": 1.25,
        "t": "2026-11-22T10:00:00+02:00",
        "b": True,
        "m": {"k": 1},
        "o": {"a": 1, "b c": ["x"], "z": 0},
    }
    ((found,),) = ask("SELECT *, t < current_timestamp() AS past, date_format(t, 'HH') AS h FROM records", schema).rows([row])  # type: ignore[misc]
    assert found == {
        "s": "5", "i": 2**60, "d": 1.0, "x": Decimal("1.25"), "t": datetime(2026, 11, 22, 8, tzinfo=UTC), "b": True, "m": {"k": 1},
        "o": {"a": 1, "b c": ["x"]}, "past": isinstance(found["past"], bool) and found["past"], "h": "08",
    }  # fmt: skip


def test_a_value_that_a_column_cannot_hold_is_a_bad_record(ask: Callable[..., SqlQuery]) -> None:
    rows: list[dict[str, Any]] = [{"n": 1}, {"n": "secret-word"}, {"n": 2**40}, {"n": True}, {"n": 1.5}, {"items": "no list"}, {}]
    found = ask("SELECT n FROM records").rows(rows)
    assert [isinstance(one, DataError) for one in found] == [False, True, True, True, True, True, False]
    assert str(found[1]).startswith("field 'n' is a text, and the query's table has it as int")


def test_too_much_memory_is_a_fault_of_the_record() -> None:
    failed = "Job aborted due to stage failure: Lost task 0.0: java.lang.OutOfMemoryError: Java heap space"
    assert condition_of(failed) == "OUT_OF_MEMORY"
    assert condition_of("the worker says OutOfMemoryErrors are rare") == ""
    assert configuration({}, 2, Path("/l"), Path("/s"))["spark.executor.killOnFatalError.depth"] == "0"
    assert not [option for option in JVM_OPTIONS if "OnOutOfMemory" in option], "one such record would end everybody's work"


@pytest.mark.long
def test_a_record_that_asks_for_too_much_memory_is_a_bad_one_and_spark_goes_on(ask: Callable[..., SqlQuery]) -> None:
    query = ask("SELECT n, size(sequence(1, n)) AS x FROM records", "n int")
    good, bad, other = query.rows([{"n": 1}, {"n": 1_500_000_000}, {"n": 2}])
    assert (good, other) == ([{"n": 1, "x": 1}], [{"n": 2, "x": 2}])
    assert isinstance(bad, DataError)
    assert "more memory than there is" in bad.message
