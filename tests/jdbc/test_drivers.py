"""A URL says which driver it wants, and a driver's jar is where the definition says, or fetched and the pinned one."""

from __future__ import annotations

import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from copycat_agent.errors import BlockedError, FatalError
from copycat_agent.maven import java
from copycat_agent.sources.jdbc.drivers import driver_jars, driver_of
from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("url", "class_name"),
    [
        ("jdbc:postgresql://db:5432/shop", "org.postgresql.Driver"),
        ("jdbc:postgresql:shop", "org.postgresql.Driver"),
        ("jdbc:h2:file:/srv/shop", "org.h2.Driver"),
        ("jdbc:mysql://db/shop", "com.mysql.cj.jdbc.Driver"),
        ("jdbc:mysql+srv://db/shop", "com.mysql.cj.jdbc.Driver"),
        ("jdbc:mariadb:sequential://a,b/shop", "org.mariadb.jdbc.Driver"),
        ("jdbc:sqlserver://db;databaseName=shop", "com.microsoft.sqlserver.jdbc.SQLServerDriver"),
        ("jdbc:oracle:thin:@//db:1521/shop", "oracle.jdbc.OracleDriver"),
    ],
)
def test_a_url_says_which_driver_it_wants(url: str, class_name: str) -> None:
    known = driver_of(url)
    assert known is not None
    assert known.class_name == class_name


@pytest.mark.parametrize("url", ["jdbc:db2://db/shop", "postgresql://db/shop", "jdbc:postgresqlx://db", "jdbc:", ""])
def test_any_other_url_wants_one_that_is_not_known(url: str) -> None:
    assert driver_of(url) is None


@pytest.mark.parametrize("url", ["jdbc:postgresql://db/shop", "jdbc:h2:mem:shop"])
def test_the_pinned_drivers_are_fetched_once_and_hold_their_class(url: str) -> None:
    known = driver_of(url)
    assert known is not None
    (jar,) = driver_jars(known.coordinates)
    assert driver_jars(known.coordinates) == (jar,)
    with zipfile.ZipFile(jar) as archive:
        assert f"{known.class_name.replace('.', '/')}.class" in archive.namelist()


def test_a_fetched_driver_runs() -> None:
    known = driver_of("jdbc:h2:mem:")
    assert known is not None
    shell = [java(), "-cp", str(driver_jars(known.coordinates)[0]), "org.h2.tools.Shell", "-url", "jdbc:h2:mem:", "-sql", "SELECT 6 * 7"]
    assert "42" in subprocess.run(shell, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_path_of_a_jar_is_taken_as_it_is(tmp_path: Path) -> None:
    jar = tmp_path / "driver.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("Driver.class", b"")
    assert driver_jars(str(jar)) == (jar,)


def test_a_path_without_a_jar_waits_for_a_person(tmp_path: Path) -> None:
    jar = tmp_path / "driver.jar"
    with pytest.raises(BlockedError, match=rf"the driver {jar} cannot be read: No such file or directory; put the driver's jar there"):
        driver_jars(str(jar))
    jar.write_text("<html>not found</html>")
    with pytest.raises(BlockedError, match=rf"the driver {jar} is no jar; put the driver's jar there"):
        driver_jars(str(jar))


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(FatalError, match=r"drivers/ojdbc11\.jar is neither Maven coordinates nor a path from the root"):
        driver_jars("drivers/ojdbc11.jar")


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://h/d?user=u&password=x", "jdbc:postgresql://u:x@h/d", "jdbc:mysql://address=(host=h)(password=x)/d",
        "jdbc:oracle:thin:scott/tiger@//h:1521/d", "jdbc:sqlserver://h;user=sa;pwd=x", "jdbc:sqlserver://h;accessToken=x",
        "jdbc:h2:mem:d;PASSWORD=x", "jdbc:mysql://h/d?password1=x", "jdbc:redshift:iam://h/d;AccessKeyID=a;SecretAccessKey=x",
    ],
)  # fmt: skip
def test_a_url_with_a_secret_in_it_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="holds a password"):
        JdbcOptions(url=url, tables=("*",), mode="bulk")


@pytest.mark.parametrize("more", ["passwordCharacterEncoding=UTF-8", "allowPublicKeyRetrieval=true", "sslkey=/etc/client.pk8"])
def test_an_option_about_secrets_is_none(more: str) -> None:
    JdbcOptions(url=f"jdbc:mysql://h/d?{more}", tables=("*",), mode="bulk")


def test_a_database_without_a_known_driver_is_refused_until_one_is_named() -> None:
    with pytest.raises(ValidationError, match="no driver is known for jdbc:db2"):
        JdbcOptions(url="jdbc:db2://h/d", tables=("*",), mode="bulk")
    JdbcOptions(url="jdbc:db2://h/d", tables=("*",), mode="bulk", driver="/opt/db2.jar", driver_class="com.ibm.db2.jcc.DB2Driver")
