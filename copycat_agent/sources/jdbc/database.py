"""A JDBC connection of the driver in Spark's JVM. The source asks for tables, columns and counts here; Spark jobs read the rows."""

# ruff: noqa: SLF001 - the JVM is reached through the session's private attribute

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.extending import BlockedError, CopycatError, FatalError, RetriableError, spark_session
from copycat_agent.sources.jdbc.drivers import driver_jars, driver_of, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions

CONNECT_SECONDS = 10
CANCEL_SECONDS = 2
"""Time limit for cancelling a query."""
QUERY_SECONDS = 240
"""Time limit of a query."""
_WORDS_MOST = 300
"""Most characters of a driver's message that are shown."""

_POSTGRESQL = {
    "ApplicationName": "copycat",
    "loginTimeout": str(CONNECT_SECONDS),
    "connectTimeout": str(CONNECT_SECONDS),
    "cancelSignalTimeout": str(CANCEL_SECONDS),
    "socketTimeout": str(QUERY_SECONDS + 30),
    "tcpKeepAlive": "true",
    "adaptiveFetch": "true",  # rows of a megabyte are fetched a few at a time
    "adaptiveFetchMaximum": "10000",  # small rows are not fetched by the million: objects take many times their bytes
    "maxResultBuffer": "64M",
}
_MYSQL = {
    "connectTimeout": str(CONNECT_SECONDS * 1000),
    "socketTimeout": str((QUERY_SECONDS + 30) * 1000),
    "connectionTimeZone": "UTC",
    "preserveInstants": "true",
    "forceConnectionTimeZoneToSession": "true",  # times with a zone are read and compared in UTC, whatever the host's zone is
    "tinyInt1isBit": "false",  # a TINYINT(1) may be 7
}
_NET_SECONDS = 600
"""How long the server waits for the client to take rows."""
_DEFAULTS = {
    "postgresql": _POSTGRESQL,
    "mysql": {**_MYSQL, "zeroDateTimeBehavior": "CONVERT_TO_NULL", "netTimeoutForStreamingResults": str(_NET_SECONDS)},
    "mariadb": {**_MYSQL, "sessionVariables": f"net_write_timeout={_NET_SECONDS}", "allowLocalInfile": "false"},
}
"""Connection properties by the URL's subprotocol. A definition's `properties` override them."""

_PARENTS = """WITH RECURSIVE up AS (SELECT inhrelid AS one, inhparent AS above FROM pg_inherits
    UNION SELECT one, inhparent FROM up JOIN pg_inherits ON inhrelid = above)
    SELECT own.nspname, t.relname, others.nspname, parent.relname FROM up JOIN pg_class t ON t.oid = one JOIN pg_namespace own
    ON own.oid = t.relnamespace JOIN pg_class parent ON parent.oid = above JOIN pg_namespace others ON others.oid = parent.relnamespace"""

_BLOCKED = {
    "28": "check source.user and source.password, and that the database lets this host in",
    "3D": "create the database, or correct source.url",
    "42501": "grant the user the right to read it",
    "57014": "it took too long, or somebody cancelled it: see what locks the table, or leave it out if it is too large",
    "55P03": "see what locks the table",
    "22": "correct the value in the row, or what source.query makes of it",
}
"""Hints by the beginning of an SQLSTATE, for errors that need somebody to act before the source goes on by itself."""
_WORDED = ("08", "28", "3D", "42", "53", "55", "57", "0A")
"""Classes of SQLSTATE whose messages contain names and connections, but no data of rows."""
_OF_CONNECTIONS = re.compile(r"Connection|Timeout")
"""Classes of exceptions whose messages contain no data of rows even if they have no SQLSTATE."""
_OF_THE_SERVER = ("08", "28", "3D", "40", "53", "57P", "F0", "6", "70", "9", "S")
"""States that concern the connection or the whole server, or end by themselves. The last four are of single databases and drivers, and may
be either. Any other concerns the table that was asked for: it is locked, damaged, or has a value or a function that fails."""


class TableError(BlockedError):
    """One table, or the query, cannot be read as it is. The other tables are read."""


class ColumnInfo(NamedTuple):
    """A column. `type_name` is the database's own name; `size` and `digits` are JDBC's COLUMN_SIZE and DECIMAL_DIGITS."""

    name: str
    type_name: str
    size: int
    digits: int
    nullable: bool


class TableInfo(NamedTuple):
    """A table. `name` is (catalog or schema, name), or (name,); `key` are the columns of its primary key, () without one."""

    name: tuple[str, ...]
    columns: tuple[ColumnInfo, ...]
    key: tuple[str, ...]

    @property
    def text(self) -> str:
        """The name as in definitions, "schema.name"."""
        return ".".join(self.name)


def prepared(session: SparkSession, options: JdbcOptions) -> str:
    """Loads the driver into the session's JVM. Returns its class name. Raises what `driver_jars` raises."""
    known = driver_of(options.url)
    class_name = options.driver_class or (known.class_name if known else "")
    coordinates = options.driver or (known.coordinates if known else "")
    if coordinates not in _loaded(session):
        for jar in driver_jars(coordinates):
            session.sql(f"ADD JAR '{jar}'")
        _make_known(session)
        _loaded(session).add(coordinates)
    jvm: Any = session._jvm
    jvm.java.lang.Thread.currentThread().setContextClassLoader(session._jsparkSession.sharedState().jarClassLoader())
    jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(class_name)
    return class_name


def _make_known(session: SparkSession) -> None:
    """Sets the class loader of the threads that receive task results: without the driver's classes they lose why a task failed."""
    jvm: Any = session._jvm
    loader = session._jsparkSession.sharedState().jarClassLoader()
    for thread in jvm.java.lang.Thread.getAllStackTraces().keySet():
        if thread.getName().startswith(("task-result-getter", "dispatcher-event-loop")):  # the latter start the former
            thread.setContextClassLoader(loader)


def _loaded(session: SparkSession) -> set[str]:
    """Returns the drivers that the session's JVM has loaded: coordinates or paths."""
    context: Any = session.sparkContext
    if not hasattr(context, "_copycat_drivers"):
        context._copycat_drivers = set()
    found: set[str] = context._copycat_drivers
    return found


def connection_properties(options: JdbcOptions) -> dict[str, str]:
    """Returns the driver's connection properties, the password among them."""
    kind = kind_of(options.url)
    given = {name: value.get_secret_value() for name, value in options.properties.items()}
    own = {} if options.user is None else {"user": options.user}
    if options.password is not None:
        own["password"] = options.password.get_secret_value()
    return {**_DEFAULTS.get(kind, {}), **given, **own}


def spark_options(options: JdbcOptions) -> dict[str, str]:
    """Returns the options of Spark's JDBC reader: the URL, the fetch size, and the time limit of a query."""
    kind, url = kind_of(options.url), options.url
    if kind == "mariadb":  # Spark does not know MariaDB and would quote names in the way that MariaDB quotes texts
        url = f"jdbc:mysql{url.removeprefix('jdbc:mariadb')}{'&' if '?' in url else '?'}permitMysqlScheme"
    one_by_one = -(2**31)  # MySQL's driver keeps all rows of a query in memory unless it gets this fetch size
    timeout = {"queryTimeout": str(QUERY_SECONDS)} if kind == "postgresql" else {}
    return {"url": url, "fetchsize": str(one_by_one if kind == "mysql" else options.fetch_rows), **timeout}


class Database:
    """One connection, opened when it is first needed, and again after an error. Used by one thread; any may call `close`.

    All methods raise RetriableError, BlockedError and FatalError.
    """

    def __init__(self, options: JdbcOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._connection: Any = None
        self._statement: Any = None
        self._is_closed = False
        self._product = ""

    @property
    def product(self) -> str:
        """Name and version of the database, as its driver reports them."""
        if not self._product:
            with self._translated():
                meta = self._connected().getMetaData()
                self._product = f"{meta.getDatabaseProductName()} {meta.getDatabaseProductVersion()}"
        return self._product

    def rows(self, query: str) -> list[list[str | None]]:
        """Returns the rows of a query, each value as text."""
        with self._translated():
            statement = self._connected().createStatement()
            with self._lock:
                self._statement = statement
            try:
                statement.setQueryTimeout(QUERY_SECONDS)
                found, rows = statement.executeQuery(query), []
                width = found.getMetaData().getColumnCount()
                while found.next():
                    rows.append([found.getString(index + 1) for index in range(width)])
                return rows
            finally:
                with self._lock:
                    self._statement = None
                with contextlib.suppress(Exception):
                    statement.close()
        raise AssertionError  # for mypy: `_translated` raises

    def query(self, query: str) -> TableInfo:
        """Returns the columns of a query's result, as a table without a key."""
        with self._translated():
            statement = self._connected().createStatement()
            meta = statement.executeQuery(query).getMetaData()
            columns = [
                ColumnInfo(meta.getColumnLabel(one), meta.getColumnTypeName(one), meta.getPrecision(one), meta.getScale(one), nullable=True)
                for one in range(1, meta.getColumnCount() + 1)
            ]
            statement.close()
            return TableInfo(("query",), tuple(columns), ())
        raise AssertionError  # as above

    def tables(self) -> list[tuple[str, ...]]:
        """Returns the names of all tables that the user may see, without system tables."""
        with self._translated():
            meta = self._connected().getMetaData()
            kinds = spark_session()._sc._gateway.new_array(spark_session()._jvm.java.lang.String, 3)  # type: ignore[union-attr]
            kinds[0], kinds[1], kinds[2] = "TABLE", "BASE TABLE", "PARTITIONED TABLE"
            found, names = meta.getTables(self._connected().getCatalog(), None, "%", kinds), []
            while found.next():
                space = found.getString("TABLE_SCHEM") or found.getString("TABLE_CAT")
                names.append((space, found.getString("TABLE_NAME")) if space else (found.getString("TABLE_NAME"),))
            found.close()
            own = {"information_schema", "pg_catalog", "sys", "mysql", "performance_schema"}
            return [name for name in names if name[0].lower() not in own]
        raise AssertionError  # as above

    def parents(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """PostgreSQL: returns (child, ancestor) for all partitions and inheriting tables, whose rows each ancestor has too."""
        return [((str(row[0]), str(row[1])), (str(row[2]), str(row[3]))) for row in self.rows(_PARENTS)]

    def table(self, name: tuple[str, ...]) -> TableInfo | None:
        """Returns a table with its columns and primary key; None if it does not exist."""
        with self._translated():
            connection = self._connected()
            meta = connection.getMetaData()
            catalog, schema = self._space(connection, meta, name)
            found, columns = meta.getColumns(catalog, _escaped(meta, schema), _escaped(meta, name[-1]), "%"), []
            while found.next():
                kind, size, digits = found.getString("TYPE_NAME"), found.getInt("COLUMN_SIZE"), found.getInt("DECIMAL_DIGITS")
                columns.append(ColumnInfo(found.getString("COLUMN_NAME"), kind, size, digits, found.getInt("NULLABLE") != 0))
            found.close()
            keys, parts = meta.getPrimaryKeys(catalog, schema, name[-1]), []
            while keys.next():
                parts.append((keys.getShort("KEY_SEQ"), keys.getString("COLUMN_NAME")))
            keys.close()
            return TableInfo(name, tuple(columns), tuple(one for _, one in sorted(parts))) if columns else None
        raise AssertionError  # as above

    @staticmethod
    def _space(connection: Any, meta: Any, name: tuple[str, ...]) -> tuple[str | None, str | None]:  # noqa: ANN401 - objects of the JVM
        """Returns catalog and schema as the driver expects them: MySQL has catalogs only."""
        space = name[0] if len(name) > 1 else None
        return (connection.getCatalog(), space) if meta.supportsSchemasInTableDefinitions() else (space or connection.getCatalog(), None)

    def close(self) -> None:
        """Cancels a running query and closes the connection."""
        with self._lock:
            self._is_closed = True
        self._drop()

    def _connected(self) -> Any:  # noqa: ANN401 - an object of the JVM
        with self._lock:
            if self._is_closed:
                raise RetriableError("the connector ends")
            connection = self._connection
        return connection or self._connect()

    def _connect(self) -> Any:  # noqa: ANN401 - as above
        session = spark_session()
        class_name = prepared(session, self._options)
        jvm: Any = session._jvm
        properties = jvm.java.util.Properties()
        for name, value in connection_properties(self._options).items():
            properties.setProperty(name, value)
        driver = jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.get(class_name)
        connection = driver.connect(self._options.url, properties)
        if connection is None:
            raise FatalError(f"the driver {class_name} does not know this URL", "correct source.url, or name source.driver")
        connection.setReadOnly(True)
        with self._lock:
            self._connection = connection
            is_closed = self._is_closed
        if is_closed:
            raise RetriableError("the connector ends")
        return connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Translates errors of the database and the JVM, and drops the connection after any error."""
        try:
            yield
        except CopycatError:
            self._drop()
            raise
        except Exception as error:  # noqa: BLE001 - whatever py4j raises
            self._drop()
            translated = translated_error(error)
        else:
            return
        raise translated

    def _drop(self) -> None:
        """Cancels a running query and closes the connection, without waiting for one that does not answer."""
        with self._lock:
            connection, statement, self._connection, self._statement = self._connection, self._statement, None, None
        if statement is not None:
            with contextlib.suppress(Exception):
                statement.cancel()
            with contextlib.suppress(Exception):
                connection.abort(spark_session()._jvm.java.util.concurrent.ForkJoinPool.commonPool())  # type: ignore[union-attr]
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()


def translated_error(error: BaseException) -> CopycatError:
    """Translates an exception of a driver or the JVM by its SQLSTATE. The message is kept only if it cannot contain data."""
    who = "the database" if hasattr(error, "java_exception") else "Spark's JVM"
    return translated_job_error(error) or RetriableError(f"{who} cannot be asked ({type(error).__name__})", "it is tried again")


def translated_job_error(error: BaseException) -> CopycatError | None:
    """As `translated_error`, for errors of the database or its columns; returns None for any other."""
    if getattr(error, "getCondition", str)() == "COLUMN_ALREADY_EXISTS":
        return TableError("several columns have the same name", "give the columns of source.query names of their own")
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)  # as py4j, or pyspark, has it
    for _ in range(8):
        if cause is None:
            return None
        if cause.getClass().getName() == "java.lang.ArithmeticException":
            return BlockedError("a time or a number lies beyond what Spark can hold", "have source.query give it as text, or leave it out")
        with contextlib.suppress(Exception):
            state = str(cause.getSQLState() or "")
            return _of_state(state, str(cause.getMessage() or ""), cause.getClass().getSimpleName())
        cause = cause.getCause()
    return None


def _of_state(state: str, message: str, kind: str) -> CopycatError:
    is_harmless = state.startswith(_WORDED) or (not state and _OF_CONNECTIONS.search(kind))
    said = re.sub(r"\s+", " ", message)[:_WORDS_MOST] if is_harmless else ""
    words = f"the database says {state or kind}" + (f": {said}" if said else "")
    hint = next((hint for begin, hint in _BLOCKED.items() if state.startswith(begin)), "")
    if state and not state.startswith(_OF_THE_SERVER):
        return TableError(words, hint or "correct the definition, or the table; it is tried again")
    return BlockedError(words, hint) if hint else RetriableError(words, "it is tried again")


def _escaped(meta: Any, name: str | None) -> str | None:  # noqa: ANN401 - an object of the JVM
    """Returns a name escaped for a parameter that is a LIKE pattern."""
    if name is None:
        return None
    sign = meta.getSearchStringEscape() or ""
    return re.sub(r"([_%])", lambda found: sign + found[1], name.replace(sign, sign * 2) if sign else name)


def matches(name: tuple[str, ...], patterns: Sequence[str]) -> bool:
    """Returns whether a table's name matches a pattern. Patterns with a dot are compared with "schema.name", others with the name alone."""
    return any(_matches(".".join(name) if "." in pattern else name[-1], pattern) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    spelt = "".join(".*" if one == "*" else "." if one == "?" else re.escape(one) for one in pattern)
    return re.fullmatch(spelt, name, re.DOTALL) is not None
