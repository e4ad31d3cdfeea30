"""What is wrong with one table concerns that table, and no message says what is in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from copycat_agent.extending import Found, RetriableError, Troubled
from copycat_agent.sources.jdbc.bulk_reader import BulkReader
from copycat_agent.sources.jdbc.chosen_tables import TrackedTable
from copycat_agent.sources.jdbc.database import ColumnInfo, TableError, TableInfo, translated_job_error
from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions
from copycat_agent.sources.jdbc.jdbc_source import JdbcSource, key_of
from copycat_agent.sources.jdbc.key_values import at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.sources.jdbc.database import Database

GOOD, BAD, OLD = ("shop", "good"), ("shop", "bad"), ("shop", "old")


class FakeDatabase:
    """Tables with one column, their key: a number in `good`, text in the others."""

    def __init__(self, *names: tuple[str, str]) -> None:
        self.names = list(names)

    def tables(self) -> list[tuple[str, str]]:
        return self.names

    def table(self, name: tuple[str, str]) -> TableInfo:
        kind = "BIGINT" if name == GOOD else "CHAR"
        return TableInfo(name, (ColumnInfo("id", kind, 36, 0, nullable=False),), ("id",))

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        return [[0, None]] if "count(*)" in query else [[7 if "good" in query else "3f2a"]]

    def close(self) -> None:
        """Nothing is open."""


def source(database: FakeDatabase, **options: Any) -> JdbcSource:
    made = JdbcOptions(url="jdbc:h2:mem:x", tables=("shop.*",), mode="incrementing", **options)
    return JdbcSource(made, cast("Database", database))


def test_a_table_whose_key_is_no_number_is_told_and_the_others_are_read() -> None:
    found = list(source(FakeDatabase(GOOD, BAD)).look({}, to_the_end=False))
    assert [one.name for one in found if isinstance(one, Found)] == ["shop.good"]
    (trouble,) = [one for one in found if isinstance(one, Troubled)]
    assert trouble.name == "shop.bad"
    assert trouble.why.endswith("or leave the table out")


def test_a_table_that_is_excluded_is_no_trouble_and_one_that_is_gone_is() -> None:
    saved: dict[str, Any] = {key_of(name): {"last": 7, "gaps": [], "top": None, "missing": 0, "asked_ms": 0} for name in (GOOD, BAD, OLD)}
    found = list(source(FakeDatabase(GOOD, BAD), exclude=("shop.bad",)).look(saved, to_the_end=False))
    troubles = {one.key: one.trouble for one in found if isinstance(one, Found) and one.trouble}
    key = key_of(OLD)
    assert troubles == {key: f"the table is not there any more; copycat offsets reset NAME --key {key} forgets it"}


def test_a_key_that_is_altered_while_a_table_is_read_has_the_reading_begin_anew() -> None:
    reader = BulkReader(JdbcOptions(url="jdbc:h2:mem:x", tables=("t",), mode="bulk"), cast("Database", None))
    columns = (ColumnInfo("a", "BIGINT", 19, 0, nullable=False), ColumnInfo("b", "BIGINT", 19, 0, nullable=False))
    position = {"run": 1, "after": [17], "range": [None, None], "ended_ms": 0}

    def query(key: tuple[str, ...], span: list[int | None]) -> str:
        tracked = TrackedTable(TableInfo(("t",), columns, key), None, None)
        return reader.query(tracked, {**position, "range": span}, {})[0]

    assert "17" in query(("a",), [None, None])
    assert "17" not in query(("a", "b"), [None, None])
    assert "WHERE" not in query((), [None, 5])
    assert query((), [5, None]).endswith("WHERE 1 = 0"), "the first range reads all of it"


class ThrownError(Exception):
    """An exception of a driver, as py4j shows it."""

    def __init__(self, kind: str, state: str | None, message: str) -> None:
        super().__init__(message)
        self.java_exception = self
        self._kind, self._state, self._message = kind, state, message

    def getClass(self) -> ThrownError:  # noqa: N802 - as in Java
        return self

    def getName(self) -> str:  # noqa: N802 - as above
        return f"java.sql.{self._kind}"

    def getSimpleName(self) -> str:  # noqa: N802 - as above
        return self._kind

    def getSQLState(self) -> str | None:  # noqa: N802 - as above
        return self._state

    def getMessage(self) -> str:  # noqa: N802 - as above
        return self._message


@pytest.mark.parametrize(
    ("kind", "state", "said"),
    [
        ("SQLDataException", None, "the database says SQLDataException"),
        ("SQLDataException", "22007", "the database says 22007"),
        ("SQLNonTransientConnectionException", None, "the database says SQLNonTransientConnectionException: value 'canary'"),
        ("PSQLException", "57014", "the database says 57014: value 'canary'"),
    ],
)
def test_messages_that_may_quote_a_value_are_left_out(kind: str, state: str | None, said: str) -> None:
    error = translated_job_error(ThrownError(kind, state, "value 'canary'"))
    assert isinstance(error, RetriableError)
    assert error.message == said


class FailingDatabase(FakeDatabase):
    """Queries of `bad` fail with an SQLSTATE; both keys are numbers."""

    def __init__(self, state: str | None) -> None:
        super().__init__(GOOD, BAD)
        self._state = state

    def table(self, name: tuple[str, str]) -> TableInfo:
        return super().table(GOOD)._replace(name=name)

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        if "bad" in query:
            error = translated_job_error(ThrownError("PSQLException", self._state, "value 'canary'"))
            assert error is not None
            raise error
        return [[7, 7]]


_OF_A_TABLE = ["57014", "55P03", "42P01", "XX001", "XX000", "58030", "0A000", "22012", "22P02", "P0001", "HV000", "HY000"]


@pytest.mark.parametrize("state", _OF_A_TABLE)
def test_a_table_that_is_damaged_locked_or_fails_holds_up_no_other(state: str) -> None:
    good, bad = sorted(source(FailingDatabase(state)).look({}, to_the_end=False), key=lambda one: not isinstance(one, Found))
    assert isinstance(good, Found)
    assert good.name == "shop.good"
    assert isinstance(bad, Troubled)
    assert bad.why.startswith(f"the database says {state}")


@pytest.mark.parametrize("state", ["08006", "28000", "3D000", "40001", "53300", "57P01", "70100", "90067", "99999", "S0001", None])
def test_a_server_that_fails_is_asked_for_no_other_table(state: str | None) -> None:
    with pytest.raises(RetriableError, match="the database says") as error:
        source(FailingDatabase(state)).look({}, to_the_end=False)
    assert not isinstance(error.value, TableError)


def test_a_key_that_cannot_be_compared_concerns_its_table() -> None:
    """Such as a float: told before a row of it is sent."""
    rows = pa.RecordBatch.from_pydict({"id": [1.5]})
    with pytest.raises(TableError, match="a key of type float cannot be compared"):
        next(at_once([rows], ["id"]))
