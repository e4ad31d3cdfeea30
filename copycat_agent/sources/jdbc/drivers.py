"""Finds the JDBC driver of a database, and its jar: in the cache of fetched jars, or where a definition says."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from copycat_agent.extending import BlockedError, fetch_jar


class KnownDriver(NamedTuple):
    """The default driver of a kind of database: its class, and the Maven coordinates and checksum of its jar."""

    class_name: str
    coordinates: str
    sha256: str


def kind_of(url: str) -> str:
    """Returns the kind of database of a JDBC URL: its subprotocol, such as "postgresql"."""
    return re.split(r"[:+]", url)[1]


def driver_of(url: str) -> KnownDriver | None:
    """Returns the default driver for a JDBC URL; None for an unknown kind of database, or any other URL."""
    match = re.match(r"jdbc:([a-z0-9]+)[:+]", url)
    return _KNOWN.get(match[1]) if match else None


def driver_jars(driver: str) -> tuple[Path, ...]:
    """Returns the jars of a driver. `driver` is Maven coordinates, `group:artifact:version`, or the absolute path of a jar.

    The jar of coordinates is fetched once, into the user's cache, without dependencies: drivers need none. The jar of a
    `KnownDriver` must have the checksum pinned here. Raises RetriableError without a network, BlockedError if there is no jar at the path,
    FatalError if the repository does not have the coordinates.
    """
    if driver.startswith("/"):
        return (_existing(Path(driver)),)
    return (fetch_jar(driver, _PINNED.get(driver)),)


def _existing(jar: Path) -> Path:
    hint = "put the driver's jar there, readable for the agent's user, or give Maven coordinates, group:artifact:version"
    try:
        with jar.open("rb") as file:
            is_jar = zipfile.is_zipfile(file)
    except OSError as error:
        raise BlockedError(f"the driver {jar} cannot be read: {error.strerror or error}", hint) from error
    if not is_jar:
        raise BlockedError(f"the driver {jar} is no jar", hint)
    return jar


_KNOWN: Mapping[str, KnownDriver] = {
    "postgresql": KnownDriver(
        "org.postgresql.Driver",
        "org.postgresql:postgresql:42.7.14",
        "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
    ),
    "h2": KnownDriver(
        "org.h2.Driver",
        "com.h2database:h2:2.5.252",
        "90b11dc413da82070ef15fc943282c1408e6ffd34fa68998335fea8603b5ff20",
    ),
    "mysql": KnownDriver(
        "com.mysql.cj.jdbc.Driver",
        "com.mysql:mysql-connector-j:26.10.0",
        "cef70caf532833c9ab8f41f74773ce22c08bf503fad215c9c2ee1e9db87e759e",
    ),
    "mariadb": KnownDriver(
        "org.mariadb.jdbc.Driver",
        "org.mariadb.jdbc:mariadb-java-client:4.0.0",
        "bb1211dac59ef4c54b7a8ad4755a913d36d2e81b34ca1d4cb9ffa9d5633df01f",
    ),
    "sqlserver": KnownDriver(
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        "com.microsoft.sqlserver:mssql-jdbc:13.6.2.jre11",
        "5fbc0a70fe4d1d563d431a41b23f493d68807571f0bb49db0bb1737e83e9161f",
    ),
    "oracle": KnownDriver(
        "oracle.jdbc.OracleDriver",
        "com.oracle.database.jdbc:ojdbc11:23.26.4.0.0",
        "df977e9291499cd4ceee7d577462c285987dd2ad0216637c0865eb98956a9e6e",
    ),
}
"""Drivers by the URL's subprotocol."""

_PINNED = {known.coordinates: known.sha256 for known in _KNOWN.values()}
