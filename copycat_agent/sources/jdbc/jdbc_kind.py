"""The registry entry of source `jdbc`, with the checks of `copycat doctor` and a sample definition."""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.extending import CopycatError, Probed, RunsAs, frame_source_kind
from copycat_agent.sources.jdbc.chosen_tables import chosen_tables, is_standby, tracked_of
from copycat_agent.sources.jdbc.database import Database, TableError, translated_job_error
from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions
from copycat_agent.sources.jdbc.jdbc_source import JdbcSource
from copycat_agent.sources.jdbc.statements import dialect_of

_SHOWN = 5
"""Tables that `doctor` names."""

_SAMPLE = """\
type: jdbc
url: jdbc:postgresql://127.0.0.1:5432/shop # the driver is fetched once
user: copycat
password: ${env:SHOP_PASSWORD}
tables: [public.orders]                   # "public.*": all tables, new ones too
mode: incrementing                        # bulk, timestamp, timestamp_and_incrementing
# columns: {incrementing: id, timestamp: updated_at} # absent: the primary key
"""


def probe_database(options: JdbcOptions, user: RunsAs) -> Iterator[Probed]:
    """Yields the database's product and version, the tables that are read, and what is missing to read them."""
    del user  # the database has users of its own
    database = Database(options)
    try:
        yield Probed("database", database.product)
        if options.query is None:
            yield from _of_tables(options, database)
        if dialect_of(options.url).is_postgresql and options.mode != "bulk" and options.query is None and is_standby(database):
            yield Probed("primary", "it is a standby", "fail", "give the URL of the primary")
    except CopycatError as error:
        yield Probed("database", error.message, "fail", error.hint)
    finally:
        database.close()


def _of_tables(options: JdbcOptions, database: Database) -> Iterator[Probed]:
    names = chosen_tables(database, options).names
    if not names:
        yield Probed(
            "tables",
            "none is there that the patterns stand for, or that this user may see",
            "fail",
            "correct source.tables, or grant SELECT",
        )
        return
    shown = ", ".join(".".join(one) for one in names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    yield Probed("tables", shown)
    for name in names:
        table = database.table(name)
        if table is None:
            continue
        try:
            tracked_of(options, table)
        except TableError as error:
            yield Probed("columns", error.message, "fail", error.hint)
        if not table.key and options.mode == "bulk":
            words = f"table {table.text} has no primary key: it is read as one, and has to fit in delivery.max_batch_bytes"
            yield Probed("columns", words, "warn", "give it one")


JDBC = frame_source_kind(JdbcOptions, JdbcSource, probe=probe_database, sample=_SAMPLE, told=translated_job_error)
